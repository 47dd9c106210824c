/* SPDX-License-Identifier: MIT */
/*
 * environment.c: builds the environment of a program about to be executed.
 *
 * The strings are the program's and may be anything, or nowhere: they are
 * looked at by process_vm_readv, many in one call, and an entry that cannot be
 * read is left to the kernel to refuse.
 */
#include "preload/hooks/environment.h"

#include <sys/uio.h>

#include "preload/core/arena.h"
#include "preload/core/event.h"
#include "preload/core/flags.h"
#include "preload/core/raw.h"
#include "preload/core/thread.h"

enum {
	BATCH = 32,	    /* entries looked at in one call */
	BEGINNING = 24,	    /* bytes of each that are looked at */
	ENTRIES_MAXIMUM = 1 << 20,
};

static const char preload_name[] = "LD_PRELOAD=";
static const char lorg_name[] = LORG_ENVIRONMENT "=";
static const char list_name[] = "LD_TRACE_LOADED_OBJECTS=";

/* What an entry is to us. */
enum entry_kind {
	ENTRY_OTHER,
	ENTRY_PRELOAD,
	ENTRY_LORG,
	ENTRY_LIST, /* asks the loader to list the libraries instead of running the program */
};

uint32_t environment_count(char *const *given)
{
	char *block[BATCH];
	uint32_t count = 0;
	while (given && count < ENTRIES_MAXIMUM) {
		uint32_t got = memory_peek(block, given + count, sizeof block) / sizeof *block;
		for (uint32_t i = 0; i < got; i++, count++)
			if (!block[i])
				return count;
		if (got < BATCH)
			return ENVIRONMENT_UNREADABLE;
	}
	return count;
}

const char *environment_library_path(char *const *given, char *to, uint32_t room)
{
	static const char name[] = "LD_LIBRARY_PATH=";
	uint32_t count = environment_count(given), length = sizeof name - 1;
	const char *found = 0;
	for (uint32_t i = 0; count != ENVIRONMENT_UNREADABLE && i < count; i++) {
		char beginning[sizeof name] = "";
		memory_peek(beginning, given[i], length);
		if (!memcmp(beginning, name, length)) /* the loader takes the last one */
			found = given[i] + length;
	}
	if (!found)
		return 0;
	uint32_t got = memory_peek_text(found);
	got = memory_peek(to, found, got < room - 1 ? got : room - 1);
	to[got] = 0;
	return to;
}

/* ---- looking at entries ---- */

static enum entry_kind kind_of(const char *beginning)
{
	if (beginning[0] != 'L')
		return ENTRY_OTHER;
	if (text_begins(beginning, preload_name))
		return ENTRY_PRELOAD;
	if (text_begins(beginning, lorg_name))
		return ENTRY_LORG;
	/* BEGINNING is as long as this name: only the name is compared, and an empty value counts, as for the loader. */
	return memcmp(beginning, list_name, sizeof list_name - 1) ? ENTRY_OTHER : ENTRY_LIST;
}

static enum entry_kind look_at_one(const char *entry)
{
	char beginning[BEGINNING + 1] = {0};
	if (!system_calls_allowed()) { /* the address is trusted, but nothing behind the string's end is read */
		for (unsigned i = 0; i < BEGINNING && entry[i]; i++)
			beginning[i] = entry[i];
		return kind_of(beginning);
	}
	uint32_t got = memory_peek(beginning, entry, BEGINNING);
	beginning[got] = 0;
	return kind_of(beginning);
}

/* Fills kinds[] for up to BATCH entries. */
static void look_at_batch(char *const *entries, uint32_t count, enum entry_kind *kinds)
{
	char beginnings[BATCH][BEGINNING + 1];
	struct iovec local[BATCH], remote[BATCH];
	for (uint32_t i = 0; i < count; i++) {
		local[i] = (struct iovec){beginnings[i], BEGINNING};
		remote[i] = (struct iovec){entries[i], BEGINNING};
		beginnings[i][BEGINNING] = 0;
	}
	long got = system_calls_allowed()
			   ? raw_syscall6(SYS_process_vm_readv, raw_getpid(), (long)local, count, (long)remote, count, 0)
			   : -1;
	for (uint32_t i = 0; i < count; i++)
		kinds[i] = got == (long)count * BEGINNING ? kind_of(beginnings[i]) : look_at_one(entries[i]);
}

/* ---- the variables ---- */

/* Where the value of a preload list names a sanitizer, it must stay in front. */
static int names_sanitizer(const char *value)
{
	static const char *const names[] = {"libasan", "libtsan", "liblsan", "libubsan", "libhwasan", "libclang_rt."};
	for (const char *at = value; *at; at++) {
		if (at != value && at[-1] != '/' && at[-1] != ':' && at[-1] != ' ')
			continue;
		for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
			if (text_begins(at, names[i]))
				return 1;
	}
	return 0;
}

/* LD_PRELOAD=[sanitizers:]liblorg.so[:what the program names]. Returns the end, NULL if it does not fit. */
static char *build_preload(char *to, const char *end, const char *sanitizers, const char *theirs)
{
	int theirs_first = theirs && names_sanitizer(theirs);
	to = text_append(to, end, preload_name);
	if (theirs_first) {
		to = text_append(to, end, theirs);
		to = text_append(to, end, ":");
	} else if (sanitizers[0]) {
		to = text_append(to, end, sanitizers);
		to = text_append(to, end, ":");
	}
	to = text_append(to, end, the_arena.settings.preload_path);
	if (theirs && theirs[0] && !theirs_first) {
		to = text_append(to, end, ":");
		to = text_append(to, end, theirs);
	}
	return to + 1 < end ? to + 1 : 0;
}

/* The variable LORG (reach.h). */
static char *build_lorg(char *to, const char *end, const struct environment_request *request)
{
	struct lorg_settings reach;
	const struct lorg_settings *settings = &the_arena.settings;
	if (the_arena.live) {
		arena_reach(&reach);
		settings = &reach;
	}
	to = text_append(to, end, lorg_name);
	to = text_append_decimal(to, end, LORG_ABI_MAJOR);
	to = text_append(to, end, ":");
	to = text_append_decimal(to, end, settings->collector_pid);
	to = text_append(to, end, ":");
	to = text_append_decimal(to, end, (uint64_t)(uint32_t)settings->node_descriptor);
	to = text_append(to, end, ":");
	to = text_append_decimal(to, end, settings->node_size);
	to = text_append(to, end, ":");
	to = text_append_hex(to, end, settings->token, sizeof settings->token);
	to = text_append(to, end, ":");
	to = text_append_hex(to, end, request->image_id, 16);
	to = flags_to_text(to, end, request->process);
	to = text_append(to, end, ":");
	to = text_append(to, end, settings->socket_path);
	return to + 1 < end ? to + 1 : 0;
}

/* ---- whose variables are these? ---- */

/* A preload list that liblorg.so stands in was made by lorg, not by the program. */
static int is_our_list(const char *value)
{
	const char *ours = the_arena.settings.preload_path;
	size_t length = text_length(ours, sizeof the_arena.settings.preload_path);
	for (const char *at = value; *at; at++)
		if ((at == value || at[-1] == ':' || at[-1] == ' ') && text_begins(at, ours) && (!at[length] || at[length] == ':'))
			return 1;
	return 0;
}

/* LORG of this recording, or of the lorgd: left over from an earlier image. */
static int is_our_recording(const char *value)
{
	char token[33];
	struct lorg_settings reach;
	text_append_hex(token, token + sizeof token, the_arena.settings.token, sizeof the_arena.settings.token);
	if (the_arena.live) {
		arena_reach(&reach);
		text_append_hex(token, token + sizeof token, reach.token, sizeof reach.token);
	}
	unsigned fields = 0;
	for (; *value && fields < 4; value++)
		fields += *value == ':';
	return fields == 4 && text_begins(value, token);
}

/* A string of the program's, known to be readable. NULL if it is not, or too long to be passed on. */
static const char *readable(const char *text)
{
	return memory_peek_text(text) < LORG_TEXT_MAXIMUM ? text : 0;
}

const char *environment_extend(struct environment_request *request)
{
	enum entry_kind kinds[BATCH];
	const char *theirs = 0;
	uint32_t used = 0;
	uint32_t own_list = 0; /* place + 1 of a LD_PRELOAD that names us and may be the user's own */
	int left_over = 0;
	if (request->count == ENVIRONMENT_UNREADABLE)
		return "its environment cannot be read";
	for (uint32_t from = 0; from < request->count; from += BATCH) {
		char *entries[BATCH];
		uint32_t count = request->count - from < BATCH ? request->count - from : BATCH;
		memcpy(entries, request->given + from, count * sizeof *entries);
		look_at_batch(entries, count, kinds);
		for (uint32_t i = 0; i < count; i++) {
			const char *text = kinds[i] == ENTRY_OTHER ? 0 : readable(entries[i]);
			if (kinds[i] == ENTRY_LIST)
				return "its loader is asked to list its libraries";
			if (kinds[i] == ENTRY_LORG && text) {
				if (!is_our_recording(text + sizeof lorg_name - 1))
					return "another recording takes it";
				left_over = 1;
				continue;
			}
			if (kinds[i] == ENTRY_PRELOAD && !text)
				return "its LD_PRELOAD is too long";
			if (kinds[i] == ENTRY_PRELOAD) {
				if (is_our_list(text + sizeof preload_name - 1)) {
					if (!the_arena.live)
						continue;
					own_list = used + 1;
				}
				theirs = text + sizeof preload_name - 1;
			}
			request->pointers[used++] = entries[i];
		}
	}
	/* Beside a variable LORG it is an earlier image's; what the user asked for stands before it. */
	if (own_list && left_over) {
		theirs = 0;
		memmove(request->pointers + own_list - 1, request->pointers + own_list, (--used + 1 - own_list) * sizeof *request->pointers);
	}
	const char *end = request->text + request->text_room;
	char *lorg = build_preload(request->text, end, request->sanitizers, theirs);
	if (!lorg || !build_lorg(lorg, end, request))
		return "its LD_PRELOAD is too long";
	request->pointers[used++] = request->text;
	request->pointers[used++] = lorg;
	request->pointers[used] = 0;
	return 0;
}
