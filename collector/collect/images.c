/* SPDX-License-Identifier: MIT */
/*
 * images.c: who is alive.
 *
 * What an image says of its own pid is believed when the process of that
 * number has the arena mapped. A pid of another namespace means nothing here:
 * there a program asks /proc for the number that it has outside. Where /proc did
 * not tell, the processes that have the arena mapped are searched for the one
 * that its own namespace numbers so.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collector/collect/clock.h"
#include "collector/collect/family.h"
#include "collector/collect/proc.h"
#include "collector/session/live.h"
#include "collector/store/packet.h"

enum {
	FIRST_LOOK_NS = 1000000,
	LONGEST_LOOK_NS = 50000000,
	SUCCESSOR_STARTS_NS = 200000000, /* a program shows up within this time of its exec, or it is not traced */
	SUCCESSOR_SHOWS_NS = 20000000,	 /* one that has already ended */
	SEARCHES = 3,
};

static void look_later(struct image *image, uint64_t now_ns)
{
	image->look_step_ns = image->look_step_ns ? image->look_step_ns * 2 : FIRST_LOOK_NS;
	if (image->look_step_ns > LONGEST_LOOK_NS)
		image->look_step_ns = LONGEST_LOOK_NS;
	image->look_ns = now_ns + image->look_step_ns;
}

/* ---- entries ----------------------------------------------------------- */

static struct image **image_place(struct family *family, uint32_t index)
{
	if (index >= LORG_IMAGES)
		return NULL;
	if (index >= family->image_room) {
		uint32_t room = family->image_room ? family->image_room : 8;
		while (room <= index)
			room *= 2;
		struct image **images = realloc(family->images, room * sizeof *images);
		if (!images)
			return NULL;
		memset(images + family->image_room, 0, (room - family->image_room) * sizeof *images);
		family->images = images;
		family->image_room = room;
	}
	return &family->images[index];
}

static void list_add(struct family_context *context, struct image *image)
{
	image->next = context->images;
	if (image->next)
		image->next->previous = image;
	context->images = image;
}

static void list_remove(struct family_context *context, struct image *image)
{
	if (image->next)
		image->next->previous = image->previous;
	*(image->previous ? &image->previous->next : &context->images) = image->next;
}

static void look_for(struct image *image, uint64_t now_ns);

static struct image *begin_image(struct family *family, struct image **place, uint32_t index)
{
	const struct lorg_image *entry = family_image_entry(family, index);
	struct image *image = calloc(1, sizeof *image);
	if (!image)
		return NULL;
	image->family = family;
	image->index = index;
	memcpy(image->id, entry->id, sizeof image->id);
	memcpy(image->parent_id, entry->parent_id, sizeof image->parent_id);
	image->shared = entry->vfork_child != 0;
	image->start_tick = entry->start_tick;
	image->pidfd = -1;
	list_add(family->context, image);
	*place = image;
	family->image_count++;
	family->attached = 1;
	family->context->changes++;
	look_for(image, clock_monotonic_ns());
	return image;
}

struct image *image_at(struct family *family, uint32_t index)
{
	struct image **place = image_place(family, index);
	if (!place || *place)
		return place ? *place : NULL;
	const struct lorg_image *entry = family_image_entry(family, index);
	/* Acquire: pairs with the release store of ALIVE; the fields are valid. */
	uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
	if (state > LORG_IMAGE_EXECED || entry->birth > LORG_BIRTH_UNSEEN || entry->vfork_child > 1)
		return NULL; /* overwritten */
	/* One that is just starting may not have its own pid yet; at the end it is one that was killed before it said a word. */
	int usable = state >= LORG_IMAGE_ALIVE ||
		     (family->final && state == LORG_IMAGE_STARTING && __atomic_load_n(&entry->own_pid, __ATOMIC_RELAXED));
	return usable ? begin_image(family, place, index) : NULL;
}

struct image *image_with_id(struct family *family, const uint8_t id[16])
{
	for (uint32_t i = 0; i < family->image_room; i++)
		if (family->images[i] && memcmp(family->images[i]->id, id, 16) == 0)
			return family->images[i];
	return NULL;
}

static struct image *any_image_with_id(struct family_context *context, const uint8_t id[16])
{
	static const uint8_t none[16];
	if (memcmp(id, none, 16) == 0)
		return NULL;
	for (struct image *image = context->images; image; image = image->next)
		if (memcmp(image->id, id, 16) == 0)
			return image;
	return NULL;
}

/* ---- successors -------------------------------------------------------- */

static struct successor *successor_of(struct family_context *context, const uint8_t id[16])
{
	for (uint32_t i = 0; i < context->successor_count; i++)
		if (memcmp(context->successors[i].id, id, 16) == 0)
			return &context->successors[i];
	return NULL;
}

static void drop_successor(struct family_context *context, struct successor *successor)
{
	if (successor->pidfd >= 0)
		close(successor->pidfd);
	*successor = context->successors[--context->successor_count];
}

/* An image has shown up that came by exec: the one before it has not become something untraced. */
static void note_arrival(struct family_context *context, const struct image *image)
{
	static const uint8_t none[16];
	struct successor *waiting = successor_of(context, image->parent_id);
	struct image *before = any_image_with_id(context, image->parent_id);
	if (waiting)
		drop_successor(context, waiting);
	else if (before)
		before->arrived = 1;
	else if (memcmp(image->parent_id, none, sizeof none) != 0)
		memcpy(context->early[context->early_next++ % EARLY_ARRIVALS], image->parent_id, sizeof image->parent_id);
}

static int has_arrived(const struct family_context *context, const struct image *image)
{
	for (uint32_t i = 0; i < EARLY_ARRIVALS && !image->arrived; i++)
		if (memcmp(context->early[i], image->id, sizeof image->id) == 0)
			return 1;
	return image->arrived;
}

/* The image has become another program. Takes over its pidfd. */
static void expect_successor(struct family_context *context, struct image *image, uint64_t now_ns)
{
	if (!image->pid)
		return;
	if (context->successor_count == context->successor_room) {
		uint32_t room = context->successor_room ? context->successor_room * 2 : 16;
		struct successor *grown = realloc(context->successors, room * sizeof *grown);
		if (!grown)
			return;
		context->successors = grown;
		context->successor_room = room;
	}
	struct successor *successor = &context->successors[context->successor_count++];
	*successor = (struct successor){
		.birth_tick = image->speaker_birth,
		.pid = image->pid,
		.pidfd = image->pidfd,
		.nested = image->nested,
		.since_ns = now_ns,
		.dead_ns = image->dead || image->pidfd < 0 ? now_ns : 0,
	};
	memcpy(successor->id, image->id, sizeof successor->id);
	memcpy(successor->file, image->executes, sizeof successor->file);
	if (image->pidfd >= 0)
		epoll_ctl(context->epoll, EPOLL_CTL_DEL, image->pidfd, NULL);
	image->pidfd = -1;
}

/* ---- telling the end of a program -------------------------------------- */

static struct ending ending_of(struct family_context *context, int pidfd, pid_t pid)
{
	struct ending ending = {0, 0};
	if (pid && pid == context->child)
		return context->child_ending;
	ending.known = proc_exit_status(pidfd, pid, &ending.status) == 0;
	return ending;
}

struct ending image_ending(const struct image *image)
{
	struct family_context *context = image->family->context;
	struct ending ending = ending_of(context, image->pidfd, image->pid);
	if (!ending.known && !image->nested)
		ending = endings_find(context, image->pid, image->start_tick);
	return ending;
}

static int successor_is_dead(struct successor *successor)
{
	return successor->pidfd < 0 || !proc_alive(successor->pidfd);
}

/* Asked for and never seen: it did not find its way to us, or ended before it came to that. */
static void note_never_seen(struct family_context *context, const struct successor *successor)
{
	if (!successor->file[0])
		return;
	context->notes.coverage.not_traced++;
	notes_gap(&context->notes, 1, (uint32_t)successor->pid, successor->file,
		  "it never reached its recorder: not attached, or ended before");
}

void successors_pass(struct family_context *context, uint64_t now_ns, int at_end)
{
	for (uint32_t i = 0; i < context->successor_count;) {
		struct successor *successor = &context->successors[i];
		if (!successor->dead_ns && successor_is_dead(successor))
			successor->dead_ns = now_ns;
		/* A short-lived one may have left its arena behind, which we have yet to come to. */
		int tell = successor->dead_ns && (at_end || now_ns - successor->dead_ns >= SUCCESSOR_SHOWS_NS);
		if (tell && successor->pid == context->child && !context->child_ending.known)
			tell = 0;
		if (!tell) {
			i++;
			continue;
		}
		tell_program_exit(context, successor->id, successor->birth_tick, successor->pid, clock_tick(&context->clock),
				  ending_of(context, successor->pidfd, successor->pid));
		note_never_seen(context, successor);
		drop_successor(context, successor);
	}
}

uint32_t successors_expected(const struct family_context *context, uint64_t now_ns)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < context->successor_count; i++)
		count += !context->successors[i].dead_ns && now_ns - context->successors[i].since_ns < SUCCESSOR_STARTS_NS;
	return count;
}

void successors_free(struct family_context *context)
{
	while (context->successor_count)
		drop_successor(context, &context->successors[0]);
	free(context->successors);
	context->successors = NULL;
	context->successor_room = 0;
}

/* ---- finding the process ----------------------------------------------- */

static void watch(struct image *image, pid_t pid, int pidfd)
{
	struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = image}};
	image->pid = pid;
	image->pidfd = pidfd;
	image->looked_for = 1;
	family_image_entry(image->family, image->index)->pid = (uint32_t)pid;
	if (pidfd >= 0)
		epoll_ctl(image->family->context->epoll, EPOLL_CTL_ADD, pidfd, &event);
}

/* The process is not what it says it is any more: it has ended, or another program runs in it. */
static void left(struct image *image, pid_t pid, int pidfd)
{
	image->pid = pid;
	image->pidfd = pidfd;
	image->looked_for = 1;
	image->dead = pidfd < 0 || !proc_alive(pidfd);
	/* Whether it has become another program, its last event tells. */
	image->left = 1;
	image->over = !image->shared;
}

static int other_namespace_for_children(pid_t pid)
{
	char path[64], theirs[64] = "", ours[64] = "";
	snprintf(path, sizeof path, "/proc/%d/ns/pid_for_children", pid);
	return readlink(path, theirs, sizeof theirs - 1) > 0 && readlink("/proc/self/ns/pid", ours, sizeof ours - 1) > 0 &&
	       strcmp(theirs, ours) != 0;
}

/* Places in the table are used again: a child may be met before its parent. */
static int has_nested(const struct family *family)
{
	for (uint32_t i = 0; i < family->image_room; i++)
		if (family->images[i] && family->images[i]->nested)
			return 1;
	return 0;
}

static int may_be_nested(const struct image *image)
{
	struct family_context *context = image->family->context;
	const struct image *parent = any_image_with_id(context, image->parent_id);
	const struct successor *before = successor_of(context, image->parent_id);
	if (image->own_pid <= 1)
		return 1;
	if (before)
		return before->nested;
	if (parent && !parent->looked_for)
		return 1; /* not known of the parent, either */
	if (!parent) {
		/* One that came by exec, and the image before it was gone before it was found: that may be why. */
		const struct lorg_image *entry = family_image_entry(image->family, image->index);
		return entry->birth == LORG_BIRTH_EXEC || has_nested(image->family);
	}
	return parent->nested || (parent->pid && !parent->dead && other_namespace_for_children(parent->pid));
}

/* One process is one image of a family, but for the children that share its memory. */
static int is_known_pid(pid_t pid, void *context)
{
	const struct family *family = context;
	if (pid == getpid())
		return 1;
	for (uint32_t i = 0; i < family->image_room; i++) {
		const struct image *image = family->images[i];
		if (image && image->pid == pid && !image->over && !image->shared)
			return 1;
	}
	return 0;
}

/* It has ended before we found its number, and what it says of itself is the number in its own namespace. */
static void note_own_number(struct image *image)
{
	struct family_context *context = image->family->context;
	const struct image *parent = any_image_with_id(context, image->parent_id);
	const struct successor *before = successor_of(context, image->parent_id);
	if (image->proc_pid || !((parent && parent->nested) || (before && before->nested)))
		return;
	image->nested = 1;
	if (context->told_numbers++)
		return;
	notes_gap(&context->notes, 1, 0, "process numbers",
		  "programs in a pid namespace that has a /proc of its own: those that ended soon are named by their numbers there");
}

/* Looks through all processes: seldom, for it takes long where there are many. */
static void search(struct image *image, uint64_t now_ns)
{
	struct family *family = image->family;
	struct family_context *context = family->context;
	uint64_t begin_ns = clock_monotonic_ns();
	if (begin_ns < context->search_ns) {
		image->look_ns = context->search_ns;
		return;
	}
	pid_t pid = proc_find(family->inode, image->own_pid, is_known_pid, family);
	int pidfd = pid ? proc_open(pid) : -1;
	enum proc_maps maps = pidfd < 0 ? PROC_MAPS_GONE : proc_has_mapped(pid, family->inode);
	uint64_t end_ns = clock_monotonic_ns();
	context->search_ns = end_ns + 2 * (end_ns - begin_ns);
	if (maps == PROC_MAPS_SHOWN || maps == PROC_MAPS_UNKNOWN) {
		proc_inner_id(pid, 0, &image->nested);
		watch(image, pid, pidfd);
		return;
	}
	if (pidfd >= 0)
		close(pidfd);
	/* To take a living one for gone would be to wipe what it still writes to. */
	if (image->own_pid > 0 && ++image->searches >= SEARCHES) {
		note_own_number(image);
		image->nested = 1;
		left(image, 0, -1); /* nobody of that number has it mapped */
	} else {
		look_later(image, now_ns); /* without a number, its end is seen when the arena is abandoned */
	}
}

/* The process that `pid` would be, if it has the arena mapped. Returns 1 when that settles it. */
static int try_pid(struct image *image, pid_t pid, int nested, int settle)
{
	int pidfd = proc_open(pid);
	/* Without a descriptor to be had, it is looked at now and then. Other errors: there is no such process. */
	int there = pidfd >= 0 || errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOSYS;
	enum proc_maps maps = there ? proc_has_mapped(pid, image->family->inode) : PROC_MAPS_GONE;
	int inner_nested = 0;
	if (maps == PROC_MAPS_UNKNOWN && settle && proc_inner_id(pid, 0, &inner_nested) == image->own_pid)
		maps = PROC_MAPS_SHOWN; /* another user's: its number has to do */
	if (maps == PROC_MAPS_SHOWN) {
		image->nested = nested;
		watch(image, pid, pidfd);
		return 1;
	}
	if (settle) {
		image->nested = nested;
		left(image, pid, pidfd);
		return 1;
	}
	if (pidfd >= 0)
		close(pidfd);
	return 0;
}

/* What the program wrote of itself; copied, then checked. */
static void read_numbers(struct image *image, const struct lorg_image *entry)
{
	uint32_t own_pid = __atomic_load_n(&entry->own_pid, __ATOMIC_RELAXED);
	uint32_t proc_pid = __atomic_load_n(&entry->proc_pid, __ATOMIC_RELAXED);
	image->own_pid = own_pid <= INT_MAX ? own_pid : 0;
	image->proc_pid = proc_pid <= INT_MAX && proc_pid != image->own_pid ? (pid_t)proc_pid : 0;
	image->nested = image->proc_pid != 0 && image->own_pid != 0;
}

static void look_for(struct image *image, uint64_t now_ns)
{
	struct family_context *context = image->family->context;
	const struct lorg_image *entry = family_image_entry(image->family, image->index);
	read_numbers(image, entry);
	if (image->family->final) {
		/* Nobody has it mapped any more. */
		pid_t pid = image->proc_pid ? image->proc_pid : (pid_t)image->own_pid;
		note_own_number(image);
		left(image, pid, pid ? proc_open(pid) : -1);
		return;
	}
	if (image->proc_pid) {
		try_pid(image, image->proc_pid, image->nested, 1);
		return;
	}
	/* exec keeps the pid: the program before is known. */
	struct successor *before = successor_of(context, image->parent_id);
	const struct image *parent = any_image_with_id(context, image->parent_id);
	/* Where it is not that one, nothing is settled: who is taken for gone is wiped. */
	if (entry->birth == LORG_BIRTH_EXEC && before && before->nested && try_pid(image, before->pid, 1, 0))
		return;
	if (entry->birth == LORG_BIRTH_EXEC && parent && parent->nested && parent->pid && try_pid(image, parent->pid, 1, 0))
		return;
	int nested = may_be_nested(image);
	if (image->own_pid && try_pid(image, (pid_t)image->own_pid, 0, !nested))
		return;
	search(image, now_ns);
}

/* ---- the pass ---------------------------------------------------------- */

/* Both run on one memory: only when its parent is gone too, or has gone on (processes.c), will it write no more. */
static void shared_child_left(struct image *image)
{
	const struct image *parent = image_with_id(image->family, image->parent_id);
	if (!parent || parent->over)
		image->over = 1;
}

static void process_ended(struct image *image)
{
	struct family_context *context = image->family->context;
	image->dead = 1;
	/* How our own child ended is told by wait, presently. */
	if (image->pid == context->child && !context->child_ending.known)
		return;
	if (image->shared)
		shared_child_left(image);
	else
		image->over = 1;
}

static void look_again(struct image *image, uint32_t state, uint64_t now_ns)
{
	if (now_ns < image->look_ns)
		return;
	look_later(image, now_ns);
	if (image->pidfd < 0 && kill(image->pid, 0) && errno == ESRCH) {
		process_ended(image);
		return;
	}
	if (state != LORG_IMAGE_EXECED && image->pidfd >= 0)
		return;
	if (proc_has_mapped(image->pid, image->family->inode) != PROC_MAPS_NOT)
		return;
	image->execed = 1;
	if (image->shared)
		shared_child_left(image);
	else
		image->over = 1;
}

/* A reserved entry counts once the child has made it its own. */
static void count_image(struct image *image, uint32_t state)
{
	const struct lorg_image *entry = family_image_entry(image->family, image->index);
	if (image->counted || state < LORG_IMAGE_ALIVE)
		return;
	image->counted = 1;
	memcpy(image->id, entry->id, sizeof image->id);
	memcpy(image->parent_id, entry->parent_id, sizeof image->parent_id);
	image->family->context->notes.coverage.programs++;
	if (entry->birth == LORG_BIRTH_EXEC)
		note_arrival(image->family->context, image);
}

static void look_at_image(struct family *family, struct image *image, uint64_t now_ns)
{
	const struct lorg_image *entry = family_image_entry(family, image->index);
	uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
	if (family->final || image->over) {
		image->over = 1;
		return;
	}
	if (image->counted && state >= LORG_IMAGE_ALIVE && memcmp(image->id, entry->id, sizeof image->id) != 0) {
		/* The program has wiped the table, and another image has taken the place. */
		image->replaced = image->over = 1;
		family->damaged++;
		return;
	}
	image->shared = image->shared || entry->vfork_child;
	count_image(image, state);
	if (!image->looked_for) {
		if (now_ns >= image->look_ns)
			look_for(image, now_ns);
		return;
	}
	if (image->dead)
		process_ended(image);
	else if (image->left)
		shared_child_left(image);
	else
		look_again(image, state, now_ns);
}

static void forget_image(struct image *image)
{
	struct family *family = image->family;
	if (family->context->sessions)
		family->context->live->image_over(family->context->sessions, image->id);
	if (image->pidfd >= 0)
		close(image->pidfd); /* and with it, its place in the epoll set */
	list_remove(family->context, image);
	family->images[image->index] = NULL;
	family->image_count--;
	family->context->changes++;
	free(image);
}

/* A program that was never attached to anything, whose place says why. */
static void note_not_traced(struct family *family, struct lorg_image *entry)
{
	char reason[sizeof entry->reason + 1] = "";
	memcpy(reason, entry->reason, sizeof entry->reason);
	family->context->notes.coverage.not_traced++;
	notes_gap(&family->context->notes, 1, entry->own_pid, "a program was not traced", reason);
	entry->not_traced = 0;
}

void images_pass(struct family *family, uint64_t now_ns)
{
	uint32_t high = __atomic_load_n(&family_arena(family)->image_high_water, __ATOMIC_ACQUIRE);
	if (high > LORG_IMAGES)
		high = LORG_IMAGES;
	family->image_over = 0;
	family->images_alive = 0;
	for (uint32_t i = 0; i < high; i++) {
		struct lorg_image *entry = family_image_entry(family, i);
		struct image *image = image_at(family, i);
		if (!image)
			continue;
		if (entry->not_traced == 1)
			note_not_traced(family, entry);
		look_at_image(family, image, now_ns);
		family->image_over |= image->over;
		family->images_alive += image->looked_for && !image->left && !image->dead && !image->over;
	}
}

static void tell_end(struct family_context *context, const struct image *image)
{
	uint64_t tick = clock_tick(&context->clock);
	struct ending ending = image_ending(image);
	if (ending.known || image->nested)
		tell_program_exit(context, image->id, image->speaker_birth, image->pid ? image->pid : (pid_t)image->own_pid, tick,
				  ending);
	else
		endings_wait_for(context, image, tick);
}

void images_finish(struct family *family, uint64_t now_ns)
{
	struct family_context *context = family->context;
	int still_alive = family->final && !family->sealed;
	for (uint32_t i = 0; i < family->image_room; i++) {
		struct image *image = family->images[i];
		if (!image)
			continue;
		if (!image->over || image->process_count)
			continue;
		count_image(image, __atomic_load_n(&family_image_entry(family, i)->state, __ATOMIC_ACQUIRE));
		if (image->execed) {
			if (!has_arrived(context, image))
				expect_successor(context, image, now_ns);
		} else if (!image->has_program_exit && !still_alive) {
			tell_end(context, image);
		}
		if (!family->final && !image->replaced) {
			struct lorg_image *entry = family_image_entry(family, i);
			memset((uint8_t *)entry + sizeof entry->state, 0, sizeof *entry - sizeof entry->state);
			/* Release: pairs with the acquiring CAS of the next owner, who finds the entry all zero. */
			__atomic_store_n(&entry->state, LORG_IMAGE_FREE, __ATOMIC_RELEASE);
		}
		forget_image(image);
	}
}

void images_free(struct family *family)
{
	for (uint32_t i = 0; i < family->image_room; i++)
		if (family->images[i])
			forget_image(family->images[i]);
	free(family->images);
	family->images = NULL;
	family->image_room = 0;
}
