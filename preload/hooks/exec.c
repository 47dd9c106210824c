/* SPDX-License-Identifier: MIT */
/*
 * exec.c: the exec family.
 *
 * libc's own execve is hooked by its code, so what execvp, posix_spawn, system
 * and popen do inside libc comes here, too: into hook_execve.
 *
 * What becomes an event: every file that is there; a name that is looked for
 * in PATH and found nowhere, once; a file that is not there and was executed
 * directly. Places of PATH without the file are none.
 *
 * The environment that the program gave is not changed. Its array of pointers
 * is copied, LD_PRELOAD and LORG come last (start.c takes them away again
 * before the program looks); no string of the program's is copied.
 */
#include "preload/hooks/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload/core/raw.h"
#include "preload/hooks/environment.h"
#include "preload/hooks/spawn.h"
#include "preload/lookahead/lookahead.h"
#include "preload/resolve/code_hook.h"

/* The program's; liblorg.so names no library, so it is found wherever it is. */
#pragma weak environ

/*
 * Memory of an exec begins with texts; the pointers of the environment follow. It is private: what a program is
 * given must not stand in the arena, which every program of the family can write.
 */
enum {
	TEXT_ROOM = 16384, /* the two variables, and argv for the event */
	ARGV_ROOM = LORG_TEXT_MAXIMUM,
	LIBRARY_PATH_ROOM = 1024,
};

/* A thread's exec in progress. One inside another (a handler's) is not traced, only forwarded with a gap. */
static __thread struct {
	uint32_t depth;
	uint32_t owner;	   /* pid of the program that executes: a child on this memory leaves its state behind */
	uint32_t recorded; /* 1: an event was written for a place of the current search */
	uint32_t outer_hook; /* + 1: of the searching function around the inner execve */
	void *mapped;	   /* memory from mmap, NULL: none */
	size_t mapped_length;
} exec_state __attribute__((tls_model("initial-exec")));

/* One preparation. */
struct preparation {
	struct thread *self; /* NULL: no events */
	struct lorg_packet *packet;
	uint32_t exec_at, gap_at; /* events in `packet`, 0: none */
	uint32_t ports_from, ports_to; /* CLOSED events stand here */
	struct lorg_image *image;
	uint32_t image_state;
	char *const *environment; /* what is passed on */
	int extended;
	int keeps_flags; /* 1: `self` itself executes, and not a child that it makes */
};

/* ---- memory ---- */

static int loader_calls_allowed(void)
{
	return !__atomic_load_n(&the_program.filtered, __ATOMIC_RELAXED);
}

static void unmap_memory(void)
{
	if (!exec_state.mapped)
		return;
	raw_munmap(exec_state.mapped, exec_state.mapped_length);
	exec_state.mapped = 0;
}

void exec_release(void)
{
	unmap_memory();
	exec_state.depth = 0;
	exec_state.outer_hook = 0;
}

/* Memory for the texts and an environment of `count` entries and ours, or NULL. */
static char *exec_memory(uint32_t count)
{
	size_t pointers = count == ENVIRONMENT_UNREADABLE ? 0 : (size_t)count + 3;
	size_t length = TEXT_ROOM + pointers * sizeof(char *);
	if (exec_state.mapped || !loader_calls_allowed())
		return 0;
	long got = raw_mmap(0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (raw_failed(got))
		return 0;
	exec_state.mapped = (void *)got;
	exec_state.mapped_length = length;
	return (char *)got;
}

/* A child that left for another program on this memory, by a way that no wrapper saw, never counted down. */
static void exec_begin(void)
{
	uint32_t pid = system_calls_allowed() ? (uint32_t)raw_getpid() : 0;
	if (exec_state.depth && exec_state.owner != pid) {
		unmap_memory();
		exec_state.depth = 0;
	}
	exec_state.owner = pid;
	exec_state.depth++;
}

/* ---- events ---- */

static struct lorg_extended *event_at(const struct preparation *preparation, uint32_t at)
{
	/* Only while the chunk is ours: once full, it belongs to the collector. */
	if (!at || !preparation->self || preparation->self->packet != preparation->packet)
		return 0;
	return (struct lorg_extended *)((char *)preparation->packet + at);
}

static void set_id(struct lorg_extended *event, uint16_t id)
{
	/* Release: the fields come before. One aligned word, as the commit is. */
	__atomic_store_n(&event->id, id, __ATOMIC_RELEASE);
}

static void withdraw(const struct preparation *preparation, uint32_t at)
{
	struct lorg_extended *event = event_at(preparation, at);
	if (event)
		set_id(event, LORG_EVENT_WITHDRAWN);
}

/* CLOSED events of the ports that the exec was to close. */
static void withdraw_closed(const struct preparation *preparation)
{
	uint32_t at = preparation->ports_from;
	while (at < preparation->ports_to) {
		struct lorg_extended *event = event_at(preparation, at);
		if (!event || (event->word & 31) != LORG_EVENT_EXTENDED || event->length < 16)
			return; /* a handler's compact event: what follows stays, and is told open again at its next use */
		at += event->length;
		if (event->id == LORG_EVENT_CLOSED)
			set_id(event, LORG_EVENT_WITHDRAWN);
	}
}

static uint32_t wants_events(const struct thread *self, uint32_t hook)
{
	return self && (hook_gate_of(self, hook) & LORG_GATE_PROCESS);
}

/* The name of the file: that of the descriptor where there is no other. Returns its length. */
static uint32_t name_of(const struct exec_request *request, char *room, const char **name)
{
	*name = request->path;
	uint32_t length = memory_peek_text(request->path);
	if (length || !(request->flags & AT_EMPTY_PATH))
		return length;
	char link[32];
	char *end = text_append(link, link + sizeof link, "/proc/self/fd/");
	text_append_decimal(end, link + sizeof link, (uint64_t)(uint32_t)request->directory);
	long got = loader_calls_allowed() ? raw_syscall3(SYS_readlink, (long)link, (long)room, 255) : -1;
	*name = room;
	return raw_failed(got) ? 0 : (uint32_t)got;
}

/* EXEC or EXEC_FAILED. memory: TEXT_ROOM bytes, of which the end is used for argv; NULL: argv is left out. */
static uint32_t write_exec(struct thread *self, const struct exec_request *request, uint16_t id, int error, char *memory)
{
	char room[256];
	struct event_bytes bytes[2] = {{0, 0}, {0, 0}};
	const char *name;
	uint32_t position;
	bytes[0].length = name_of(request, room, &name);
	bytes[0].data = name;
	if (memory) {
		bytes[1].data = memory + TEXT_ROOM - ARGV_ROOM;
		bytes[1].length = spawn_gather(memory + TEXT_ROOM - ARGV_ROOM, ARGV_ROOM, request->argv);
	}
	struct lorg_event_EXEC event = {.hook = hook_table[request->hook].shown_as,
					.error = error,
					.file_length = bytes[0].length,
					.argv_length = bytes[1].length};
	event_write(self, id, &event, sizeof event, bytes, 2, &position);
	return position;
}

static void write_gap(struct preparation *preparation, const struct exec_request *request, const char *reason)
{
	char room[256];
	const char *name;
	struct thread *self = preparation->self;
	if (!self)
		return;
	struct event_bytes bytes[2] = {{0, name_of(request, room, &name)}, {reason, (uint32_t)text_length(reason, LORG_TEXT_MAXIMUM)}};
	bytes[0].data = name;
	struct lorg_event_GAP event = {
		.count = 1, .pid = self->process->own_tid, .what_length = bytes[0].length, .why_length = bytes[1].length};
	event_write(self, LORG_EVENT_GAP, &event, sizeof event, bytes, 2, &preparation->gap_at);
}

/* ---- can it be traced? ---- */

static int preload_is_reachable(void)
{
	long fd = raw_openat(the_arena.settings.preload_path, O_RDONLY | O_CLOEXEC);
	if (raw_failed(fd))
		return 0;
	raw_close((int)fd);
	return 1;
}

/* The loader, run as a program: `ld.so [options] program`. What it will load decides. */
static void look_behind_loader(struct lookahead *seen, const struct exec_request *request, const struct lookahead_caller *caller)
{
	static const char *const with_value[] = {"--library-path", "--inhibit-rpath", "--audit", "--preload", "--argv0"};
	for (uint32_t i = 1; i < 16; i++) {
		char word[256];
		const char *text;
		if (memory_peek(&text, request->argv + i, sizeof text) != sizeof text || !text)
			break;
		uint32_t length = memory_peek_text(text);
		if (length >= sizeof word)
			break;
		memcpy(word, text, length);
		word[length] = 0;
		if (!text_begins(word, "--")) {
			lookahead(seen, AT_FDCWD, word, 0, caller);
			return;
		}
		int known = text_equal(word, "--inhibit-cache");
		for (size_t k = 0; !known && k < sizeof with_value / sizeof *with_value; k++)
			if (text_equal(word, with_value[k]))
				known = 1, i++;
		if (!known)
			break;
	}
	seen->loadable = 0;
	seen->reason = "the loader itself";
}

/* Fills *seen. Returns why the image cannot be traced, or NULL. seen->error: it is not there at all. */
static const char *look(struct lookahead *seen, const struct exec_request *request)
{
	struct lookahead_caller caller = {.no_new_privileges = 1, .loader_calls_only = 1};
	seen->error = 0;
	if (!loader_calls_allowed())
		return "a system call filter is on: its file was not looked at";
	if (system_calls_allowed())
		lookahead_caller_now(&caller);
	if (!request->path || (!memory_peek_text(request->path) && !(request->flags & AT_EMPTY_PATH))) {
		seen->error = request->path ? ENOENT : EFAULT;
		return "no name";
	}
	lookahead(seen, request->directory, request->path, request->flags, &caller);
	if (seen->loadable && seen->is_loader)
		look_behind_loader(seen, request, &caller);
	if (!seen->loadable)
		return seen->reason;
	if (seen->sanitizers[0]) {
		char library_path[LIBRARY_PATH_ROOM];
		const char *missing = lookahead_missing(seen, request->directory, request->path, request->flags,
							environment_library_path(request->environment, library_path, sizeof library_path));
		if (missing)
			return missing;
	}
	return preload_is_reachable() ? 0 : "liblorg.so cannot be reached from there (chroot, or another user's)";
}

/* ---- preparation ---- */

static void image_executes(struct preparation *preparation)
{
	struct lorg_image *image = arena_image(preparation->self->process->image);
	preparation->image = image;
	if (!image)
		return;
	preparation->image_state = __atomic_load_n(&image->state, __ATOMIC_RELAXED);
	/* Release: the collector that sees it sees the events before. */
	__atomic_store_n(&image->state, LORG_IMAGE_EXECED, __ATOMIC_RELEASE);
}

/* The image that the new one names as the one before it. */
static const uint8_t *image_id_of(const struct thread *self)
{
	const struct lorg_image *image = self && self->process ? arena_image(self->process->image) : 0;
	return image ? image->id : the_program.image_id;
}

static const char *extend(struct preparation *preparation, const struct exec_request *request, const struct lookahead *seen, char *memory,
			  uint32_t count)
{
	struct environment_request wanted = {.given = request->environment,
					     .count = count,
					     .text = memory,
					     .text_room = TEXT_ROOM - ARGV_ROOM,
					     .pointers = (char **)(void *)(memory + TEXT_ROOM),
					     .sanitizers = seen->sanitizers,
					     .image_id = image_id_of(preparation->self),
					     .process = preparation->keeps_flags ? preparation->self->process : 0};
	const char *reason = environment_extend(&wanted);
	if (reason)
		return reason;
	preparation->environment = wanted.pointers;
	preparation->extended = 1;
	return 0;
}

static void prepare(struct preparation *preparation, const struct exec_request *request)
{
	struct lookahead seen;
	struct thread *self = preparation->self;
	const char *reason = look(&seen, request);
	if (seen.error == ENOENT || seen.error == ENOTDIR || seen.error == EFAULT || seen.error == ELOOP || seen.error == ENAMETOOLONG)
		return; /* the call will say so */
	uint32_t count = environment_count(request->environment);
	char *memory = exec_memory(count);
	/* Without a lorgd the program goes as it is: it may find another one by itself. */
	int left_alone = the_arena.live && arena_collector_is_away();
	if (!reason && !left_alone)
		reason = memory ? extend(preparation, request, &seen, memory, count) : "no memory for its environment";
	if (self)
		image_executes(preparation);
	if (!wants_events(self, request->hook))
		return;
	preparation->exec_at = write_exec(self, request, LORG_EVENT_EXEC, 0, memory);
	preparation->packet = self->packet;
	exec_state.recorded = 1;
	if (reason)
		write_gap(preparation, request, reason);
	preparation->ports_from = self->packet ? self->packet->position : 0;
	ports_exec(self);
	preparation->ports_to = self->packet ? self->packet->position : 0;
}

/* The call has come back. */
static void undo(struct preparation *preparation, const struct exec_request *request, int error)
{
	struct thread *self = preparation->self;
	if (preparation->image)
		__atomic_store_n(&preparation->image->state, preparation->image_state, __ATOMIC_RELEASE);
	if (!wants_events(self, request->hook))
		return;
	struct lorg_extended *event = event_at(preparation, preparation->exec_at);
	withdraw(preparation, preparation->gap_at);
	withdraw_closed(preparation);
	if (event) {
		struct lorg_event_EXEC *fields = (void *)(event + 1);
		fields->error = error;
		set_id(event, LORG_EVENT_EXEC_FAILED);
		return;
	}
	if (preparation->exec_at || !request->searching) {
		write_exec(self, request, LORG_EVENT_EXEC_FAILED, error, 0);
		exec_state.recorded = 1;
	}
}

int exec_through(const struct exec_request *request)
{
	struct preparation preparation = {.environment = request->environment};
	int saved_errno = *hook_errno();
	exec_begin();
	if (hook_lives(request->hook)) {
		spawn_settle(request->path, request->argv);
		preparation.self = thread_self();
		preparation.keeps_flags = preparation.self != 0;
	}
	if (the_arena.settings.preload_path[0])
		prepare(&preparation, request);
	*hook_errno() = saved_errno;
	int result = request->real(request, preparation.environment);
	int error = *hook_errno();
	if (error == E2BIG && preparation.extended) {
		write_gap(&preparation, request, "its arguments leave no room for lorg's variables");
		*hook_errno() = saved_errno;
		result = request->real(request, request->environment);
		error = *hook_errno();
	}
	undo(&preparation, request, error);
	if (--exec_state.depth == 0)
		unmap_memory();
	*hook_errno() = error;
	return result;
}

/* ---- the functions ---- */

static int real_execve(const struct exec_request *request, char *const *environment)
{
	return REAL(execve)(request->path, request->argv, environment);
}

static int real_fexecve(const struct exec_request *request, char *const *environment)
{
	return REAL(fexecve)(request->directory, request->argv, environment);
}

static int real_execveat(const struct exec_request *request, char *const *environment)
{
	return REAL(execveat)(request->directory, request->path, request->argv, environment, request->flags);
}

static int execute(uint32_t hook, const char *path, char *const *argv, char *const *environment)
{
	struct exec_request request = {.hook = hook,
				       .directory = AT_FDCWD,
				       .path = path,
				       .argv = argv,
				       .environment = environment,
				       .real = real_execve};
	if (exec_state.outer_hook) {
		request.hook = exec_state.outer_hook - 1;
		request.searching = 1;
	} else if (spawn_under_way.hook == HOOK_posix_spawnp || spawn_under_way.hook == HOOK_posix_spawnp_2_2_5) {
		request.searching = spawn_under_way.how != 0;
	}
	return exec_through(&request);
}

int hook_execve(const char *path, char *const *argv, char *const *environment)
{
	return execute(HOOK_execve, path, argv, environment);
}

int hook_execv(const char *path, char *const *argv)
{
	return execute(HOOK_execv, path, argv, environ);
}

/* ---- names that are looked for in PATH ---- */

enum { FOUND_PATH = 1024 };

static const char *path_variable(void)
{
	for (char *const *entry = environ; entry && *entry; entry++)
		if (text_begins(*entry, "PATH="))
			return *entry + 5;
	return "/bin:/usr/bin";
}

/* Fills `to` with the first file of that name that can be looked at. Returns it, or `name` when there is none. */
static const char *find_in_path(char to[FOUND_PATH], const char *name)
{
	struct lookahead seen;
	struct lookahead_caller caller = {.no_new_privileges = 1, .loader_calls_only = 1};
	const char *list = path_variable();
	uint32_t length = memory_peek_text(name);
	for (uint32_t i = 0; i < length; i++)
		if (name[i] == '/')
			return name;
	while (length && loader_calls_allowed()) {
		char *at = to;
		while (*list && *list != ':' && at < to + FOUND_PATH / 2)
			*at++ = *list++;
		if (at > to)
			*at++ = '/';
		*at = 0;
		text_append(at, to + FOUND_PATH, name);
		lookahead(&seen, AT_FDCWD, to, 0, &caller);
		if (!seen.error)
			return to;
		while (*list && *list != ':')
			list++;
		if (!*list++)
			break;
	}
	return name;
}

char *const *exec_environment(struct thread *self, const char *name, int in_path, char *const *argv, char *const *environment)
{
	char found[FOUND_PATH];
	struct lookahead seen;
	struct preparation preparation = {.self = self, .environment = environment};
	struct exec_request request = {.hook = HOOK_execve,
				       .directory = AT_FDCWD,
				       .path = in_path ? find_in_path(found, name) : name,
				       .argv = argv,
				       .environment = environment};
	if (code_hook_placed(HOOK_execve) || !the_arena.settings.preload_path[0])
		return environment;
	const char *reason = look(&seen, &request);
	if (seen.error)
		return environment;
	uint32_t count = environment_count(environment);
	char *memory = reason ? 0 : exec_memory(count);
	if (!reason)
		reason = memory ? extend(&preparation, &request, &seen, memory, count) : "no memory for its environment";
	if (reason && wants_events(self, HOOK_execve))
		write_gap(&preparation, &request, reason);
	return preparation.environment;
}

static int real_execvpe(const struct exec_request *request, char *const *environment)
{
	return REAL(execvpe)(request->name, request->argv, environment);
}

/* libc's own search is not seen: the file is looked for here, for our sake, and there by libc. */
static int search_unseen(uint32_t hook, const char *name, char *const *argv, char *const *environment)
{
	char found[FOUND_PATH];
	struct exec_request request = {.hook = hook,
				       .directory = AT_FDCWD,
				       .path = find_in_path(found, name),
				       .name = name,
				       .argv = argv,
				       .environment = environment,
				       .real = real_execvpe};
	return exec_through(&request);
}

/* libc looks in PATH; its inner execve comes back here for every place. */
static int search(uint32_t hook, const char *name, char *const *argv, char *const *environment)
{
	if (!code_hook_placed(HOOK_execve))
		return search_unseen(hook, name, argv, environment);
	uint32_t outer_hook = exec_state.outer_hook, recorded = exec_state.recorded;
	exec_state.outer_hook = hook + 1;
	exec_state.recorded = 0;
	int result = REAL(execvpe)(name, argv, environment);
	int saved_errno = *hook_errno();
	struct thread *self = hook_gate(hook) ? thread_self() : 0;
	struct exec_request request = {.hook = hook, .directory = AT_FDCWD, .path = name, .argv = argv};
	if (!exec_state.recorded && wants_events(self, hook))
		write_exec(self, &request, LORG_EVENT_EXEC_FAILED, saved_errno, 0);
	exec_state.outer_hook = outer_hook;
	exec_state.recorded = recorded;
	*hook_errno() = saved_errno;
	return result;
}

int hook_execvp(const char *path, char *const *argv)
{
	return search(HOOK_execvp, path, argv, environ);
}

int hook_execvpe(const char *path, char *const *argv, char *const *environment)
{
	return search(HOOK_execvpe, path, argv, environment);
}

int hook_fexecve(int fd, char *const *argv, char *const *environment)
{
	struct exec_request request = {.hook = HOOK_fexecve,
				       .directory = fd,
				       .flags = AT_EMPTY_PATH,
				       .path = "",
				       .argv = argv,
				       .environment = environment,
				       .real = real_fexecve};
	return exec_through(&request);
}

int hook_execveat(int fd, const char *path, char *const *argv, char *const *environment, int flags)
{
	struct exec_request request = {.hook = HOOK_execveat,
				       .directory = fd,
				       .flags = flags,
				       .path = path,
				       .argv = argv,
				       .environment = environment,
				       .real = real_execveat};
	return exec_through(&request);
}

/* ---- arguments given one by one ---- */

/* How many there are, without the NULL at their end. */
static size_t count_arguments(const char *first, va_list list)
{
	size_t count = 0;
	for (const char *argument = first; argument; argument = va_arg(list, const char *))
		count++;
	return count;
}

/* argv of count + 1 words, as libc itself builds it: on the stack. */
static void take_arguments(char **argv, size_t count, const char *first, va_list list)
{
	argv[0] = (char *)(uintptr_t)first;
	for (size_t i = 1; i <= count; i++)
		argv[i] = va_arg(list, char *);
}

int hook_execl(const char *path, const char *argument, ...)
{
	va_list list;
	va_start(list, argument);
	size_t count = count_arguments(argument, list);
	va_end(list);
	char *argv[count + 1];
	va_start(list, argument);
	take_arguments(argv, count, argument, list);
	va_end(list);
	return execute(HOOK_execl, path, argv, environ);
}

int hook_execlp(const char *path, const char *argument, ...)
{
	va_list list;
	va_start(list, argument);
	size_t count = count_arguments(argument, list);
	va_end(list);
	char *argv[count + 1];
	va_start(list, argument);
	take_arguments(argv, count, argument, list);
	va_end(list);
	return search(HOOK_execlp, path, argv, environ);
}

int hook_execle(const char *path, const char *argument, ...)
{
	va_list list;
	va_start(list, argument);
	size_t count = count_arguments(argument, list);
	va_end(list);
	char *argv[count + 1];
	va_start(list, argument);
	take_arguments(argv, count, argument, list);
	/* With no argument at all, the NULL was the parameter itself. */
	char *const *environment = va_arg(list, char *const *);
	va_end(list);
	return execute(HOOK_execle, path, argv, environment);
}
