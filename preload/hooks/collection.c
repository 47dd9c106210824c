/* SPDX-License-Identifier: MIT */
/*
 * collection.c: malloc_trim(), the one collection that libc knows: it gives
 * back to the system what is free. Told as trace(3) tells a major collection.
 *
 * The sizes are those of mallinfo2(), which takes malloc's own locks, as
 * malloc_trim does itself: it is called where the program is about to, and
 * only while somebody asks for collections.
 */
#include <elf.h>
#include <malloc.h>

#include "preload/core/flags.h"
#include "preload/hook.h"
#include "preload/hooks/monitor.h"
#include "preload/resolve/resolve.h"

typedef struct mallinfo2 sizes_function(void);

enum { WORD = 8 };

/* In use after the last collection; of the program. Relaxed: a figure. */
static uint64_t recent_words;

/* NULL: a C library before 2.33, whose figures are too narrow. */
static sizes_function *find_sizes(void)
{
	const struct link_map *libc = object_find("libc.so.6");
	return libc ? (sizes_function *)symbol_find_in(libc, "mallinfo2", "", 0) : 0;
}

/* From the stack's base: of the first thread where the kernel put its random bytes, of others where libc keeps the thread. */
static uint64_t stack_words(const struct thread *self)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), base;
	if (self->process->own_tid == the_program.own_pid)
		base = auxiliary_value(AT_RANDOM);
	else
		__asm__("movq %%fs:0x10, %0" : "=r"(base));
	return base > here && base - here < 1ull << 40 ? (base - here) / WORD : 0;
}

static void fill(struct lorg_event_GC_MAJOR_START *event, const struct thread *self, const struct mallinfo2 *sizes)
{
	*event = (struct lorg_event_GC_MAJOR_START){
		.heap_size = (sizes->uordblks + sizes->hblkhd) / WORD,
		.heap_block_size = (sizes->arena + sizes->hblkhd) / WORD,
		.recent_size = __atomic_load_n(&recent_words, __ATOMIC_RELAXED),
		.stack_size = stack_words(self),
	};
}

static void look_at_collection(struct thread *self, uint64_t begin, const struct lorg_event_GC_MAJOR_START *event)
{
	const struct lorg_monitor_heap heap = {
		.heap_size = event->heap_size, .heap_block_size = event->heap_block_size, .stack_size = event->stack_size};
	if (begin)
		monitor_collected(self, begin, &heap);
	else
		monitor_heap(self, &heap);
}

static int trim_and_tell(struct thread *self, sizes_function *sizes, size_t size)
{
	struct lorg_event_GC_MAJOR_START event;
	int saved_errno = *hook_errno();
	struct mallinfo2 now = sizes();
	fill(&event, self, &now);
	uint64_t before = event.heap_block_size;
	event_write(self, LORG_EVENT_GC_MAJOR_START, &event, sizeof event, 0, 0, 0);
	*hook_errno() = saved_errno;
	uint64_t begin = monitor_asks(MONITOR_LONG_GC) ? clock_now() : 0;
	int result = REAL(malloc_trim)(size);
	saved_errno = *hook_errno();
	now = sizes();
	fill(&event, self, &now);
	if (the_arena.monitors)
		look_at_collection(self, begin, &event);
	event.wordsize = before > event.heap_block_size ? before - event.heap_block_size : 0;
	__atomic_store_n(&recent_words, event.heap_size, __ATOMIC_RELAXED);
	event_write(self, LORG_EVENT_GC_MAJOR_END, &event, sizeof event, 0, 0, 0);
	*hook_errno() = saved_errno;
	return result;
}

int hook_malloc_trim(size_t size)
{
	struct thread *self = hook_gate(HOOK_malloc_trim) ? thread_self() : 0;
	int wanted = self && !self->busy && (!self->flags_matter || (process_flags(self) & LORG_TRACE_GARBAGE_COLLECTION) || the_arena.monitors);
	sizes_function *sizes = wanted ? find_sizes() : 0;
	return sizes ? trim_and_tell(self, sizes, size) : REAL(malloc_trim)(size);
}
