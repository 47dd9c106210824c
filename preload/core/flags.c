/* SPDX-License-Identifier: MIT */
/* flags.c: see flags.h. */
#include "preload/core/flags.h"

#include "preload/core/cpu_time.h"
#include "preload/hook.h"

enum {
	ON_SPAWN = LORG_TRACE_SET_ON_SPAWN,
	ON_FIRST_SPAWN = LORG_TRACE_SET_ON_FIRST_SPAWN,
	ON_LINK = LORG_TRACE_SET_ON_LINK,
	ON_FIRST_LINK = LORG_TRACE_SET_ON_FIRST_LINK,
};

static int is_ending(const struct thread *self)
{
	/* Relaxed: a flag that only ever rises. */
	return self->ending || __atomic_load_n(&the_program.ending, __ATOMIC_RELAXED);
}

/* ---- the union --------------------------------------------------------------- */

static uint32_t sum_of(const struct lorg_process *process)
{
	uint32_t used = sessions_used();
	uint32_t sum = lorg_flags_by_ports(__atomic_load_n(&session_at(0)->flags_ports, __ATOMIC_SEQ_CST));
	for (uint32_t slot = 1; slot < used; slot++)
		sum |= __atomic_load_n(&process->session[slot].flags, __ATOMIC_SEQ_CST);
	return sum;
}

/*
 * Sequentially consistent, as are the changes of sets: of two that do this at once, the one that stores last looks
 * after that, and finds what the other had changed before it stored.
 */
void flags_unite(struct lorg_process *process)
{
	uint32_t sum, again;
	if (!sessions_used())
		return;
	again = sum_of(process);
	do {
		sum = again;
		__atomic_store_n(&process->session[0].flags, sum, __ATOMIC_SEQ_CST);
		again = sum_of(process);
	} while (again != sum);
}

/* ---- changes ------------------------------------------------------------------ */

static void tell_change(struct thread *self, const struct lorg_process *process, struct lorg_event_FLAGS *event)
{
	const struct lorg_image *image = process == self->process ? 0 : arena_image(process->image);
	event->tid = process->proc_tid ? process->proc_tid : process->own_tid;
	if (image) {
		memcpy(&event->image_low, image->id, 8);
		memcpy(&event->image_high, image->id + 8, 8);
		event->birth = process->birth_tick;
	}
	event_write(self, LORG_EVENT_FLAGS, event, sizeof *event, 0, 0, 0);
}

int flags_change(struct thread *self, struct lorg_process *process, uint32_t slot, uint32_t off, uint32_t on)
{
	uint32_t *flags = &process->session[slot].flags, before = __atomic_load_n(flags, __ATOMIC_RELAXED), after;
	/* What is cleared holds no more from before it is cleared, what is set holds from after it was set. */
	uint64_t tick = clock_now();
	do {
		after = (before & ~off) | on;
	} while (!__atomic_compare_exchange_n(flags, &before, after, 1, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	if (after == before)
		return 0;
	if (slot)
		flags_unite(process);
	if (after & ~before)
		tick = clock_now();
	tell_change(self, process,
		    &(struct lorg_event_FLAGS){.entry = tick, .on = after & ~before, .off = before & ~after, .session = slot});
	return 1;
}

/* ---- beginnings ----------------------------------------------------------------- */

/* What the collector asks of new processes of an image, by itself or for all of one program's threads. */
static uint32_t flags_of_program(const struct lorg_image *image, uint32_t image_index, uint32_t slot)
{
	const struct lorg_table *table = &the_arena.shared->program_flags;
	/* Once: the program may write there at any time. */
	const uint64_t offset = __atomic_load_n(&table->offset, __ATOMIC_RELAXED);
	uint32_t flags = 0, count = __atomic_load_n(&table->count, __ATOMIC_RELAXED);
	uint64_t id;
	count = count < LORG_PROGRAM_FLAGS ? count : LORG_PROGRAM_FLAGS;
	if (!image || !count || table->entry_size != sizeof(struct lorg_program_flags) ||
	    offset > the_arena.chunks_offset - count * sizeof(struct lorg_program_flags))
		return 0;
	const struct lorg_program_flags *entry = (const void *)((char *)the_arena.shared + offset);
	memcpy(&id, image->id, sizeof id);
	for (uint32_t i = 0; i < count; i++)
		/* Acquire: the image is written last. */
		if (__atomic_load_n(&entry[i].image, __ATOMIC_ACQUIRE) == image_index + 1 && entry[i].session == slot &&
		    entry[i].image_id == id)
			flags |= __atomic_load_n(&entry[i].flags, __ATOMIC_RELAXED);
	return flags;
}

static uint32_t flags_of_new(const struct lorg_process *process, uint32_t slot)
{
	const struct lorg_session *session = session_at(slot);
	const struct lorg_image *image = arena_image(process->image);
	if (!__atomic_load_n(&session->state, __ATOMIC_ACQUIRE))
		return 0;
	uint64_t flags = __atomic_load_n(&session->flags_new_processes, __ATOMIC_SEQ_CST);
	return (uint32_t)flags | flags_of_program(image, process->image, slot);
}

/*
 * The collector stores what new ones get and then goes through the entries that there are: it finds this one, or is
 * seen here. What it has taken back in between is taken back here, too.
 */
static void begin_slot(struct lorg_process *process, uint32_t slot)
{
	uint32_t given = flags_of_new(process, slot);
	if (!given)
		return;
	__atomic_fetch_or(&process->session[slot].flags, given, __ATOMIC_SEQ_CST);
	uint32_t gone = given & ~flags_of_new(process, slot);
	if (gone)
		__atomic_fetch_and(&process->session[slot].flags, ~gone, __ATOMIC_SEQ_CST);
}

void flags_begin(struct lorg_process *process)
{
	uint32_t used = sessions_used();
	if (!used) {
		process->session[0].flags = the_arena.flags_new;
		return;
	}
	/* The entry is seen as taken before what new ones get is looked at. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t slot = 1; slot < used; slot++)
		begin_slot(process, slot);
	flags_unite(process);
}

/* ---- inheritance ------------------------------------------------------------------ */

/* What is handed on. all and first: the two flags that ask for it; the second is handed on to nobody, nor both. */
static uint32_t handed_on(uint32_t flags, uint32_t all, uint32_t first)
{
	if (flags & first)
		return flags & ~(all | first);
	return flags & all ? flags : 0;
}

/* And what its owner loses by it. */
static uint32_t lost_by(uint32_t flags, uint32_t all, uint32_t first)
{
	return flags & first ? flags & (all | first) : 0;
}

static void inherit_slot(struct lorg_process *child, const struct lorg_process *maker, uint32_t slot)
{
	uint32_t given = handed_on(session_flags(maker, slot), ON_SPAWN, ON_FIRST_SPAWN);
	if (!given)
		return;
	__atomic_fetch_or(&child->session[slot].flags, given, __ATOMIC_SEQ_CST);
	/* The collector may have taken them from the maker, and have gone by the child before it had them. */
	uint32_t gone = given & ~__atomic_load_n(&maker->session[slot].flags, __ATOMIC_SEQ_CST);
	if (gone)
		__atomic_fetch_and(&child->session[slot].flags, ~gone, __ATOMIC_SEQ_CST);
}

void flags_inherit(struct lorg_process *child, const struct lorg_process *maker)
{
	uint32_t used = sessions_used();
	for (uint32_t slot = used ? 1 : 0; slot < (used ? used : 1); slot++)
		inherit_slot(child, maker, slot);
	flags_unite(child);
	child->token = maker->token; /* a birth is a message, too */
}

void flags_spawned(struct thread *self)
{
	uint32_t used = the_arena.flags_matter ? sessions_used() : 0;
	if (!the_arena.flags_matter || !self->process)
		return;
	for (uint32_t slot = used ? 1 : 0; slot < (used ? used : 1); slot++) {
		uint32_t lost = lost_by(session_flags(self->process, slot), ON_SPAWN, ON_FIRST_SPAWN);
		if (lost)
			flags_change(self, self->process, slot, lost, 0);
	}
}

void flags_linked(struct thread *self, struct lorg_process *other)
{
	uint32_t used = sessions_used();
	if (!the_arena.flags_matter)
		return;
	for (uint32_t slot = used ? 1 : 0; slot < (used ? used : 1); slot++) {
		uint32_t flags = session_flags(self->process, slot);
		uint32_t given = handed_on(flags, ON_LINK, ON_FIRST_LINK), lost = lost_by(flags, ON_LINK, ON_FIRST_LINK);
		if (given)
			flags_change(self, other, slot, 0, given);
		if (lost)
			flags_change(self, self->process, slot, lost, 0);
	}
}

/* ---- what hooks are let do ------------------------------------------------------------- */

uint8_t gate_by_flags(const struct thread *self, uint8_t gate)
{
	arena_look();
	if (__builtin_expect(the_arena.told_epoch != the_arena.collector_epoch, 0))
		program_tell_again();
	uint32_t flags = self->flags_matter ? process_flags(self) : UINT32_MAX;
	/* A port that a process opens or closes is linked to it, which is one of its own messages. */
	const uint32_t of_ports = the_arena.live ? LORG_TRACE_PORTS | LORG_TRACE_PROCS : LORG_TRACE_PORTS;
	const uint32_t running = LORG_TRACE_RUNNING | LORG_TRACE_RUNNING_PROCS;
	uint32_t shut = flags & (LORG_TRACE_SEND | LORG_TRACE_RECEIVE) ? 0 : (uint32_t)LORG_GATE_MESSAGE;
	shut |= flags & of_ports ? 0 : (uint32_t)LORG_GATE_PORT;
	shut |= flags & LORG_TRACE_PROCS ? 0 : (uint32_t)LORG_GATE_PROCESS;
	shut |= flags & LORG_TRACE_CALL ? 0 : (uint32_t)LORG_GATE_CALL;
	if (!(flags & running) && !((flags & LORG_TRACE_EXITING) && is_ending(self)))
		shut |= LORG_GATE_RUNNING;
	if (the_arena.live && !(flags & (LORG_TRACE_RUNNING_PROCS | LORG_TRACE_RUNNING_PORTS)))
		shut |= LORG_GATE_ALL;
	gate &= (uint8_t)~shut;
	if (self->flags_matter)
		cpu_time_heed(flags);
	if (__builtin_expect(self->cpu_times && gate, 0))
		cpu_time_entry();
	return gate;
}

int flags_want(uint32_t mask)
{
	const struct thread *self = &this_thread;
	uint32_t flag = mask & LORG_MASK_SEND ? LORG_TRACE_SEND : LORG_TRACE_RECEIVE;
	return !self->process || (process_flags(self) & flag);
}

/* ---- telling ------------------------------------------------------------------------ */

void flags_tell(struct thread *self)
{
	struct lorg_process *process = self->process;
	uint32_t used = the_arena.flags_matter ? sessions_used() : 0;
	/* The entry is seen as alive before its flags are read: who changes them and finds it being born is told of here. */
	if (used) {
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		cpu_time_heed(process_flags(self));
	}
	for (uint32_t slot = 1; slot < used; slot++) {
		uint32_t flags = session_flags(process, slot);
		if (flags)
			tell_change(self, process,
				    &(struct lorg_event_FLAGS){.entry = process->birth_tick, .on = flags, .session = slot});
	}
}

/* ---- over exec ------------------------------------------------------------------------ */

/* Those that the program was executed with; slot 0 of a private collector's, else 1 and above. Owner: the constructor. */
static struct {
	uint64_t id; /* of the session */
	uint32_t slot, flags;
} kept[LORG_SESSIONS];
static uint32_t kept_count;

static char *append_hex(char *to, const char *end, uint64_t value)
{
	static const char digits[] = "0123456789abcdef";
	char text[17], *at = text + sizeof text - 1;
	*at = 0;
	do {
		*--at = digits[value & 15];
		value >>= 4;
	} while (value);
	return text_append(to, end, at);
}

char *flags_to_text(char *to, const char *end, const struct lorg_process *process)
{
	/* Without a collector there is nothing to look at. */
	if (!process || !the_arena.shared || !the_arena.flags_matter)
		return to;
	const uint32_t used = sessions_used();
	for (uint32_t slot = used ? 1 : 0; slot < (used ? used : 1); slot++) {
		uint32_t flags = session_flags(process, slot);
		if (!flags)
			continue;
		to = text_append(to, end, ",");
		to = append_hex(to, end, slot);
		to = text_append(to, end, ".");
		to = append_hex(to, end, session_at(slot)->id);
		to = text_append(to, end, ".");
		to = append_hex(to, end, flags);
	}
	return to;
}

/* At least one digit. */
static int read_hex(const char **text, uint64_t *value)
{
	const char *begin = *text;
	*value = 0;
	for (;; (*text)++) {
		char digit = **text;
		unsigned number = digit >= '0' && digit <= '9' ? (unsigned)(digit - '0')
				  : digit >= 'a' && digit <= 'f' ? (unsigned)(digit - 'a') + 10 : 16;
		if (number == 16)
			return *text == begin || *text - begin > 16 ? -1 : 0;
		*value = *value << 4 | number;
	}
}

int flags_from_text(const char **text)
{
	kept_count = 0;
	while (**text == ',') {
		uint64_t slot, id, flags;
		(*text)++;
		if (read_hex(text, &slot) || *(*text)++ != '.' || read_hex(text, &id) || *(*text)++ != '.' || read_hex(text, &flags))
			return -1;
		if (slot >= LORG_SESSIONS || kept_count == LORG_SESSIONS)
			return -1;
		kept[kept_count].id = id;
		kept[kept_count].slot = (uint32_t)slot;
		kept[kept_count++].flags = (uint32_t)flags & LORG_TRACE_ALL;
	}
	return 0;
}

/* True if the slot is still the session's that it was. */
static int is_still(uint32_t slot, uint64_t id)
{
	const struct lorg_session *session = session_at(slot);
	uint32_t used = sessions_used();
	return (used ? slot > 0 && slot < used : slot == 0) && __atomic_load_n(&session->state, __ATOMIC_SEQ_CST) &&
	       __atomic_load_n(&session->id, __ATOMIC_RELAXED) == id;
}

void flags_kept(struct lorg_process *process)
{
	for (uint32_t i = 0; i < kept_count; i++) {
		uint32_t slot = kept[i].slot;
		if (!is_still(slot, kept[i].id))
			continue;
		__atomic_fetch_or(&process->session[slot].flags, kept[i].flags, __ATOMIC_SEQ_CST);
		/* It may have ended meanwhile, and have been taken away from all entries but this one. */
		if (!is_still(slot, kept[i].id))
			__atomic_fetch_and(&process->session[slot].flags, ~kept[i].flags, __ATOMIC_SEQ_CST);
	}
	kept_count = 0;
	flags_unite(process);
}
