/* SPDX-License-Identifier: MIT */
/* journal.c: see journal.h. */
#include "collector/collect/journal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "collector/collect/family.h"

enum { JOURNAL_MAGIC = 0x6a67726c /* "lrgj" */, JOURNAL_VERSION = 1, NOTES = 1 << 14 };

enum state { STATE_NONE = 0, STATE_OPEN = 1, STATE_MARKED = 2, STATE_TO_ROLL_BACK = 3 };

struct note {
	uint64_t session, inode, size;
	uint32_t lane, reserved;
};

/* Sparse. */
struct pages {
	uint32_t magic, version;
	uint32_t state; /* atomic, release: what it stands for is written before it */
	uint32_t count; /* atomic, likewise */
	struct journal_step step;
	struct note note[NOTES];
};

struct journal {
	struct memory memory;
	uint8_t id[16];
	struct pages *pages;
};

struct journal *journal_create(void)
{
	struct journal *journal = calloc(1, sizeof *journal);
	if (!journal || memory_create(&journal->memory, "lorgd-journal", sizeof(struct pages))) {
		free(journal);
		return NULL;
	}
	random_bytes(journal->id, sizeof journal->id);
	journal->pages = (struct pages *)journal->memory.at;
	journal->pages->magic = JOURNAL_MAGIC;
	journal->pages->version = JOURNAL_VERSION;
	return journal;
}

void journal_free(struct journal *journal)
{
	if (!journal)
		return;
	memory_free(&journal->memory);
	free(journal);
}

/* ---- steps ----------------------------------------------------------------------- */

static void set_state(struct journal *journal, enum state state)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&journal->pages->state, state, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void journal_begin(struct journal *journal, const struct journal_step *step)
{
	if (!journal)
		return;
	journal->pages->step = *step;
	__atomic_store_n(&journal->pages->count, 0, __ATOMIC_RELEASE);
	set_state(journal, STATE_OPEN);
}

static int is_noted(const struct pages *pages, uint64_t session, uint32_t lane)
{
	for (uint32_t i = pages->count; i-- > 0;)
		if (pages->note[i].session == session && pages->note[i].lane == lane)
			return 1;
	return 0;
}

void journal_note(struct journal *journal, uint64_t session, uint64_t inode, uint32_t lane, uint64_t size)
{
	struct pages *pages = journal ? journal->pages : NULL;
	if (!pages || pages->state != STATE_OPEN || pages->count == NOTES || is_noted(pages, session, lane))
		return;
	pages->note[pages->count] = (struct note){session, inode, size, lane, 0};
	__atomic_store_n(&pages->count, pages->count + 1, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

void journal_mark(struct journal *journal)
{
	if (journal)
		set_state(journal, STATE_MARKED);
}

void journal_end(struct journal *journal)
{
	if (journal)
		set_state(journal, STATE_NONE);
}

/* ---- after a restart ---------------------------------------------------------------- */

static struct family *family_of(const struct family_context *context, const struct journal_step *step)
{
	for (uint32_t i = 0; i < context->family_count; i++)
		if (memcmp(context->families[i]->id, step->arena, sizeof step->arena) == 0)
			return context->families[i];
	return NULL;
}

/* It is still that chunk, and was taken no further than before. */
static int chunk_is_unmarked(struct family *family, const struct journal_step *step)
{
	if (step->place >= family->layout.chunk_count)
		return 0;
	const struct lorg_packet *head = (const struct lorg_packet *)family_chunk(family, step->place);
	return head->position && head->sequence == step->sequence && head->begin == step->begin &&
	       !(head->end && head->content_bits >= step->to);
}

/* All was written, and the entry is to be free. It is, or is being made so; or it is another's already. */
static void free_entry(struct family *family, const struct journal_step *step)
{
	struct lorg_process *entry = process_entry(family, step->place);
	if (!entry || __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE) != LORG_PROCESS_ENDED ||
	    (entry->birth_tick && entry->birth_tick != step->begin))
		return;
	memset((uint8_t *)entry + sizeof entry->state, 0, LORG_PROCESS_SIZE - sizeof entry->state);
	__atomic_store_n(&entry->state, LORG_PROCESS_FREE, __ATOMIC_RELEASE);
}

static void look_at_step(struct journal *journal, const struct family_context *context)
{
	struct pages *pages = journal->pages;
	const struct journal_step *step = &pages->step;
	struct family *family = family_of(context, step);
	int is_open = pages->state == STATE_OPEN;
	if (pages->state == STATE_TO_ROLL_BACK)
		return; /* another one was killed before all sessions were there again */
	if (family && pages->state == STATE_MARKED && step->kind == JOURNAL_ENTRY)
		free_entry(family, step);
	if (family && is_open && step->kind == JOURNAL_CHUNK)
		is_open = chunk_is_unmarked(family, step);
	/* What nobody can do anew stays as it is. */
	set_state(journal, family && is_open ? STATE_TO_ROLL_BACK : STATE_NONE);
}

void journal_take_over(struct journal *journal, struct adopted *adopted, const struct keeping *keeping,
		       const struct family_context *context)
{
	uint32_t at = 0;
	if (!journal)
		return;
	struct kept *kept = kept_next(adopted, KEPT_JOURNAL, &at);
	const struct pages *pages = kept ? (const struct pages *)kept->memory.at : NULL;
	if (!pages || kept->memory.size != sizeof *pages || pages->magic != JOURNAL_MAGIC || pages->version != JOURNAL_VERSION) {
		keep_memory(keeping, KEPT_JOURNAL, journal->id, &journal->memory);
		return;
	}
	memory_free(&journal->memory);
	journal->memory = kept_take(kept);
	memcpy(journal->id, kept->name.id, sizeof journal->id);
	journal->pages = (struct pages *)journal->memory.at;
	look_at_step(journal, context);
}

/* Of a file that began in the step nothing is left. */
static void cut(int directory, const struct note *note)
{
	char name[32];
	struct stat status;
	snprintf(name, sizeof name, "stream-%u", note->lane);
	if (!note->size) {
		unlinkat(directory, name, 0);
		return;
	}
	int file = openat(directory, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	if (file < 0)
		return;
	if (fstat(file, &status) == 0 && (uint64_t)status.st_size > note->size && ftruncate(file, (off_t)note->size)) {
		/* Then it says more than it should: nobody is left to tell. */
	}
	close(file);
}

void journal_roll_back(const struct journal *journal, uint64_t session, const char *path)
{
	struct stat status;
	if (!journal || journal->pages->state != STATE_TO_ROLL_BACK)
		return;
	int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory < 0)
		return;
	int is_known = fstat(directory, &status) == 0;
	for (uint32_t i = 0; is_known && i < journal->pages->count && i < NOTES; i++) {
		const struct note *note = &journal->pages->note[i];
		if (note->session == session && note->inode == status.st_ino)
			cut(directory, note);
	}
	close(directory);
}

void journal_rolled_back(struct journal *journal)
{
	if (journal && journal->pages->state == STATE_TO_ROLL_BACK)
		set_state(journal, STATE_NONE);
}
