/* SPDX-License-Identifier: MIT */
/* entry_offsets.h: where entry.S finds things; record.c asserts each. Included by assembly. */
#ifndef LORG_PRELOAD_ENTRY_OFFSETS_H
#define LORG_PRELOAD_ENTRY_OFFSETS_H

#define TARGET_BODY 0
#define TARGET_CONTROL 8
#define TARGET_FUNCTION 16
#define TARGET_FLAGS 20
#define TARGET_SETTINGS 40
#define PLAN_NO_CALLER 64

#define SETTINGS_SETTING 16
#define SETTINGS_COUNT 24
#define CONTROL_SETTING 4
#define SETTING_SIZE 96
#define LOOKED_AT 256
#define SETTING_PROGRAM 12
#define SETTING_NEXT 16
#define SETTING_DEPTH 20
#define SETTING_LEAST_TICKS 24
#define SETTING_LIMIT_EVENTS 32
#define SETTING_LIMIT_RATE 40
#define SETTING_CALLER_LOW 72
#define SETTING_CALLER_HIGH 80
#define CALLER_FREE -2

#define THREAD_PACKET 0
#define THREAD_NOT_PLAIN 16
#define THREAD_CALL_REGION 24
#define THREAD_CALL_COUNTERS 32
#define THREAD_CALL 40
#define CALL_DEPTH 48
#define CALL_THROWN_COUNT 52
#define THREAD_GUARDED 80

#define PACKET_LAST 120
#define PACKET_POSITION 128
#define PACKET_COMMITTED 140
#define PACKET_HEAD 144
#define CHUNK_SIZE 65536

#define COUNTER_SIZE_SHIFT 5
#define COUNTER_SIZE 32
#define COUNTER_FUNCTION 0
#define COUNTER_COUNT 8
/* Directory of 64 chunks by the hash's top bits; a chunk is 1024 buckets of two counters, by the bits below. */
#define COUNTER_HASH 0x9e3779b1
#define COUNTER_DIRECTORY_BITS 6
#define COUNTER_BUCKET_SHIFT 16
#define COUNTER_BUCKETS 1024

#define REGION_SHIFT 21
#define RETURN_BIT 44
#define OWNER_BIT 43

#define EVENT_CALL_ENTRY 6
#define EVENT_RETURN 7
#define GATE_ENTRY 1
#define GATE_ENTRY_AND_RETURN 3
#define GATE_COUNT 8
#define GATE_COUNTS 56
#define GATE_FILTER 64
#define GATE_VALUES_OR_RETURN_TO 132
#define TICK_MASK 0x7ffffff

#endif
