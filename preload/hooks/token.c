/* SPDX-License-Identifier: MIT */
/* token.c: see token.h. */
#include "preload/hooks/token.h"

#include "preload/core/channel.h"

/* Bits of a token's flags, as seq_trace(3) adds them up. */
enum { TOKEN_SEND = 1, TOKEN_RECEIVE = 2 };

/* A message whose bytes are not known yet is believed to be on its way for so long; in units of 2^20 ticks. */
enum { AGE_SHIFT = 20, OLD = 4096 };

static struct lorg_carried_token *place_at(uint64_t index)
{
	const struct lorg_table *table = &the_arena.node->carried;
	if (table->count != LORG_CARRIED_TOKENS || table->entry_size != sizeof(struct lorg_carried_token) ||
	    table->offset > the_arena.settings.node_size ||
	    the_arena.settings.node_size - table->offset < (uint64_t)LORG_CARRIED_TOKENS * sizeof(struct lorg_carried_token))
		return 0;
	return (struct lorg_carried_token *)((char *)the_arena.node + table->offset) + index % LORG_CARRIED_TOKENS;
}

static int has_token(const struct thread *self)
{
	return (self->process->token.flags & LORG_TOKEN_PRESENT) != 0;
}

static uint32_t own_pid(const struct thread *self)
{
	const struct lorg_image *image = arena_image(self->process->image);
	return image && image->pid ? image->pid : the_program.own_pid;
}

static uint32_t own_tid(const struct thread *self)
{
	return self->process->proc_tid ? self->process->proc_tid : self->process->own_tid;
}

static int is_own(const struct thread *self, const struct lorg_seq_token *token)
{
	return token->from_pid == own_pid(self) && token->from_tid == own_tid(self);
}

/* The token as the next message has it: a number more; the one before is that of the message received last. */
static struct lorg_seq_token next_token(const struct thread *self)
{
	struct lorg_seq_token token = self->process->token;
	if (!is_own(self, &token))
		token.previous = token.serial;
	token.serial++;
	token.from_pid = own_pid(self);
	token.from_tid = own_tid(self);
	return token;
}

/* ---- places ------------------------------------------------------------------- */

/* Whoever reads while the version is odd, or finds another one afterwards, has read nothing. */
static void write_place(struct lorg_carried_token *place, const struct lorg_carried_token *content)
{
	uint64_t version = __atomic_load_n(&place->version, __ATOMIC_RELAXED) | 1;
	__atomic_store_n(&place->version, version, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy((char *)place + sizeof place->version, (const char *)content + sizeof place->version, sizeof *place - sizeof place->version);
	__atomic_store_n(&place->version, version + 1, __ATOMIC_RELEASE);
}

static int read_place(const struct lorg_carried_token *place, struct lorg_carried_token *content)
{
	uint64_t version = __atomic_load_n(&place->version, __ATOMIC_ACQUIRE);
	*content = *place;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return version && !(version & 1) && __atomic_load_n(&place->version, __ATOMIC_RELAXED) == version;
}

static uint32_t age_now(void)
{
	return (uint32_t)(clock_now() >> AGE_SHIFT);
}

static void post(struct hook_call *call, uint32_t channel, uint64_t begin, uint64_t end, const struct lorg_seq_token *token)
{
	uint64_t index = call->token_place ? call->token_place - 1u : __atomic_fetch_add(&the_arena.node->carried_next, 1, __ATOMIC_RELAXED);
	struct lorg_carried_token *place = place_at(index);
	const struct lorg_carried_token content = {
		.begin = begin,
		.end = end,
		.channel = channel,
		.sender_pid = token->from_pid,
		.sender_tid = token->from_tid,
		.reserved = age_now(),
		.token = *token,
	};
	if (!place)
		return;
	call->token_place = (uint16_t)(index % LORG_CARRIED_TOKENS + 1);
	write_place(place, &content);
}

/* ---- sends ---------------------------------------------------------------------- */

void token_departs(struct hook_call *call, uint32_t channel)
{
	const struct lorg_channel *entry = channel ? channel_entry_of(channel) : 0;
	if (!has_token(call->self) || !entry)
		return;
	const struct lorg_seq_token token = next_token(call->self);
	call->token_channel = channel;
	post(call, channel, __atomic_load_n(&entry->sent.offset, __ATOMIC_RELAXED), UINT64_MAX, &token);
}

void token_sent(struct hook_call *call, uint32_t channel, uint64_t offset, uint64_t length)
{
	if (!has_token(call->self) || !channel)
		return;
	/* Each of several messages of one call has a place and a number of its own, but the first, which is there already. */
	if (call->token_channel != channel)
		call->token_place = 0;
	call->token_channel = 0;
	const struct lorg_seq_token token = next_token(call->self);
	post(call, channel, offset, offset + length, &token);
	call->token_place = 0;
	call->self->process->token = token;
	call->token_told = TOKEN_SEND;
}

void token_settle(struct hook_call *call)
{
	struct lorg_carried_token *place = call->token_place ? place_at(call->token_place - 1) : 0;
	static const struct lorg_carried_token nothing;
	if (place)
		write_place(place, &nothing);
	call->token_word = 0;
}

/* ---- receives --------------------------------------------------------------------- */

static int overlaps(const struct lorg_carried_token *carried, uint32_t channel, uint64_t begin, uint64_t end)
{
	if (carried->channel != channel || carried->begin >= end || !(carried->token.flags & LORG_TOKEN_PRESENT))
		return 0;
	if (carried->end == UINT64_MAX)
		return age_now() - carried->reserved < OLD;
	return carried->end > begin;
}

/* The newest of those that have to do with it. */
void token_arrived(struct hook_call *call, uint32_t channel, uint64_t offset, uint64_t length)
{
	struct lorg_process *process = call->self->process;
	uint64_t next = __atomic_load_n(&the_arena.node->carried_next, __ATOMIC_ACQUIRE);
	uint64_t count = next < LORG_CARRIED_TOKENS ? next : LORG_CARRIED_TOKENS;
	struct lorg_carried_token carried;
	if (!channel || !length)
		return;
	for (uint64_t i = 1; i <= count; i++) {
		const struct lorg_carried_token *place = place_at(next - i);
		if (!place)
			break;
		if (__atomic_load_n(&place->channel, __ATOMIC_RELAXED) != channel || !read_place(place, &carried) ||
		    !overlaps(&carried, channel, offset, offset + length))
			continue;
		process->token = carried.token;
		call->token_told = TOKEN_RECEIVE;
		return;
	}
	process->token.flags = 0;
}

/* ---- telling ------------------------------------------------------------------------ */

int token_tells(struct hook_call *call, struct lorg_event_SEQ_TRACE *event)
{
	const struct lorg_seq_token *token = &call->self->process->token;
	uint32_t told = call->token_told;
	call->token_told = 0;
	if (!told || !(token->flags & told) || !(token->flags & LORG_TOKEN_PRESENT))
		return 0;
	*event = (struct lorg_event_SEQ_TRACE){
		.entry = told == TOKEN_SEND ? call->entry : clock_now(),
		.kind = told,
		.label = token->label,
		.serial = token->serial,
		.previous = token->previous,
		.from_pid = token->from_pid,
		.from_tid = token->from_tid,
		.flags = token->flags & ~LORG_TOKEN_PRESENT,
	};
	return 1;
}
