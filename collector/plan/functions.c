/* SPDX-License-Identifier: MIT */
/* functions.c: see functions.h. */
#include "collector/plan/functions.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <stdlib.h>
#include <string.h>

#include "collector/base/list.h"
#include "collector/plan/pattern.h"
#include "collector/plan/unwind.h"

enum { CODE_RSP = 7, CODE_RETURN = 16 }; /* DWARF numbers of registers of AMD64 */

/* ---- names ------------------------------------------------------------- */

struct name_list {
	struct function_name *at;
	size_t count, room;
};

static int add_name(struct name_list *list, const struct function_name *name)
{
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 1024;
		struct function_name *more = realloc(list->at, room * sizeof *more);
		if (!more)
			return -1;
		list->at = more;
		list->room = room;
	}
	list->at[list->count++] = *name;
	return 0;
}

static int in_code(const struct object *object, uint64_t address)
{
	const struct object_section *section = object_section_at(object, address);
	return section && section->executable && !section->stubs;
}

/* What the compiler has cut off a function: no function of its own. */
static int is_fragment(const char *name)
{
	const char *cold = strstr(name, ".cold");
	return cold && (cold[5] == 0 || cold[5] == '.');
}

static int is_function_symbol(const struct object *object, const GElf_Sym *symbol, uint64_t address, const char *name)
{
	int type = GELF_ST_TYPE(symbol->st_info);
	if (!name || !*name || symbol->st_shndx == SHN_UNDEF || symbol->st_shndx == SHN_ABS || !in_code(object, address))
		return 0;
	/* Hand-written code without .type: only names that others can use, or that have a size. */
	if (type == STT_NOTYPE)
		return symbol->st_size > 0 || (GELF_ST_BIND(symbol->st_info) == STB_GLOBAL && strncmp(name, "__", 2) != 0);
	return type == STT_FUNC || type == STT_GNU_IFUNC;
}

static int read_dynamic_names(const struct object *object, struct name_list *list)
{
	GElf_Sym symbol;
	struct function_name name = {.dynamic = 1};
	for (size_t i = 1; i < object->dynamic_symbol_count; i++) {
		if (!object_dynamic_symbol(object, i, &symbol, &name.text, &name.version) ||
		    !is_function_symbol(object, &symbol, symbol.st_value, name.text))
			continue;
		name.address = symbol.st_value;
		name.size = symbol.st_size;
		name.type = GELF_ST_TYPE(symbol.st_info);
		if (add_name(list, &name))
			return -1;
	}
	return 0;
}

/* The name that a link-time optimiser has given to its own file says nothing. */
static const char *told_file(const char *name)
{
	return !*name || *name == '<' || strstr(name, ".ltrans") ? NULL : name;
}

static int read_all_names(struct object *object, struct functions *functions, struct name_list *list)
{
	int total = dwfl_module_getsymtab(object->dwfl_module);
	const char *file = NULL;
	for (int i = 1; i < total; i++) {
		GElf_Sym symbol;
		GElf_Addr address;
		GElf_Word section;
		Elf *elf;
		Dwarf_Addr bias;
		const char *text = dwfl_module_getsym_info(object->dwfl_module, i, &symbol, &address, &section, &elf, &bias);
		int local = GELF_ST_BIND(symbol.st_info) == STB_LOCAL;
		if (text && GELF_ST_TYPE(symbol.st_info) == STT_FILE)
			file = told_file(text);
		if (symbol.st_shndx == SHN_UNDEF && section != SHN_UNDEF)
			symbol.st_shndx = SHN_XINDEX;
		if (!text || !is_function_symbol(object, &symbol, address - object->bias, text))
			continue;
		functions->has_symbols |= local;
		const struct function_name name = {
			.address = address - object->bias,
			.size = symbol.st_size,
			.text = text,
			.file = local ? file : NULL,
			.local = (uint8_t)local,
			.type = GELF_ST_TYPE(symbol.st_info),
		};
		if (add_name(list, &name))
			return -1;
	}
	return 0;
}

/* Of the names of one address the plainest comes first; of equal ones the dynamic one, which has the version. */
static int names_in_order(const void *left, const void *right)
{
	const struct function_name *a = left, *b = right;
	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	if (a->local != b->local)
		return a->local - b->local;
	size_t under_a = strspn(a->text, "_"), under_b = strspn(b->text, "_");
	if (under_a != under_b)
		return under_a < under_b ? -1 : 1;
	size_t length_a = strlen(a->text), length_b = strlen(b->text);
	if (length_a != length_b)
		return length_a < length_b ? -1 : 1;
	int order = strcmp(a->text, b->text);
	return order ? order : b->dynamic - a->dynamic;
}

static size_t drop_doubles(struct function_name *names, size_t count)
{
	size_t kept = 0;
	for (size_t i = 0; i < count; i++) {
		int again = kept && names[kept - 1].address == names[i].address && strcmp(names[kept - 1].text, names[i].text) == 0;
		if (!again || (names[i].version && names[kept - 1].version && strcmp(names[i].version, names[kept - 1].version) != 0))
			names[kept++] = names[i];
	}
	return kept;
}

static int read_names(struct object *object, struct functions *functions)
{
	struct name_list list = {0};
	int failed = read_dynamic_names(object, &list) || read_all_names(object, functions, &list);
	if (list.count)
		qsort(list.at, list.count, sizeof *list.at, names_in_order);
	functions->names = list.at;
	functions->name_count = drop_doubles(list.at, list.count);
	return failed ? -1 : 0;
}

/* ---- functions --------------------------------------------------------- */

static int function_order(const void *left, const void *right)
{
	const struct function *a = left, *b = right;
	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	return (b->flags & FUNCTION_UNWIND) - (a->flags & FUNCTION_UNWIND);
}

static int names_a_fragment(const struct functions *functions, const struct function *function)
{
	for (uint32_t i = 0; i < function->name_count; i++)
		if (is_fragment(functions->names[function->first_name + i].text))
			return 1;
	return 0;
}

static void find_names(struct functions *functions, struct function *function, size_t *from)
{
	while (*from < functions->name_count && functions->names[*from].address < function->address)
		++*from;
	function->first_name = (uint32_t)*from;
	for (size_t i = *from; i < functions->name_count && functions->names[i].address == function->address; i++) {
		const struct function_name *name = &functions->names[i];
		function->name_count++;
		if (name->type == STT_GNU_IFUNC)
			function->flags |= FUNCTION_CHOSEN;
		if (!(function->flags & FUNCTION_UNWIND) && name->size > function->size)
			function->size = name->size;
	}
}

/* What the unwind tables say of the first instruction: CFA = rsp + 8, and where the return address is. */
static void ask_unwinder(struct function *function, Dwarf_CFI *table, uint64_t bias)
{
	Dwarf_Frame *frame = NULL;
	Dwarf_Op *operations = NULL, memory[3];
	size_t count = 0;
	if (dwarf_cfi_addrframe(table, function->address + bias, &frame) != 0)
		return;
	if (dwarf_frame_cfa(frame, &operations, &count) == 0 &&
	    !(count == 1 && operations[0].atom == DW_OP_bregx && operations[0].number == CODE_RSP && operations[0].number2 == 8) &&
	    !(count == 1 && operations[0].atom == DW_OP_breg0 + CODE_RSP && operations[0].number == 8))
		function->flags |= FUNCTION_FRAME_SET_UP;
	/* Undefined, which libdw tells by this; the same as the caller's would be NULL. */
	if (dwarf_frame_register(frame, CODE_RETURN, memory, &operations, &count) == 0 && count == 0 && operations == memory)
		function->flags |= FUNCTION_NO_CALLER;
	free(frame);
}

/* Candidates in order of address, doubles side by side: one function each; fragments are dropped. */
static size_t keep_functions(struct functions *functions, struct function *all, size_t count, Dwarf_CFI *table, uint64_t bias)
{
	size_t kept = 0, from = 0;
	for (size_t i = 0; i < count; i++) {
		struct function *function = &all[i];
		if (kept && all[kept - 1].address == function->address)
			continue;
		find_names(functions, function, &from);
		const struct code_range *range = range_at(functions, function->address);
		if (table && range) {
			ask_unwinder(function, table, bias);
			function->flags |= range->start != function->address ? FUNCTION_INSIDE : 0;
		}
		/* Code without a name and with nothing below it is a piece of what starts threads. */
		int no_function = names_a_fragment(functions, function) ||
				  (!function->name_count && ((function->flags & FUNCTION_FRAME_SET_UP) ||
							     ((function->flags & FUNCTION_NO_CALLER) &&
							      function->address != functions->object->entry)));
		if (no_function) {
			functions->fragments++;
			continue;
		}
		all[kept++] = *function;
	}
	return kept;
}

/* How far each may go: to the next start of anything, and not out of its section. */
static void find_ends(struct functions *functions)
{
	const struct object *object = functions->object;
	for (size_t i = 0; i < functions->count; i++) {
		struct function *function = &functions->list[i];
		const struct object_section *section = object_section_at(object, function->address);
		function->end = section ? section->end : function->address;
		if (i + 1 < functions->count && functions->list[i + 1].address < function->end)
			function->end = functions->list[i + 1].address;
		size_t low = 0, high = functions->range_count;
		while (low < high) {
			size_t middle = low + (high - low) / 2;
			if (functions->ranges[middle].start <= function->address)
				low = middle + 1;
			else
				high = middle;
		}
		if (low < functions->range_count && functions->ranges[low].start < function->end)
			function->end = functions->ranges[low].start;
		if (function->size == 0 || function->address + function->size > function->end)
			function->size = function->end - function->address;
	}
}

static int range_order(const void *left, const void *right)
{
	const struct code_range *a = left, *b = right;
	return a->start < b->start ? -1 : a->start > b->start;
}

static int read_ranges(struct object *object, struct functions *functions)
{
	if (unwind_read(object, &functions->ranges, &functions->range_count))
		return -1;
	size_t kept = 0;
	for (size_t i = 0; i < functions->range_count; i++)
		if (in_code(object, functions->ranges[i].start) && functions->ranges[i].end > functions->ranges[i].start)
			functions->ranges[kept++] = functions->ranges[i];
	functions->range_count = kept;
	if (kept)
		qsort(functions->ranges, kept, sizeof *functions->ranges, range_order);
	return 0;
}

/* Code that only symbols tell of is a known piece as well. */
static int add_symbol_ranges(struct functions *functions)
{
	size_t count = functions->range_count, extra = 0;
	struct code_range *more = realloc(functions->ranges, (count + functions->count + 1) * sizeof *more);
	if (!more)
		return -1;
	functions->ranges = more;
	for (size_t i = 0; i < functions->count; i++) {
		const struct function *function = &functions->list[i];
		if (!(function->flags & (FUNCTION_UNWIND | FUNCTION_INSIDE)))
			more[count + extra++] = (struct code_range){function->address, function->address + function->size, 0};
	}
	functions->range_count += extra;
	if (functions->range_count)
		qsort(more, functions->range_count, sizeof *more, range_order);
	return 0;
}

int functions_read(struct object *object, struct functions *functions)
{
	*functions = (struct functions){.object = object};
	if (read_names(object, functions) || read_ranges(object, functions))
		return -1;
	struct function *all = calloc(functions->range_count + functions->name_count + 1, sizeof *all);
	if (!all)
		return -1;
	size_t count = 0;
	for (size_t i = 0; i < functions->range_count; i++) {
		const struct code_range *range = &functions->ranges[i];
		all[count++] = (struct function){.address = range->start,
						 .size = range->end - range->start,
						 .handlers = range->handlers,
						 .flags = FUNCTION_UNWIND};
	}
	for (size_t i = 0; i < functions->name_count; i++)
		all[count++] = (struct function){.address = functions->names[i].address};
	if (count)
		qsort(all, count, sizeof *all, function_order);
	Dwarf_Addr bias = 0;
	Dwarf_CFI *table = dwfl_module_eh_cfi(object->dwfl_module, &bias);
	functions->list = all;
	functions->count = keep_functions(functions, all, count, table, object->bias - bias);
	find_ends(functions);
	return add_symbol_ranges(functions);
}

void functions_free(struct functions *functions)
{
	free(functions->list);
	free(functions->names);
	free(functions->ranges);
	*functions = (struct functions){0};
}

struct function *function_before(const struct functions *functions, uint64_t address)
{
	size_t low = list_up_to(functions->list, functions->count, sizeof *functions->list, offsetof(struct function, address), address);
	return low ? &functions->list[low - 1] : NULL;
}

struct function *function_at(const struct functions *functions, uint64_t address)
{
	struct function *found = function_before(functions, address);
	return found && found->address == address ? found : NULL;
}

const struct code_range *range_at(const struct functions *functions, uint64_t address)
{
	size_t low = list_up_to(functions->ranges, functions->range_count, sizeof *functions->ranges, offsetof(struct code_range, start), address);
	const struct code_range *found = low ? &functions->ranges[low - 1] : NULL;
	return found && address < found->end ? found : NULL;
}

int function_is_called(const struct functions *functions, const struct function *function, const char *name)
{
	size_t length = strlen(name);
	for (uint32_t i = 0; i < function->name_count; i++) {
		const char *text = functions->names[function->first_name + i].text;
		if (strncmp(text, name, length) == 0 && plain_name_length(text) == length)
			return 1; /* a clone too */
	}
	return 0;
}
