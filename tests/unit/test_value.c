/* SPDX-License-Identifier: MIT */
/* Arguments and results: from prototypes and from DWARF, which have to agree. */
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collector/value/prototype.h"
#include "collector/value/value.h"
#include "tests/unit/unit.h"

/* ---- a text of captures ------------------------------------------------ */

struct text {
	char at[2048];
	size_t used;
};

static void add(struct text *text, const char *more)
{
	text->used += (size_t)snprintf(text->at + text->used, sizeof text->at - text->used, "%s", more);
}

static void add_place(struct text *text, const struct lorg_capture *capture)
{
	static const char *const integer[] = {"rdi", "rsi", "rdx", "rcx", "r8", "r9"};
	char part[64];
	switch (capture->place) {
	case LORG_PLACE_INTEGER:
		add(text, integer[capture->index]);
		return;
	case LORG_PLACE_VECTOR:
		snprintf(part, sizeof part, "xmm%u", capture->index);
		break;
	case LORG_PLACE_STACK:
		snprintf(part, sizeof part, "stack%+d", capture->offset);
		break;
	case LORG_PLACE_PAIR:
		snprintf(part, sizeof part, "pair:%x", capture->index);
		break;
	case LORG_PLACE_ADDRESS:
		snprintf(part, sizeof part, "at:%u", capture->index);
		break;
	case LORG_PLACE_MEMORY:
		snprintf(part, sizeof part, "%d", capture->offset);
		break;
	default:
		snprintf(part, sizeof part, capture->place == LORG_PLACE_X87 ? "st0" : capture->place ? "absent" : "-");
	}
	add(text, part);
}

static void add_capture(struct text *text, const struct lorg_capture *capture, const struct value_area *captures,
			const struct value_area *names)
{
	static const char *const forms[] = {"none",   "signed", "unsigned",   "bool",	     "char",   "enum",  "float", "pointer", "code",   "string",
					    "std::string", "view", "struct", "union", "array", "void", "buffer", "descriptor", "errno", "flags"};
	add(text, forms[capture->form]);
	add(text, "@");
	add_place(text, capture);
	int has_members = capture->form == LORG_FORM_STRUCT || capture->form == LORG_FORM_POINTER;
	if (!has_members || !capture->detail)
		return;
	const struct lorg_members *members = (const void *)(captures->bytes + capture->detail - 1);
	add(text, "{");
	for (uint32_t i = 0; i < members->count; i++) {
		add(text, i ? " " : "");
		if (members->member[i].name)
			add(text, (const char *)names->bytes + members->member[i].name - 1);
		add(text, ":");
		add_capture(text, &members->member[i], captures, names);
	}
	add(text, "}");
}

static const char *described(struct value_source *source, uint64_t offset, const char *name)
{
	static struct text text;
	const char *const symbols[] = {name, NULL};
	struct value_area captures = {0}, names = {0};
	struct value_function function;
	text.used = 0;
	if (!value_for_function(source, offset, symbols, &captures, &names, &function))
		return "unknown";
	const struct lorg_capture *argument = (const void *)(captures.bytes + function.arguments - 1);
	for (unsigned i = 0; i < function.argument_count; i++) {
		add_capture(&text, &argument[i], &captures, &names);
		add(&text, " ");
	}
	add(&text, "-> ");
	add_capture(&text, (const void *)(captures.bytes + function.result - 1), &captures, &names);
	value_area_free(&captures);
	value_area_free(&names);
	return text.at;
}

/* ---- prototypes -------------------------------------------------------- */

static const char *prototype_of(const char *text, const char *name)
{
	char *error = NULL;
	struct prototypes *prototypes = prototypes_new();
	if (prototypes_parse(prototypes, "test", text, strlen(text), &error)) {
		static char kept[256];
		snprintf(kept, sizeof kept, "%s", error);
		free(error);
		prototypes_free(prototypes);
		return kept;
	}
	struct value_source *source = value_source_open(prototypes, NULL, "libtest.so.1");
	const char *result = described(source, 0, name);
	value_source_close(source);
	prototypes_free(prototypes);
	return result;
}

START_TEST(registers_and_stack)
{
	ck_assert_str_eq(prototype_of("int f(int a, const char *s, double d, unsigned long u);", "f"),
			 "signed@rdi string@rsi float@xmm0 unsigned@rdx -> signed@rdi");
	ck_assert_str_eq(prototype_of("void f(int,int,int,int,int,int,int a,char b,...);", "f"),
			 "signed@rdi signed@rsi signed@rdx signed@rcx signed@r8 signed@r9 signed@stack+0 char@stack+8 -> void@-");
	ck_assert_str_eq(prototype_of("long double f(long double x, int a, long double y);", "f"),
			 "float@stack+0 signed@rdi float@stack+16 -> float@st0");
	ck_assert_str_eq(prototype_of("double f(float a,double b,double c,double d,double e,double f,double g,double h,double i);", "f"),
			 "float@xmm0 float@xmm1 float@xmm2 float@xmm3 float@xmm4 float@xmm5 float@xmm6 float@xmm7 float@stack+0 -> float@xmm0");
}
END_TEST

START_TEST(structs_by_value)
{
	ck_assert_str_eq(prototype_of("struct p { int x, y; }; struct p f(struct p a);", "f"),
			 "struct@rdi{x:signed@0 y:signed@4} -> struct@rdi{x:signed@0 y:signed@4}");
	ck_assert_str_eq(prototype_of("struct q { double a; long b; }; struct q f(int i, struct q a);", "f"),
			 "signed@rdi struct@pair:18{a:float@0 b:signed@8} -> struct@pair:8{a:float@0 b:signed@8}");
	ck_assert_str_eq(prototype_of("struct r { long a[3]; }; struct r f(struct r a, int b);", "f"),
			 "struct@stack+0{a:array@0} signed@rsi -> struct@at:0{a:array@0}");
	/* Not enough registers for both halves: all of it on the stack, and a later word still in the last register. */
	ck_assert_str_eq(prototype_of("struct s { long a, b; }; int f(int,int,int,int,int,struct s x,int last);", "f"),
			 "signed@rdi signed@rsi signed@rdx signed@rcx signed@r8 struct@stack+0{a:signed@0 b:signed@8} signed@r9 -> signed@rdi");
	ck_assert_str_eq(prototype_of("struct t { float a, b; float c; }; void f(struct t x);", "f"),
			 "struct@pair:98{a:float@0 b:float@4 c:float@8} -> void@-");
}
END_TEST

START_TEST(what_follows_an_unknown_type_is_absent)
{
	ck_assert_str_eq(prototype_of("struct unknown; int f(int a, struct unknown u, int b);", "f"),
			 "signed@rdi none@absent none@absent -> signed@rdi");
}
END_TEST

START_TEST(words_beyond_c)
{
	ck_assert_str_eq(prototype_of("typedef int fd __attribute__((descriptor)); typedef long n __attribute__((errno_result));"
				      "n f(fd d, char b[result], const char c[size], unsigned long size);", "f"),
			 "descriptor@rdi buffer@rsi buffer@rdx unsigned@rcx -> errno@rdi");
	ck_assert_str_eq(prototype_of("enum e { A, B = 4, C = A | B } __attribute__((flag_enum)); enum g { X }; void f(enum e a, enum g b);", "f"),
			 "flags@rdi enum@rsi -> void@-");
	ck_assert_str_eq(prototype_of("void f(void (*call)(int, char **), int (*table[3])(void), char *raw __attribute__((not_text)));", "f"),
			 "code@rdi pointer@rsi pointer@rdx -> void@-");
}
END_TEST

START_TEST(modules_have_functions_of_their_own)
{
	const char *text = "#pragma module libother.so\nint f(int);\n#pragma module libtest.so.1\nlong g(void);\n#pragma module *\nint h(char);\n";
	ck_assert_str_eq(prototype_of(text, "f"), "unknown");
	ck_assert_str_eq(prototype_of(text, "g"), "-> signed@rdi");
	ck_assert_str_eq(prototype_of(text, "h"), "char@rdi -> signed@rdi");
	ck_assert_str_eq(prototype_of("int f(int); long f(char *);", "f"), "string@rdi -> signed@rdi"); /* the last one */
}
END_TEST

START_TEST(errors_name_the_place)
{
	ck_assert_str_eq(prototype_of("int f(int a;", "f"), "test:1:12: expected here: ')'");
	ck_assert_str_eq(prototype_of("\nint f(nothing a);", "f"), "test:2:7: this type is not known: nothing");
	ck_assert_str_eq(prototype_of("void f(char b[count]);", "f"), "test:1:21: no parameter of that name says how long the array is: count");
	ck_assert_str_eq(prototype_of("/* open", "f"), "test:0:0: a comment does not end");
	ck_assert_str_eq(prototype_of("#define X 1", "f"), "test:1:1: only #pragma module NAME is understood here: #define X 1");
	ck_assert_str_eq(prototype_of("struct s { int a : 3; };", "f"), "test:1:18: bit fields are not understood here: a");
	ck_assert_str_eq(prototype_of("int f(int) int", "f"), "test:1:12: expected here: ';'");
	ck_assert_str_eq(prototype_of("enum { A = 9999999999999999999999 };", "f"), "test:1:12: not an integer: 9999999999999999999999");
}
END_TEST

/* Whatever the text, an answer: cut anywhere, or with a byte changed. */
START_TEST(damaged_text_is_answered)
{
	static const char text[] = "typedef struct a { int b[3]; struct { char *c; }; union u { int d; float e; } f; } *g; enum h { I = (1 << 3) | 2, J }"
				   " __attribute__((flag_enum)); _Noreturn extern g k(int (*l)(g, ...), const char m[n], unsigned long n);\n#pragma module x\n";
	for (size_t length = 0; length < sizeof text - 1; length++) {
		for (int change = 0; change < 8; change++) {
			static const char other[] = "*({[;,) ";
			char copy[sizeof text];
			char *error = NULL;
			memcpy(copy, text, sizeof text);
			copy[length] = other[change];
			struct prototypes *prototypes = prototypes_new();
			int failed = prototypes_parse(prototypes, "test", copy, change ? sizeof text - 1 : length, &error);
			ck_assert_int_eq(failed != 0, error != NULL);
			free(error);
			prototypes_free(prototypes);
		}
	}
}
END_TEST

START_TEST(shipped_prototypes_parse)
{
	char *error = NULL;
	struct prototypes *prototypes = prototypes_read(NULL, &error);
	ck_assert_msg(prototypes != NULL, "%s", error ? error : "");
	struct value_source *source = value_source_open(prototypes, NULL, "libc.so.6");
	ck_assert_str_eq(described(source, 0, "write"), "descriptor@rdi buffer@rsi unsigned@rdx -> errno@rdi");
	ck_assert_str_eq(described(source, 0, "strtold"), "string@rdi pointer@rsi -> float@st0");
	value_source_close(source);
	prototypes_free(prototypes);
}
END_TEST

/* ---- DWARF: this very program ------------------------------------------ */

enum colour { RED, GREEN = 5 };
struct inner {
	int x, y;
};
struct outer {
	unsigned low : 3, high : 7;
	const char *text;
	char name[8];
	struct inner inner;
	struct outer *next;
};
struct wide {
	long word[3];
};

struct wide known_function(int a, const char *text, double d, enum colour colour, struct outer *outer, struct inner inner, void (*call)(int),
			   _Bool flag, long last);
__attribute__((noinline, used)) struct wide known_function(int a, const char *text, double d, enum colour colour, struct outer *outer,
								     struct inner inner, void (*call)(int), _Bool flag, long last)
{
	struct wide result = {{a + (text != NULL) + (int)d, colour + (outer != NULL) + inner.y, (call != NULL) + flag + last}};
	__asm__ volatile("" : : "r"(&result) : "memory");
	return result;
}

struct program_dwarf {
	int fd;
	Dwarf *dwarf;
	struct value_source *source;
	uint64_t offset;
};

/* The address in the file: the program is position independent and its first segment begins at 0. */
static uint64_t offset_of(const void *function)
{
	extern const char __ehdr_start[];
	return (uint64_t)((const char *)function - __ehdr_start);
}

static struct program_dwarf program_dwarf(void)
{
	struct program_dwarf self = {.fd = open("/proc/self/exe", O_RDONLY)};
	self.dwarf = dwarf_begin(self.fd, DWARF_C_READ);
	ck_assert_ptr_nonnull(self.dwarf);
	self.source = value_source_open(NULL, self.dwarf, "test_value");
	self.offset = offset_of((const void *)known_function);
	return self;
}

static void program_dwarf_end(struct program_dwarf *self)
{
	value_source_close(self->source);
	dwarf_end(self->dwarf);
	close(self->fd);
}

START_TEST(dwarf_tells_the_same)
{
	struct program_dwarf program = program_dwarf();
	ck_assert_str_eq(described(program.source, program.offset, "known_function"),
			 "signed@rsi string@rdx float@xmm0 enum@rcx pointer@r8{low:unsigned@0 high:unsigned@0 text:string@8 name:string@16 "
			 "inner:struct@24{x:signed@0 y:signed@4} next:pointer@32} struct@r9{x:signed@0 y:signed@4} code@stack+0 bool@stack+8 "
			 "signed@stack+16 -> struct@at:0{word:array@0}");
	ck_assert_str_eq(described(program.source, program.offset + 1, "known_function"), "unknown");
	program_dwarf_end(&program);
}
END_TEST

START_TEST(members_and_names_are_found)
{
	struct program_dwarf program = program_dwarf();
	const char *const names[] = {"known_function", NULL};
	struct lorg_capture member;
	ck_assert_str_eq(value_argument_name(program.source, program.offset, names, 1), "text");
	ck_assert_ptr_null(value_argument_name(program.source, program.offset, names, 9));
	ck_assert_int_eq(value_member(program.source, program.offset, names, 4, "inner.y", &member), 0);
	ck_assert_int_eq(member.offset, 28);
	ck_assert_int_eq(member.form, LORG_FORM_SIGNED);
	ck_assert_int_eq(value_member(program.source, program.offset, names, 4, "high", &member), 0);
	ck_assert_uint_eq(member.offset * 8 + (member.count & 0xffff), 3);
	ck_assert_uint_eq(member.count >> 16, 7);
	ck_assert_int_eq(value_member(program.source, program.offset, names, 4, "none", &member), -1);
	ck_assert_int_eq(value_member(program.source, program.offset, names, 0, "x", &member), -1);
	program_dwarf_end(&program);
}
END_TEST

START_TEST(a_clone_is_believed_in_registers_alone)
{
	struct program_dwarf program = program_dwarf();
	const char *told = described(program.source, program.offset, "known_function.isra.0");
	ck_assert_ptr_nonnull(strstr(told, "-> none@absent"));
	program_dwarf_end(&program);
}
END_TEST

Suite *unit_suite(void)
{
	static const TTest *tests[11];
	unsigned count = 0;
	tests[count++] = registers_and_stack;
	tests[count++] = structs_by_value;
	tests[count++] = what_follows_an_unknown_type_is_absent;
	tests[count++] = words_beyond_c;
	tests[count++] = modules_have_functions_of_their_own;
	tests[count++] = errors_name_the_place;
	tests[count++] = damaged_text_is_answered;
	tests[count++] = shipped_prototypes_parse;
	tests[count++] = dwarf_tells_the_same;
	tests[count++] = members_and_names_are_found;
	tests[count++] = a_clone_is_believed_in_registers_alone;
	return unit_suite_of("value", tests, count, 30);
}
