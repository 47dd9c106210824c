/* SPDX-License-Identifier: MIT */
/*
 * entry.c: the bytes at the functions' entries.
 *
 * They are written through /proc/self/mem: text stays as it is mapped, neither
 * writable nor for a moment gone, and nothing can fail half way. Where there is
 * no such file, a changed copy of the pages is moved over them in one step.
 */
#include <fcntl.h>
#include <sys/mman.h>

#include "preload/core/raw.h"
#include "preload/patch/patch.h"

enum { PAGE = 4096, RUN_MAXIMUM = 64 * PAGE };

/* Pages of text that are changed together. */
struct run {
	int memory; /* /proc/self/mem; negative: there is none */
	uint8_t *copy; /* RUN_MAXIMUM bytes */
	uint64_t start, end; /* addresses; end 0: empty */
	uint32_t failed_functions, functions; /* in this run; in all that could not be written */
};

static uint64_t page_of(uint64_t address)
{
	return address & ~(uint64_t)(PAGE - 1);
}

static int write_through_file(int memory, uint64_t to, const void *from, uint64_t length)
{
	return memory >= 0 && raw_syscall6(SYS_pwrite64, memory, (long)from, (long)length, (long)to, 0, 0) == (long)length;
}

static int move_copy_over(const struct run *run)
{
	uint64_t size = run->end - run->start;
	long copy = raw_mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw_failed(copy))
		return 0;
	memcpy((void *)copy, run->copy, size);
	if (!raw_failed(raw_mprotect((void *)copy, size, PROT_READ | PROT_EXEC)) &&
	    !raw_failed(raw_syscall6(SYS_mremap, copy, (long)size, (long)size, MREMAP_MAYMOVE | MREMAP_FIXED, (long)run->start, 0)))
		return 1;
	raw_munmap((void *)copy, size);
	return 0;
}

static void run_flush(struct run *run)
{
	if (run->end && !write_through_file(run->memory, run->start, run->copy, run->end - run->start) && !move_copy_over(run))
		run->failed_functions += run->functions;
	run->end = 0;
	run->functions = 0;
}

/* Makes sure that [from, to) lies in the run's copy. */
static void run_take_in(struct run *run, uint64_t from, uint64_t to)
{
	uint64_t first = page_of(from), last = page_of(to - 1) + PAGE;
	if (run->end && (first > run->end || last - run->start > RUN_MAXIMUM))
		run_flush(run);
	if (!run->end) {
		run->start = run->end = first;
	}
	if (last > run->end) {
		memcpy(run->copy + (run->end - run->start), (const void *)run->end, last - run->end);
		run->end = last;
	}
}

static int open_memory(void)
{
	long memory = raw_openat("/proc/self/mem", O_RDWR | O_CLOEXEC);
	return raw_failed(memory) ? -1 : (int)memory;
}

static uint8_t mark_of(const struct patch_module *module, uint32_t index)
{
	return module->placement->marks ? ((const uint8_t *)module->placement->marks)[index] : 0;
}

static int is_wanted(const struct patch_module *module, uint32_t index)
{
	return (mark_of(module, index) & LORG_STUB_CODE) &&
	       __atomic_load_n(&control_function(module->control, index)->gate, __ATOMIC_RELAXED) != 0;
}

static uint64_t patch_address(const struct patch_module *module, const struct lorg_plan_function *function)
{
	return module->base + function->offset + function->skip;
}

/* All at once: no thread can be in the middle of an entry. */
static void place_alone(const struct patch_module *module, struct patch_refusals *refusals)
{
	struct run run = {.memory = open_memory(), .copy = any_memory(RUN_MAXIMUM)};
	uint64_t stub = module->placement->stubs;
	for (uint32_t i = 0; i < module->plan->function_count; i++) {
		const struct lorg_plan_function *function = plan_function(module->plan, i);
		uint8_t bytes[LORG_TAKEN_MAXIMUM];
		uint64_t at = patch_address(module, function), thunk = stub;
		stub += lorg_stub_size(function);
		if (!is_wanted(module, i))
			continue;
		if (!run.copy || !lorg_patch_bytes(bytes, at, function->taken, thunk)) {
			refusals->out_of_reach++;
			continue;
		}
		run_take_in(&run, at, at + function->taken);
		memcpy(run.copy + (at - run.start), bytes, function->taken);
		run.functions++;
	}
	run_flush(&run);
	refusals->unwritable += run.failed_functions;
	if (run.copy)
		raw_munmap(run.copy, RUN_MAXIMUM);
	if (run.memory >= 0)
		raw_close(run.memory);
}

static uint32_t count_wanted(const struct patch_module *module)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < module->plan->function_count; i++)
		count += is_wanted(module, i) != 0;
	return count;
}

uint32_t entries_place(const struct patch_module *module, int alone, struct patch_refusals *refusals)
{
	if (!module->placement->stubs || !module->placement->marks)
		return 0;
	if (!alone)
		return count_wanted(module); /* threads may be inside: the collector holds them */
	place_alone(module, refusals);
	return 0;
}

uint64_t entry_patch_address(const struct patch_module *module, uint32_t index)
{
	return mark_of(module, index) & LORG_STUB_CODE ? patch_address(module, plan_function(module->plan, index)) : 0;
}

int entry_is_placed(const struct patch_module *module, uint32_t index)
{
	uint64_t address = entry_patch_address(module, index);
	return address && *(const uint8_t *)address == 0xe9;
}
