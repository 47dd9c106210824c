/* SPDX-License-Identifier: MIT */
/*
 * checksum.h: what tells a damaged packet of a stream file from a whole one.
 *
 * The writer of a stream file puts packet_checksum() into `last` of each
 * packet's head; a reader skips, and says so, what does not match. `last` 0:
 * the packet has none and is believed as far as its lengths allow.
 */
#ifndef LORG_EVENT_CHECKSUM_H
#define LORG_EVENT_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

#include <lorg/abi.h>

/* CRC-32C of `length` bytes, continued from `crc` (0 to begin). */
uint32_t crc32c(uint32_t crc, const void *data, size_t length);

/* Checksum of a packet of `length` bytes, its head included, with `last` read as 0. Never 0. `packet` may be unaligned. */
uint64_t packet_checksum(const void *packet, size_t length);

#endif
