/* SPDX-License-Identifier: MIT */
/* readable.c: see readable.h. */
#include "preload/core/readable.h"

#include <sys/uio.h>

#include "preload/core/event.h"
#include "preload/core/raw.h"

__thread struct readable_page readable_pages[READABLE_PAGES] __attribute__((tls_model("initial-exec")));
uint64_t readable_generation;

/* Memory that may go without a call of the program's: all of it lies in here. Atomic; only ever grows. */
static uintptr_t unsure_low = UINTPTR_MAX, unsure_high;

/* By the kernel, which does not fault. Returns how many bytes, or its -errno. */
static long copy_by_kernel(void *to, const void *from, uint32_t length)
{
	struct iovec local = {to, length}, remote = {(void *)(uintptr_t)from, length};
	return raw_syscall6(SYS_process_vm_readv, raw_getpid(), (long)&local, 1, (long)&remote, 1, 0);
}

static void remember(uintptr_t address, uint64_t generation)
{
	uint64_t page = address >> READABLE_SHIFT;
	struct readable_page *known = &readable_pages[page % READABLE_PAGES];
	if (address >= __atomic_load_n(&unsure_low, __ATOMIC_RELAXED) && address < __atomic_load_n(&unsure_high, __ATOMIC_RELAXED))
		return;
	/* A handler in between leaves at worst a page without its generation. */
	__atomic_store_n(&known->generation, 0, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&known->page, page, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&known->generation, generation + 1, __ATOMIC_RELAXED);
}

uint32_t memory_take_unknown(void *to, const void *from, uint32_t length)
{
	/* Before the copy: who changes a mapping meanwhile makes what is remembered void. */
	uint64_t generation = __atomic_load_n(&readable_generation, __ATOMIC_ACQUIRE);
	if (!length || !from || !system_calls_allowed())
		return 0;
	long got = copy_by_kernel(to, from, length);
	uint32_t in_page = 4096 - ((uint32_t)(uintptr_t)from & 4095);
	if (got == -14 && in_page < length) /* up to the end of the page that is there */
		got = copy_by_kernel(to, from, in_page);
	if (raw_failed(got) || !got)
		return 0;
	remember((uintptr_t)from, generation);
	remember((uintptr_t)from + (uint32_t)got - 1, generation);
	return (uint32_t)got;
}

int memory_is_readable(const void *from, uint64_t length)
{
	uintptr_t address = (uintptr_t)from, end = address + length;
	char byte;
	if (!length || !system_calls_allowed() || memory_is_known(from, length))
		return 1;
	while (address < end) {
		if (!readable_page_is_known(address >> READABLE_SHIFT) && !memory_take_unknown(&byte, (const void *)address, 1))
			return 0;
		address = ((address >> READABLE_SHIFT) + 1) << READABLE_SHIFT;
	}
	return 1;
}

void readable_changes(void)
{
	/* A full barrier, both before the change and behind it. */
	__atomic_fetch_add(&readable_generation, 1, __ATOMIC_SEQ_CST);
}

void readable_unsure(const void *address, size_t length)
{
	uintptr_t low = (uintptr_t)address, high = low + length, seen = __atomic_load_n(&unsure_low, __ATOMIC_RELAXED);
	while (low < seen && !__atomic_compare_exchange_n(&unsure_low, &seen, low, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	seen = __atomic_load_n(&unsure_high, __ATOMIC_RELAXED);
	while (high > seen && !__atomic_compare_exchange_n(&unsure_high, &seen, high, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	readable_changes();
}
