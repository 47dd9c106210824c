/* SPDX-License-Identifier: MIT */
/*
 * code_hook.c: places the code hooks.
 *
 * One page within reach of libc's text holds, for each hook, the moved
 * instructions and a jump to the wrapper. It is written before it becomes
 * executable. libc's text is changed through /proc/self/mem, which needs no
 * change of protection; where that is not there, a changed copy of the page is
 * made and moved over the old one in a single step.
 */
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <lorg/late.h>
#include <sys/mman.h>

#include "preload/core/raw.h"
#include "preload/core/thread.h"
#include "preload/hook.h"
#include "preload/resolve/code_hook.h"
#include "preload/resolve/relocate.h"
#include "preload/resolve/resolve.h"

enum {
	PAGE = 4096,
	SLOT = 64,	 /* bytes a hook takes in the page */
	SLOT_ENTRY = 48, /* where in a slot the jump to the wrapper stands */
};

_Static_assert((int)RELOCATE_MAXIMUM <= (int)SLOT_ENTRY && (int) HOOK_INNER_COUNT * SLOT <= PAGE, "the slots fit");

struct code_hook code_hooks[HOOK_INNER_COUNT];

/* libc's mapping: start and end of its loaded segments. */
static uintptr_t libc_start, libc_end;

static void refuse_all(const char *reason)
{
	for (unsigned i = 0; i < HOOK_INNER_COUNT; i++)
		if (!code_hooks[i].refused)
			code_hooks[i].refused = reason;
}

/* ---- what is to be hooked ------------------------------------------------- */

static void libc_measure(const struct link_map *libc)
{
	const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)libc->l_addr;
	const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(libc->l_addr + head->e_phoff);
	libc_start = libc->l_addr;
	for (unsigned i = 0; i < head->e_phnum; i++)
		if (segment[i].p_type == PT_LOAD && libc_end < libc_start + segment[i].p_vaddr + segment[i].p_memsz)
			libc_end = libc_start + segment[i].p_vaddr + segment[i].p_memsz;
}

static int reachable(const char *page, const void *target)
{
	int64_t distance = (const char *)target - page;
	return distance > -0x7fff0000l && distance < 0x7fff0000l;
}

/* The row's real function is libc's own: otherwise a call would pass the wrapper twice, and again without end. */
static int real_is(uint32_t id, const void *target)
{
	return hook_real(id) == target;
}

static void hook_choose(struct code_hook *hook, const struct code_hook_wanted *wanted, const struct link_map *libc)
{
	hook->id = wanted->id;
	hook->target = libc ? symbol_find_in(libc, hook_symbol_text + hook_symbols[hook->id].name, "", &hook->size) : 0;
	if (!hook->target)
		hook->refused = "the C library does not have it";
	else if (!real_is(hook->id, hook->target))
		hook->refused = "another library takes its place";
}

/* ---- the page of stubs ---------------------------------------------------- */

static char *page_at(char *where)
{
	long result = raw_mmap(where, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED_NOREPLACE : 0),
			       -1, 0);
	return raw_failed(result) ? 0 : (char *)result;
}

/* A new page within reach of libc: where the kernel likes, else by trying outwards from libc. */
static char *page_near(uintptr_t libc)
{
	char *page = page_at(0);
	if (page && reachable(page, (void *)libc_start) && reachable(page, (void *)libc_end))
		return page;
	if (page)
		raw_munmap(page, PAGE);
	for (uintptr_t step = 1ul << 20; step < 0x70000000; step += step < 1ul << 26 ? 1ul << 20 : 1ul << 24) {
		uintptr_t sides[2] = {libc - step, libc + step};
		for (int side = 0; side < 2; side++) {
			char *wanted = (char *)(sides[side] & ~(uintptr_t)(PAGE - 1));
			page = page_at(wanted);
			if (page == wanted)
				return page;
			if (page) /* a kernel that takes the address as a hint */
				raw_munmap(page, PAGE);
		}
	}
	return 0;
}

/* Puts a file's copy of the page in its place: for systems where no memory may become executable that was written. */
static int page_from_file(char *page)
{
	long fd = raw_syscall3(SYS_memfd_create, (long)"lorg", MFD_CLOEXEC, 0);
	if (raw_failed(fd))
		return 0;
	long mapped = -1;
	if (raw_syscall6(SYS_pwrite64, fd, (long)page, PAGE, 0, 0, 0) == PAGE)
		mapped = raw_mmap(page, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, (int)fd, 0);
	raw_close((int)fd);
	return mapped == (long)page;
}

static int page_seal(char *page)
{
	return !raw_failed(raw_mprotect(page, PAGE, PROT_READ | PROT_EXEC)) || page_from_file(page);
}

static void stub_write(char *page, unsigned index, const struct code_hook_wanted *wanted)
{
	static const uint8_t jump[6] = {0xff, 0x25}; /* jmp *0(%rip) */
	struct code_hook *hook = &code_hooks[index];
	char *slot = page + index * SLOT;
	struct relocation moved =
		relocate(hook->target, (uint32_t)hook->size, (uintptr_t)hook->target, (uint8_t *)slot, (uintptr_t)slot);
	hook->refused = moved.refused;
	hook->skipped = moved.skipped;
	hook->taken = moved.taken;
	memcpy(slot + SLOT_ENTRY, jump, sizeof jump);
	memcpy(slot + SLOT_ENTRY + sizeof jump, &wanted->wrapper, sizeof wanted->wrapper);
	hook->original = slot;
}

/* ---- libc's text ---------------------------------------------------------- */

/* Through the kernel's own view of our memory: text stays as it is mapped, neither writable nor for a moment gone. */
static int text_write_by_file(int memory, uintptr_t address, const uint8_t *bytes, uint32_t length)
{
	return memory >= 0 && raw_syscall6(SYS_pwrite64, memory, (long)bytes, length, (long)address, 0, 0) == (long)length;
}

/* Moves a changed copy of the page (or two) over the old one. */
static int text_write_by_copy(uintptr_t address, const uint8_t *bytes, uint32_t length)
{
	uintptr_t first = address & ~(uintptr_t)(PAGE - 1);
	size_t size = (address + length > first + PAGE) ? 2 * PAGE : PAGE;
	long copy = raw_mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw_failed(copy))
		return 0;
	memcpy((void *)copy, (void *)first, size);
	memcpy((char *)copy + (address - first), bytes, length);
	if (raw_failed(raw_mprotect((void *)copy, size, PROT_READ | PROT_EXEC)) ||
	    raw_failed(raw_syscall6(SYS_mremap, copy, (long)size, (long)size, MREMAP_MAYMOVE | MREMAP_FIXED, (long)first, 0))) {
		raw_munmap((void *)copy, size);
		return 0;
	}
	return 1;
}

/* The bytes that take the place of the first instructions, which stand at `at`. */
static void jump_bytes(const struct code_hook *hook, uintptr_t at, uint8_t bytes[RELOCATE_WINDOW])
{
	int32_t distance = (int32_t)((char *)hook->original + SLOT_ENTRY - (char *)(at + RELOCATE_JUMP));
	memset(bytes, 0xcc, RELOCATE_WINDOW); /* behind the jump: never executed */
	bytes[0] = 0xe9;
	memcpy(bytes + 1, &distance, sizeof distance);
}

static void text_change(struct code_hook *hook, int memory)
{
	uint8_t bytes[RELOCATE_WINDOW];
	uintptr_t at = (uintptr_t)hook->target + hook->skipped;
	jump_bytes(hook, at, bytes);
	if (!text_write_by_file(memory, at, bytes, hook->taken) && !text_write_by_copy(at, bytes, hook->taken))
		hook->refused = "the C library's code cannot be changed";
}

/* ---- the rows ------------------------------------------------------------- */

/* Every row that leads to the changed entry goes by the trampoline instead: the alias __read as well as read. */
static void rows_redirect(struct code_hook *hook)
{
	void *next = hook_next_definition(hook->id);
	if (next && next != hook->target)
		__atomic_store_n(&hook_passed_on[hook->id], next, __ATOMIC_RELAXED);
	hook->goes_on = hook->original;
	hook_real_functions[hook->id] = hook->original;
	for (uint32_t id = 0; id < HOOK_COUNT; id++)
		if (hook_real_functions[id] == hook->target)
			hook_real_functions[id] = hook->original;
}

/* What goes through it records there. */
static void rows_defer(const struct code_hook *hook, int placed)
{
	for (uint32_t id = 0; id < HOOK_COUNT; id++)
		if (hook_reaches[id] == hook->id + 1)
			__atomic_store_n(&hook_deferred[id], (uint8_t)placed, __ATOMIC_RELAXED);
}

/* Trampolines and jumps of all that can be hooked. False: of none. */
static int stubs_make(void)
{
	char *page = page_near(libc_start);
	if (!page) {
		refuse_all("there is no room near the C library's code");
		return 0;
	}
	for (unsigned i = 0; i < HOOK_INNER_COUNT; i++)
		if (!code_hooks[i].refused)
			stub_write(page, i, &code_hooks_wanted[i]);
	if (!page_seal(page)) {
		raw_munmap(page, PAGE);
		for (unsigned i = 0; i < HOOK_INNER_COUNT; i++)
			code_hooks[i].original = 0;
		refuse_all("no memory can be made executable");
		return 0;
	}
	return 1;
}

static void hooks_place(void)
{
	long memory = raw_openat("/proc/self/mem", O_RDWR | O_CLOEXEC);
	for (unsigned i = 0; i < HOOK_INNER_COUNT; i++) {
		struct code_hook *hook = &code_hooks[i];
		if (!hook->refused)
			text_change(hook, (int)memory);
		if (hook->refused) {
			hook->original = 0;
			continue;
		}
		rows_redirect(hook);
		rows_defer(hook, 1);
	}
	if (!raw_failed(memory))
		raw_close((int)memory);
}

/* What is to be hooked. False: nothing. */
static int hooks_choose(void)
{
	const struct link_map *libc = object_find("libc.so.6");
	for (unsigned i = 0; i < HOOK_INNER_COUNT; i++)
		hook_choose(&code_hooks[i], &code_hooks_wanted[i], libc);
	if (!system_calls_allowed()) {
		refuse_all("a seccomp filter may forbid it");
		return 0;
	}
	if (!libc)
		return 0;
	libc_measure(libc);
	return 1;
}

void code_hooks_place(void)
{
	if (hooks_choose() && stubs_make())
		hooks_place();
}

/* ---- while other threads run ------------------------------------------------- */

_Static_assert((int)HOOK_INNER_COUNT <= (int)LORG_LATE_PATCHES && (int)RELOCATE_WINDOW <= (int)LORG_LATE_PATCH_MAXIMUM, "they have room");

static void describe(struct code_hook *hook, struct lorg_late_patch *patch)
{
	uint8_t bytes[RELOCATE_WINDOW];
	uintptr_t at = (uintptr_t)hook->target + hook->skipped;
	jump_bytes(hook, at, bytes);
	patch->at = at;
	patch->taken = hook->taken;
	patch->relocated = (uint64_t)hook->original;
	memcpy(patch->original, (const void *)at, hook->taken);
	memcpy(patch->patched, bytes, hook->taken);
}

void code_hooks_prepare(struct lorg_late *late)
{
	if (!hooks_choose() || !stubs_make())
		return;
	for (unsigned i = 0; i < HOOK_INNER_COUNT; i++) {
		if (code_hooks[i].refused) {
			code_hooks[i].original = 0;
			continue;
		}
		/* First: once the entry leads to the wrapper, the wrapper must go on behind it. Until then it does no harm. */
		rows_redirect(&code_hooks[i]);
		describe(&code_hooks[i], &late->patch[i]);
	}
	/* Release: the collector that sees the count sees the patches. */
	__atomic_store_n(&late->patch_count, HOOK_INNER_COUNT, __ATOMIC_RELEASE);
}

void code_hooks_settle(const struct lorg_late *late)
{
	for (unsigned i = 0; i < HOOK_INNER_COUNT && i < late->patch_count; i++) {
		if (!late->patch[i].relocated)
			continue;
		rows_defer(&code_hooks[i], late->patch[i].placed != 0);
		code_hooks[i].refused = late->patch[i].placed ? 0 : "the threads could not be held";
	}
}

void *code_hook_original(void *function)
{
	for (unsigned i = 0; i < HOOK_INNER_COUNT; i++)
		if (code_hooks[i].target == function && code_hooks[i].original)
			return __atomic_load_n(&code_hooks[i].goes_on, __ATOMIC_ACQUIRE);
	return function;
}

void *code_hook_trampoline(const void *entry)
{
	for (unsigned i = 0; i < HOOK_INNER_COUNT; i++)
		if (code_hooks[i].target == entry)
			return code_hooks[i].refused ? 0 : code_hooks[i].original;
	return 0;
}

static void rows_go_on_by(const void *before, void *thunk)
{
	for (uint32_t id = 0; id < HOOK_COUNT; id++)
		if (__atomic_load_n(&hook_real_functions[id], __ATOMIC_RELAXED) == before)
			__atomic_store_n(&hook_real_functions[id], thunk, __ATOMIC_RELEASE);
}

void code_hook_go_on_by(const void *trampoline, void *thunk)
{
	for (unsigned i = 0; i < HOOK_INNER_COUNT; i++) {
		if (!trampoline || code_hooks[i].original != trampoline)
			continue;
		/* Release: who goes there finds the thunk whole. */
		const void *before = __atomic_exchange_n(&code_hooks[i].goes_on, thunk, __ATOMIC_ACQ_REL);
		rows_go_on_by(before, thunk);
	}
}

int code_hook_placed(uint32_t id)
{
	for (unsigned i = 0; i < HOOK_INNER_COUNT; i++)
		if (code_hooks[i].id == id)
			return code_hooks[i].original != 0 && !code_hooks[i].refused;
	return 0;
}

int code_hook_from_libc(uintptr_t address)
{
	return address >= libc_start && address < libc_end;
}
