/* SPDX-License-Identifier: MIT */
/*
 * allocator.c: malloc and its family, C++'s new and delete.
 *
 * These run before every constructor, inside IFUNC resolvers and in signal
 * handlers; a wrapper whose gate is off is one load, one branch and a jump to
 * the next definition in search order, whatever allocator that is.
 *
 * Counted (LORG_GATE_COUNT, in the process entry, by its own thread): words
 * asked for, blocks made and given back, failures. operator new gets its
 * memory from malloc and is not counted twice: the counts are malloc's, and
 * new's own only when no malloc of ours was passed on the way.
 *
 * Told (LORG_GATE_ALLOCATION): one event for each, and the heap's growth; what
 * new obtains from malloc is told once, as new's. A free is told before the block goes, so that
 * it precedes the next use of its address.
 */
#include <malloc.h>
#include <stddef.h>

#include <lorg/match.h>

#include "preload/hooks/monitor.h"
#include "preload/hook.h"
#include "preload/resolve/resolve.h"

enum { ALLOCATOR_GATES = LORG_GATE_COUNT | LORG_GATE_ALLOCATION, PAGE = 4096, WORD = 8, HEAP_STEP_WORDS = 65536 / WORD };

#define CALLER ((uintptr_t)__builtin_return_address(0))

/* What is hot jumps on from its first lines, and does the rest in a function of its own: no register is saved for nothing.
 */
#define SLOW __attribute__((noinline))

static inline int is_off(uint32_t hook)
{
	return (hook_gate(hook) & ALLOCATOR_GATES) == 0;
}

/* One allocation on its way. */
struct request {
	struct thread *self;
	size_t size, alignment;
	uintptr_t old, caller;
	uint32_t hook;
	uint8_t gate;
};

static inline uint64_t words(size_t bytes)
{
	return bytes / WORD + (bytes % WORD != 0);
}

/* A product, or what no allocator has. */
static inline size_t product(size_t count, size_t size)
{
	size_t bytes;
	return __builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes;
}

/* A function of the allocator that malloc belongs to, or NULL: another one's would read foreign memory. */
static void *of_allocator(const char *name)
{
	void *real = (void *)REAL(malloc);
	for (const struct link_map *object = link_map_first(); object; object = object->l_next)
		if (symbol_find_in(object, "malloc", "", 0) == real)
			return symbol_find_in(object, name, "", 0);
	return 0;
}

/* ---- the heap's growth ---- */

typedef struct mallinfo2 heap_state_function(void);

static struct mallinfo2 heap_state_unknown(void)
{
	return (struct mallinfo2){0};
}

static struct mallinfo2 heap_state(void)
{
	/* Relaxed: as in usable_size. */
	static heap_state_function *cached;
	heap_state_function *function = __atomic_load_n(&cached, __ATOMIC_RELAXED);
	if (!function) {
		function = (heap_state_function *)of_allocator("mallinfo2");
		if (!function)
			function = heap_state_unknown;
		__atomic_store_n(&cached, function, __ATOMIC_RELAXED);
	}
	return function();
}

/* Tells when the allocator has mapped more than ever. */
static __attribute__((noinline)) void look_at_heap(struct thread *self)
{
	static uint64_t told; /* bytes; atomic, only rises */
	struct mallinfo2 state = heap_state();
	uint64_t mapped = state.arena + state.hblkhd, seen = __atomic_load_n(&told, __ATOMIC_RELAXED);
	while (mapped > seen && !__atomic_compare_exchange_n(&told, &seen, mapped, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	if (mapped <= seen)
		return;
	if (hook_gate(HOOK_malloc) & LORG_GATE_ALLOCATION)
		EVENT_WRITE(self, HEAP_GROWN, .words = words(state.uordblks + state.hblkhd), .mapped_words = words(mapped));
	const struct lorg_monitor_heap heap = {.heap_size = words(state.uordblks + state.hblkhd), .heap_block_size = words(mapped)};
	monitor_heap(self, &heap);
}

/* The heap is looked at after each 64 KiB that a thread has asked for. */
static inline void tell_growth(struct thread *self)
{
	uint32_t step = (uint32_t)(self->process->words_allocated / HEAP_STEP_WORDS);
	if (__builtin_expect(step == self->heap_looked_at, 1))
		return;
	self->heap_looked_at = step;
	look_at_heap(self);
}

/* ---- what is kept ---- */

/* The allocator had no memory: gc_max_heap_size of doc/SEMANTICS.md, section 5. errno is the program's. */
static SLOW void tell_no_memory(void)
{
	struct thread *self = &this_thread;
	int saved_errno = *hook_errno();
	if (!(the_arena.gate_mask & LORG_MASK_COLLECTION) || !thread_is_ready(self) || self->busy ||
	    (self->flags_matter && !(process_flags(self) & LORG_TRACE_GARBAGE_COLLECTION)))
		return;
	struct mallinfo2 state = heap_state();
	EVENT_WRITE(self, GC_MAX_HEAP_SIZE, .heap_size = words(state.uordblks + state.hblkhd),
		    .heap_block_size = words(state.arena + state.hblkhd));
	*hook_errno() = saved_errno;
}

/* Plain additions: the entry has one writer, and a handler in between adds on its own. */
static inline void count_block(struct lorg_process *process, const void *result, size_t size)
{
	if (__builtin_expect(result != 0, 1)) {
		process->words_allocated += words(size);
		process->allocations++;
	} else if (size) {
		process->allocation_failures++;
		tell_no_memory();
	}
}

static inline __attribute__((always_inline)) void tell_block_here(struct request *request, const void *result)
{
	struct thread *self = request->self;
	if (!result && !request->size)
		return;
	if (self->allocating) { /* for operator new */
		request->hook = self->allocating - 1;
		request->caller = self->allocation_caller;
		self->allocating = 0;
	}
	if (__builtin_expect(request->size <= UINT32_MAX && !request->old && !request->alignment, 1))
		EVENT_WRITE_COMPACT(self, BLOCK_TAKEN, .size = (uint32_t)request->size, .result = (uintptr_t)result,
				    .caller_hook = (request->caller & 0xffffffffffff) | (uint64_t)request->hook << 48);
	else
		EVENT_WRITE(self, ALLOCATE, .result = (uintptr_t)result, .size = request->size, .old = request->old,
			    .caller = request->caller, .hook = request->hook, .alignment = (uint32_t)request->alignment);
	tell_growth(self);
}

static __attribute__((noinline)) void tell_block(struct request *request, const void *result)
{
	tell_block_here(request, result);
}

static inline __attribute__((always_inline)) void tell_free_here(struct thread *self, const void *block, uint32_t hook)
{
	if (!self->freeing)
		EVENT_WRITE_COMPACT(self, BLOCK_GIVEN_BACK, .pointer = (uintptr_t)block, .hook = hook);
}

static __attribute__((noinline)) void tell_free(struct thread *self, const void *block, uint32_t hook)
{
	tell_free_here(self, block, hook);
}

/* Returns 0: forward only. */
static inline int request_begin(struct request *request, uint32_t hook, size_t size, size_t alignment, uintptr_t caller)
{
	uint8_t gate = hook_gate(hook) & ALLOCATOR_GATES;
	if (__builtin_expect(gate == 0, 1))
		return 0;
	struct thread *self = thread_self();
	if (__builtin_expect(!self || self->busy, 0))
		return 0;
	/* A program may do nothing else for long. */
	arena_look();
	request->self = self;
	request->gate = gate;
	request->hook = hook;
	request->size = size;
	request->alignment = alignment;
	request->old = 0;
	request->caller = caller;
	return 1;
}

static inline void *request_end(struct request *request, void *result)
{
	if (request->gate & LORG_GATE_COUNT)
		count_block(request->self->process, result, request->size);
	if (__builtin_expect(request->gate & LORG_GATE_ALLOCATION, 0))
		tell_block(request, result);
	else if (monitor_asks(MONITOR_LARGE_HEAP))
		tell_growth(request->self);
	return result;
}

/* ---- plain allocation ---- */

/* The thread, where counting is all that is to be done; else NULL. */
static inline struct thread *only_counts(uint32_t hook)
{
	struct thread *self = &this_thread;
	if ((hook_gate(hook) & ALLOCATOR_GATES) != LORG_GATE_COUNT || !thread_is_ready(self) || self->busy)
		return 0;
	arena_look();
	return monitor_asks(MONITOR_LARGE_HEAP) ? 0 : self;
}

static SLOW void *malloc_told(size_t size, uintptr_t caller)
{
	struct request request;
	if (!request_begin(&request, HOOK_malloc, size, 0, caller))
		return REAL(malloc)(size);
	void *result = REAL(malloc)(size);
	if (request.gate & LORG_GATE_COUNT)
		count_block(request.self->process, result, size);
	if (request.gate & LORG_GATE_ALLOCATION)
		tell_block_here(&request, result);
	else if (monitor_asks(MONITOR_LARGE_HEAP))
		tell_growth(request.self);
	return result;
}

static SLOW void *malloc_slow(size_t size, uintptr_t caller)
{
	struct thread *self = only_counts(HOOK_malloc);
	if (!self)
		return malloc_told(size, caller);
	void *result = REAL(malloc)(size);
	count_block(self->process, result, size);
	return result;
}

void *hook_malloc(size_t size)
{
	hook_type_malloc real = HOOK_READY(malloc);
	if (__builtin_expect(real && is_off(HOOK_malloc), 1))
		return real(size);
	return malloc_slow(size, CALLER);
}

static SLOW void *calloc_slow(size_t count, size_t size, uintptr_t caller)
{
	struct request request;
	if (!request_begin(&request, HOOK_calloc, product(count, size), 0, caller))
		return REAL(calloc)(count, size);
	return request_end(&request, REAL(calloc)(count, size));
}

void *hook_calloc(size_t count, size_t size)
{
	hook_type_calloc real = HOOK_READY(calloc);
	if (__builtin_expect(real && is_off(HOOK_calloc), 1))
		return real(count, size);
	return calloc_slow(count, size, CALLER);
}

void *hook_aligned_alloc(size_t alignment, size_t size)
{
	struct request request;
	if (!request_begin(&request, HOOK_aligned_alloc, size, alignment, CALLER))
		return REAL(aligned_alloc)(alignment, size);
	return request_end(&request, REAL(aligned_alloc)(alignment, size));
}

void *hook_memalign(size_t alignment, size_t size)
{
	struct request request;
	if (!request_begin(&request, HOOK_memalign, size, alignment, CALLER))
		return REAL(memalign)(alignment, size);
	return request_end(&request, REAL(memalign)(alignment, size));
}

void *hook_valloc(size_t size)
{
	struct request request;
	if (!request_begin(&request, HOOK_valloc, size, PAGE, CALLER))
		return REAL(valloc)(size);
	return request_end(&request, REAL(valloc)(size));
}

void *hook_pvalloc(size_t size)
{
	struct request request;
	if (!request_begin(&request, HOOK_pvalloc, size, PAGE, CALLER))
		return REAL(pvalloc)(size);
	return request_end(&request, REAL(pvalloc)(size));
}

int hook_posix_memalign(void **object, size_t alignment, size_t size)
{
	struct request request;
	if (!request_begin(&request, HOOK_posix_memalign, size, alignment, CALLER))
		return REAL(posix_memalign)(object, alignment, size);
	int error = REAL(posix_memalign)(object, alignment, size);
	request_end(&request, error ? 0 : *object);
	return error;
}

/* ---- growth ---- */

typedef size_t usable_size_function(void *);

static size_t usable_size_unknown(void *block)
{
	(void)block;
	return 0;
}

static size_t usable_size(void *block)
{
	/* Relaxed: every thread that finds it missing stores the same value. */
	static usable_size_function *cached;
	usable_size_function *function = __atomic_load_n(&cached, __ATOMIC_RELAXED);
	if (!function) {
		function = (usable_size_function *)of_allocator("malloc_usable_size");
		if (!function)
			function = usable_size_unknown;
		__atomic_store_n(&cached, function, __ATOMIC_RELAXED);
	}
	return block ? function(block) : 0;
}

/* A block that was enlarged counts by what it gained; one of unknown size only when it is new. */
static void count_growth(struct lorg_process *process, const void *old, size_t old_usable, void *result, size_t size)
{
	if (!old) {
		count_block(process, result, size);
		return;
	}
	if (!result) {
		if (size)
			process->allocation_failures++;
		else
			process->frees++;
		return;
	}
	size_t usable = usable_size(result);
	if (usable > old_usable)
		process->words_allocated += words(usable - old_usable);
}

/* The two that change a block; `real` has been called with them between begin and end. */
static void end_growth(struct request *request, void *old, size_t old_usable, void *result)
{
	if (request->gate & LORG_GATE_COUNT)
		count_growth(request->self->process, old, old_usable, result, request->size);
	request->old = (uintptr_t)old;
	if (request->gate & LORG_GATE_ALLOCATION)
		tell_block(request, result);
}

static SLOW void *realloc_slow(void *object, size_t size, uintptr_t caller)
{
	struct request request;
	if (!request_begin(&request, HOOK_realloc, size, 0, caller))
		return REAL(realloc)(object, size);
	size_t old_usable = usable_size(object);
	void *result = REAL(realloc)(object, size);
	end_growth(&request, object, old_usable, result);
	return result;
}

void *hook_realloc(void *object, size_t size)
{
	hook_type_realloc real = HOOK_READY(realloc);
	if (__builtin_expect(real && is_off(HOOK_realloc), 1))
		return real(object, size);
	return realloc_slow(object, size, CALLER);
}

void *hook_reallocarray(void *object, size_t count, size_t size)
{
	struct request request;
	if (!request_begin(&request, HOOK_reallocarray, product(count, size), 0, CALLER))
		return REAL(reallocarray)(object, count, size);
	uint64_t before = request.self->process->words_allocated;
	size_t old_usable = usable_size(object);
	void *result = REAL(reallocarray)(object, count, size);
	/* libc's own calls realloc, perhaps through a name that is ours. */
	if (request.self->process->words_allocated == before)
		end_growth(&request, object, old_usable, result);
	return result;
}

/* ---- giving back ---- */

/* Returns the thread when the free is to be counted or told, after telling it; else NULL. */
static inline struct thread *free_begin(uint32_t hook, const void *block)
{
	uint8_t gate = hook_gate(hook) & ALLOCATOR_GATES;
	if (__builtin_expect(gate == 0, 1) || !block)
		return 0;
	struct thread *self = thread_self();
	if (__builtin_expect(!self || self->busy, 0))
		return 0;
	if (__builtin_expect(gate & LORG_GATE_ALLOCATION, 0))
		tell_free(self, block, hook);
	return gate & LORG_GATE_COUNT ? self : 0;
}

static SLOW void free_told(void *object)
{
	struct thread *self = object ? thread_self() : 0;
	if (self && !self->busy) {
		tell_free_here(self, object, HOOK_free);
		if (hook_gate(HOOK_free) & LORG_GATE_COUNT)
			self->process->frees++;
	}
	REAL(free)(object);
}

static SLOW void free_slow(void *object)
{
	if (hook_gate(HOOK_free) & LORG_GATE_ALLOCATION) {
		free_told(object);
		return;
	}
	struct thread *self = free_begin(HOOK_free, object);
	if (self)
		self->process->frees++;
	REAL(free)(object);
}

void hook_free(void *object)
{
	hook_type_free real = HOOK_READY(free);
	if (__builtin_expect(real && is_off(HOOK_free), 1))
		real(object);
	else
		free_slow(object);
}

void hook_cfree(void *object)
{
	struct thread *self = free_begin(HOOK_cfree, object);
	if (self)
		self->process->frees++;
	REAL(cfree)(object);
}

/* ---- operator new ---- */

struct new_frame {
	struct request request;
	uint64_t counted; /* what malloc has counted so far */
	int outermost;
};

static inline uint64_t counted_so_far(const struct thread *self)
{
	return self->process->allocations + self->process->allocation_failures;
}

static inline int new_begin(struct new_frame *frame, uint32_t hook, size_t size, size_t alignment, uintptr_t caller)
{
	if (!request_begin(&frame->request, hook, size, alignment, caller))
		return 0;
	struct thread *self = frame->request.self;
	frame->counted = counted_so_far(self);
	frame->outermost = (frame->request.gate & LORG_GATE_ALLOCATION) && !self->allocating;
	if (frame->outermost) {
		self->allocation_caller = caller;
		self->allocating = hook + 1;
	}
	return 1;
}

/* Counts and tells what no malloc of ours has: an operator new with memory of its own. */
static inline void *new_end(struct new_frame *frame, void *result)
{
	struct request *request = &frame->request;
	struct thread *self = request->self;
	if ((request->gate & LORG_GATE_COUNT) && counted_so_far(self) == frame->counted)
		count_block(self->process, result, request->size);
	if (frame->outermost && self->allocating)
		tell_block(request, result);
	return result;
}

static SLOW void *new_slow(size_t size, uintptr_t caller)
{
	struct new_frame frame;
	if (!new_begin(&frame, HOOK__Znwm, size, 0, caller))
		return REAL(_Znwm)(size);
	return new_end(&frame, REAL(_Znwm)(size));
}

void *hook__Znwm(size_t size)
{
	hook_type__Znwm real = HOOK_READY(_Znwm);
	if (__builtin_expect(real && is_off(HOOK__Znwm), 1))
		return real(size);
	return new_slow(size, CALLER);
}

static SLOW void *new_array_slow(size_t size, uintptr_t caller)
{
	struct new_frame frame;
	if (!new_begin(&frame, HOOK__Znam, size, 0, caller))
		return REAL(_Znam)(size);
	return new_end(&frame, REAL(_Znam)(size));
}

void *hook__Znam(size_t size)
{
	hook_type__Znam real = HOOK_READY(_Znam);
	if (__builtin_expect(real && is_off(HOOK__Znam), 1))
		return real(size);
	return new_array_slow(size, CALLER);
}

void *hook__ZnwmRKSt9nothrow_t(size_t size, const void *nothrow)
{
	struct new_frame frame;
	if (!new_begin(&frame, HOOK__ZnwmRKSt9nothrow_t, size, 0, CALLER))
		return REAL(_ZnwmRKSt9nothrow_t)(size, nothrow);
	return new_end(&frame, REAL(_ZnwmRKSt9nothrow_t)(size, nothrow));
}

void *hook__ZnamRKSt9nothrow_t(size_t size, const void *nothrow)
{
	struct new_frame frame;
	if (!new_begin(&frame, HOOK__ZnamRKSt9nothrow_t, size, 0, CALLER))
		return REAL(_ZnamRKSt9nothrow_t)(size, nothrow);
	return new_end(&frame, REAL(_ZnamRKSt9nothrow_t)(size, nothrow));
}

void *hook__ZnwmSt11align_val_t(size_t size, size_t alignment)
{
	struct new_frame frame;
	if (!new_begin(&frame, HOOK__ZnwmSt11align_val_t, size, alignment, CALLER))
		return REAL(_ZnwmSt11align_val_t)(size, alignment);
	return new_end(&frame, REAL(_ZnwmSt11align_val_t)(size, alignment));
}

void *hook__ZnamSt11align_val_t(size_t size, size_t alignment)
{
	struct new_frame frame;
	if (!new_begin(&frame, HOOK__ZnamSt11align_val_t, size, alignment, CALLER))
		return REAL(_ZnamSt11align_val_t)(size, alignment);
	return new_end(&frame, REAL(_ZnamSt11align_val_t)(size, alignment));
}

void *hook__ZnwmSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *nothrow)
{
	struct new_frame frame;
	if (!new_begin(&frame, HOOK__ZnwmSt11align_val_tRKSt9nothrow_t, size, alignment, CALLER))
		return REAL(_ZnwmSt11align_val_tRKSt9nothrow_t)(size, alignment, nothrow);
	return new_end(&frame, REAL(_ZnwmSt11align_val_tRKSt9nothrow_t)(size, alignment, nothrow));
}

void *hook__ZnamSt11align_val_tRKSt9nothrow_t(size_t size, size_t alignment, const void *nothrow)
{
	struct new_frame frame;
	if (!new_begin(&frame, HOOK__ZnamSt11align_val_tRKSt9nothrow_t, size, alignment, CALLER))
		return REAL(_ZnamSt11align_val_tRKSt9nothrow_t)(size, alignment, nothrow);
	return new_end(&frame, REAL(_ZnamSt11align_val_tRKSt9nothrow_t)(size, alignment, nothrow));
}

/* ---- operator delete ---- */

struct delete_frame {
	struct thread *self; /* NULL: neither counted nor told */
	uint64_t counted;    /* frees so far */
	int outermost, counts;
};

static inline void delete_begin(struct delete_frame *frame, uint32_t hook, const void *block)
{
	uint8_t gate = hook_gate(hook) & ALLOCATOR_GATES;
	frame->self = __builtin_expect(gate == 0, 1) || !block ? 0 : thread_self();
	if (__builtin_expect(!frame->self, 1) || frame->self->busy) {
		frame->self = 0;
		return;
	}
	frame->counts = (gate & LORG_GATE_COUNT) != 0;
	frame->counted = frame->self->process->frees;
	frame->outermost = (gate & LORG_GATE_ALLOCATION) && !frame->self->freeing;
	if (!frame->outermost)
		return;
	tell_free(frame->self, block, hook);
	frame->self->freeing = 1;
}

static inline void delete_end(struct delete_frame *frame)
{
	struct thread *self = frame->self;
	if (__builtin_expect(!self, 1))
		return;
	if (frame->counts && self->process->frees == frame->counted)
		self->process->frees++;
	if (frame->outermost)
		self->freeing = 0;
}

static SLOW void delete_slow(void *object)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdlPv, object);
	REAL(_ZdlPv)(object);
	delete_end(&frame);
}

void hook__ZdlPv(void *object)
{
	hook_type__ZdlPv real = HOOK_READY(_ZdlPv);
	if (__builtin_expect(real && is_off(HOOK__ZdlPv), 1))
		real(object);
	else
		delete_slow(object);
}

void hook__ZdaPv(void *object)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdaPv, object);
	REAL(_ZdaPv)(object);
	delete_end(&frame);
}

static SLOW void delete_sized_slow(void *object, size_t size)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdlPvm, object);
	REAL(_ZdlPvm)(object, size);
	delete_end(&frame);
}

void hook__ZdlPvm(void *object, size_t size)
{
	hook_type__ZdlPvm real = HOOK_READY(_ZdlPvm);
	if (__builtin_expect(real && is_off(HOOK__ZdlPvm), 1))
		real(object, size);
	else
		delete_sized_slow(object, size);
}

void hook__ZdaPvm(void *object, size_t size)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdaPvm, object);
	REAL(_ZdaPvm)(object, size);
	delete_end(&frame);
}

void hook__ZdlPvRKSt9nothrow_t(void *object, const void *nothrow)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdlPvRKSt9nothrow_t, object);
	REAL(_ZdlPvRKSt9nothrow_t)(object, nothrow);
	delete_end(&frame);
}

void hook__ZdaPvRKSt9nothrow_t(void *object, const void *nothrow)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdaPvRKSt9nothrow_t, object);
	REAL(_ZdaPvRKSt9nothrow_t)(object, nothrow);
	delete_end(&frame);
}

void hook__ZdlPvSt11align_val_t(void *object, size_t alignment)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdlPvSt11align_val_t, object);
	REAL(_ZdlPvSt11align_val_t)(object, alignment);
	delete_end(&frame);
}

void hook__ZdaPvSt11align_val_t(void *object, size_t alignment)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdaPvSt11align_val_t, object);
	REAL(_ZdaPvSt11align_val_t)(object, alignment);
	delete_end(&frame);
}

void hook__ZdlPvmSt11align_val_t(void *object, size_t size, size_t alignment)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdlPvmSt11align_val_t, object);
	REAL(_ZdlPvmSt11align_val_t)(object, size, alignment);
	delete_end(&frame);
}

void hook__ZdaPvmSt11align_val_t(void *object, size_t size, size_t alignment)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdaPvmSt11align_val_t, object);
	REAL(_ZdaPvmSt11align_val_t)(object, size, alignment);
	delete_end(&frame);
}

void hook__ZdlPvSt11align_val_tRKSt9nothrow_t(void *object, size_t alignment, const void *nothrow)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdlPvSt11align_val_tRKSt9nothrow_t, object);
	REAL(_ZdlPvSt11align_val_tRKSt9nothrow_t)(object, alignment, nothrow);
	delete_end(&frame);
}

void hook__ZdaPvSt11align_val_tRKSt9nothrow_t(void *object, size_t alignment, const void *nothrow)
{
	struct delete_frame frame;
	delete_begin(&frame, HOOK__ZdaPvSt11align_val_tRKSt9nothrow_t, object);
	REAL(_ZdaPvSt11align_val_tRKSt9nothrow_t)(object, alignment, nothrow);
	delete_end(&frame);
}
