/* SPDX-License-Identifier: MIT */
/*
 * settings.c: calls that change what lorg itself may do or what its memory is,
 * and those that give processes names and links.
 *
 * A seccomp filter may kill for any system call of ours, and strict mode for
 * reading the clock. What the program does to all memory it can find must not
 * hit the arena where that would do harm: it is left out, and the call says
 * what it would have said without it.
 */
#include "preload/hooks/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "preload/core/flags.h"
#include "preload/core/make_way.h"
#include "preload/call/call.h"
#include "preload/core/raw.h"
#include "preload/core/readable.h"
#include "preload/hooks/spawn.h"

/* ---- rights ---- */

static struct settings_rights rights_now(void)
{
	return (struct settings_rights){.seccomp = __atomic_load_n(&the_program.seccomp, __ATOMIC_RELAXED),
					.filtered = __atomic_load_n(&the_program.filtered, __ATOMIC_RELAXED),
					.no_clock = this_thread.no_clock};
}

static struct settings_rights lose_system_calls(int strict)
{
	struct settings_rights rights = rights_now();
	rights.changed = 1;
	thread_tables_prepare();
	call_prepare_for_filter(&this_thread);
	/* Relaxed: what another thread does meanwhile is not under the filter yet, and later it reads the new value. */
	__atomic_store_n(&the_program.seccomp, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&the_program.filtered, 1, __ATOMIC_RELAXED);
	if (strict) /* the kernel forbids the TSC along with the calls */
		this_thread.no_clock = 1;
	return rights;
}

struct settings_rights settings_before_prctl(long option, unsigned long first)
{
	if (option == PR_SET_SECCOMP)
		return lose_system_calls(first == SECCOMP_MODE_STRICT);
	struct settings_rights rights = rights_now();
	if (option == PR_SET_TSC && first == PR_TSC_SIGSEGV) {
		rights.changed = 1;
		this_thread.no_clock = 1;
	}
	return rights;
}

struct settings_rights settings_before_seccomp(long operation)
{
	if (operation == SECCOMP_SET_MODE_STRICT || operation == SECCOMP_SET_MODE_FILTER)
		return lose_system_calls(operation == SECCOMP_SET_MODE_STRICT);
	return rights_now();
}

void settings_after(const struct settings_rights *rights, long result)
{
	if (result >= 0 || !rights->changed)
		return;
	__atomic_store_n(&the_program.seccomp, rights->seccomp, __ATOMIC_RELAXED);
	__atomic_store_n(&the_program.filtered, rights->filtered, __ATOMIC_RELAXED);
	this_thread.no_clock = rights->no_clock;
}

/* ---- names and links ---- */

enum { NAME_LENGTH = 15 /* the kernel's, without the zero */ };

static void write_name(struct thread *self, uint16_t id, uint32_t tid, const char *name)
{
	struct event_bytes bytes[] = {{name, (uint32_t)text_length(name, NAME_LENGTH)}, {0, 0}};
	struct lorg_event_REGISTER event = {.tid = tid, .fd = -1, .name_length = bytes[0].length};
	event_write(self, id, &event, sizeof event, bytes, 2, 0);
}

/* process: entry of the thread named, or NULL if that is not known. The old name goes, the new one comes. */
static void rename_thread(struct thread *self, struct lorg_process *process, uint32_t tid, const char *given, int tells)
{
	char name[NAME_LENGTH + 1] = {0};
	memory_peek(name, given, (uint32_t)text_length(given, NAME_LENGTH));
	if (tells && process && process->name[0]) {
		char old[NAME_LENGTH + 1] = {0};
		memcpy(old, process->name, NAME_LENGTH);
		write_name(self, LORG_EVENT_UNREGISTER, tid, old);
	}
	if (process)
		memcpy(process->name, name, sizeof name);
	if (tells)
		write_name(self, LORG_EVENT_REGISTER, tid, name);
}

/* What befalls a process is told where its own flags ask for it, whoever does it. A name is kept all the same. */
static int tells_of(const struct thread *self, const struct lorg_process *process, uint32_t hook)
{
	if (!(hook_gate(hook) & LORG_GATE_PROCESS))
		return 0;
	return !self->flags_matter || ((process ? session_flags(process, 0) : process_flags(self)) & LORG_TRACE_PROCS);
}

/* The thread that made this program, where it is of this family and still there; NULL: not known. */
static struct lorg_process *parent_of(const struct lorg_process *process)
{
	const struct lorg_image *image = arena_image(process->image);
	struct lorg_process *parent = arena_process(process->parent);
	/* Entry 0 is one like any other: an image that was made by another of the family says so. */
	if (!image || !parent || parent == process || image->birth == LORG_BIRTH_COMMAND || image->birth == LORG_BIRTH_EXEC)
		return 0;
	const struct lorg_image *of_parent = arena_image(parent->image);
	uint32_t state = __atomic_load_n(&parent->state, __ATOMIC_RELAXED);
	int is_it = of_parent && !memcmp(of_parent->id, image->parent_id, sizeof image->parent_id) &&
		    (state == LORG_PROCESS_ALIVE || state == LORG_PROCESS_ENDING);
	return is_it ? parent : 0;
}

/* The signal at the parent's death ties the program to the thread that made it. */
static void link_to_parent(struct thread *self, uint32_t hook, int linked)
{
	const struct lorg_image *image = arena_image(self->process->image);
	struct lorg_process *parent = parent_of(self->process);
	struct lorg_event_LINK event = {.fd = -1};
	event.pid = system_calls_allowed() ? (uint32_t)raw_syscall3(SYS_getppid, 0, 0, 0) : image ? image->parent_pid : 0;
	event.tid = parent ? parent->own_tid : event.pid;
	self->process->linked_pid = linked ? event.pid : 0;
	self->process->linked_tid = linked ? event.tid : 0;
	/* First: what it is linked to asks for itself by the flags that it gets so. */
	if (linked && parent)
		flags_linked(self, parent);
	if (tells_of(self, self->process, hook) || (parent && tells_of(self, parent, hook)))
		event_write(self, linked ? LORG_EVENT_LINK : LORG_EVENT_UNLINK, &event, sizeof event, 0, 0, 0);
}

void settings_prctl_done(uint32_t hook, long option, unsigned long first)
{
	if (option == PR_SET_TSC && first == PR_TSC_ENABLE)
		this_thread.no_clock = 0;
	if (option != PR_SET_NAME && option != PR_SET_PDEATHSIG)
		return;
	struct thread *self = hook_lives(hook) ? thread_self() : 0;
	if (!self || self->busy)
		return;
	if (option == PR_SET_NAME)
		rename_thread(self, self->process, self->process->own_tid, (const char *)first, tells_of(self, self->process, hook));
	else
		link_to_parent(self, hook, first != 0);
}

int hook_prctl(int option, ...)
{
	unsigned long argument[4];
	va_list list;
	/* Those that were not given are read like libc reads them: whatever stands there. */
	va_start(list, option);
	for (int i = 0; i < 4; i++)
		argument[i] = va_arg(list, unsigned long);
	va_end(list);
	struct settings_rights rights = settings_before_prctl(option, argument[0]);
	int result = REAL(prctl)(option, argument[0], argument[1], argument[2], argument[3]);
	int saved_errno = *hook_errno();
	settings_after(&rights, result);
	if (result >= 0)
		settings_prctl_done(HOOK_prctl, option, argument[0]);
	*hook_errno() = saved_errno;
	return result;
}

void settings_enter(struct hook_call *call)
{
	(void)call;
}

/* pthread_setname_np(thread, name). */
void settings_leave(struct hook_call *call, intptr_t result)
{
	uint32_t index;
	if (call->hook->role != ROLE_name || result != 0)
		return;
	uint32_t tid = thread_of_handle(call->argument[0], &index);
	struct lorg_process *process = tid ? arena_process(index) : 0;
	if (process && process->own_tid != tid)
		process = 0;
	uint64_t own;
	__asm__("movq %%fs:0x10, %0" : "=r"(own));
	if (call->argument[0] == own) { /* the main thread is in no list */
		process = call->self->process;
		tid = process->own_tid;
	}
	rename_thread(call->self, process, tid, (const char *)call->argument[1], tells_of(call->self, process, HOOK_pthread_setname_np));
}

/* ---- memory: is it ours? ---- */

extern const char __ehdr_start[] HIDDEN;
extern const char _end[] HIDDEN;

/* True if all of the range lies in the arena or node segment: a program that walks its own maps names whole mappings. */
static int is_arena(const void *address, size_t length)
{
	const char *start = address;
	if (!length || !the_arena.shared || (uintptr_t)start + length < (uintptr_t)start)
		return 0;
	return (arena_overlaps(start, 1) && arena_overlaps(start + length - 1, 1)) ||
	       (call_targets_exist() && call_overlaps((uintptr_t)start, 1) && call_overlaps((uintptr_t)start + length - 1, 1));
}

int hook_mlock(const void *address, size_t length)
{
	return is_arena(address, length) ? 0 : REAL(mlock)(address, length);
}

int hook_mlock2(const void *address, size_t length, unsigned int flags)
{
	return is_arena(address, length) ? 0 : REAL(mlock2)(address, length, flags);
}

int hook_munlock(const void *address, size_t length)
{
	return is_arena(address, length) ? 0 : REAL(munlock)(address, length);
}

/* What a call is to do with one stretch of memory; 0 or -1. */
typedef int stretch_function(void *address, size_t length, int argument);

/* Does it with the parts of [address, address + length) that are not ours. */
static int around_arena(stretch_function *function, char *address, size_t length, int argument)
{
	char *end = address + length;
	while (address < end) {
		const char *from, *to;
		char *until = end;
		if (arena_first_window(address, (size_t)(end - address), &from, &to)) {
			until = from > address ? (char *)(uintptr_t)from : address;
			if (until == address) {
				address = to < end ? (char *)(uintptr_t)to : end;
				continue;
			}
		}
		if (function(address, (size_t)(until - address), argument))
			return -1;
		address = until;
	}
	return 0;
}

static int unmap_stretch(void *address, size_t length, int unused)
{
	(void)unused;
	return REAL(munmap)(address, length);
}

static int protect_stretch(void *address, size_t length, int protection)
{
	return REAL(mprotect)(address, length, protection);
}

/* True if the kernel would take the range at all, and something of ours is in it. */
static int holds_arena(const void *address, size_t length)
{
	uintptr_t from = (uintptr_t)address;
	return the_arena.shared && length && from % 4096 == 0 && from + length > from && arena_overlaps(address, length);
}

/* Who clears its address space of what it does not know keeps this; nothing of the program's can be there. */
int hook_munmap(void *address, size_t length)
{
	readable_changes();
	int result = holds_arena(address, length) ? around_arena(unmap_stretch, address, length, 0) : REAL(munmap)(address, length);
	readable_changes();
	return result;
}

int hook_mprotect(void *address, size_t length, int protection)
{
	readable_changes();
	int result = holds_arena(address, length) ? around_arena(protect_stretch, address, length, protection)
						  : REAL(mprotect)(address, length, protection);
	readable_changes();
	return result;
}

/* Memory of the program's own in a place that it has chosen: ours is not to be there. */
static void make_way(const void *address, size_t length)
{
	if ((uintptr_t)address % 4096 == 0 && the_arena.shared)
		arena_make_way(address, length);
}

static void before_mapping(const void *address, size_t length, int flags)
{
	if (!(flags & MAP_FIXED))
		return;
	make_way(address, length);
	readable_changes();
}

static void after_mapping(const void *at, size_t length, int flags)
{
	if (at == MAP_FAILED)
		return;
	if (!(flags & MAP_ANONYMOUS))
		readable_unsure(at, length);
	else if (flags & MAP_FIXED)
		readable_changes();
}

void *hook_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	before_mapping(address, length, flags);
	void *at = REAL(mmap)(address, length, protection, flags, fd, offset);
	after_mapping(at, length, flags);
	return at;
}

void *hook_mmap64(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
	before_mapping(address, length, flags);
	void *at = REAL(mmap64)(address, length, protection, flags, fd, offset);
	after_mapping(at, length, flags);
	return at;
}

/* Less of it is as good as munmap; elsewhere or more of it is not to be had. A second mapping (length 0) does no harm. */
void *hook_mremap(void *address, size_t length, size_t new_length, int flags, ...)
{
	va_list list;
	/* As libc does: read whether or not it was given. */
	va_start(list, flags);
	void *wanted = va_arg(list, void *);
	va_end(list);
	if ((flags & MREMAP_FIXED) && !is_arena(address, length))
		make_way(wanted, new_length);
	if (!is_arena(address, length)) {
		readable_changes();
		void *at = REAL(mremap)(address, length, new_length, flags, wanted);
		if (at != MAP_FAILED) /* it may be a file's */
			readable_unsure(at, new_length);
		return at;
	}
	if (new_length && new_length <= length && !(flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)))
		return address;
	*hook_errno() = EFAULT;
	return MAP_FAILED;
}

/* Advice that would take the arena away from a fork child, into core files, or for good. The rest does no harm. */
static int is_harmful(int advice)
{
	switch (advice) {
	case MADV_DONTFORK:
	case MADV_WIPEONFORK:
	case MADV_DODUMP:
	case MADV_HWPOISON:
		return 1;
	default:
		return 0;
	}
}

int hook_madvise(void *address, size_t length, int advice)
{
	if (is_harmful(advice) && is_arena(address, length))
		return 0;
	int result = REAL(madvise)(address, length, advice);
	if (advice == MADV_DONTFORK || advice == MADV_WIPEONFORK)
		readable_unsure(address, length);
	return result;
}

int hook_posix_madvise(void *address, size_t length, int advice)
{
	return REAL(posix_madvise)(address, length, advice);
}

/* ---- limits ---- */

/* Bytes of address space that this program has; 0: not known. */
static uint64_t address_space(void)
{
	char text[128];
	const char *at = text;
	long fd = system_calls_allowed() ? raw_openat("/proc/self/statm", O_RDONLY | O_CLOEXEC) : -1;
	if (raw_failed(fd))
		return 0;
	long got = raw_syscall3(SYS_read, fd, (long)text, sizeof text - 1);
	raw_close((int)fd);
	text[raw_failed(got) ? 0 : got] = 0;
	return text_read_decimal(&at) * 4096;
}

/* With what we have mapped the program is beyond the limit that it has set itself: not one byte more would it get. */
static void limit_set(int resource, const struct rlimit *limit, int result)
{
	int saved_errno = *hook_errno();
	if (result == 0 && resource == RLIMIT_AS && limit && the_arena.shared && limit->rlim_cur != RLIM_INFINITY &&
	    limit->rlim_cur < address_space())
		arena_leave("the program has set itself a limit on address space in which lorg's shared memory has no room");
	*hook_errno() = saved_errno;
}

int hook_setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	int result = REAL(setrlimit)(resource, limit);
	limit_set((int)resource, limit, result);
	return result;
}

int hook_setrlimit64(__rlimit_resource_t resource, const struct rlimit *limit)
{
	int result = REAL(setrlimit64)(resource, limit);
	limit_set((int)resource, limit, result);
	return result;
}

int hook_prlimit(pid_t pid, __rlimit_resource_t resource, const struct rlimit *limit, struct rlimit *old)
{
	int result = REAL(prlimit)(pid, resource, limit, old);
	if (!pid || pid == (pid_t)program_own_pid())
		limit_set((int)resource, limit, result);
	return result;
}

int hook_prlimit64(pid_t pid, __rlimit_resource_t resource, const struct rlimit *limit, struct rlimit *old)
{
	int result = REAL(prlimit64)(pid, resource, limit, old);
	if (!pid || pid == (pid_t)program_own_pid())
		limit_set((int)resource, limit, result);
	return result;
}

/* ---- mlockall ---- */

/* One line of /proc/self/maps. */
struct mapping {
	uintptr_t start, end;
};

static uintptr_t read_hexadecimal(const char **text)
{
	uintptr_t value = 0;
	for (;; (*text)++) {
		char c = **text;
		if (c >= '0' && c <= '9')
			value = value << 4 | (uintptr_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value << 4 | (uintptr_t)(c - 'a' + 10);
		else
			return value;
	}
}

static int is_ours(const struct mapping *mapping)
{
	return is_arena((const void *)mapping->start, mapping->end - mapping->start) ||
	       (mapping->start < (uintptr_t)_end && mapping->end > (uintptr_t)__ehdr_start);
}

/* Calls `each` for every mapping of the program that is not ours. -1 when the list cannot be read. */
static int each_mapping(void (*each)(void *context, const struct mapping *mapping), void *context)
{
	char buffer[1024];
	long fd = raw_openat("/proc/self/maps", O_RDONLY | O_CLOEXEC), got;
	size_t held = 0;
	if (raw_failed(fd))
		return -1;
	while ((got = raw_syscall3(SYS_read, fd, (long)(buffer + held), (long)(sizeof buffer - 1 - held))) > 0) {
		held += (size_t)got;
		buffer[held] = 0;
		size_t used = 0;
		for (size_t line; used < held; used = line) {
			for (line = used; line < held && buffer[line] != '\n'; line++)
				;
			if (line == held && (used || held < sizeof buffer - 1))
				break; /* the rest of the line comes with the next read */
			const char *text = buffer + used;
			struct mapping mapping = {.start = read_hexadecimal(&text)};
			text++;
			mapping.end = read_hexadecimal(&text);
			if (mapping.start < mapping.end && mapping.end < (uintptr_t)1 << 47 && !is_ours(&mapping))
				each(context, &mapping);
			line += line < held;
		}
		memmove(buffer, buffer + used, held - used);
		held -= used;
	}
	raw_close((int)fd);
	return 0;
}

static void add_size(void *context, const struct mapping *mapping)
{
	*(uint64_t *)context += mapping->end - mapping->start;
}

static void lock_one(void *context, const struct mapping *mapping)
{
	/* A mapping that cannot be locked is passed over, as by mlockall itself. */
	raw_syscall3(SYS_mlock2, (long)mapping->start, (long)(mapping->end - mapping->start), *(const unsigned *)context);
}

static uint64_t lock_limit(void)
{
	struct rlimit limit = {0, 0};
	raw_syscall6(SYS_prlimit64, 0, RLIMIT_MEMLOCK, 0, (long)&limit, 0, 0);
	return limit.rlim_cur;
}

/* The kernel counts the arena against the caller's limit. True if the program alone would have been within it. */
static int fits_without_us(void)
{
	uint64_t size = 0;
	return !each_mapping(add_size, &size) && size <= lock_limit();
}

static int lock_without_us(int flags)
{
	unsigned how = flags & MCL_ONFAULT ? MLOCK_ONFAULT : 0;
	if ((flags & MCL_FUTURE) && REAL(mlockall)(MCL_FUTURE | (flags & MCL_ONFAULT)))
		return -1;
	each_mapping(lock_one, &how);
	return 0;
}

static void unlock(void *start, unsigned long length)
{
	raw_syscall3(SYS_munlock, (long)start, (long)length, 0);
}

static void unlock_arena(void)
{
	call_each_shadow(unlock);
	for (unsigned i = 0; i < sizeof the_arena.segments / sizeof *the_arena.segments; i++) {
		char *segment = __atomic_load_n(&the_arena.segments[i], __ATOMIC_ACQUIRE);
		if (segment)
			raw_syscall3(SYS_munlock, (long)segment, LORG_SEGMENT_SIZE, 0);
	}
	if (the_arena.node)
		raw_syscall3(SYS_munlock, (long)the_arena.node, (long)the_arena.settings.node_size, 0);
}

int hook_mlockall(int flags)
{
	int result = REAL(mlockall)(flags);
	int saved_errno = *hook_errno();
	if (!the_arena.shared || !system_calls_allowed())
		return result;
	if (result == -1 && saved_errno == ENOMEM && (flags & MCL_CURRENT) && fits_without_us()) {
		result = lock_without_us(flags);
		saved_errno = result ? *hook_errno() : 0;
	} else if (result == 0 && (flags & MCL_CURRENT)) {
		unlock_arena();
	}
	/* Release: who maps more of the arena from now on knows that it would be locked. */
	if (result == 0)
		__atomic_store_n(&the_program.locked_memory, (flags & MCL_FUTURE) != 0, __ATOMIC_RELEASE);
	if (result)
		*hook_errno() = saved_errno;
	return result;
}

int hook_munlockall(void)
{
	int result = REAL(munlockall)();
	if (result == 0)
		__atomic_store_n(&the_program.locked_memory, 0, __ATOMIC_RELEASE);
	return result;
}
