/* SPDX-License-Identifier: MIT */
/* analysis.c: see analysis.h. */
#include "collector/plan/analysis.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collector/plan/pattern.h"
#include "collector/plan/special.h"
#include "collector/symbol/symbol.h"

/* ---- calls that compilers put at entries ------------------------------- */

/* The slot that a stub of the procedure linkage table jumps through; 0: not known. */
static uint64_t slot_of_stub(const struct object *object, uint64_t stub)
{
	static const uint8_t endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	size_t room;
	const struct object_section *section = object_section_at(object, stub);
	const uint8_t *bytes = section && section->stubs ? object_bytes(object, stub, &room) : NULL;
	if (!bytes || room < 16)
		return 0;
	size_t at = memcmp(bytes, endbr64, sizeof endbr64) == 0 ? sizeof endbr64 : 0;
	at += bytes[at] == 0xf2;
	if (bytes[at] != 0xff || bytes[at + 1] != 0x25)
		return 0;
	int32_t distance;
	memcpy(&distance, bytes + at + 2, sizeof distance);
	return stub + at + 6 + (uint64_t)(int64_t)distance;
}

static int is_profiler(void *context, uint64_t target, int indirect)
{
	const struct analysis *analysis = context;
	uint64_t slot_address = indirect ? target : slot_of_stub(analysis->object, target);
	const struct object_slot *slot = slot_address ? object_slot_at(analysis->object, slot_address) : NULL;
	if (slot)
		return special_profiler(slot->name);
	const struct function *function = indirect ? NULL : function_at(&analysis->functions, target);
	for (uint32_t i = 0; function && i < function->name_count; i++)
		if (special_profiler(analysis->functions.names[function->first_name + i].text))
			return 1;
	return 0;
}

/* ---- opening ----------------------------------------------------------- */

static enum refusal known_refusal(const struct function *function, int is_go)
{
	/* A name may stand for an IFUNC and the chooser's own code at once: then the latter is meant by none. */
	if (function->flags & FUNCTION_CHOSEN)
		return REFUSED_CHOSEN;
	if (is_go)
		return REFUSED_GO;
	return function->flags & FUNCTION_FRAME_SET_UP ? REFUSED_FRAME_SET_UP : REFUSED_NOT;
}

static int is_go_program(const struct object *object)
{
	for (size_t i = 0; i < object->section_count; i++)
		if (strcmp(object->sections[i].name, ".gopclntab") == 0 || strcmp(object->sections[i].name, ".data.rel.ro.gopclntab") == 0)
			return 1;
	return 0;
}

static void find_machine(struct analysis *analysis)
{
	const struct functions *functions = &analysis->functions;
	analysis->machine = special_machine(NULL, analysis->object->soname);
	for (size_t i = 0; i < functions->name_count && !analysis->machine; i++)
		analysis->machine = special_machine(functions->names[i].text, NULL);
}

static int read_entries(struct analysis *analysis)
{
	int is_go = is_go_program(analysis->object);
	struct entry_context context = {.is_profiler = is_profiler, .context = analysis};
	if (entry_context_open(&context))
		return -1;
	for (size_t i = 0; i < analysis->functions.count; i++) {
		const struct function *function = &analysis->functions.list[i];
		struct entry *entry = &analysis->entries[i];
		size_t room;
		const uint8_t *bytes = object_bytes(analysis->object, function->address, &room);
		entry->refusal = known_refusal(function, is_go);
		if (entry->refusal || !bytes)
			continue;
		room = function->end - function->address < room ? function->end - function->address : room;
		entry_analyse(&context, bytes, function->address, function->size, room, entry);
	}
	entry_context_close(&context);
	return 0;
}

/* Stripped libraries have no name for it: what libc's threads begin in is what pthread_create knows the address of. */
static void find_thread_starts(struct analysis *analysis)
{
	struct functions *functions = &analysis->functions;
	for (size_t i = 0; i < functions->count; i++) {
		const struct function *function = &functions->list[i];
		size_t room;
		const uint8_t *bytes = object_bytes(analysis->object, function->address, &room);
		if (!function->name_count || !bytes || !function_is_called(functions, function, "pthread_create"))
			continue;
		room = function->size < room ? function->size : room;
		for (size_t at = 0; at + 6 <= room; at++) {
			int32_t distance;
			memcpy(&distance, bytes + at + 2, sizeof distance);
			if (bytes[at] != 0x8d || (bytes[at + 1] & 0xc7) != 0x05)
				continue;
			struct function *start = function_at(functions, function->address + at + 6 + (uint64_t)(int64_t)distance);
			if (start)
				start->flags |= FUNCTION_THREAD_START;
		}
	}
}

struct analysis *analysis_open(const char *path, int descriptor, int (*wants)(void *context, struct object *object), void *context,
			       char *why)
{
	struct analysis *analysis = calloc(1, sizeof *analysis);
	struct object *object = object_open(path, descriptor, 1, why);
	if (!analysis || !object) {
		if (object)
			snprintf(why, OBJECT_WHY, "%s", strerror(ENOMEM));
		object_close(object);
		free(analysis);
		return NULL;
	}
	analysis->object = object;
	analysis->functions.object = object;
	int failed = (!wants || wants(context, object)) && functions_read(object, &analysis->functions);
	if (!failed) {
		analysis->entries = calloc(analysis->functions.count + 1, sizeof *analysis->entries);
		analysis->checked = calloc(analysis->functions.count + 1, 1);
		failed = !analysis->entries || !analysis->checked || read_entries(analysis) ||
			 scan_run(&analysis->functions, analysis->entries, &analysis->scan);
	}
	if (!failed) {
		find_thread_starts(analysis);
		find_machine(analysis);
		return analysis;
	}
	snprintf(why, OBJECT_WHY, "%s", strerror(ENOMEM));
	analysis_close(analysis);
	return NULL;
}

void analysis_close(struct analysis *analysis)
{
	if (!analysis)
		return;
	scan_free(&analysis->scan);
	functions_free(&analysis->functions);
	object_close(analysis->object);
	free(analysis->entries);
	free(analysis->checked);
	free(analysis);
}

/* ---- who looks at its return address ------------------------------------ */

enum { CODE_RBP = 6, CODE_RSP = 7 }; /* DWARF numbers */

/* Where the return address is in this row of the unwind tables: displacement from rsp or rbp. 0: not told so. */
static int return_slot(Dwarf_Frame *frame, int *base, int64_t *displacement)
{
	Dwarf_Op *operations = NULL;
	size_t count = 0;
	if (dwarf_frame_cfa(frame, &operations, &count) != 0 || count != 1)
		return 0;
	int is_wide = operations->atom == DW_OP_bregx;
	*base = is_wide ? (int)operations->number : operations->atom - DW_OP_breg0;
	*displacement = (int64_t)(is_wide ? operations->number2 : operations->number) - 8;
	return *base == CODE_RSP || (*base == CODE_RBP && *displacement == 8);
}

/*
 * Whether an instruction reads or writes 64 bits there: mov, cmp and push, what compilers use for
 * __builtin_return_address(0). Bytes that only look like one cost a function its returns, nothing else.
 */
static int touches(const uint8_t *bytes, size_t length, int base, int64_t displacement)
{
	for (size_t i = 0; i + 2 < length; i++) {
		int is_push = bytes[i] == 0xff && (bytes[i + 1] & 0x38) == 0x30;
		int is_move = (bytes[i] == 0x8b || bytes[i] == 0x89 || bytes[i] == 0x3b || bytes[i] == 0x39) && i &&
			      (bytes[i - 1] == 0x48 || bytes[i - 1] == 0x4c);
		unsigned mode = bytes[i + 1] >> 6;
		size_t at = i + 2;
		if ((!is_push && !is_move) || (bytes[i + 1] & 7) != (base == CODE_RSP ? 4 : 5) || mode == 3)
			continue;
		if (base == CODE_RSP && bytes[at++] != 0x24)
			continue;
		int32_t wide = 0;
		if (mode == 2 && at + 4 <= length)
			memcpy(&wide, bytes + at, sizeof wide);
		int64_t found = mode == 0 ? 0 : mode == 1 ? at < length ? (int8_t)bytes[at] : 0 : wide;
		if (found == displacement && (base == CODE_RSP || mode != 0))
			return 1;
	}
	return 0;
}

static int looks_at_return_address(const struct analysis *analysis, const struct function *function)
{
	Dwarf_Addr bias = 0;
	Dwarf_CFI *table = dwfl_module_eh_cfi(analysis->object->dwfl_module, &bias);
	size_t room;
	const uint8_t *bytes = object_bytes(analysis->object, function->address, &room);
	uint64_t away = analysis->object->bias - bias, size = function->size < room ? function->size : room;
	int found = 0;
	for (uint64_t at = 0; table && bytes && at < size && !found;) {
		Dwarf_Frame *frame = NULL;
		Dwarf_Addr start, end = 0;
		int base;
		int64_t displacement;
		if (dwarf_cfi_addrframe(table, function->address + at + away, &frame) != 0)
			break;
		if (dwarf_frame_info(frame, &start, &end, NULL) >= 0 && end > function->address + at + away) {
			uint64_t next = end - away - function->address < size ? end - away - function->address : size;
			if (return_slot(frame, &base, &displacement))
				found = touches(bytes + at, next - at, base, displacement);
			at = next;
		} else {
			at = size;
		}
		free(frame);
	}
	return found;
}

/* ---- asking ------------------------------------------------------------ */

const struct entry *analysis_entry(struct analysis *analysis, size_t function)
{
	struct entry *entry = &analysis->entries[function];
	if (analysis->checked[function])
		return entry;
	analysis->checked[function] = 1;
	if (!entry->refusal)
		entry->refusal = scan_refusal(&analysis->scan, function, entry);
	if (entry->refusal)
		entry->kind = LORG_ENTRY_NONE;
	return entry;
}

const char *analysis_entry_only(const struct analysis *analysis, size_t index)
{
	const struct function *function = &analysis->functions.list[index];
	for (uint32_t i = 0; i < function->name_count; i++) {
		const char *why = special_entry_only(analysis->functions.names[function->first_name + i].text);
		if (why)
			return why;
	}
	if (analysis->machine)
		return analysis->machine;
	if (function->address == analysis->object->entry || (function->flags & (FUNCTION_NO_CALLER | FUNCTION_THREAD_START)))
		return "the program or a thread begins in it";
	if (function->flags & FUNCTION_INSIDE)
		return "other code runs on into it";
	if (!function->name_count && (function->flags & FUNCTION_JUMPED_TO) && !(function->flags & FUNCTION_CALLED))
		return "other code jumps to it, and nothing calls it: it may be a piece of another function";
	if (looks_at_return_address(analysis, function))
		return "it looks at its return address";
	return NULL;
}

static int never_returns(const struct analysis *analysis, const struct function *function)
{
	for (uint32_t i = 0; i < function->name_count; i++)
		if (special_no_return(analysis->functions.names[function->first_name + i].text))
			return 1;
	return 0;
}

static int has_no_caller(const struct analysis *analysis, const struct function *function)
{
	return function->address == analysis->object->entry || (function->flags & (FUNCTION_NO_CALLER | FUNCTION_FRAME_SET_UP));
}

uint32_t analysis_flags(struct analysis *analysis, size_t index)
{
	uint32_t flags = analysis_entry_only(analysis, index) ? LORG_PLAN_ENTRY_ONLY : 0;
	flags |= never_returns(analysis, &analysis->functions.list[index]) ? LORG_PLAN_NO_RETURN : 0;
	flags |= has_no_caller(analysis, &analysis->functions.list[index]) ? LORG_PLAN_NO_CALLER : 0;
	return flags;
}

int analysis_is_exported(const struct analysis *analysis, size_t index)
{
	const struct function *function = &analysis->functions.list[index];
	for (uint32_t i = 0; i < function->name_count; i++) {
		const struct function_name *name = &analysis->functions.names[function->first_name + i];
		if (name->dynamic && name->type != STT_GNU_IFUNC && !(function->flags & FUNCTION_CHOSEN))
			return 1;
	}
	return 0;
}

int analysis_slot_usable(const struct analysis *analysis, size_t index)
{
	const struct object_slot *slot = &analysis->object->slots[index];
	return !slot->is_data && (slot->lazy || analysis->scan.slot_uses[index] == SLOT_CALLS);
}

char *analysis_display_name(const struct analysis *analysis, size_t index)
{
	const struct function *function = &analysis->functions.list[index];
	const struct function_name *name = function_name(&analysis->functions, function);
	char *text = NULL, *plain;
	if (!name)
		return asprintf(&text, "+0x%" PRIx64, function->address) < 0 ? NULL : text;
	plain = symbol_demangle(name->text);
	if (!plain || !name->local || !name->file)
		return plain;
	int length = asprintf(&text, "%s@%s", plain, name->file);
	free(plain);
	return length < 0 ? NULL : text;
}
