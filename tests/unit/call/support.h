/* SPDX-License-Identifier: MIT */
/*
 * support.h: an arena without a collector, and functions hooked by hand, for
 * the tests of preload/call. liblorg_test.so is liblorg.so with these.
 */
#ifndef LORG_TESTS_CALL_SUPPORT_H
#define LORG_TESTS_CALL_SUPPORT_H

#include <lorg/plan.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Attaches this program to an arena of its own. Once. chunks: of 64 KiB. */
void support_attach(unsigned chunks);

/*
 * A hook of `function`: what is returned is to be called in its place. gate: enum lorg_call_gate; flags: enum
 * lorg_plan_flag. plan and entry describe its values, or are NULL. Its id is LORG_FIRST_HOOKED_FUNCTION + number.
 */
void *support_hook(unsigned number, void *function, uint32_t gate, uint32_t flags, const struct lorg_plan *plan,
		   const struct lorg_plan_function *entry);
int support_is_thunk(const void *address);
void support_gate(unsigned number, uint32_t gate);
uint32_t support_gate_now(unsigned number);
/* The function's one setting; its gate needs LORG_CALL_FILTER. */
void support_setting(unsigned number, const struct lorg_call_setting *setting);
/* Several; their `next` is seen to. */
void support_settings(unsigned number, const struct lorg_call_setting *settings, unsigned count);
/* A match program, for `program` of a setting; 0: no room. */
uint32_t support_program(const void *program, uint32_t size);
/* Process flags (LORG_TRACE_*) of the calling thread in a session; slot 0 is what it is told. */
void support_flags(unsigned slot, uint32_t flags);
uint32_t support_flags_now(unsigned slot);
/* A session's control word (set_tcw); set 1: it becomes `word` first. */
uint32_t support_control_word(unsigned slot, int set, uint32_t word);

/* Copies what all threads have written so far: whole chunks' contents one after the other. Returns the bytes. */
size_t support_packets(const uint8_t **packets, size_t *sizes, size_t room);
/* Empties the calling thread's chunk. Other threads must not write. */
void support_forget_events(void);
/* Sums of the counters of a function over all threads. */
void support_counters(unsigned number, uint64_t *count, uint64_t *ticks, uint64_t *words);
/* Words that the thread has allocated, as the allocator's hooks would count them. */
void support_allocate_words(uint64_t words);
/* As where the program overwrites the calling thread's entry. */
void support_lose_entry(void);
/* As after seccomp. */
void support_forbid_system_calls(int forbid);

#ifdef __cplusplus
}
#endif
#endif
