/* SPDX-License-Identifier: MIT */
/*
 * attach_late.c: see attach_late.h and include/lorg/late.h.
 *
 * What is called here runs in a thread that was taken out of whatever it waited for, beside all others. It is told by the
 * collector step by step, so that between two steps all threads can be held and the C library's code be changed. Each
 * step leaves the program whole; the last can be taken back.
 */
#include "preload/core/attach_late.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <lorg/late.h>

#include "preload/core/raw.h"
#include "preload/core/reach.h"
#include "preload/core/thread.h"
#include "preload/hook.h"
#include "preload/hooks/exit.h"
#include "preload/patch/late_slots.h"
#include "preload/patch/patch.h"
#include "preload/resolve/code_hook.h"
#include "preload/resolve/resolve.h"

/* Where the note of abi_note.c leads. Its patches are written once; `placed` by the collector. */
HIDDEN struct lorg_late lorg_late = {
	.magic = LORG_LATE_MAGIC, .size = sizeof(struct lorg_late), .entry = (uint64_t)(uintptr_t)remote_entry};

/* ---- the constructor ---------------------------------------------------------- */

static int argument_count;
static char **arguments;

/* At the start it stands before the C library, whose functions it takes the place of. */
int late_loaded(int argc, char **argv)
{
	const struct link_map *own = link_map_own(), *libc = object_find("libc.so.6");
	const struct link_map *object = libc;
	while (object && object != own)
		object = object->l_next;
	if (!own || !libc || !object)
		return 0;
	argument_count = argc;
	arguments = argv;
	return 1;
}

void late_from_start(int argc, char **argv)
{
	argument_count = argc;
	arguments = argv;
	lorg_late.from_start = 1;
}

void late_attached(void)
{
	__atomic_store_n(&lorg_late.state, LORG_LATE_ATTACHED, __ATOMIC_RELEASE);
}

/* ---- steps ------------------------------------------------------------------------ */

static void answer(struct lorg_late_words *words, enum lorg_late_answer how, const char *why)
{
	text_append(words->why, words->why + sizeof words->why, why);
	words->answer = how;
}

enum { AUXILIARY_WORDS = 128 };

/*
 * The kernel's auxiliary vector, behind an empty environment: by now the program's own may lie anywhere. Static, since
 * program_begin keeps the address.
 */
static char **environment_before_vector(void)
{
	static uint64_t words[1 + AUXILIARY_WORDS + 2];
	long fd = raw_openat("/proc/self/auxv", O_RDONLY | O_CLOEXEC);
	if (raw_failed(fd))
		return 0;
	long length = raw_syscall3(SYS_read, fd, (long)(words + 1), AUXILIARY_WORDS * sizeof *words);
	raw_close((int)fd);
	return raw_failed(length) || length < 16 ? 0 : (char **)words;
}

static enum lorg_late_state state(void)
{
	return (enum lorg_late_state)__atomic_load_n(&lorg_late.state, __ATOMIC_ACQUIRE);
}

static void set_state(enum lorg_late_state to)
{
	__atomic_store_n(&lorg_late.state, to, __ATOMIC_RELEASE);
}

static void attach_first(struct lorg_late_words *words, const struct lorg_settings *settings)
{
	char **environment = environment_before_vector();
	if (the_arena.shared) { /* there was no room for another image in it */
		answer(words, LORG_LATE_REFUSED, "it has been attached in vain before");
		return;
	}
	if (!environment) {
		answer(words, LORG_LATE_REFUSED, "it cannot read /proc/self/auxv");
		return;
	}
	if (!lorg_late.from_start && hooks_resolve_late()) {
		answer(words, LORG_LATE_REFUSED, "its loader is not the GNU one");
		return;
	}
	if (start_late(argument_count, arguments, environment, settings)) {
		answer(words, LORG_LATE_REFUSED, "it cannot reach the collector's memory");
		return;
	}
	code_hooks_prepare(&lorg_late);
	set_state(LORG_LATE_ATTACHED);
	answer(words, LORG_LATE_DONE, "");
}

static void attach(struct lorg_late_words *words)
{
	static struct lorg_settings settings;
	words->settings[sizeof words->settings - 1] = words->library[sizeof words->library - 1] = 0;
	if (state() == LORG_LATE_ATTACHED) {
		answer(words, LORG_LATE_REFUSED, "it is attached");
		return;
	}
	memset(&settings, 0, sizeof settings);
	if (!reach_parse(words->settings, &settings)) {
		answer(words, LORG_LATE_REFUSED, "its liblorg.so is of another version");
		return;
	}
	text_append(settings.preload_path, settings.preload_path + sizeof settings.preload_path, words->library);
	if (state() == LORG_LATE_IDLE) {
		attach_first(words, &settings);
		return;
	}
	if (arena_attach_again(&settings)) {
		answer(words, LORG_LATE_REFUSED, "it was attached to another collector before");
		return;
	}
	__atomic_store_n(&the_program.image->detached, 0, __ATOMIC_RELEASE);
	set_state(LORG_LATE_ATTACHED);
	answer(words, LORG_LATE_DONE, "");
}

static void hook(struct lorg_late_words *words)
{
	code_hooks_settle(&lorg_late);
	if (lorg_late.from_start) { /* names are interposed */
		answer(words, LORG_LATE_DONE, "");
		return;
	}
	long count = late_slots_place();
	if (count < 0) {
		answer(words, LORG_LATE_AGAIN, "");
		return;
	}
	handlers_cover();
	late_slots_settle(); /* last: it lets time pass */
	words->count = (uint32_t)count;
	answer(words, LORG_LATE_DONE, "");
}

static void tell_detached(void)
{
	struct lorg_image *image = the_program.image;
	/* Not where this is a fork child that has not come to make the image its own. */
	if (image && the_program.own_pid == (uint32_t)raw_getpid())
		__atomic_store_n(&image->detached, 1, __ATOMIC_RELEASE);
}

static void detach(struct lorg_late_words *words)
{
	long count = 0;
	if (state() == LORG_LATE_IDLE) {
		answer(words, LORG_LATE_REFUSED, "it is not attached");
		return;
	}
	if (!lorg_late.from_start)
		count = late_slots_take_back();
	if (count < 0) {
		answer(words, LORG_LATE_AGAIN, "");
		return;
	}
	arena_detach();
	/* Behind that nothing is covered any more. */
	handlers_uncover();
	tell_detached();
	set_state(LORG_LATE_DETACHED);
	words->count = (uint32_t)count;
	answer(words, LORG_LATE_DONE, "");
}

static void place(struct lorg_late_words *words)
{
	const char *why = 0;
	switch (patch_modules_try(&why)) {
	case PATCH_PLACED: answer(words, LORG_LATE_DONE, why ? why : ""); break;
	case PATCH_AGAIN: answer(words, LORG_LATE_AGAIN, ""); break;
	default: answer(words, LORG_LATE_REFUSED, "nothing can be placed in it"); break;
	}
}

static void carry_out(uint32_t what, struct lorg_late_words *words)
{
	switch (what) {
	case LORG_LATE_PLACE: place(words); break;
	case LORG_LATE_ATTACH: attach(words); break;
	case LORG_LATE_HOOK: hook(words); break;
	case LORG_LATE_DETACH: detach(words); break;
	default: answer(words, LORG_LATE_REFUSED, "its liblorg.so does not know that"); break;
	}
}

/* ---- the end ------------------------------------------------------------------------ */

enum { END_STEP_NS = 100000, END_STEPS = 20000, STEPS_A_LOOK = 100 };

/* True where that cannot be told. */
static int has_tracer(void)
{
	static const char wanted[] = "TracerPid:\t";
	char status[1024];
	long fd = raw_openat("/proc/thread-self/status", O_RDONLY | O_CLOEXEC);
	if (raw_failed(fd))
		return 1;
	long length = raw_syscall3(SYS_read, fd, (long)status, sizeof status - 1);
	raw_close((int)fd);
	status[raw_failed(length) ? 0 : length] = 0;
	for (const char *at = status; *at; at++)
		if (text_begins(at, wanted))
			return at[sizeof wanted - 1] != '0';
	return 1;
}

/* The tracer stops the thread here, and sees from then on to its way back. */
static void let_tracer_take_over(struct lorg_late_words *words)
{
	if (!__atomic_load_n(&words->watched, __ATOMIC_ACQUIRE))
		return;
	/* Release: who sees it sees the answer. */
	__atomic_store_n(&words->ending, 1, __ATOMIC_RELEASE);
	for (int step = 1; step < END_STEPS && __atomic_load_n(&words->watched, __ATOMIC_ACQUIRE); step++) {
		raw_sleep_ns(END_STEP_NS);
		if (step % STEPS_A_LOOK == 0 && !has_tracer())
			return;
	}
}

/* errno is the thread's, and is put back from outside, too; here for who calls it otherwise. */
long remote_entry(uint32_t what, uint64_t address)
{
	static struct lorg_late_words own;
	struct lorg_late_words *words = address ? (struct lorg_late_words *)address : &own;
	if (this_thread.busy || this_thread.claiming || this_thread.vfork_child) {
		answer(words, LORG_LATE_AGAIN, "");
	} else {
		int saved_errno = *hook_errno();
		carry_out(what, words);
		*hook_errno() = saved_errno;
	}
	if (address)
		let_tracer_take_over(words);
	return words->answer;
}
