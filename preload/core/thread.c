/* SPDX-License-Identifier: MIT */
/*
 * thread.c: entries of images and processes, and who owns them.
 *
 * A shared child (vfork, posix_spawn) runs on its parent's memory: while it
 * does, this_thread names an entry of the child's, and the_program stays the
 * parent's.
 */
#include "preload/core/thread.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "preload/call/call.h"
#include "preload/core/event.h"
#include "preload/core/flags.h"
#include "preload/core/make_way.h"
#include "preload/core/module.h"
#include "preload/core/raw.h"

__thread struct thread this_thread __attribute__((tls_model("initial-exec")));
struct program the_program FORK_STATE;

/* The page that MADV_WIPEONFORK clears in a child. Until program_begin it says "not ours". */
volatile uint32_t fork_guard[FORK_GUARD_WORDS] __attribute__((aligned(4096)));

/* Slabs of process entries that this image knows. Grows by fetch_add; a fork child inherits a copy. */
static uint32_t slabs[1024];
static uint32_t slab_count FORK_STATE;
static uint32_t slab_hint FORK_STATE;

enum { GLIBC_TID_OFFSET = 0x2d0 }; /* struct pthread.tid on x86-64, glibc 2.24 to 2.41; verified at start */

static uint32_t block_tid(void)
{
	uint32_t tid;
	__asm__("movl %%fs:(%1), %0" : "=r"(tid) : "r"((uint64_t)the_program.tid_offset));
	return tid;
}

uint32_t thread_own_tid(void)
{
	if (the_program.tid_offset)
		return block_tid();
	return system_calls_allowed() ? (uint32_t)raw_gettid() : 0;
}

uint32_t program_own_pid(void)
{
	return the_program.own_pid;
}

/* ---- the numbers that the collector knows ---- */

/*
 * In a pid namespace of its own a program does not know by which number others see it, but /proc does as long as it is
 * that of the namespace outside. A program may be gone before anybody else could ask.
 */
static uint32_t last_number(const char *link)
{
	char text[64];
	uint32_t number = 0;
	if (!the_arena.same_proc || !system_calls_allowed())
		return 0;
	long length = raw_syscall3(SYS_readlink, (long)link, (long)text, sizeof text);
	for (long i = 0; !raw_failed(length) && i < length; i++) {
		if (text[i] >= '0' && text[i] <= '9')
			number = number * 10 + (uint32_t)(text[i] - '0');
		else
			number = 0;
	}
	return number;
}

static uint32_t pid_in_proc(void)
{
	return last_number("/proc/self"); /* "PID" */
}

/* Most threads are numbered alike everywhere, and nothing is asked. */
static uint32_t tid_in_proc(void)
{
	return the_program.nested ? last_number("/proc/thread-self") : 0; /* "PID/task/TID" */
}

/*
 * A fork child is numbered as its parent is, unless it is the first of a namespace of its own, or of one that its parent
 * has gone to: then it has no parent that it can see. Asked first, since /proc costs more.
 */
static int is_numbered_alike(const struct lorg_image *image)
{
	return !the_program.nested && image->own_pid && system_calls_allowed() && raw_syscall3(SYS_getppid, 0, 0, 0) > 0;
}

/* To be called when image->own_pid stands. */
static void learn_proc_pid(struct lorg_image *image)
{
	image->proc_pid = pid_in_proc();
	the_program.nested = image->proc_pid && image->own_pid && image->proc_pid != image->own_pid;
}

/* The same for a fork child. */
static void learn_proc_pid_of_child(struct lorg_image *image)
{
	if (is_numbered_alike(image))
		image->proc_pid = the_arena.same_proc ? image->own_pid : 0;
	else
		learn_proc_pid(image);
}

static void learn_tid_offset(void)
{
	the_program.tid_offset = GLIBC_TID_OFFSET;
	uint32_t tid = block_tid();
	if (system_calls_allowed() ? tid != (uint32_t)raw_gettid() : tid == 0 || tid > 1u << 22)
		the_program.tid_offset = 0;
}

/* The kernel's auxiliary vector, behind envp's end; set once by program_begin. */
static const uint64_t *auxiliary_vector;

uint64_t auxiliary_value(uint64_t type)
{
	for (const uint64_t *entry = auxiliary_vector; entry && entry[0]; entry += 2)
		if (entry[0] == type)
			return entry[1];
	return 0;
}

/* ---- images ---- */

/* Unique without asking the kernel: the parent's id, the clock and a counter, mixed (splitmix64). */
static uint64_t mix(uint64_t value)
{
	value += 0x9e3779b97f4a7c15u;
	value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
	value = (value ^ value >> 27) * 0x94d049bb133111ebu;
	return value ^ value >> 31;
}

static void make_image_id(uint8_t id[16], const uint8_t seed[16])
{
	static uint64_t counter FORK_STATE;
	uint64_t words[2];
	uint64_t number = __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
	memcpy(words, seed, sizeof words);
	words[0] = mix(words[0] ^ mix(clock_now()) ^ number);
	words[1] = mix(words[1] ^ mix(words[0]) ^ (uint64_t)(uintptr_t)__builtin_frame_address(0));
	memcpy(id, words, sizeof words);
}

static uint32_t image_take(enum lorg_birth birth, const uint8_t seed[16])
{
	for (uint32_t i = 0; i < LORG_IMAGES; i++) {
		struct lorg_image *image = arena_image(i);
		uint32_t expected = LORG_IMAGE_FREE;
		if (__atomic_load_n(&image->state, __ATOMIC_RELAXED) != LORG_IMAGE_FREE ||
		    !__atomic_compare_exchange_n(&image->state, &expected, LORG_IMAGE_STARTING, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		image->own_pid = image->proc_pid = image->first_process = 0;
		image->birth = birth;
		image->start_tick = clock_now();
		make_image_id(image->id, seed);
		uint32_t *high = &the_arena.shared->image_high_water;
		uint32_t seen = __atomic_load_n(high, __ATOMIC_RELAXED);
		while (seen < i + 1 && !__atomic_compare_exchange_n(high, &seen, i + 1, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			;
		return i;
	}
	return UINT32_MAX;
}

static void image_give_back(uint32_t index)
{
	struct lorg_image *image = arena_image(index);
	memset((char *)image + sizeof image->state, 0, sizeof *image - sizeof image->state);
	__atomic_store_n(&image->state, LORG_IMAGE_FREE, __ATOMIC_RELEASE);
}

/* ---- process entries ---- */

static struct lorg_process *take_in_slab(uint32_t chunk)
{
	for (uint32_t slot = 0; slot < LORG_SLAB_ENTRIES; slot++) {
		uint32_t index = chunk * LORG_SLAB_ENTRIES + slot;
		struct lorg_process *process = arena_process(index);
		if (!process)
			return 0;
		uint32_t expected = LORG_PROCESS_FREE;
		/* Acquire: pairs with the collector's release of a cleaned entry. */
		if (__atomic_load_n(&process->state, __ATOMIC_RELAXED) != LORG_PROCESS_FREE ||
		    !__atomic_compare_exchange_n(&process->state, &expected, LORG_PROCESS_STARTING, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		process->index = index;
		/* The collector looks at its entries again, before this one is told of: see LORG_SLAB_IN_USE. */
		uint64_t in_use = lorg_chunk_word(LORG_CHUNK_SLAB, 0, LORG_SLAB_IN_USE), *control = arena_chunk_control(chunk);
		if (__atomic_load_n(control, __ATOMIC_RELAXED) != in_use)
			__atomic_store_n(control, in_use, __ATOMIC_RELEASE);
		return process;
	}
	return 0;
}

/* One that the collector has found empty: also of a fork child that has ended, of whose slabs nobody else knows. */
static uint32_t take_empty_slab(void)
{
	uint32_t used = __atomic_load_n(&the_arena.shared->chunk_high_water, __ATOMIC_RELAXED);
	uint32_t mapped = __atomic_load_n(&the_arena.mapped_chunks, __ATOMIC_ACQUIRE);
	for (uint32_t chunk = 0; chunk < used && chunk < mapped; chunk++) {
		uint64_t empty = lorg_chunk_word(LORG_CHUNK_SLAB, 0, 0), in_use = lorg_chunk_word(LORG_CHUNK_SLAB, 0, LORG_SLAB_IN_USE);
		uint64_t *control = arena_chunk_control(chunk);
		/* Acquire: pairs with the collector's store when it had let the entries go. */
		if (__atomic_load_n(control, __ATOMIC_RELAXED) == empty &&
		    __atomic_compare_exchange_n(control, &empty, in_use, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return chunk;
	}
	return UINT32_MAX;
}

static void remember_slab(uint32_t chunk)
{
	uint32_t count = __atomic_load_n(&slab_count, __ATOMIC_RELAXED), at = 0;
	if (count > sizeof slabs / sizeof *slabs)
		count = sizeof slabs / sizeof *slabs;
	while (at < count && __atomic_load_n(&slabs[at], __ATOMIC_RELAXED) != chunk + 1)
		at++;
	if (at == count)
		at = __atomic_fetch_add(&slab_count, 1, __ATOMIC_RELAXED);
	if (at < sizeof slabs / sizeof *slabs) {
		__atomic_store_n(&slabs[at], chunk + 1, __ATOMIC_RELEASE);
		__atomic_store_n(&slab_hint, at, __ATOMIC_RELAXED);
	}
}

/* While nobody gives entries back, threads that come and go must not use up memory: they get one when a call of theirs is asked for. */
static struct lorg_process *take_in_new_slab(void)
{
	if (the_arena.live && arena_collector_is_away())
		return 0;
	struct lorg_process *process = 0;
	/* Others may know a slab that was empty, too, and be faster. */
	for (int attempt = 0; attempt < 4 && !process; attempt++) {
		uint32_t chunk = attempt < 3 ? take_empty_slab() : UINT32_MAX;
		if (chunk == UINT32_MAX)
			chunk = arena_take_chunk(LORG_CHUNK_SLAB, 0, LORG_SLAB_IN_USE);
		if (chunk == UINT32_MAX)
			return 0;
		remember_slab(chunk);
		process = take_in_slab(chunk);
	}
	return process;
}

static struct lorg_process *process_take(uint32_t image_index)
{
	uint32_t count = __atomic_load_n(&slab_count, __ATOMIC_RELAXED);
	uint32_t hint = __atomic_load_n(&slab_hint, __ATOMIC_RELAXED);
	if (count > sizeof slabs / sizeof *slabs)
		count = sizeof slabs / sizeof *slabs;
	struct lorg_process *process = 0;
	/* A few slabs are looked at, then a new one is taken: the search stays bounded with thousands of threads. */
	for (uint32_t i = 0; i < 4 && i < count && !process; i++) {
		uint32_t chunk = __atomic_load_n(&slabs[(hint + i) % count], __ATOMIC_ACQUIRE);
		process = chunk ? take_in_slab(chunk - 1) : 0;
		if (!process)
			continue;
		__atomic_store_n(&slab_hint, (hint + i) % count, __ATOMIC_RELAXED);
	}
	if (!process && count > 4)
		__atomic_store_n(&slab_hint, (hint + 4) % count, __ATOMIC_RELAXED);
	if (!process)
		process = take_in_new_slab();
	if (!process)
		return 0;
	process->image = image_index;
	process->birth_tick = clock_now();
	flags_begin(process);
	return process;
}

static void process_give_back(struct lorg_process *process)
{
	memset((char *)process + sizeof process->state, 0, sizeof *process - sizeof process->state);
	__atomic_store_n(&process->state, LORG_PROCESS_FREE, __ATOMIC_RELEASE);
}

/* Makes `process` the calling thread's. */
static void thread_become(struct thread *self, struct lorg_process *process)
{
	self->packet = 0;
	self->sequence = 0;
	self->ending = 0;
	self->exit_position = 0;
	self->waited_in_vain = 0;
	self->other_clock = the_arena.clock.source != LORG_CLOCK_TSC;
	self->process_index = process->index;
	self->moves = arena_moves();
	self->flags_matter = the_arena.flags_matter;
	__atomic_store_n(&process->state, LORG_PROCESS_ALIVE, __ATOMIC_RELEASE);
	/* Last: a signal handler that sees the entry may write. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	self->process = process;
}

/* ---- claiming ---- */

/* The entry becomes the calling thread's; NULL: there is none. */
static struct thread *claim_entry(struct thread *self, struct lorg_process *process)
{
	if (!process) {
		__atomic_fetch_add(&the_arena.shared->uncounted_lost, 1, __ATOMIC_RELAXED);
		return 0;
	}
	process->own_tid = thread_own_tid();
	process->proc_tid = tid_in_proc();
	thread_become(self, process);
	return self;
}

static struct thread *claim_as_new_thread(struct thread *self)
{
	struct lorg_process *process = thread_announced(self);
	if (process) {
		thread_adopt(process);
		return self;
	}
	if (!claim_entry(self, process_take(the_program.image_index)))
		return 0;
	flags_tell(self);
	return self;
}

/* The first thread of this program. */
static struct thread *claim_as_first_thread(struct thread *self)
{
	struct lorg_process *process = process_take(the_program.image_index);
	if (process)
		flags_kept(process);
	return claim_entry(self, process);
}

/* The entry of the first thread of an image that a fork has made; maker: of the forking thread, NULL if not known. */
static struct lorg_process *first_entry(uint32_t image_index, const struct lorg_process *maker)
{
	struct lorg_image *image = arena_image(image_index);
	struct lorg_process *process = image->first_process ? arena_process(image->first_process - 1) : 0;
	image->first_process = 0;
	if (process)
		return process;
	process = process_take(image_index);
	if (process && maker && the_arena.flags_matter)
		flags_inherit(process, maker);
	return process;
}

/* Reserved before the fork, so that what it inherits is its maker's flags of that moment, and the first child is the first. */
static void reserve_first_entry(uint32_t image_index, const struct lorg_process *maker)
{
	struct lorg_process *process = the_arena.flags_matter ? process_take(image_index) : 0;
	if (!process)
		return;
	if (maker)
		flags_inherit(process, maker);
	arena_image(image_index)->first_process = process->index + 1;
}

static int is_attached(void)
{
	return the_arena.shared && hook_gates == the_arena.shared->gate;
}

void thread_share_storage(void)
{
	this_thread.off = system_calls_allowed() ? THREAD_OFF_CHECK : THREAD_OFF_FOREVER;
}

/*
 * A shared child may have gone on to another program, and its parent be back on this storage without having passed
 * a hook; or a task made by clone runs on it beside the thread.
 */
static struct thread *claim_shared_storage(struct thread *self)
{
	if (!system_calls_allowed())
		return self->vfork_child ? self : 0;
	if (!self->vfork_child)
		return self->process && (uint32_t)raw_gettid() == self->process->own_tid ? self : 0;
	if ((uint32_t)raw_getpid() == the_program.own_pid)
		thread_leave_shared_child();
	return self;
}

/* A fork that a wrapper announced, but whose child ran something (an atfork handler) before the wrapper went on. */
static void claim_as_fork_child(struct thread *self)
{
	uint32_t announced = self->fork_image;
	uint32_t how = announced ? self->fork_how : LORG_BIRTH_UNSEEN;
	program_fork_child(announced ? announced - 1 : UINT32_MAX, (enum lorg_birth)how);
}

struct thread *thread_claim(void)
{
	struct thread *self = &this_thread;
	if (!is_attached() || self->off == THREAD_OFF_FOREVER || self->claiming)
		return 0;
	int owned = *fork_guard || fork_guard[FORK_GUARD_MOVED];
	if (owned)
		arena_follow(self);
	if (self->off == THREAD_OFF_CHECK && owned)
		return claim_shared_storage(self);
	self->claiming = 1;
	struct thread *result = self;
	if (!owned)
		claim_as_fork_child(self);
	else if (!self->process)
		result = claim_as_new_thread(self);
	self->claiming = 0;
	return result && self->process ? self : 0;
}

/* What threads without an entry write to: never read, so that it does not matter who wrote it. */
static struct lorg_process nobody;

void thread_give_up(struct thread *self)
{
	/* A shared child's parent has an entry of its own to go back to. */
	if (!self->vfork_child)
		self->off = THREAD_OFF_FOREVER;
	call_counters_forget(self);
	self->packet = 0;
	self->process_index = UINT32_MAX; /* not nobody's: it is never taken for an owner */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	self->process = &nobody;
}

/* ---- the program's beginning ---- */

static void guard_begin(void)
{
	long advised = raw_madvise((void *)fork_guard, sizeof fork_guard, MADV_WIPEONFORK);
	*fork_guard = 1;
	if (raw_failed(advised)) {
		/* No such advice (an old kernel): only forks that pass a hook are noticed. */
		the_arena.shared->damage_count++;
	}
}

/* The strings of argv stand one after the other; at most LORG_TEXT_MAXIMUM bytes of them. */
static struct event_bytes argument_bytes(int argc, char **argv)
{
	struct event_bytes bytes = {0, 0};
	if (argc < 1 || !argv[0])
		return bytes;
	bytes.data = argv[0];
	for (int i = 0; i < argc && argv[i] && bytes.length < LORG_TEXT_MAXIMUM; i++) {
		if (argv[i] != argv[0] + bytes.length)
			break;
		bytes.length += (uint32_t)text_length(argv[i], LORG_TEXT_MAXIMUM) + 1;
	}
	if (bytes.length > LORG_TEXT_MAXIMUM)
		bytes.length = LORG_TEXT_MAXIMUM;
	return bytes;
}

static void write_image(struct thread *self, struct lorg_image *image, struct event_bytes file, struct event_bytes arguments)
{
	struct lorg_event_IMAGE event = {.entry_address = auxiliary_value(AT_ENTRY),
					 .birth = image->birth,
					 .own_pid = image->own_pid,
					 .parent_pid = image->parent_pid,
					 .uid = (uint32_t)auxiliary_value(AT_UID),
					 .file_length = file.length,
					 .argv_length = arguments.length};
	memcpy(&event.parent_image_low, image->parent_id, 8);
	memcpy(&event.parent_image_high, image->parent_id + 8, 8);
	struct event_bytes bytes[] = {file, arguments};
	event_write(self, LORG_EVENT_IMAGE, &event, sizeof event, bytes, 2, 0);
}

/* The file of this program, for IMAGE events; set once at the beginning. */
static char program_file[512];
static uint32_t program_file_length;

void program_tell_again(void)
{
	struct thread *self = &this_thread;
	uint32_t told = __atomic_load_n(&the_arena.told_epoch, __ATOMIC_RELAXED);
	if (self->busy || self->vfork_child || !the_program.image || told == the_arena.collector_epoch ||
	    !__atomic_compare_exchange_n(&the_arena.told_epoch, &told, the_arena.collector_epoch, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return;
	write_image(self, the_program.image, (struct event_bytes){program_file, program_file_length}, (struct event_bytes){0, 0});
	modules_forget();
	modules_tell(self);
	functions_forget();
}

void program_begin(int argc, char **argv, char **envp)
{
	static const uint8_t zero[16];
	struct thread *self = &this_thread;
	const uint8_t *previous = the_arena.settings.previous_image;
	enum lorg_birth birth = memcmp(previous, zero, 16) ? LORG_BIRTH_EXEC : LORG_BIRTH_COMMAND;
	while (*envp)
		envp++;
	auxiliary_vector = (const uint64_t *)(envp + 1);
	const void *random = (const void *)auxiliary_value(AT_RANDOM);
	learn_tid_offset();
	uint32_t index = image_take(birth, random ? random : previous);
	if (index == UINT32_MAX) {
		arena_give_up(LORG_ATTACH_NO_IMAGE);
		return;
	}
	struct lorg_image *image = arena_image(index);
	the_program.image = image;
	the_program.image_index = index;
	the_program.own_pid = the_program.tid_offset ? block_tid() : system_calls_allowed() ? (uint32_t)raw_getpid() : 0;
	memcpy(the_program.image_id, image->id, 16);
	memcpy(image->parent_id, previous, 16);
	image->own_pid = the_program.own_pid;
	image->seccomp = the_program.seccomp;
	learn_proc_pid(image);
	if (system_calls_allowed()) {
		image->parent_pid = (uint32_t)raw_syscall3(SYS_getppid, 0, 0, 0);
		long got = raw_syscall3(SYS_readlink, (long)"/proc/self/exe", (long)program_file, sizeof program_file);
		program_file_length = raw_failed(got) ? 0 : (uint32_t)got;
	}
	if (!program_file_length) {
		const char *name = (const char *)auxiliary_value(AT_EXECFN);
		program_file_length = name ? (uint32_t)text_length(name, sizeof program_file) : 0;
		memcpy(program_file, name, program_file_length);
	}
	guard_begin();
	/* Release: the collector reads the fields once it sees ALIVE. */
	__atomic_store_n(&image->state, LORG_IMAGE_ALIVE, __ATOMIC_RELEASE);
	self->begun = 1;
	if (!claim_as_first_thread(self))
		return;
	write_image(self, image, (struct event_bytes){program_file, program_file_length}, argument_bytes(argc, argv));
	modules_tell(self);
	flags_tell(self);
	the_arena.told_epoch = the_arena.collector_epoch;
}

/* ---- fork ---- */

uint32_t program_fork_before(enum lorg_birth how)
{
	if (!is_attached())
		return UINT32_MAX;
	uint32_t index = image_take(how, the_program.image_id);
	if (index == UINT32_MAX)
		return index;
	struct lorg_image *image = arena_image(index);
	struct thread *self = &this_thread;
	const struct lorg_image *parent = self->process ? arena_image(self->process->image) : 0;
	memcpy(image->parent_id, parent ? parent->id : the_program.image_id, 16);
	image->parent_pid = the_program.own_pid;
	reserve_first_entry(index, self->process);
	return index;
}

/* The image that a fork child becomes: the reserved one, or one of its own. */
static uint32_t child_image(uint32_t reserved, enum lorg_birth how)
{
	if (reserved != UINT32_MAX)
		return reserved;
	uint32_t index = image_take(how, the_program.image_id);
	if (index == UINT32_MAX)
		return index;
	struct lorg_image *image = arena_image(index);
	memcpy(image->parent_id, the_program.image_id, 16);
	image->parent_pid = the_program.own_pid;
	return index;
}

/* glibc's fork has set the tid of the child's block; a raw one has not. */
static uint32_t child_pid(enum lorg_birth how)
{
	if (system_calls_allowed())
		return (uint32_t)raw_getpid();
	return how == LORG_BIRTH_FORK && the_program.tid_offset ? block_tid() : 0;
}

static void write_spawned(struct thread *self, const struct lorg_image *image, enum lorg_birth how, uint32_t parent_tid,
			  const struct thread_birth *birth)
{
	struct event_bytes bytes[] = {{birth->file, birth->file_length}, {birth->argv, birth->argv_length}};
	struct lorg_event_SPAWNED event = {.caller = birth->caller,
					   .routine = birth->routine,
					   .argument = birth->argument,
					   .how = how,
					   .parent_pid = image->parent_pid,
					   .parent_tid = parent_tid,
					   .file_length = birth->file_length,
					   .argv_length = birth->argv_length};
	memcpy(&event.parent_image_low, image->parent_id, 8);
	memcpy(&event.parent_image_high, image->parent_id + 8, 8);
	event_write(self, LORG_EVENT_SPAWNED, &event, sizeof event, bytes, 2, 0);
}

void program_fork_child(uint32_t reserved, enum lorg_birth how)
{
	struct thread *self = &this_thread;
	uint32_t was_claiming = self->claiming, no_clock = self->no_clock;
	struct call_thread *call = self->call;
	uint32_t parent = self->process_index, parent_tid = self->process ? self->process->own_tid : 0;
	struct lorg_process *from = self->process ? arena_process(parent) : 0, *maker = reserved == UINT32_MAX ? 0 : from;
	/* Of our copy of the maker's storage: the maker goes on meanwhile. */
	struct thread_birth birth = {.caller = 0};
	if (maker)
		birth = (struct thread_birth){.caller = self->fork_caller, .routine = self->fork_routine, .argument = self->fork_argument};
	memset(self, 0, sizeof *self);
	self->claiming = 1;
	self->begun = 1;
	self->no_clock = no_clock;
	if (!is_attached()) {
		self->claiming = was_claiming;
		return;
	}
	uint32_t index = child_image(reserved, how);
	if (index == UINT32_MAX) {
		arena_give_up(LORG_ATTACH_NO_IMAGE);
		self->claiming = was_claiming;
		return;
	}
	struct lorg_image *image = arena_image(index);
	the_program.own_pid = child_pid(how);
	the_program.image = image;
	the_program.image_index = index;
	the_program.ending = 0;
	memcpy(the_program.image_id, image->id, 16);
	image->birth = how;
	image->own_pid = the_program.own_pid;
	image->seccomp = the_program.seccomp;
	learn_proc_pid_of_child(image);
	if (maker)
		spawning_child_runs(maker, LORG_SPAWNING_IMAGE | (index + 1), the_program.own_pid);
	modules_forget();
	the_arena.told_epoch = the_arena.collector_epoch;
	arena_fork_child();
	*fork_guard = 1;
	__atomic_store_n(&image->state, LORG_IMAGE_ALIVE, __ATOMIC_RELEASE);
	if (claim_entry(self, first_entry(index, from))) {
		self->process->parent = parent;
		/* Its only thread. A raw fork leaves the parent's tid in libc's block. */
		if (the_program.own_pid)
			self->process->own_tid = the_program.own_pid;
		call_forked(self, call);
		write_image(self, image, (struct event_bytes){program_file, program_file_length}, (struct event_bytes){0, 0});
		flags_tell(self);
		write_spawned(self, image, how, parent_tid, &birth);
	}
	self->claiming = was_claiming;
}

void program_fork_parent(uint32_t image_index, int pid)
{
	if (image_index == UINT32_MAX)
		return;
	struct lorg_image *image = arena_image(image_index);
	if (pid < 0) {
		struct lorg_process *first = image->first_process ? arena_process(image->first_process - 1) : 0;
		if (first)
			process_give_back(first);
		image_give_back(image_index);
		return;
	}
	/* The child may have written it already, as it sees itself; a pid is the same word in both unless it is in a namespace. */
	uint32_t unknown = 0;
	__atomic_compare_exchange_n(&image->own_pid, &unknown, (uint32_t)pid, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* ---- children on our memory ---- */

void thread_enter_shared_child(uint32_t reserved, enum lorg_birth how, uint32_t pid, const struct thread_birth *birth)
{
	static const struct thread_birth unknown;
	struct thread *self = &this_thread;
	if (self->vfork_child || !is_attached())
		return;
	uint32_t index = child_image(reserved, how);
	struct lorg_process *process = index == UINT32_MAX ? 0 : first_entry(index, self->process);
	if (!process)
		return;
	if (!pid && system_calls_allowed())
		pid = (uint32_t)raw_getpid();
	struct lorg_image *image = arena_image(index);
	image->birth = how;
	image->own_pid = pid;
	image->proc_pid = !is_numbered_alike(image) ? pid_in_proc() : the_arena.same_proc ? pid : 0;
	image->vfork_child = 1;
	process->own_tid = pid;
	self->parent.packet = self->packet;
	self->parent.process = self->process;
	self->parent.process_index = self->process_index;
	self->parent.sequence = self->sequence;
	self->vfork_child = 1;
	self->off = THREAD_OFF_CHECK;
	process->parent = self->parent.process_index;
	__atomic_store_n(&image->state, LORG_IMAGE_ALIVE, __ATOMIC_RELEASE);
	thread_become(self, process);
	call_shared_child_begins(self);
	write_image(self, image, (struct event_bytes){program_file, program_file_length}, (struct event_bytes){0, 0});
	flags_tell(self);
	write_spawned(self, image, how, self->parent.process ? self->parent.process->own_tid : 0, birth ? birth : &unknown);
}

/* The scratch memory goes back clean, as every free chunk. */
static void give_back_chunk(uint32_t *owner)
{
	uint32_t chunk = *owner;
	void *memory = chunk ? arena_chunk(chunk - 1) : 0;
	if (!memory)
		return;
	*owner = 0;
	memset(memory, 0, LORG_CHUNK_SIZE);
	__atomic_store_n(arena_chunk_control(chunk - 1), 0, __ATOMIC_RELEASE);
}

static void give_back_scratch(struct lorg_process *process)
{
	give_back_chunk(&process->scratch_chunk);
	for (unsigned i = 0; i < sizeof process->match_scratch / sizeof *process->match_scratch; i++)
		give_back_chunk(&process->match_scratch[i]);
}

void thread_leave_shared_child(void)
{
	struct thread *self = &this_thread;
	if (!self->vfork_child)
		return;
	struct lorg_process *child = self->process;
	struct lorg_packet *packet = self->packet;
	self->packet = self->parent.packet;
	self->process = self->parent.process;
	self->process_index = self->parent.process_index;
	self->sequence = self->parent.sequence;
	self->ending = 0;
	self->exit_position = 0;
	self->vfork_child = 0;
	self->off = 0;
	call_shared_child_ends(self);
	memset(&self->parent, 0, sizeof self->parent);
	if (child == &nobody)
		return;
	if (packet)
		event_finish_packet(packet, child->index);
	give_back_scratch(child);
	wait_clear_entry(child);
	__atomic_store_n(&child->state, LORG_PROCESS_ENDED, __ATOMIC_RELEASE);
}

/* ---- threads ---- */

struct lorg_process *thread_announce(void)
{
	struct thread *self = thread_self();
	if (!self)
		return 0;
	struct lorg_process *process = process_take(self->process->image);
	if (!process)
		return 0;
	process->parent = self->process_index;
	process->runtime_id = 0;
	if (the_arena.flags_matter)
		flags_inherit(process, self->process);
	return process;
}

/* What the thread has written before it was known which it is stays with an entry of its own. */
static void leave_entry(struct thread *self)
{
	struct lorg_process *process = self->process;
	struct lorg_packet *packet = self->packet;
	self->packet = 0;
	call_counters_forget(self);
	self->call = 0; /* no call is open in it yet that is more than an entry */
	if (packet)
		event_finish_packet(packet, process->index);
	give_back_scratch(process);
	__atomic_store_n(&process->state, LORG_PROCESS_ENDED, __ATOMIC_RELEASE);
}

void thread_adopt(struct lorg_process *entry)
{
	if (this_thread.process)
		leave_entry(&this_thread);
	entry->own_tid = thread_own_tid();
	entry->proc_tid = tid_in_proc();
	thread_become(&this_thread, entry);
	flags_tell(&this_thread);
}

void thread_abandon(struct lorg_process *entry)
{
	process_give_back(entry);
}

static void tell_unregister(struct thread *self)
{
	const struct lorg_process *process = self->process;
	struct event_bytes bytes[] = {{process->name, (uint32_t)text_length(process->name, sizeof process->name)}, {0, 0}};
	struct lorg_event_UNREGISTER event = {.tid = process->own_tid, .fd = -1, .name_length = bytes[0].length};
	if (bytes[0].length)
		event_write(self, LORG_EVENT_UNREGISTER, &event, sizeof event, bytes, 2, 0);
}

/* A recording has every exit; sessions those that they ask for, and then the end of the name. */
static void tell_exit(struct thread *self)
{
	if (the_arena.live && !(session_flags(self->process, 0) & LORG_TRACE_PROCS))
		return;
	event_write_exit(self);
	if (the_arena.live)
		tell_unregister(self);
}

void thread_exit(int program, enum lorg_reason reason, int status, uint32_t hook)
{
	struct thread *self = &this_thread;
	if (!self->process || !is_attached())
		return;
	struct lorg_process *process = self->process;
	process->exit.program = (uint32_t)program;
	process->exit.reason = reason;
	process->exit.status = status;
	process->exit.hook = hook;
	event_withdraw_exit(self);
	self->ending = 1;
	tell_exit(self);
	process->exit_tick = clock_now();
	__atomic_store_n(&process->state, LORG_PROCESS_ENDING, __ATOMIC_RELEASE);
	if (!program)
		return;
	struct lorg_image *image = arena_image(process->image);
	if (!image) /* the entry has been overwritten */
		return;
	image->exit_status = status;
	image->has_exit_status = 1;
	image->end_tick = process->exit_tick;
	__atomic_store_n(&image->state, LORG_IMAGE_ENDING, __ATOMIC_RELEASE);
}

void *thread_scratch(void)
{
	struct thread *self = &this_thread;
	if (!self->process)
		return 0;
	if (self->process->scratch_chunk)
		return arena_chunk(self->process->scratch_chunk - 1);
	uint32_t chunk = arena_take_chunk(LORG_CHUNK_SCRATCH, 0, self->process_index);
	if (chunk == UINT32_MAX)
		return 0;
	self->process->scratch_chunk = chunk + 1;
	return arena_chunk(chunk);
}
