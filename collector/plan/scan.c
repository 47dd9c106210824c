/* SPDX-License-Identifier: MIT */
/* scan.c: see scan.h. */
#include "collector/plan/scan.h"

#include <stdlib.h>
#include <string.h>

#include "collector/plan/unwind.h"

enum hit_kind { HIT_JUMP, HIT_ADDRESS, HIT_TABLE, HIT_LANDING_PAD };

/* A table of more entries is none. */
enum { TABLE_MAXIMUM = 65536, GAP_MAXIMUM = 65536 };

struct search {
	struct functions *functions;
	const struct object *object;
	const struct entry *entries;
	struct scan *scan;
	uint64_t text_start, text_size;
	uint8_t *marks; /* one a byte of code: 1 + distance from the function's start, 0: none of its first bytes */
	uint64_t data_start, data_end;	 /* what is not code */
	uint64_t slots_start, slots_end; /* addresses of the first slot, and behind the last */
	int failed;
};

/* ---- finds ------------------------------------------------------------- */

static void add_hit(struct search *search, const struct function *function, enum hit_kind kind, uint64_t source, uint64_t target)
{
	struct scan *scan = search->scan;
	if (scan->hit_count == scan->hit_room) {
		size_t room = scan->hit_room ? 2 * scan->hit_room : 1024;
		struct scan_hit *more = realloc(scan->hits, room * sizeof *more);
		if (!more) {
			search->failed = 1;
			return;
		}
		scan->hits = more;
		scan->hit_room = room;
	}
	scan->hits[scan->hit_count++] = (struct scan_hit){(uint32_t)(function - search->functions->list), kind, source, target};
}

static inline unsigned mark_at(const struct search *search, uint64_t address)
{
	uint64_t offset = address - search->text_start;
	return offset < search->text_size ? search->marks[offset] : 0;
}

static int is_within(const struct function *function, uint64_t address)
{
	return address - function->address < function->size;
}

static void note_jump(struct search *search, uint64_t source, uint64_t target, unsigned mark)
{
	struct function *function = function_at(search->functions, target - (mark - 1));
	if (!function)
		return;
	unsigned distance = mark - 1;
	int to_start = distance == 0 || distance == search->entries[function - search->functions->list].skip;
	if (to_start && !is_within(function, source)) {
		if (distance == 0)
			function->flags |= FUNCTION_JUMPED_TO; /* a tail call, or its start is another's end */
		return;
	}
	add_hit(search, function, HIT_JUMP, source, target);
}

static void note_call(struct search *search, uint64_t source, uint64_t target, unsigned mark)
{
	struct function *function = function_at(search->functions, target - (mark - 1));
	if (!function)
		return;
	if (mark == 1)
		function->flags |= FUNCTION_CALLED;
	else
		add_hit(search, function, HIT_JUMP, source, target);
}

/* kind: HIT_ADDRESS where `source` is code that may be something else, HIT_TABLE where it is data. */
static void note_address(struct search *search, enum hit_kind kind, uint64_t source, uint64_t target, unsigned mark)
{
	struct function *function = function_at(search->functions, target - (mark - 1));
	if (!function)
		return;
	if (mark == 1)
		function->flags |= FUNCTION_CALLED;
	else
		add_hit(search, function, kind, source, target);
}

/* ---- tables ------------------------------------------------------------ */

/* A switch leads to places in its own function: what could be read as a table of others' is none. */
static int may_be_own(const struct search *search, const struct function *function, uint64_t source)
{
	const struct code_range *range = range_at(search->functions, source);
	return is_within(function, source) || !range || !function_at(search->functions, range->start);
}

/* Distances from the table's start, 32 bits each: how position-independent code writes the targets of a switch. */
static void look_at_relative_table(struct search *search, uint64_t source, uint64_t table)
{
	size_t room;
	const uint8_t *bytes = object_bytes(search->object, table, &room);
	if (!bytes || (table & 3))
		return;
	for (size_t i = 0; i < TABLE_MAXIMUM && 4 * (i + 1) <= room; i++) {
		int32_t distance;
		memcpy(&distance, bytes + 4 * i, sizeof distance);
		uint64_t target = table + (uint64_t)(int64_t)distance;
		if (target - search->text_start >= search->text_size)
			return;
		unsigned mark = mark_at(search, target);
		if (!mark)
			continue;
		const struct function *function = function_at(search->functions, target - (mark - 1));
		if (function && may_be_own(search, function, source) && (mark > 1 || is_within(function, source)))
			add_hit(search, function, HIT_TABLE, source, target);
	}
}

/* Addresses, 64 bits each: how a program at a fixed address writes them. Only loops are looked for; see note_words. */
static void look_at_absolute_table(struct search *search, uint64_t source, uint64_t table)
{
	size_t room;
	const uint8_t *bytes = object_bytes(search->object, table, &room);
	for (size_t i = 0; bytes && i < TABLE_MAXIMUM && 8 * (i + 1) <= room; i++) {
		uint64_t target;
		memcpy(&target, bytes + 8 * i, sizeof target);
		if (target - search->text_start >= search->text_size)
			return;
		const struct function *function = mark_at(search, target) == 1 ? function_at(search->functions, target) : NULL;
		if (function && is_within(function, source))
			add_hit(search, function, HIT_TABLE, source, target);
	}
}

/* Words of data are addresses as they stand where the file is not moved, or packed relocations (RELR) move it. */
static int has_addresses_in_place(const struct object *object)
{
	for (size_t i = 0; i < object->section_count; i++)
		if (strcmp(object->sections[i].name, ".relr.dyn") == 0)
			return 1;
	return object->at_fixed_address;
}

/* Each aligned word of data that could be an address, and each that a relocation makes one. */
static void note_words(struct search *search)
{
	const int in_place = has_addresses_in_place(search->object);
	for (size_t i = 0; i < search->object->section_count; i++) {
		const struct object_section *section = &search->object->sections[i];
		if (section->executable || !in_place)
			continue;
		for (uint64_t at = (section->start + 7) & ~7ull; at + 8 <= section->end; at += 8) {
			uint64_t word;
			memcpy(&word, section->bytes + (at - section->start), sizeof word);
			unsigned mark = mark_at(search, word);
			if (mark)
				note_address(search, HIT_TABLE, at, word, mark);
		}
	}
	for (size_t i = 0; i < search->object->pointer_count; i++) {
		unsigned mark = mark_at(search, search->object->pointers[i]);
		if (mark)
			note_address(search, HIT_TABLE, 0, search->object->pointers[i], mark);
	}
}

static void note_landing_pad(void *context, uint64_t address)
{
	struct search *search = context;
	unsigned mark = mark_at(search, address);
	const struct function *function = mark ? function_at(search->functions, address - (mark - 1)) : NULL;
	if (function)
		add_hit(search, function, HIT_LANDING_PAD, 0, address);
}

static void note_landing_pads(struct search *search)
{
	for (size_t i = 0; i < search->functions->range_count; i++) {
		const struct code_range *range = &search->functions->ranges[i];
		if (range->handlers)
			unwind_landing_pads(search->object, range, note_landing_pad, search);
	}
}

/* ---- code -------------------------------------------------------------- */

enum opcode_class { OTHER = 0, CALL_32, JUMP_32, JUMP_8, TWO_BYTES, ADDRESS, TRANSACTION };

static void classify(uint8_t class[256])
{
	memset(class, OTHER, 256);
	class[0xe8] = CALL_32;
	class[0xe9] = JUMP_32;
	class[0xeb] = JUMP_8;
	for (int i = 0x70; i < 0x80; i++)
		class[i] = JUMP_8;
	for (int i = 0xe0; i < 0xe4; i++)
		class[i] = JUMP_8; /* loop, jrcxz */
	class[0x0f] = TWO_BYTES;
	class[0x8d] = ADDRESS; /* lea */
	class[0xc7] = TRANSACTION;
}

static inline uint64_t displaced(const uint8_t *at, uint64_t end)
{
	int32_t distance;
	memcpy(&distance, at, sizeof distance);
	return end + (uint64_t)(int64_t)distance;
}

static void found_address(struct search *search, uint64_t source, uint64_t target)
{
	unsigned mark = mark_at(search, target);
	if (mark)
		note_address(search, HIT_ADDRESS, source, target, mark);
	else if (target >= search->data_start && target < search->data_end)
		look_at_relative_table(search, source, target);
}

/* The last bytes of a section are looked at through a copy with room behind them. */
static void search_bytes(struct search *search, const uint8_t class[256], const uint8_t *bytes, size_t count, uint64_t address)
{
	for (size_t i = 0; i < count; i++) {
		const uint8_t *at = bytes + i;
		uint64_t target;
		unsigned mark;
		switch (class[*at]) {
		case CALL_32:
			if ((mark = mark_at(search, target = displaced(at + 1, address + i + 5))) != 0)
				note_call(search, address + i, target, mark);
			break;
		case JUMP_32:
			if ((mark = mark_at(search, target = displaced(at + 1, address + i + 5))) != 0)
				note_jump(search, address + i, target, mark);
			break;
		case JUMP_8:
			target = address + i + 2 + (uint64_t)(int64_t)(int8_t)at[1];
			if ((mark = mark_at(search, target)) != 0)
				note_jump(search, address + i, target, mark);
			break;
		case TWO_BYTES:
			if ((at[1] & 0xf0) == 0x80 && (mark = mark_at(search, target = displaced(at + 2, address + i + 6))) != 0)
				note_jump(search, address + i, target, mark);
			break;
		case ADDRESS:
			if ((at[1] & 0xc7) == 0x05)
				found_address(search, address + i, displaced(at + 2, address + i + 6));
			break;
		case TRANSACTION:
			if (at[1] == 0xf8 && (mark = mark_at(search, target = displaced(at + 2, address + i + 6))) != 0)
				note_jump(search, address + i, target, mark);
			break;
		default:
			break;
		}
	}
}

static int slot_at(const struct search *search, uint64_t address)
{
	const struct object_slot *slot = object_slot_at(search->object, address);
	return slot ? (int)(slot - search->object->slots) : -1;
}

static void note_slot(struct search *search, const uint8_t *bytes, size_t at, uint64_t target)
{
	static const uint8_t immediate[] = {0, 1, 2, 4}; /* bytes that may follow the displacement */
	for (unsigned i = 0; i < sizeof immediate; i++) {
		int slot = slot_at(search, target + immediate[i]);
		if (slot < 0)
			continue;
		int calls = i == 0 && at >= 2 && bytes[at - 2] == 0xff && (bytes[at - 1] == 0x15 || bytes[at - 1] == 0x25);
		uint8_t *use = &search->scan->slot_uses[slot];
		*use = calls && *use != SLOT_OTHER ? SLOT_CALLS : SLOT_OTHER;
	}
	int half = (target & 7) ? slot_at(search, target & ~7ull) : -1;
	if (half >= 0 && (target & 7) != 4)
		half = -1; /* immediates in front of a slot look like this */
	if (half >= 0)
		search->scan->slot_uses[half] = SLOT_OTHER;
}

/* Each four bytes that could be a displacement to a slot. */
static void search_slots(struct search *search, const uint8_t *bytes, size_t count, uint64_t address)
{
	uint64_t start = search->slots_start - 4, size = search->slots_end - start;
	for (size_t i = 0; i + 4 <= count; i++) {
		uint64_t target = displaced(bytes + i, address + i + 4);
		if (target - start < size)
			note_slot(search, bytes, i, target);
	}
}

/* What stands before the address of a table: jmp *TABLE(,%reg,8) or mov TABLE(,%reg,8), %reg. */
static int is_table_use(const uint8_t *at)
{
	return (at[-1] & 0xc7) == 0xc5 && (at[-2] & 0xc7) == 0x04 && ((at[-3] == 0xff && at[-2] == 0x24) || at[-3] == 0x8b);
}

/* In a program at a fixed address each four bytes may be an address. */
static void search_absolute(struct search *search, const uint8_t *bytes, size_t count, uint64_t address)
{
	for (size_t i = 0; i + 4 <= count; i++) {
		uint32_t word;
		memcpy(&word, bytes + i, sizeof word);
		unsigned mark = mark_at(search, word);
		if (mark == 1)
			note_address(search, HIT_ADDRESS, address + i, word, mark);
		else if (mark && i && (bytes[i - 1] & 0xf8) == 0xb8)
			note_address(search, HIT_ADDRESS, address + i - 1, word, mark);
		else if (word >= search->slots_start && word < search->slots_end && !(word & 7)) {
			int slot = slot_at(search, word);
			if (slot >= 0)
				search->scan->slot_uses[slot] = SLOT_OTHER;
		} else if (word >= search->data_start && word < search->data_end && !(word & 7) && i >= 3 && is_table_use(bytes + i))
			look_at_absolute_table(search, address + i, word);
	}
}

static void search_section(struct search *search, const uint8_t class[256], const struct object_section *section)
{
	enum { BEHIND = 16 };
	size_t count = section->end - section->start, last = count < BEHIND ? count : BEHIND;
	uint8_t rest[2 * BEHIND] = {0};
	if (search->slots_end)
		search_slots(search, section->bytes, count, section->start);
	if (section->stubs)
		return;
	memcpy(rest, section->bytes + count - last, last);
	search_bytes(search, class, section->bytes, count - last, section->start);
	search_bytes(search, class, rest, last, section->end - last);
	if (search->object->at_fixed_address)
		search_absolute(search, section->bytes, count, section->start);
}

/* ---- the whole --------------------------------------------------------- */

static void set_marks(struct search *search)
{
	for (size_t i = 0; i < search->functions->count; i++) {
		const struct function *function = &search->functions->list[i];
		const struct entry *entry = &search->entries[i];
		uint64_t length = entry->refusal ? 1 : (uint64_t)entry->skip + entry->taken;
		uint64_t most = function->end - function->address;
		for (uint64_t at = 0; at < length && at < most; at++)
			search->marks[function->address - search->text_start + at] = (uint8_t)(at + 1);
	}
}

static void find_borders(struct search *search)
{
	const struct object *object = search->object;
	search->data_start = UINT64_MAX;
	for (size_t i = 0; i < object->section_count; i++) {
		const struct object_section *section = &object->sections[i];
		if (section->executable)
			continue;
		search->data_start = section->start < search->data_start ? section->start : search->data_start;
		search->data_end = section->end > search->data_end ? section->end : search->data_end;
	}
	if (object->slot_count) {
		search->slots_start = object->slots[0].address;
		search->slots_end = object->slots[object->slot_count - 1].address + 8;
	}
}

static int by_function(const void *left, const void *right)
{
	const struct scan_hit *a = left, *b = right;
	if (a->function != b->function)
		return a->function < b->function ? -1 : 1;
	return (int)b->kind - (int)a->kind; /* what needs no check first */
}

static int open_capstone(struct scan *scan)
{
	if (cs_open(CS_ARCH_X86, CS_MODE_64, &scan->capstone) != CS_ERR_OK)
		return -1;
	scan->instruction = cs_malloc(scan->capstone);
	return scan->instruction ? 0 : -1;
}

int scan_run(struct functions *functions, const struct entry *entries, struct scan *scan)
{
	const struct object *object = functions->object;
	uint8_t class[256];
	struct search search = {
		.functions = functions,
		.object = object,
		.entries = entries,
		.scan = scan,
		.text_start = object->text_start,
		.text_size = object->text_end - object->text_start,
	};
	*scan = (struct scan){.functions = functions};
	search.marks = calloc(1, search.text_size);
	scan->slot_uses = calloc(object->slot_count + 1, 1);
	if (!search.marks || !scan->slot_uses || open_capstone(scan)) {
		free(search.marks);
		return -1;
	}
	set_marks(&search);
	find_borders(&search);
	classify(class);
	for (size_t i = 0; i < object->section_count; i++)
		if (object->sections[i].executable)
			search_section(&search, class, &object->sections[i]);
	note_words(&search);
	note_landing_pads(&search);
	free(search.marks);
	if (scan->hit_count)
		qsort(scan->hits, scan->hit_count, sizeof *scan->hits, by_function);
	return search.failed ? -1 : 0;
}

void scan_free(struct scan *scan)
{
	free(scan->hits);
	free(scan->slot_uses);
	if (scan->instruction)
		cs_free(scan->instruction, 1);
	if (scan->capstone)
		cs_close(&scan->capstone);
	*scan = (struct scan){0};
}

/* ---- checking what was found ------------------------------------------- */

static int is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26:
	case 0x2e:
	case 0x36:
	case 0x3e:
	case 0x64:
	case 0x65:
	case 0x66:
	case 0x67:
	case 0xf0:
	case 0xf2:
	case 0xf3:
		return 1;
	default:
		return (byte & 0xf0) == 0x40;
	}
}

enum verdict { NO_INSTRUCTION, AN_INSTRUCTION, NOT_CLEAR };

/* Whether an instruction's opcode stands at `source`, by reading the code from its start. */
static enum verdict read_code(struct scan *scan, const struct code_range *range, uint64_t source)
{
	size_t left;
	const uint8_t *at = object_bytes(scan->functions->object, range->start, &left);
	if (!at)
		return NOT_CLEAR;
	uint64_t address = range->start;
	left = left < range->end - range->start ? left : range->end - range->start;
	while (address <= source) {
		const uint8_t *bytes = at;
		uint64_t start = address;
		if (!cs_disasm_iter(scan->capstone, &at, &left, &address, scan->instruction))
			return NOT_CLEAR;
		scan->checked++;
		if (source >= address)
			continue;
		for (uint64_t i = start; i < source; i++)
			if (!is_prefix(bytes[i - start]))
				return NO_INSTRUCTION;
		return AN_INSTRUCTION;
	}
	return NOT_CLEAR;
}

/* Code that neither symbols nor unwind tables tell of (what every program starts with): between two pieces that they do. */
static int find_gap(const struct functions *functions, uint64_t source, struct code_range *gap)
{
	const struct object_section *section = object_section_at(functions->object, source);
	if (!section)
		return 0;
	*gap = (struct code_range){section->start, section->end, 0};
	for (size_t i = 0; i < functions->range_count; i++) {
		const struct code_range *range = &functions->ranges[i];
		if (range->end <= source && range->end > gap->start)
			gap->start = range->end;
		if (range->start > source) {
			gap->end = range->start < gap->end ? range->start : gap->end;
			break;
		}
	}
	return gap->end - gap->start <= GAP_MAXIMUM;
}

/* It is read clearly if all of it are instructions, and the last ends where the next piece begins. */
static int is_clear(struct scan *scan, const struct code_range *gap)
{
	size_t left;
	const uint8_t *at = object_bytes(scan->functions->object, gap->start, &left);
	uint64_t address = gap->start;
	left = left < gap->end - gap->start ? left : gap->end - gap->start;
	while (at && left && cs_disasm_iter(scan->capstone, &at, &left, &address, scan->instruction))
		scan->checked++;
	return at && left == 0;
}

static enum verdict check_source(struct scan *scan, uint64_t source)
{
	const struct code_range *range = range_at(scan->functions, source);
	struct code_range gap;
	if (range)
		return read_code(scan, range, source);
	if (!find_gap(scan->functions, source, &gap) || !is_clear(scan, &gap))
		return NOT_CLEAR;
	return read_code(scan, &gap, source);
}

static enum refusal check_hit(struct scan *scan, const struct scan_hit *hit, const struct entry *entry)
{
	const struct function *function = &scan->functions->list[hit->function];
	uint64_t distance = hit->target - function->address;
	int to_start = distance == 0 || distance == entry->skip;
	if (hit->kind == HIT_LANDING_PAD)
		return REFUSED_LANDING_PAD;
	if (hit->kind == HIT_TABLE)
		return to_start && distance == 0 ? REFUSED_LOOP : REFUSED_JUMP_TABLE;
	switch (check_source(scan, hit->source)) {
	case NO_INSTRUCTION:
		return REFUSED_NOT;
	case NOT_CLEAR:
		return REFUSED_UNPROVABLE;
	default:
		return hit->kind == HIT_ADDRESS ? REFUSED_JUMP_TABLE : to_start ? REFUSED_LOOP : REFUSED_JUMP_INTO;
	}
}

enum refusal scan_refusal(struct scan *scan, size_t function, const struct entry *entry)
{
	size_t low = 0, high = scan->hit_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (scan->hits[middle].function < function)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < scan->hit_count && scan->hits[low].function == function; low++) {
		enum refusal refusal = check_hit(scan, &scan->hits[low], entry);
		if (refusal)
			return refusal;
	}
	return REFUSED_NOT;
}
