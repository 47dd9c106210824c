/* SPDX-License-Identifier: MIT */
/* surroundings.c: scratch memory, programs and actions of match specifications in hooks. See match.h. */
#include "preload/call/match.h"

#include "preload/core/flags.h"
#include "preload/core/module.h"
#include "preload/hook.h"
#include "preload/hooks/port_table.h"

enum { LEVELS = 2, UNKNOWN_DISTANCE = 8 << 20 };

static void count(uint64_t *counter)
{
	/* Relaxed: a figure that is told at the end. */
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* ---- scratch memory ------------------------------------------------------- */

static uint64_t *scratch_of(struct thread *self, uint32_t level)
{
	uint32_t *owner = &self->process->match_scratch[level];
	if (!*owner) {
		thread_busy(self); /* no handler comes here meanwhile */
		uint32_t chunk = arena_take_chunk(LORG_CHUNK_SCRATCH, 0, self->process_index);
		if (chunk != UINT32_MAX)
			*owner = chunk + 1;
		thread_idle(self);
	}
	return *owner ? arena_chunk(*owner - 1) : 0;
}

int match_begin(struct match_run *run, struct thread *self)
{
	uint8_t level = self->match_depth;
	uint64_t *memory = level < LEVELS ? scratch_of(self, level) : 0;
	if (!memory) {
		count(&the_arena.shared->match_left_out);
		return 0;
	}
	self->match_frames[level] = (uintptr_t)run;
	/* A handler that comes here from now on takes the next one. */
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	self->match_depth = (uint8_t)(level + 1);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	run->begun = 1;
	run->saved = 0;
	run->level = level;
	run->told = 0;
	run->session = 0;
	run->process_index = self->process_index;
	run->self = self;
	run->memory = memory;
	run->message = (struct event_bytes){0, 0};
	run->terms = (struct lorg_terms){.scratch = memory, .scratch_words = LORG_MATCH_SCRATCH_WORDS - MATCH_DESK_BYTES / 8};
	return 1;
}

void match_end(struct match_run *run)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	run->self->match_depth = run->level;
	run->begun = 0;
}

void match_left(struct thread *self, uintptr_t to)
{
	while (self->match_depth && self->match_frames[self->match_depth - 1] < to &&
	       to - self->match_frames[self->match_depth - 1] < UNKNOWN_DISTANCE)
		self->match_depth--;
}

/* ---- vector registers -------------------------------------------------------- */

void match_prepare(struct lorg_match_evaluation *evaluation)
{
	struct match_run *run = match_run_of(evaluation);
	const uint32_t usual = 0x1f80; /* to nearest, nothing traps */
	if (run->saved)
		return;
	call_vectors_save(run->look.vectors);
	__asm__ volatile("stmxcsr %0\n\tldmxcsr %1" : "=m"(run->control_word) : "m"(usual));
	run->saved = 1;
}

static void restore(struct match_run *run)
{
	if (!run->saved)
		return;
	call_vectors_restore(run->look.vectors);
	__asm__ volatile("ldmxcsr %0" : : "m"(run->control_word));
	run->saved = 0;
}

/* ---- programs ------------------------------------------------------------------ */

struct match_known match_known[MATCH_KNOWN];

static void remember(const void *memory, uint32_t number, const struct lorg_match_program *program)
{
	for (uint32_t i = 0; i < MATCH_PROBES; i++) {
		struct match_known *place = match_known_place(memory, number, i);
		const void *nothing = 0;
		if (!__atomic_compare_exchange_n(&place->memory, &nothing, memory, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
			if (nothing == memory && (!__atomic_load_n(&place->ready, __ATOMIC_ACQUIRE) || place->number == number))
				return;
			continue;
		}
		place->number = number;
		place->program = *program;
		__atomic_store_n(&place->ready, 1, __ATOMIC_RELEASE);
		return;
	}
}

/* The verifier's work space is the scratch memory, in which there is nothing yet that counts. */
static const struct lorg_match_program *verify(struct match_run *run, const void *memory, uint64_t size, struct lorg_match_program *room)
{
	uint32_t used = run->terms.used, free = run->terms.scratch_words - used;
	uint32_t number = size >= sizeof(struct lorg_match_head) ? match_number(memory) : 0;
	if (size > UINT32_MAX || lorg_match_open(room, memory, size, &lorg_match_limits_inside, (uint32_t *)(run->memory + used), free * 2, 0)) {
		count(&the_arena.shared->match_broken);
		return 0;
	}
	remember(memory, number, room);
	return room;
}

const struct lorg_match_program *match_program(struct match_run *run, const void *memory, uint64_t size, struct lorg_match_program *room)
{
	int is_there = size >= sizeof(struct lorg_match_head) && !((uintptr_t)memory & 7);
	const struct lorg_match_program *known = is_there ? match_known_program(memory) : 0;
	return known ? known : verify(run, memory, size, room);
}

/* ---- evaluating ---------------------------------------------------------------- */

/* What {message, V} adds, into the upper half of the free scratch memory; the lower is for whoever writes it down. */
static struct event_bytes encode(struct match_run *run, lorg_term term)
{
	struct lorg_terms *terms = &run->terms;
	uint32_t words = terms->scratch_words, half = (words - terms->used) / 2;
	struct lorg_external out = {.bytes = (uint8_t *)(terms->scratch + terms->used + half), .size = half * 8};
	terms->scratch_words = terms->used + half;
	terms->steps = LORG_MATCH_STEPS;
	if (!lorg_put_term(&out, terms, term)) {
		count(&the_arena.shared->match_exceeded);
		out.used = 0;
		out.truncated = 0;
		lorg_put_atom_text(&out, "EXIT");
	}
	terms->scratch_words = words;
	return (struct event_bytes){out.bytes, out.used};
}

int match_evaluate(struct match_run *run, const struct lorg_match_program *program, const struct lorg_match_context *context,
		   uint32_t argument_count)
{
	struct lorg_match_evaluation *evaluation = &run->evaluation;
	evaluation->program = program;
	evaluation->context = context;
	evaluation->owner = run;
	evaluation->terms = &run->terms;
	evaluation->arguments = run->arguments;
	evaluation->argument_count = argument_count;
	run->terms.steps = LORG_MATCH_STEPS;
	run->message = (struct event_bytes){0, 0};
	int matched = lorg_match_evaluate(evaluation);
	run->told = matched && evaluation->value != LORG_FALSE;
	if (run->told && evaluation->value != LORG_TRUE) {
		match_prepare(evaluation);
		run->message = encode(run, evaluation->value);
	}
	restore(run);
	if (__builtin_expect(evaluation->exceeded | evaluation->broken, 0))
		count(evaluation->broken ? &the_arena.shared->match_broken : &the_arena.shared->match_exceeded);
	/* A handler has forked, and this is the child: the memory is the parent's. */
	if (__builtin_expect(run->process_index != run->self->process_index, 0))
		return run->told = 0;
	return matched;
}

/* ---- who and where ---------------------------------------------------------------- */

/* As events are headed: numbers of the collector's, where they are known. */
static uint32_t program_number(const struct lorg_process *process)
{
	const struct lorg_image *image = arena_image(process->image);
	return !image ? 0 : image->pid ? image->pid : image->own_pid;
}

static uint32_t thread_number(const struct lorg_process *process)
{
	return process->proc_tid ? process->proc_tid : process->own_tid;
}

static lorg_term pid_of(struct lorg_terms *terms, const struct lorg_process *process)
{
	return lorg_pid(terms, program_number(process), thread_number(process), process->runtime_process, LORG_NONE);
}

lorg_term match_self(struct lorg_match_evaluation *evaluation)
{
	return pid_of(evaluation->terms, match_run_of(evaluation)->self->process);
}

/* 'lorg-PID@HOST', of the collector; 'lorg@HOST' of a lorgd, which may be another process one day. */
static lorg_term own_node(struct lorg_terms *terms)
{
	char text[96], host[sizeof the_arena.shared->node_name + 1], *at = text;
	const char *end = text + sizeof text;
	size_t length = text_length(the_arena.shared->node_name, sizeof the_arena.shared->node_name);
	memcpy(host, the_arena.shared->node_name, length);
	host[length] = 0;
	at = text_append(at, end, the_arena.live ? "lorg" : "lorg-");
	at = the_arena.live ? at : text_append_decimal(at, end, the_arena.shared->collector_pid);
	at = text_append(at, end, "@");
	at = text_append(at, end, host);
	return lorg_atom(terms, text, (size_t)(at - text));
}

lorg_term match_node(struct lorg_match_evaluation *evaluation, lorg_term of)
{
	uint32_t numbers[3];
	lorg_term other = LORG_NONE;
	if (of != LORG_NONE && !lorg_get_pid(evaluation->terms, of, numbers, &other))
		lorg_get_port(evaluation->terms, of, numbers, 0, &other);
	return other != LORG_NONE ? other : own_node(evaluation->terms);
}

/* ---- control word ------------------------------------------------------------------- */

static uint32_t *control_word(const struct lorg_match_evaluation *evaluation)
{
	return &session_at(match_run_of(evaluation)->session)->control_word;
}

/* Relaxed: a word by itself. */
uint32_t match_get_tcw(struct lorg_match_evaluation *evaluation)
{
	return __atomic_load_n(control_word(evaluation), __ATOMIC_RELAXED);
}

uint32_t match_set_tcw(struct lorg_match_evaluation *evaluation, uint32_t value)
{
	return __atomic_exchange_n(control_word(evaluation), value, __ATOMIC_RELAXED);
}

/* ---- flags ---------------------------------------------------------------------------- */

void match_silent(struct lorg_match_evaluation *evaluation, bool on)
{
	struct thread *self = match_run_of(evaluation)->self;
	flags_change(self, self->process, match_run_of(evaluation)->session, on ? 0 : LORG_TRACE_SILENT, on ? LORG_TRACE_SILENT : 0);
}

static bool is_named(const struct lorg_terms *terms, lorg_term name, const struct lorg_process *process)
{
	char text[sizeof process->name + 1];
	size_t length = text_length(process->name, sizeof process->name);
	memcpy(text, process->name, length);
	text[length] = 0;
	return length && lorg_atom_is(terms, name, text);
}

/* Of the own family, and alive. */
static struct lorg_process *process_of(struct lorg_match_evaluation *evaluation, lorg_term wanted)
{
	const struct lorg_arena *shared = the_arena.shared;
	uint32_t numbers[3] = {0}, chunks = __atomic_load_n(&shared->chunk_high_water, __ATOMIC_RELAXED);
	lorg_term node = LORG_NONE;
	bool is_pid = lorg_get_pid(evaluation->terms, wanted, numbers, &node);
	if ((!is_pid && !lorg_is_atom(wanted)) || node != LORG_NONE)
		return 0;
	for (uint32_t chunk = 0; chunk < chunks && chunk < the_arena.chunk_count; chunk++) {
		if (!lorg_chunk_word_is_slab_in_use(__atomic_load_n(arena_chunk_control(chunk), __ATOMIC_RELAXED)))
			continue;
		for (uint32_t i = 0; i < LORG_SLAB_ENTRIES; i++) {
			struct lorg_process *process = arena_process(chunk * LORG_SLAB_ENTRIES + i);
			if (!process || __atomic_load_n(&process->state, __ATOMIC_RELAXED) != LORG_PROCESS_ALIVE)
				continue;
			if (is_pid ? program_number(process) == numbers[0] && thread_number(process) == numbers[1] &&
					     process->runtime_process == numbers[2]
				   : is_named(evaluation->terms, wanted, process))
				return process;
		}
	}
	return 0;
}

bool match_trace(struct lorg_match_evaluation *evaluation, lorg_term wanted, uint32_t off, uint32_t on, lorg_term tracer, bool *changed)
{
	struct thread *self = match_run_of(evaluation)->self;
	struct lorg_process *process = wanted == LORG_NONE ? self->process : process_of(evaluation, wanted);
	*changed = false;
	if ((on & LORG_TRACE_ALL) == LORG_TRACE_ALL)
		on &= LORG_TRACE_SUPPORTED;
	if (!process || tracer != LORG_NONE || (on & ~(uint32_t)LORG_TRACE_SUPPORTED))
		return false;
	*changed = flags_change(self, process, match_run_of(evaluation)->session, off, on);
	return true;
}

/* ---- tokens ------------------------------------------------------------------------------- */

/* In the order of enum lorg_token_item, from LORG_TOKEN_SEND on; as seq_trace(3) adds them up. */
static const uint8_t token_bits[] = {1, 2, 4, 8, 32, 16};

static lorg_term serial_of(struct lorg_match_evaluation *evaluation, lorg_term value, struct lorg_seq_token *token)
{
	uint32_t arity;
	uint64_t previous, current;
	const lorg_term *elements = lorg_get_tuple(evaluation->terms, value, &arity);
	if (!elements || arity != 2 || !lorg_get_unsigned(evaluation->terms, elements[0], &previous) ||
	    !lorg_get_unsigned(evaluation->terms, elements[1], &current) || previous > UINT32_MAX || current > UINT32_MAX)
		return lorg_term_failed(evaluation->terms, LORG_TERM_BAD_ARGUMENT);
	token->previous = (uint32_t)previous;
	token->serial = (uint32_t)current;
	return LORG_TRUE;
}

static lorg_term set_item(struct lorg_match_evaluation *evaluation, enum lorg_token_item item, lorg_term value, struct lorg_seq_token *token)
{
	uint64_t label;
	if (item == LORG_TOKEN_SERIAL)
		return serial_of(evaluation, value, token);
	if (item == LORG_TOKEN_LABEL) {
		if (!lorg_get_unsigned(evaluation->terms, value, &label) || label > UINT32_MAX)
			return lorg_term_failed(evaluation->terms, LORG_TERM_BAD_ARGUMENT);
		token->label = (uint32_t)label;
		return LORG_TRUE;
	}
	if (!lorg_is_boolean(value))
		return lorg_term_failed(evaluation->terms, LORG_TERM_BAD_ARGUMENT);
	uint32_t bit = token_bits[item - LORG_TOKEN_SEND];
	token->flags = value == LORG_TRUE ? token->flags | bit : token->flags & ~bit;
	return LORG_TRUE;
}

lorg_term match_set_seq_token(struct lorg_match_evaluation *evaluation, enum lorg_token_item item, lorg_term value)
{
	struct lorg_process *process = match_run_of(evaluation)->self->process;
	struct lorg_seq_token token = process->token;
	if (!(token.flags & LORG_TOKEN_PRESENT))
		token = (struct lorg_seq_token){.flags = LORG_TOKEN_PRESENT,
						.from_pid = program_number(process),
						.from_tid = thread_number(process)};
	lorg_term done = set_item(evaluation, item, value, &token);
	if (done != LORG_NONE)
		process->token = token;
	return done;
}

/* {Flags, Label, Serial, From, LastCount} */
lorg_term match_get_seq_token(struct lorg_match_evaluation *evaluation)
{
	struct lorg_terms *terms = evaluation->terms;
	const struct lorg_seq_token token = match_run_of(evaluation)->self->process->token;
	if (!(token.flags & LORG_TOKEN_PRESENT))
		return lorg_nil();
	const lorg_term elements[] = {lorg_small(token.flags & ~LORG_TOKEN_PRESENT), lorg_small(token.label), lorg_small(token.serial),
				      lorg_pid(terms, token.from_pid, token.from_tid, 0, LORG_NONE), lorg_small(token.previous)};
	return elements[3] == LORG_NONE ? LORG_NONE : lorg_tuple(terms, elements, sizeof elements / sizeof *elements);
}

bool match_is_seq_trace(struct lorg_match_evaluation *evaluation)
{
	return match_run_of(evaluation)->self->process->token.flags & LORG_TOKEN_PRESENT;
}

/* ---- the stack ------------------------------------------------------------------------------ */

/* What a walk has come upon: frames by their pointers and the open calls that the shadow knows, both by ascending slots. */
struct walk {
	const struct match_run *run;
	uint64_t *addresses;
	uint32_t count;
	uintptr_t frame; /* of the next frame by its pointer; 0: none */
	uintptr_t slot;	 /* from where on */
	uintptr_t open;	 /* slot of the next open call; 0: none */
	uintptr_t end;	 /* of the stack, as far as it may be looked at */
};

static int read_words(const struct walk *walk, uintptr_t at, uint64_t words[2])
{
	if (at < walk->slot || (at & 7) || at >= walk->end || walk->end - at < 16)
		return 0;
	words[0] = ((const uint64_t *)at)[0];
	words[1] = ((const uint64_t *)at)[1];
	return 1;
}

/* The next slot above `from` that an open call has; 0: none within reach. */
static uintptr_t next_open(uintptr_t from, uintptr_t end)
{
	enum { LOOKED_AT = 1 << 16 };
	for (uint32_t i = 0; i < LOOKED_AT && from < end; i++, from += 8) {
		if ((i == 0 || !(from & ((1ul << CALL_REGION_SHIFT) - 1))) && !shadow_known(from))
			return 0;
		if (*return_word(from))
			return from;
	}
	return 0;
}

static void add(struct walk *walk, uint64_t address)
{
	if (walk->count < MATCH_STACK)
		walk->addresses[walk->count++] = address - 1;
}

/* A return address has a call before it, in an object that is mapped. */
static int follows_call(uint64_t address)
{
	uint8_t before[7];
	if (!system_calls_allowed() || !module_is_told(address) || memory_peek(before, (const void *)(address - 7), 7) != 7)
		return 0;
	if (before[2] == 0xe8)
		return 1;
	/* call through a register or memory: ff /2, in two to seven bytes */
	for (int at = 5; at >= 0; at--)
		if (before[at] == 0xff && (before[at + 1] >> 3 & 7) == 2)
			return 1;
	return 0;
}

/* The frame that the pointer leads to: its slot, or 0 where there is none that makes sense. */
static uintptr_t frame_slot(struct walk *walk, uint64_t words[2])
{
	if (!walk->frame || !read_words(walk, walk->frame, words))
		return 0;
	int is_open = words[1] == (uintptr_t)call_return && walk->frame + 8 == walk->open;
	return is_open || follows_call(words[1]) ? walk->frame + 8 : 0;
}

/* One step: whichever of the two lies nearer. Returns 0 at the end. */
static int step(struct walk *walk)
{
	uint64_t words[2];
	uintptr_t slot = frame_slot(walk, words);
	int by_pointer = slot && (!walk->open || slot <= walk->open);
	if (!by_pointer && !walk->open)
		return 0;
	if (!by_pointer)
		slot = walk->open;
	add(walk, slot == walk->open ? *return_word(slot) : words[1]);
	walk->slot = slot + 8;
	if (by_pointer)
		walk->frame = words[0] > walk->frame ? words[0] : 0;
	else if (walk->frame < walk->slot)
		walk->frame = 0;
	if (slot == walk->open)
		walk->open = next_open(walk->slot, walk->end);
	return 1;
}

uint32_t match_stack(const struct match_run *run, uintptr_t stack, uintptr_t frame, uint64_t addresses[MATCH_STACK])
{
	const struct call_thread *call = run->self->call;
	uintptr_t end = call && stack < call->stack_high && call->stack_high - stack < UNKNOWN_DISTANCE ? call->stack_high : (stack | 4095) + 1;
	struct walk walk = {.run = run, .addresses = addresses, .frame = frame, .slot = stack + 8, .end = end};
	if (run->registers)
		add(&walk, run->caller);
	walk.open = next_open(walk.slot, end);
	while (walk.count < MATCH_STACK && step(&walk))
		;
	return walk.count;
}

/* ---- dump ------------------------------------------------------------------------------------- */

struct dump {
	char *at;
	const char *end;
};

static void put_line(struct dump *dump, const char *name, const char *text)
{
	dump->at = text_append(dump->at, dump->end, name);
	dump->at = text_append(dump->at, dump->end, text);
	dump->at = text_append(dump->at, dump->end, "\n");
}

static void put_number(struct dump *dump, const char *name, uint64_t value)
{
	dump->at = text_append(dump->at, dump->end, name);
	dump->at = text_append_decimal(dump->at, dump->end, value);
}

static void put_address(struct dump *dump, const char *name, uint64_t value)
{
	uint8_t bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (uint8_t)(value >> (56 - 8 * i));
	dump->at = text_append(dump->at, dump->end, name);
	dump->at = text_append(dump->at, dump->end, "0x");
	dump->at = text_append_hex(dump->at, dump->end, bytes, sizeof bytes);
}

static void dump_process(struct dump *dump, const struct lorg_process *process)
{
	char name[sizeof process->name + 1];
	size_t length = text_length(process->name, sizeof process->name);
	memcpy(name, process->name, length);
	name[length] = 0;
	put_number(dump, "=proc:<", program_number(process));
	put_number(dump, ".", thread_number(process));
	put_line(dump, ">", "");
	put_line(dump, "Name: ", name);
	put_line(dump, "State: ", process->waits_on.hook ? "Waiting" : "Running");
	if (process->waits_on.hook && process->waits_on.hook <= HOOK_COUNT)
		put_line(dump, "Waits in: ", hook_table[process->waits_on.hook - 1].name);
}

static void dump_ports(struct dump *dump, const struct lorg_process *process)
{
	enum { LOOKED_AT = 256 };
	dump->at = text_append(dump->at, dump->end, "Ports:");
	for (int fd = 0; fd < LOOKED_AT; fd++) {
		const struct port *port = port_peek(fd);
		if (!port || !port->known || port->kind != PORT_KIND_PORT)
			continue;
		put_number(dump, " #Port<", program_number(process));
		put_number(dump, ".", (uint64_t)fd);
		put_number(dump, ".", port->generation);
		dump->at = text_append(dump->at, dump->end, ">");
	}
	put_line(dump, "", "");
}

static void dump_call(struct dump *dump, const struct match_run *run)
{
	const struct call_registers *registers = run->registers;
	const struct {
		const char *name;
		uint64_t value;
	} all[] = {{"rdi ", registers->rdi}, {" rsi ", registers->rsi}, {" rdx ", registers->rdx}, {" rcx ", registers->rcx},
		   {" r8 ", registers->r8}, {" r9 ", registers->r9}, {" rax ", registers->rax}, {" rbx ", registers->rbx},
		   {" rbp ", run->program_frame}, {" rsp ", run->look.stack - 8}};
	const struct call_target *target = run->look.target;
	put_address(dump, "Current function: ", target->base + (target->plan_function ? target->plan_function->offset : 0));
	put_line(dump, "", "");
	dump->at = text_append(dump->at, dump->end, "Registers: ");
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		put_address(dump, all[i].name, all[i].value);
	put_line(dump, "", "");
}

lorg_term match_process_dump(struct lorg_match_evaluation *evaluation)
{
	struct match_run *run = match_run_of(evaluation);
	char *text = (char *)match_desk(run);
	struct dump dump = {text, text + MATCH_DESK_BYTES};
	uint64_t addresses[MATCH_STACK];
	uintptr_t frame = run->registers ? run->program_frame : *(const uintptr_t *)__builtin_frame_address(0);
	uintptr_t stack = run->registers ? run->look.stack - 8 : (uintptr_t)__builtin_frame_address(0);
	*text = 0;
	dump_process(&dump, run->self->process);
	dump_ports(&dump, run->self->process);
	if (run->registers)
		dump_call(&dump, run);
	uint32_t count = match_stack(run, stack, frame, addresses);
	put_line(&dump, "Stack:", "");
	for (uint32_t i = 0; i < count; i++) {
		put_address(&dump, "", addresses[i]);
		put_line(&dump, "", "");
	}
	return lorg_binary(&run->terms, text, (size_t)(dump.at - text));
}

/* ---- display ------------------------------------------------------------------------------------ */

void match_display(struct lorg_match_evaluation *evaluation, lorg_term term)
{
	struct match_run *run = match_run_of(evaluation);
	uint64_t steps = run->terms.steps;
	struct event_bytes terms = encode(run, term);
	struct lorg_event_DISPLAY event = {.session = run->session, .terms_length = terms.length};
	run->terms.steps = steps;
	event_write(run->self, LORG_EVENT_DISPLAY, &event, sizeof event, &terms, 1, 0);
}
