/* SPDX-License-Identifier: MIT */
/* Types and prototypes from DWARF 2 to 5 (section numbers are those of DWARF 5). */
#include "collector/value/debug_info.h"

#include <dwarf.h>
#include <lorg/plan.h>
#include <stdlib.h>
#include <string.h>

#include "collector/value/place.h"

enum {
	POINTEE_LEVELS = 1,    /* what pointers of a prototype lead to is known this far, with its members */
	PEEL_MAXIMUM = 64,     /* typedefs and qualifiers in each other */
	NESTING_MAXIMUM = 32,  /* types in each other */
	ELEMENTS_MAXIMUM = 1 << 16,
	PARAMETERS_MAXIMUM = 255,
};

struct known_type {
	const void *die; /* NULL: free */
	unsigned levels;
	struct value_type *type;
};

struct known_function {
	Dwarf_Addr entry;
	Dwarf_Die die;
	const struct value_prototype *prototype[2]; /* as written; changed. NULL: not made yet */
};

struct dwarf_functions {
	Dwarf *dwarf;
	struct value_pool pool;
	struct known_function *function; /* by entry, ascending */
	size_t function_count, function_room;
	struct known_type *type; /* hash table, open addressing */
	size_t type_count, type_room;
	int no_memory;
};

/* ---- types met --------------------------------------------------------- */

static struct known_type *type_slot(struct dwarf_functions *self, const void *die, unsigned levels)
{
	size_t at = ((uintptr_t)die * 0x9e3779b97f4a7c15u >> 20) + levels;
	for (;; at++) {
		struct known_type *slot = &self->type[at & (self->type_room - 1)];
		if (!slot->die || (slot->die == die && slot->levels == levels))
			return slot;
	}
}

static int types_grow(struct dwarf_functions *self)
{
	struct known_type *old = self->type;
	size_t old_room = self->type_room, room = old_room ? old_room * 2 : 1024;
	struct known_type *larger = calloc(room, sizeof *larger);
	if (!larger)
		return -1;
	self->type = larger;
	self->type_room = room;
	for (size_t i = 0; i < old_room; i++)
		if (old[i].die)
			*type_slot(self, old[i].die, old[i].levels) = old[i];
	free(old);
	return 0;
}

/* A type that is known, or a new one of kind OTHER (*made is 1) that the caller fills in. NULL: no memory. */
static struct value_type *type_remember(struct dwarf_functions *self, const Dwarf_Die *die, unsigned levels, int *made)
{
	if (self->type_count * 2 >= self->type_room && types_grow(self))
		return NULL;
	struct known_type *slot = type_slot(self, die->addr, levels);
	*made = !slot->die;
	if (*made) {
		struct value_type *type = value_pool_get(&self->pool, sizeof *type);
		if (!type)
			return NULL;
		*slot = (struct known_type){die->addr, levels, type};
		self->type_count++;
	}
	return slot->type;
}

static const struct value_type other = {.kind = VALUE_OTHER};
static const struct value_type void_type = {.kind = VALUE_VOID};

/* ---- attributes -------------------------------------------------------- */

static int attribute_number(Dwarf_Die *die, unsigned name, Dwarf_Word *number)
{
	Dwarf_Attribute attribute;
	return dwarf_attr_integrate(die, name, &attribute) && dwarf_formudata(&attribute, number) == 0;
}

static int attribute_flag(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attribute;
	bool flag = false;
	return dwarf_attr_integrate(die, name, &attribute) && dwarf_formflag(&attribute, &flag) == 0 && flag;
}

static int attribute_die(Dwarf_Die *die, unsigned name, Dwarf_Die *to)
{
	Dwarf_Attribute attribute;
	return dwarf_attr_integrate(die, name, &attribute) && dwarf_formref_die(&attribute, to) != NULL;
}

static uint32_t byte_size(Dwarf_Die *die)
{
	Dwarf_Word size = 0;
	return attribute_number(die, DW_AT_byte_size, &size) && size < UINT32_MAX ? (uint32_t)size : 0;
}

/* ---- types ------------------------------------------------------------- */

static const struct value_type *type_read(struct dwarf_functions *self, Dwarf_Die *die, unsigned levels, unsigned nesting);

static const struct value_type *type_of(struct dwarf_functions *self, Dwarf_Die *die, unsigned levels, unsigned nesting)
{
	Dwarf_Die type;
	return attribute_die(die, DW_AT_type, &type) ? type_read(self, &type, levels, nesting) : &void_type;
}

static void read_base(struct value_type *type, Dwarf_Die *die)
{
	Dwarf_Word encoding = 0;
	attribute_number(die, DW_AT_encoding, &encoding);
	type->size = type->align = byte_size(die);
	if (type->size > 16)
		return;
	switch (encoding) {
	case DW_ATE_boolean:
		type->kind = VALUE_BOOL;
		break;
	case DW_ATE_signed_char:
	case DW_ATE_unsigned_char:
	case DW_ATE_UTF:
		/* `signed char` and `unsigned char` are small integers; `char` itself and the wide ones are characters. */
		type->kind = encoding == DW_ATE_UTF || !type->name || !strcmp(type->name, "char") ? VALUE_CHAR :
			     encoding == DW_ATE_signed_char				       ? VALUE_SIGNED :
											 VALUE_UNSIGNED;
		break;
	case DW_ATE_signed:
		type->kind = VALUE_SIGNED;
		break;
	case DW_ATE_unsigned:
		type->kind = VALUE_UNSIGNED;
		break;
	case DW_ATE_float:
		type->kind = type->size == 4 || type->size == 8 ? VALUE_FLOAT : VALUE_OTHER;
		if (type->size == 16)
			type->kind = type->name && !strcmp(type->name, "long double") ? VALUE_FLOAT : VALUE_VECTOR;
		break;
	}
}

static void read_enum(struct dwarf_functions *self, struct value_type *type, Dwarf_Die *die, unsigned nesting)
{
	static const struct value_type plain_int = {.kind = VALUE_SIGNED, .size = 4, .align = 4};
	Dwarf_Die child;
	uint32_t count = 0;
	type->size = byte_size(die);
	const struct value_type *stored = type_of(self, die, 0, nesting);
	type->target = stored->kind == VALUE_VOID ? &plain_int : stored;
	type->size = type->size ? type->size : type->target->size;
	type->align = type->size;
	type->kind = type->size <= 8 ? VALUE_ENUM : VALUE_OTHER;
	if (dwarf_child(die, &child) != 0)
		return;
	Dwarf_Die first = child;
	do
		count += dwarf_tag(&child) == DW_TAG_enumerator;
	while (dwarf_siblingof(&child, &child) == 0);
	type->enumerators = value_pool_get(&self->pool, (size_t)count * sizeof *type->enumerators);
	if (!type->enumerators)
		return;
	child = first;
	do {
		Dwarf_Attribute attribute;
		Dwarf_Sword value = 0;
		if (dwarf_tag(&child) != DW_TAG_enumerator || !dwarf_diename(&child))
			continue;
		if (dwarf_attr(&child, DW_AT_const_value, &attribute) && dwarf_formsdata(&attribute, &value) == 0)
			type->enumerators[type->count++] = (struct value_enumerator){dwarf_diename(&child), value};
	} while (dwarf_siblingof(&child, &child) == 0 && type->count < count);
	value_enumerators_sort(type);
}

static void read_array(struct dwarf_functions *self, struct value_type *type, Dwarf_Die *die, unsigned levels, unsigned nesting)
{
	Dwarf_Die child;
	uint64_t count = 1;
	int known = 0;
	type->target = type_of(self, die, levels, nesting);
	if (attribute_flag(die, DW_AT_GNU_vector)) {
		Dwarf_Word size = 0;
		type->kind = dwarf_aggregate_size(die, &size) == 0 && (size == 8 || size == 16 || size == 32 || size == 64) ? VALUE_VECTOR :
															       VALUE_OTHER;
		type->size = type->align = (uint32_t)size;
		return;
	}
	if (dwarf_child(die, &child) == 0)
		do {
			Dwarf_Word bound = 0;
			if (dwarf_tag(&child) != DW_TAG_subrange_type)
				continue;
			known = attribute_number(&child, DW_AT_count, &bound) || (attribute_number(&child, DW_AT_upper_bound, &bound) && ++bound);
			count *= known && bound < ELEMENTS_MAXIMUM ? bound : 0;
		} while (dwarf_siblingof(&child, &child) == 0 && count < ELEMENTS_MAXIMUM);
	type->kind = VALUE_ARRAY;
	type->count = known && count < ELEMENTS_MAXIMUM ? (uint32_t)count : 0;
	type->size = type->count * type->target->size;
	type->align = type->target->align;
}

/* Section 5.7.6: where in its object a member stands. Returns 0 when that is no constant. */
static int read_member_place(Dwarf_Die *die, struct value_member *member)
{
	Dwarf_Word offset = 0, bits = 0, first = 0;
	Dwarf_Attribute attribute;
	if (dwarf_attr(die, DW_AT_data_member_location, &attribute) && dwarf_formudata(&attribute, &offset) != 0)
		return 0;
	if (offset > UINT32_MAX / 16)
		return 0;
	member->offset = (uint32_t)offset;
	if (!attribute_number(die, DW_AT_bit_size, &bits))
		return 1;
	if (attribute_number(die, DW_AT_data_bit_offset, &first)) {
		first += offset * 8;
	} else if (attribute_number(die, DW_AT_bit_offset, &first)) { /* DWARF 3 and before: from the most significant end */
		uint32_t storage = byte_size(die) ? byte_size(die) : member->type->size;
		first = offset * 8 + storage * 8 - first - bits;
	} else {
		first = offset * 8;
	}
	member->offset = (uint32_t)(first / 8);
	member->bit = (uint32_t)(first % 8);
	member->width = (uint32_t)bits;
	return bits <= 56 || member->bit == 0;
}

static int is_copying_or_ending(Dwarf_Die *function, const char *class_name)
{
	const char *name = dwarf_diename(function);
	if (!name || attribute_flag(function, DW_AT_artificial) || attribute_flag(function, DW_AT_deleted))
		return 0;
	Dwarf_Word defaulted = 0;
	if (attribute_number(function, DW_AT_defaulted, &defaulted) && defaulted == DW_DEFAULTED_in_class)
		return 0;
	if (name[0] == '~')
		return 1;
	if (!class_name || strncmp(name, class_name, strcspn(class_name, "<")) || strlen(name) != strcspn(class_name, "<"))
		return 0;
	/* A constructor: of one parameter, a reference to its own class. */
	Dwarf_Die child, parameter, target;
	unsigned count = 0;
	if (dwarf_child(function, &child) != 0)
		return 0;
	do {
		if (dwarf_tag(&child) != DW_TAG_formal_parameter || attribute_flag(&child, DW_AT_artificial))
			continue;
		parameter = child;
		count++;
	} while (dwarf_siblingof(&child, &child) == 0);
	if (count != 1 || !attribute_die(&parameter, DW_AT_type, &target))
		return 0;
	int tag = dwarf_tag(&target);
	if (tag != DW_TAG_reference_type && tag != DW_TAG_rvalue_reference_type)
		return 0;
	Dwarf_Die class;
	return attribute_die(&target, DW_AT_type, &class) && dwarf_peel_type(&class, &class) == 0 && dwarf_diename(&class) &&
	       !strcmp(dwarf_diename(&class), class_name);
}

/* Itanium C++ ABI, 3.1.2.3: a class with a copy or move constructor or destructor that is not trivial is passed by address. */
static void read_children(struct dwarf_functions *self, struct value_type *type, Dwarf_Die *die, unsigned levels, unsigned nesting)
{
	Dwarf_Die child;
	uint32_t room = 0;
	if (dwarf_child(die, &child) != 0)
		return;
	Dwarf_Die first = child;
	do
		room += dwarf_tag(&child) == DW_TAG_member || dwarf_tag(&child) == DW_TAG_inheritance;
	while (dwarf_siblingof(&child, &child) == 0);
	type->members = value_pool_get(&self->pool, (size_t)room * sizeof *type->members);
	if (!type->members) {
		self->no_memory = 1;
		return;
	}
	child = first;
	do {
		int tag = dwarf_tag(&child);
		Dwarf_Word virtuality = 0;
		if (attribute_number(&child, DW_AT_virtuality, &virtuality) && virtuality)
			type->flags |= VALUE_TYPE_BY_ADDRESS;
		if (tag == DW_TAG_subprogram && is_copying_or_ending(&child, type->name))
			type->flags |= VALUE_TYPE_BY_ADDRESS;
		if ((tag != DW_TAG_member && tag != DW_TAG_inheritance) || attribute_flag(&child, DW_AT_external) ||
		    attribute_flag(&child, DW_AT_declaration) || type->count == room)
			continue;
		if (attribute_flag(&child, DW_AT_artificial)) { /* the pointer to the virtual functions */
			type->flags |= VALUE_TYPE_BY_ADDRESS;
			continue;
		}
		struct value_member member = {.name = dwarf_diename(&child), .type = type_of(self, &child, levels, nesting)};
		if (member.type->flags & VALUE_TYPE_BY_ADDRESS || member.type->kind == VALUE_STD_STRING)
			type->flags |= VALUE_TYPE_BY_ADDRESS;
		if (!member.name && tag == DW_TAG_inheritance)
			member.name = member.type->name;
		if (tag == DW_TAG_inheritance && member.type->count == 0)
			continue; /* an empty base takes no place */
		if (!read_member_place(&child, &member) || (!member.width && member.type->kind == VALUE_VOID))
			continue;
		if (!member.width && member.type->align && member.offset % member.type->align)
			type->flags |= VALUE_TYPE_UNALIGNED;
		if (member.type->align > type->align)
			type->align = member.type->align;
		type->members[type->count++] = member;
	} while (dwarf_siblingof(&child, &child) == 0);
}

static int is_class(const char *name, const char *template)
{
	return name && !strncmp(name, template, strlen(template)) && !strncmp(name + strlen(template), "<char", 5) &&
	       strstr(name, "char_traits<char>");
}

static void read_structure(struct dwarf_functions *self, struct value_type *type, Dwarf_Die *die, unsigned levels, unsigned nesting)
{
	Dwarf_Word convention = 0;
	type->kind = dwarf_tag(die) == DW_TAG_union_type ? VALUE_UNION : VALUE_STRUCT;
	type->size = byte_size(die);
	type->align = 1;
	if (attribute_flag(die, DW_AT_declaration)) {
		type->kind = VALUE_OTHER;
		return;
	}
	if (is_class(type->name, "basic_string") && type->size == 32) {
		type->kind = VALUE_STD_STRING;
		type->align = 8;
		return;
	}
	if (is_class(type->name, "basic_string_view") && type->size == 16) {
		type->kind = VALUE_STRING_VIEW;
		type->align = 8;
		return;
	}
	read_children(self, type, die, levels, nesting);
	if (!attribute_number(die, DW_AT_calling_convention, &convention))
		return;
	if (convention == DW_CC_pass_by_reference)
		type->flags |= VALUE_TYPE_BY_ADDRESS;
	else if (convention == DW_CC_pass_by_value)
		type->flags &= ~(uint32_t)VALUE_TYPE_BY_ADDRESS;
}

/* What a pointer leads to where its members do not matter: enough to tell text, functions and the rest apart. */
static const struct value_type *read_distant(struct dwarf_functions *self, Dwarf_Die *die, unsigned nesting)
{
	Dwarf_Die target;
	if (!attribute_die(die, DW_AT_type, &target))
		return &void_type;
	Dwarf_Die bare;
	if (dwarf_peel_type(&target, &bare) != 0)
		return &other;
	switch (dwarf_tag(&bare)) {
	case DW_TAG_base_type:
	case DW_TAG_enumeration_type:
	case DW_TAG_subroutine_type:
		return type_read(self, &bare, 0, nesting);
	default:
		return &other;
	}
}

static void read_pointer(struct dwarf_functions *self, struct value_type *type, Dwarf_Die *die, unsigned levels, unsigned nesting)
{
	int tag = dwarf_tag(die);
	type->kind = VALUE_POINTER;
	type->size = type->align = 8;
	if (tag == DW_TAG_reference_type || tag == DW_TAG_rvalue_reference_type)
		type->flags |= VALUE_TYPE_REFERENCE;
	type->target = levels ? type_of(self, die, levels - 1, nesting) : read_distant(self, die, nesting);
	Dwarf_Die target;
	if (type->target != &other || !attribute_die(die, DW_AT_type, &target))
		return;
	type->distant = dwarf_dieoffset(&target) + 1;
	type->distant_file = dwarf_cu_getdwarf(target.cu);
}

const struct value_type *dwarf_pointee(struct dwarf_functions *self, const struct value_type *pointer)
{
	Dwarf_Die target;
	if (!pointer->distant || !dwarf_offdie(pointer->distant_file, pointer->distant - 1, &target))
		return pointer->target;
	return type_read(self, &target, POINTEE_LEVELS, NESTING_MAXIMUM);
}

static void read_member_pointer(struct dwarf_functions *self, struct value_type *type, Dwarf_Die *die)
{
	Dwarf_Die target;
	type->kind = VALUE_SIGNED;
	type->size = type->align = 8;
	if (!attribute_die(die, DW_AT_type, &target) || dwarf_tag(&target) != DW_TAG_subroutine_type)
		return;
	type->kind = VALUE_STRUCT; /* Itanium C++ ABI, 2.3: an address and an adjustment */
	type->size = 16;
	type->members = value_pool_get(&self->pool, 2 * sizeof *type->members);
	static const struct value_type word = {.kind = VALUE_UNSIGNED, .size = 8, .align = 8};
	if (!type->members)
		return;
	type->members[0] = (struct value_member){.name = "function", .type = &word};
	type->members[1] = (struct value_member){.name = "adjustment", .type = &word, .offset = 8};
	type->count = 2;
}

static void read_by_tag(struct dwarf_functions *self, struct value_type *type, Dwarf_Die *die, unsigned levels, unsigned nesting)
{
	switch (dwarf_tag(die)) {
	case DW_TAG_base_type:
		read_base(type, die);
		break;
	case DW_TAG_enumeration_type:
		read_enum(self, type, die, nesting);
		break;
	case DW_TAG_array_type:
		read_array(self, type, die, levels, nesting);
		break;
	case DW_TAG_structure_type:
	case DW_TAG_class_type:
	case DW_TAG_union_type:
		read_structure(self, type, die, levels, nesting);
		break;
	case DW_TAG_pointer_type:
	case DW_TAG_reference_type:
	case DW_TAG_rvalue_reference_type:
		read_pointer(self, type, die, levels, nesting);
		break;
	case DW_TAG_ptr_to_member_type:
		read_member_pointer(self, type, die);
		break;
	case DW_TAG_subroutine_type:
		type->kind = VALUE_FUNCTION;
		break;
	case DW_TAG_unspecified_type: /* decltype(nullptr) */
		type->kind = VALUE_UNSIGNED;
		type->size = type->align = 8;
		break;
	default:
		type->kind = VALUE_OTHER;
	}
}

/* Behind typedefs and qualifiers; *name gets the last typedef's, for a struct without a tag. */
static int peel(Dwarf_Die *die, const char **name)
{
	for (int i = 0; i < PEEL_MAXIMUM; i++) {
		switch (dwarf_tag(die)) {
		case DW_TAG_typedef:
			*name = dwarf_diename(die);
			break;
		case DW_TAG_const_type:
		case DW_TAG_volatile_type:
		case DW_TAG_restrict_type:
		case DW_TAG_atomic_type:
		case DW_TAG_immutable_type:
			break;
		default:
			return 1;
		}
		if (!attribute_die(die, DW_AT_type, die))
			return 0; /* void */
	}
	return 0;
}

static const struct value_type *type_read(struct dwarf_functions *self, Dwarf_Die *given, unsigned levels, unsigned nesting)
{
	Dwarf_Die die = *given;
	const char *typedef_name = NULL;
	int made = 0;
	if (nesting == 0)
		return &other;
	if (!peel(&die, &typedef_name))
		return &void_type;
	struct value_type *type = type_remember(self, &die, levels, &made);
	if (!type) {
		self->no_memory = 1;
		return &other;
	}
	if (!made)
		return type;
	type->name = dwarf_diename(&die) ? dwarf_diename(&die) : typedef_name;
	read_by_tag(self, type, &die, levels, nesting - 1);
	return type;
}

/* ---- functions --------------------------------------------------------- */

/* Of a function that has cold parts elsewhere the first range is where it begins. */
static int entry_of(Dwarf_Die *die, Dwarf_Addr *entry)
{
	Dwarf_Addr base, end;
	return dwarf_entrypc(die, entry) == 0 || (dwarf_hasattr(die, DW_AT_ranges) && dwarf_ranges(die, 0, &base, entry, &end) > 0);
}

static int function_add(struct dwarf_functions *self, Dwarf_Die *die)
{
	Dwarf_Addr entry;
	if (!entry_of(die, &entry))
		return 0;
	if (self->function_count == self->function_room) {
		size_t room = self->function_room ? self->function_room * 2 : 1024;
		struct known_function *larger = realloc(self->function, room * sizeof *larger);
		if (!larger)
			return -1;
		self->function = larger;
		self->function_room = room;
	}
	self->function[self->function_count++] = (struct known_function){.entry = entry, .die = *die};
	return 0;
}

/* Functions stand in units, namespaces and classes. */
static int functions_visit(struct dwarf_functions *self, Dwarf_Die *scope, unsigned nesting)
{
	Dwarf_Die child;
	if (nesting == 0 || dwarf_child(scope, &child) != 0)
		return 0;
	do {
		int tag = dwarf_tag(&child);
		if (tag == DW_TAG_subprogram && function_add(self, &child))
			return -1;
		int scope_of_functions = tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
					 tag == DW_TAG_module || tag == DW_TAG_subprogram;
		if (scope_of_functions && functions_visit(self, &child, nesting - 1))
			return -1;
	} while (dwarf_siblingof(&child, &child) == 0);
	return 0;
}

static int by_entry(const void *left, const void *right)
{
	Dwarf_Addr a = ((const struct known_function *)left)->entry, b = ((const struct known_function *)right)->entry;
	return (a > b) - (a < b);
}

struct dwarf_functions *dwarf_functions_open(Dwarf *dwarf)
{
	struct dwarf_functions *self = calloc(1, sizeof *self);
	Dwarf_CU *unit = NULL;
	Dwarf_Die die;
	uint8_t type;
	if (!self)
		return NULL;
	self->dwarf = dwarf;
	while (dwarf_get_units(dwarf, unit, &unit, NULL, &type, &die, NULL) == 0) {
		if (type != DW_UT_compile && type != DW_UT_skeleton)
			continue;
		if (dwarf_srclang(&die) == DW_LANG_Mips_Assembler) /* knows no parameters */
			continue;
		if (functions_visit(self, &die, NESTING_MAXIMUM)) {
			dwarf_functions_close(self);
			return NULL;
		}
	}
	if (self->function_count)
		qsort(self->function, self->function_count, sizeof *self->function, by_entry);
	return self;
}

void dwarf_functions_close(struct dwarf_functions *functions)
{
	if (!functions)
		return;
	free(functions->function);
	free(functions->type);
	value_pool_free(&functions->pool);
	free(functions);
}

/* The register that a parameter is in when the function is entered; VALUE_ABSENT: none that is told. */
static uint32_t register_at_entry(Dwarf_Die *parameter, Dwarf_Addr entry)
{
	Dwarf_Attribute attribute;
	Dwarf_Op *operations;
	size_t length;
	if (!dwarf_attr(parameter, DW_AT_location, &attribute) ||
	    dwarf_getlocation_addr(&attribute, entry, &operations, &length, 1) != 1 || length != 1)
		return VALUE_ABSENT;
	if (operations[0].atom >= DW_OP_reg0 && operations[0].atom <= DW_OP_reg31)
		return operations[0].atom - DW_OP_reg0 + 1u;
	return operations[0].atom == DW_OP_regx ? (uint32_t)operations[0].number + 1 : VALUE_ABSENT;
}

static int is_one_operation(Dwarf_Die *die, unsigned name, uint8_t wanted)
{
	Dwarf_Attribute attribute;
	Dwarf_Op *operations;
	size_t length;
	return dwarf_attr(die, name, &attribute) && dwarf_whatform(&attribute) == DW_FORM_exprloc &&
	       dwarf_getlocation(&attribute, &operations, &length) == 0 && length == 1 && operations[0].atom == wanted;
}

/*
 * The caller's memory, where the System V ABI has nothing of what fits into registers; Microsoft's has there all that is
 * not in its four registers, and room for those.
 */
static int is_in_callers_memory(Dwarf_Die *function, Dwarf_Die *parameter, Dwarf_Addr entry)
{
	enum { FRAME_POINTER = DW_OP_reg6, SAVED = 16 /* frame pointer and return address */ };
	Dwarf_Attribute attribute;
	Dwarf_Op *operations;
	size_t length;
	int by_frame_pointer = is_one_operation(function, DW_AT_frame_base, FRAME_POINTER);
	if (!by_frame_pointer && !is_one_operation(function, DW_AT_frame_base, DW_OP_call_frame_cfa))
		return 0;
	return dwarf_attr(parameter, DW_AT_location, &attribute) &&
	       dwarf_getlocation_addr(&attribute, entry, &operations, &length, 1) == 1 && length == 1 &&
	       operations[0].atom == DW_OP_fbreg && (int64_t)operations[0].number >= (by_frame_pointer ? SAVED : 0);
}

static int is_of_clang(Dwarf_Die *function)
{
	Dwarf_Die unit;
	Dwarf_Attribute attribute;
	const char *producer = dwarf_diecu(function, &unit, NULL, NULL) && dwarf_attr(&unit, DW_AT_producer, &attribute) ?
				       dwarf_formstring(&attribute) : NULL;
	return producer && strstr(producer, "clang");
}

static int is_in_memory_anyway(Dwarf_Die *parameter)
{
	Dwarf_Die type;
	if (!attribute_die(parameter, DW_AT_type, &type) || dwarf_peel_type(&type, &type) != 0)
		return 1;
	int tag = dwarf_tag(&type);
	return tag == DW_TAG_structure_type || tag == DW_TAG_class_type || tag == DW_TAG_union_type;
}

/* Code that has not been optimised keeps all its parameters in a frame with a frame pointer. */
static int keeps_parameters_in_frame(Dwarf_Die *function)
{
	enum { FRAME_POINTER = DW_OP_reg6 };
	Dwarf_Die child;
	int telling = 0;
	if (!is_one_operation(function, DW_AT_frame_base, FRAME_POINTER) || dwarf_child(function, &child) != 0)
		return 0;
	do {
		if (dwarf_tag(&child) != DW_TAG_formal_parameter)
			continue;
		if (!is_one_operation(&child, DW_AT_location, DW_OP_fbreg))
			return 0;
		telling |= !is_in_memory_anyway(&child);
	} while (dwarf_siblingof(&child, &child) == 0);
	return telling;
}

/* clang takes unused parameters and results away from functions that nobody outside calls, and gives them no other name. */
static int may_be_changed_silently(Dwarf_Die *function)
{
	return !attribute_flag(function, DW_AT_external) && is_of_clang(function) && !keeps_parameters_in_frame(function);
}

/* The parameter of the function itself that the one of its abstract instance has become; 0: none is left. */
static int concrete_parameter(Dwarf_Die *function, Dwarf_Die *abstract, Dwarf_Die *found)
{
	Dwarf_Die origin;
	Dwarf_Attribute attribute;
	if (dwarf_child(function, found) != 0)
		return 0;
	do {
		if (dwarf_tag(found) == DW_TAG_formal_parameter && dwarf_attr(found, DW_AT_abstract_origin, &attribute) &&
		    dwarf_formref_die(&attribute, &origin) && origin.addr == abstract->addr)
			return 1;
	} while (dwarf_siblingof(found, found) == 0);
	return 0;
}

/* The DWARF number + 1 of the register that the ABI passes it in; 0: in none, or in two. */
static uint32_t register_by_abi(struct value_place place)
{
	static const uint8_t integers[] = {5, 4, 1, 2, 8, 9};
	enum { XMM0 = 17 };
	if (place.place == LORG_PLACE_INTEGER && place.index < sizeof integers)
		return integers[place.index] + 1u;
	return place.place == LORG_PLACE_VECTOR ? XMM0 + place.index + 1u : 0;
}

/* It has another calling convention (attribute ms_abi, above all): only registers that are named can be believed. */
static int is_called_otherwise(const struct value_prototype *prototype, const uint8_t *in_callers_memory)
{
	struct value_places taken = {.integers = (unsigned)value_result_in_memory(prototype->result)};
	for (uint32_t i = 0; i < prototype->parameter_count; i++) {
		const struct value_parameter *parameter = &prototype->parameters[i];
		uint32_t expected = register_by_abi(value_place_argument(&taken, parameter->type));
		if (expected && (in_callers_memory[i] || (parameter->known_register && parameter->known_register != VALUE_ABSENT &&
							  parameter->known_register != expected)))
			return 1;
	}
	return 0;
}

/* In the order of the source: an instance that was changed may have its parameters in another one (section 3.3.8.3). */
static void read_parameters(struct dwarf_functions *self, struct value_prototype *prototype, struct known_function *function)
{
	struct value_parameter parameters[PARAMETERS_MAXIMUM];
	uint8_t in_callers_memory[PARAMETERS_MAXIMUM];
	uint32_t count = 0;
	Dwarf_Die abstract, child, concrete;
	Dwarf_Attribute attribute;
	int has_abstract = dwarf_attr(&function->die, DW_AT_abstract_origin, &attribute) && dwarf_formref_die(&attribute, &abstract);
	if (dwarf_child(has_abstract ? &abstract : &function->die, &child) != 0)
		return;
	do {
		if (dwarf_tag(&child) != DW_TAG_formal_parameter)
			continue;
		concrete = child;
		int is_left = !has_abstract || concrete_parameter(&function->die, &child, &concrete);
		in_callers_memory[count] = (uint8_t)(is_left && is_in_callers_memory(&function->die, &concrete, function->entry));
		parameters[count++] = (struct value_parameter){
			.name = dwarf_diename(&child),
			.type = type_of(self, &child, POINTEE_LEVELS, NESTING_MAXIMUM),
			.known_register = is_left ? register_at_entry(&concrete, function->entry) : VALUE_ABSENT,
		};
	} while (dwarf_siblingof(&child, &child) == 0 && count < PARAMETERS_MAXIMUM);
	prototype->parameters = value_pool_get(&self->pool, count * sizeof *parameters + 1);
	if (!prototype->parameters)
		return;
	memcpy(prototype->parameters, parameters, count * sizeof *parameters);
	prototype->parameter_count = count;
	prototype->any_places |= (uint32_t)is_called_otherwise(prototype, in_callers_memory);
}

static const struct value_prototype *prototype_read(struct dwarf_functions *self, struct known_function *function, int changed)
{
	struct value_prototype *prototype = value_pool_get(&self->pool, sizeof *prototype);
	Dwarf_Word convention = 0;
	if (!prototype)
		return NULL;
	attribute_number(&function->die, DW_AT_calling_convention, &convention);
	prototype->name = dwarf_diename(&function->die);
	prototype->result = type_of(self, &function->die, POINTEE_LEVELS, NESTING_MAXIMUM);
	prototype->any_places = (uint32_t)(changed || convention == DW_CC_nocall || may_be_changed_silently(&function->die));
	prototype->no_return = (uint32_t)attribute_flag(&function->die, DW_AT_noreturn);
	read_parameters(self, prototype, function);
	if (prototype->any_places && prototype->result->kind != VALUE_VOID)
		prototype->result = &other;
	return self->no_memory ? NULL : prototype;
}

const struct value_prototype *dwarf_function(struct dwarf_functions *functions, uint64_t offset, int changed)
{
	struct known_function key = {.entry = offset};
	struct known_function *found = functions->function_count ?
		bsearch(&key, functions->function, functions->function_count, sizeof key, by_entry) : NULL;
	if (!found)
		return NULL;
	if (!found->prototype[changed])
		found->prototype[changed] = prototype_read(functions, found, changed);
	return found->prototype[changed];
}
