/* SPDX-License-Identifier: MIT */
/* Declarations of C (C11, section 6.7) as far as prototypes need them. */
#include "collector/value/prototype.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NESTING_MAXIMUM = 32, PARAMETERS_MAXIMUM = 64, NAME_MAXIMUM = 256 };

enum space { SPACE_TYPEDEF, SPACE_STRUCT, SPACE_UNION, SPACE_ENUM, SPACE_CONSTANT, SPACE_FUNCTION };

/* Whatever has a name. */
struct name {
	struct name *next;
	enum space space;
	const char *text;
	const char *module; /* of a function; NULL: any */
	union {
		struct value_type *type;
		struct value_prototype *prototype;
		int64_t constant;
	};
};

enum { NAME_BUCKETS = 1024 };

struct prototypes {
	struct value_pool pool;
	struct name *bucket[NAME_BUCKETS];
};

/* ---- names ------------------------------------------------------------- */

static unsigned bucket_of(const char *text)
{
	uint32_t hash = 2166136261u;
	for (; *text; text++)
		hash = (hash ^ (uint8_t)*text) * 16777619u;
	return hash % NAME_BUCKETS;
}

static struct name *name_find(const struct prototypes *self, enum space space, const char *text)
{
	for (struct name *name = self->bucket[bucket_of(text)]; name; name = name->next)
		if (name->space == space && !strcmp(name->text, text))
			return name;
	return NULL;
}

static struct name *name_add(struct prototypes *self, enum space space, const char *text)
{
	struct name *name = value_pool_get(&self->pool, sizeof *name);
	struct name **bucket = &self->bucket[bucket_of(text)];
	if (!name)
		return NULL;
	name->space = space;
	name->text = value_pool_text(&self->pool, text, strlen(text));
	name->next = *bucket;
	if (name->text)
		*bucket = name;
	return name->text ? name : NULL;
}

const struct value_prototype *prototype_find(const struct prototypes *prototypes, const char *module, const char *name)
{
	for (struct name *at = prototypes->bucket[bucket_of(name)]; at; at = at->next)
		if (at->space == SPACE_FUNCTION && !strcmp(at->text, name) && (!at->module || !strcmp(at->module, module)))
			return at->prototype;
	return NULL;
}

/* ---- tokens ------------------------------------------------------------ */

enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_NUMBER, TOKEN_MARK /* one character, or "..." as '.' */ };

struct token {
	enum token_kind kind;
	char text[NAME_MAXIMUM];
	int64_t number;
	char mark;
	unsigned line, column;
};

struct parser {
	struct prototypes *prototypes;
	const char *source, *at, *end, *line_start;
	unsigned line;
	struct token token;
	const char *module;
	char *error; /* the first one; NULL: none */
};

static void fail(struct parser *self, const char *why, const char *what)
{
	if (self->error)
		return;
	if (asprintf(&self->error, "%s:%u:%u: %s%s%s", self->source, self->token.line, self->token.column, why, *what ? ": " : "", what) < 0)
		self->error = NULL;
	self->token.kind = TOKEN_END;
	self->at = self->end;
}

static void newline(struct parser *self)
{
	self->line++;
	self->line_start = self->at;
}

static int skip_comment(struct parser *self)
{
	if (self->end - self->at < 2 || self->at[0] != '/' || (self->at[1] != '/' && self->at[1] != '*'))
		return 0;
	int to_line_end = self->at[1] == '/';
	for (self->at += 2; self->at < self->end; ) {
		char c = *self->at++;
		if (c == '\n') {
			if (to_line_end) {
				self->at--;
				return 1;
			}
			newline(self);
		} else if (!to_line_end && c == '*' && self->at < self->end && *self->at == '/') {
			self->at++;
			return 1;
		}
	}
	if (!to_line_end)
		fail(self, "a comment does not end", "");
	return 1;
}

/* A line that begins with '#': `#pragma module NAME` counts, other pragmas and #include are passed over. */
static void directive(struct parser *self)
{
	char name[NAME_MAXIMUM] = "";
	const char *start = self->at;
	while (self->at < self->end && *self->at != '\n')
		self->at++;
	char line[512];
	size_t length = (size_t)(self->at - start) < sizeof line - 1 ? (size_t)(self->at - start) : sizeof line - 1;
	memcpy(line, start, length);
	line[length] = 0;
	self->token.line = self->line;
	self->token.column = 1;
	if (sscanf(line, "# pragma module %255s", name) == 1 || sscanf(line, "#pragma module %255s", name) == 1)
		self->module = strcmp(name, "*") ? value_pool_text(&self->prototypes->pool, name, strlen(name)) : NULL;
	else if (strncmp(line, "#pragma", 7) && strncmp(line, "#include", 8))
		fail(self, "only #pragma module NAME is understood here", line);
}

static void skip_space(struct parser *self)
{
	while (self->at < self->end) {
		char c = *self->at;
		if (c == '\n') {
			self->at++;
			newline(self);
		} else if (isspace((unsigned char)c)) {
			self->at++;
		} else if (c == '#') {
			directive(self);
		} else if (!skip_comment(self)) {
			return;
		}
	}
}

static void read_number(struct parser *self)
{
	char *end;
	char digits[64];
	size_t length = 0;
	while (self->at + length < self->end && length < sizeof digits - 1 && isalnum((unsigned char)self->at[length])) {
		digits[length] = self->at[length];
		length++;
	}
	digits[length] = 0;
	errno = 0;
	self->token.kind = TOKEN_NUMBER;
	self->token.number = (int64_t)strtoull(digits, &end, 0);
	if (errno || strspn(end, "uUlL") != strlen(end))
		fail(self, "not an integer", digits);
	self->at += length;
}

static void next(struct parser *self)
{
	struct token *token = &self->token;
	skip_space(self);
	if (self->error)
		return;
	token->line = self->line;
	token->column = (unsigned)(self->at - self->line_start) + 1;
	token->mark = 0;
	token->text[0] = 0;
	if (self->at == self->end) {
		token->kind = TOKEN_END;
		return;
	}
	unsigned char c = (unsigned char)*self->at;
	if (isdigit(c)) {
		read_number(self);
		return;
	}
	if (isalpha(c) || c == '_') {
		size_t length = 0;
		while (self->at + length < self->end && (isalnum((unsigned char)self->at[length]) || self->at[length] == '_'))
			length++;
		if (length >= sizeof token->text) {
			fail(self, "a name is too long", "");
			return;
		}
		memcpy(token->text, self->at, length);
		token->text[length] = 0;
		token->kind = TOKEN_NAME;
		self->at += length;
		return;
	}
	token->kind = TOKEN_MARK;
	token->mark = *self->at++;
	if (token->mark == '.' && self->end - self->at >= 2 && self->at[0] == '.' && self->at[1] == '.')
		self->at += 2;
}

static int is_mark(const struct parser *self, char mark)
{
	return self->token.kind == TOKEN_MARK && self->token.mark == mark;
}

static int is_name(const struct parser *self, const char *text)
{
	return self->token.kind == TOKEN_NAME && !strcmp(self->token.text, text);
}

static int take_mark(struct parser *self, char mark)
{
	if (!is_mark(self, mark))
		return 0;
	next(self);
	return 1;
}

static int take_name(struct parser *self, const char *text)
{
	if (!is_name(self, text))
		return 0;
	next(self);
	return 1;
}

static void expect(struct parser *self, char mark)
{
	const char text[] = {'\'', mark, '\'', 0};
	if (!take_mark(self, mark))
		fail(self, "expected here", text);
}

/* ---- constant expressions ---------------------------------------------- */

static int64_t expression(struct parser *self, unsigned nesting);

static int64_t primary(struct parser *self, unsigned nesting)
{
	int64_t value = 0;
	if (nesting == 0) {
		fail(self, "too many parentheses", "");
		return 0;
	}
	if (take_mark(self, '-'))
		return (int64_t)(0 - (uint64_t)primary(self, nesting - 1));
	if (take_mark(self, '~'))
		return ~primary(self, nesting - 1);
	if (take_mark(self, '(')) {
		value = expression(self, nesting - 1);
		expect(self, ')');
		return value;
	}
	if (self->token.kind == TOKEN_NUMBER) {
		value = self->token.number;
		next(self);
		return value;
	}
	const struct name *constant = self->token.kind == TOKEN_NAME ? name_find(self->prototypes, SPACE_CONSTANT, self->token.text) : NULL;
	if (!constant) {
		fail(self, "a number or the name of a constant is expected here", self->token.text);
		return 0;
	}
	next(self);
	return constant->constant;
}

/* From left to right without precedence between + - | <<: what enumerators use; parentheses say more. */
static int64_t expression(struct parser *self, unsigned nesting)
{
	int64_t value = primary(self, nesting);
	for (;;) {
		if (take_mark(self, '|')) {
			value |= primary(self, nesting);
		} else if (take_mark(self, '+')) {
			value = (int64_t)((uint64_t)value + (uint64_t)primary(self, nesting));
		} else if (take_mark(self, '-')) {
			value = (int64_t)((uint64_t)value - (uint64_t)primary(self, nesting));
		} else if (is_mark(self, '<')) {
			next(self);
			expect(self, '<');
			value = (int64_t)((uint64_t)value << (primary(self, nesting) & 63));
		} else {
			return value;
		}
	}
}

/* ---- attributes -------------------------------------------------------- */

struct attributes {
	int flag_enum, descriptor, errno_result, no_return, not_text, packed;
};

static void one_attribute(struct parser *self, struct attributes *attributes)
{
	const struct {
		const char *name;
		int *flag;
	} known[] = {
		{"flag_enum", &attributes->flag_enum}, {"descriptor", &attributes->descriptor}, {"errno_result", &attributes->errno_result},
		{"noreturn", &attributes->no_return},  {"__noreturn__", &attributes->no_return}, {"not_text", &attributes->not_text},
		{"packed", &attributes->packed},       {"__packed__", &attributes->packed},
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (is_name(self, known[i].name))
			*known[i].flag = 1;
	if (self->token.kind != TOKEN_NAME) {
		fail(self, "an attribute is expected here", "");
		return;
	}
	next(self); /* what is not known says nothing about values */
	unsigned depth = 0;
	while (self->token.kind != TOKEN_END && (depth || is_mark(self, '('))) {
		depth += is_mark(self, '(');
		depth -= is_mark(self, ')');
		next(self);
	}
}

static void attributes_read(struct parser *self, struct attributes *attributes)
{
	while (take_name(self, "__attribute__")) {
		expect(self, '(');
		expect(self, '(');
		while (!self->error && !is_mark(self, ')')) {
			one_attribute(self, attributes);
			take_mark(self, ',');
		}
		expect(self, ')');
		expect(self, ')');
	}
}

/* ---- types ------------------------------------------------------------- */

static struct value_type *type_new(struct parser *self, enum value_kind kind, uint32_t size)
{
	struct value_type *type = value_pool_get(&self->prototypes->pool, sizeof *type);
	static struct value_type nothing;
	if (!type) {
		fail(self, "there is no memory", "");
		return &nothing;
	}
	type->kind = kind;
	type->size = type->align = size;
	return type;
}

/* Words of a basic type, counted. */
struct words {
	int is_void, is_char, is_short, is_int, is_long, is_signed, is_unsigned, is_float, is_double, is_bool, is_complex, is_wide;
};

static int basic_word(struct parser *self, struct words *words)
{
	const struct {
		const char *name;
		int *count;
	} known[] = {
		{"void", &words->is_void},     {"char", &words->is_char},	  {"short", &words->is_short},	    {"int", &words->is_int},
		{"long", &words->is_long},     {"signed", &words->is_signed},	  {"unsigned", &words->is_unsigned}, {"float", &words->is_float},
		{"double", &words->is_double}, {"_Bool", &words->is_bool},	  {"bool", &words->is_bool},	    {"_Complex", &words->is_complex},
		{"__int128", &words->is_wide}, {"__signed__", &words->is_signed},
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (is_name(self, known[i].name)) {
			++*known[i].count;
			next(self);
			return 1;
		}
	return 0;
}

static struct value_type *basic_type(struct parser *self, const struct words *words)
{
	if (words->is_complex)
		return type_new(self, VALUE_OTHER, 0);
	if (words->is_void)
		return type_new(self, VALUE_VOID, 0);
	if (words->is_bool)
		return type_new(self, VALUE_BOOL, 1);
	if (words->is_float)
		return type_new(self, VALUE_FLOAT, 4);
	if (words->is_double)
		return type_new(self, VALUE_FLOAT, words->is_long ? 16 : 8);
	enum value_kind kind = words->is_unsigned ? VALUE_UNSIGNED : VALUE_SIGNED;
	if (words->is_char)
		return type_new(self, words->is_unsigned || words->is_signed ? kind : VALUE_CHAR, 1);
	return type_new(self, kind, words->is_wide ? 16 : words->is_short ? 2 : words->is_long ? 8 : 4);
}

static struct value_type *declaration_type(struct parser *self, struct attributes *attributes, unsigned nesting);
static struct value_type *declarator(struct parser *self, struct value_type *type, char *name, struct value_parameter *parameter,
				     char *buffer, unsigned nesting);

static void enum_body(struct parser *self, struct value_type *type)
{
	struct value_enumerator *list = NULL;
	size_t count = 0, room = 0;
	int64_t value = 0;
	while (!self->error && !is_mark(self, '}')) {
		if (self->token.kind != TOKEN_NAME) {
			fail(self, "the name of a constant is expected here", "");
			break;
		}
		struct name *name = name_add(self->prototypes, SPACE_CONSTANT, self->token.text);
		next(self);
		if (take_mark(self, '='))
			value = expression(self, NESTING_MAXIMUM);
		if (count == room) {
			struct value_enumerator *larger = realloc(list, (room = room * 2 + 16) * sizeof *larger);
			if (!larger || !name)
				break;
			list = larger;
		}
		if (!name)
			break;
		name->constant = value;
		list[count++] = (struct value_enumerator){name->text, value++};
		if (!take_mark(self, ','))
			break;
	}
	type->enumerators = value_pool_get(&self->prototypes->pool, count * sizeof *list + 1);
	if (type->enumerators && count) {
		memcpy(type->enumerators, list, count * sizeof *list);
		type->count = (uint32_t)count;
		value_enumerators_sort(type);
	}
	free(list);
}

static void member_add(struct value_type *type, struct value_member *members, const struct value_member *member, int is_union, int packed)
{
	uint32_t align = packed ? 1 : member->type->align ? member->type->align : 1;
	struct value_member *added = &members[type->count++];
	*added = *member;
	added->offset = is_union ? 0 : (type->size + align - 1) / align * align;
	uint32_t end = added->offset + member->type->size;
	type->size = end > type->size ? end : type->size;
	type->align = align > type->align ? align : type->align;
}

/* C11 6.7.2.1, laid out as the System V ABI for AMD64, 3.1.2 does. Bit fields are refused: who needs them has DWARF. */
static void struct_body(struct parser *self, struct value_type *type, unsigned nesting)
{
	enum { MEMBERS_MAXIMUM = 256 };
	struct value_member *members = calloc(MEMBERS_MAXIMUM, sizeof *members);
	int is_union = type->kind == VALUE_UNION;
	type->align = 1;
	while (members && !self->error && !is_mark(self, '}')) {
		struct attributes attributes = {0};
		struct value_type *base = declaration_type(self, &attributes, nesting);
		do {
			char name[NAME_MAXIMUM] = "";
			struct value_type *member = declarator(self, base, name, NULL, NULL, nesting);
			if (is_mark(self, ':'))
				fail(self, "bit fields are not understood here", name);
			if (type->count == MEMBERS_MAXIMUM)
				fail(self, "a struct has too many members", name);
			if (self->error)
				break;
			struct value_member added = {.type = member};
			added.name = name[0] ? value_pool_text(&self->prototypes->pool, name, strlen(name)) : NULL;
			member_add(type, members, &added, is_union, 0);
		} while (take_mark(self, ','));
		expect(self, ';');
	}
	type->members = value_pool_get(&self->prototypes->pool, type->count * sizeof *members + 1);
	if (type->members && members)
		memcpy(type->members, members, type->count * sizeof *members);
	else
		type->count = 0;
	type->size = (type->size + type->align - 1) / type->align * type->align;
	free(members);
}

static struct value_type *tagged_type(struct parser *self, enum space space, enum value_kind kind, unsigned nesting)
{
	struct attributes attributes = {0};
	struct value_type *type = NULL;
	attributes_read(self, &attributes);
	if (self->token.kind == TOKEN_NAME) {
		struct name *name = name_find(self->prototypes, space, self->token.text);
		if (!name) {
			name = name_add(self->prototypes, space, self->token.text);
			type = type_new(self, VALUE_OTHER, 0);
			if (name) {
				name->type = type;
				type->name = name->text;
			}
		} else {
			type = name->type;
		}
		next(self);
	}
	if (!type)
		type = type_new(self, VALUE_OTHER, 0);
	if (!take_mark(self, '{')) {
		if (space == SPACE_ENUM && type->kind == VALUE_OTHER)
			fail(self, "this enum has not been declared", type->name ? type->name : "");
		return type;
	}
	if (nesting == 0)
		fail(self, "types are nested too deeply", "");
	if (type->kind != VALUE_OTHER)
		fail(self, "declared twice", type->name ? type->name : "");
	if (self->error)
		return type;
	type->kind = kind;
	if (space == SPACE_ENUM) {
		type->size = type->align = 4;
		enum_body(self, type);
	} else {
		struct_body(self, type, nesting - 1);
	}
	expect(self, '}');
	attributes_read(self, &attributes);
	type->flags |= attributes.flag_enum ? VALUE_TYPE_FLAGS : 0;
	return type;
}

static int qualifier(struct parser *self, struct attributes *attributes)
{
	static const char *const ignored[] = {"const", "volatile", "restrict", "__restrict", "__restrict__", "extern", "static", "inline",
					      "__inline", "__extension__", "register", "_Atomic", "__const"};
	if (take_name(self, "_Noreturn")) {
		attributes->no_return = 1;
		return 1;
	}
	if (is_name(self, "__attribute__")) {
		attributes_read(self, attributes);
		return 1;
	}
	for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
		if (take_name(self, ignored[i]))
			return 1;
	return 0;
}

static struct value_type *declaration_type(struct parser *self, struct attributes *attributes, unsigned nesting)
{
	struct words words = {0};
	struct value_type *type = NULL;
	int any_word = 0;
	for (;;) {
		if (qualifier(self, attributes))
			continue;
		if (!type && basic_word(self, &words)) {
			any_word = 1;
			continue;
		}
		if (type || any_word || self->token.kind != TOKEN_NAME)
			break;
		if (take_name(self, "struct")) {
			type = tagged_type(self, SPACE_STRUCT, VALUE_STRUCT, nesting);
		} else if (take_name(self, "union")) {
			type = tagged_type(self, SPACE_UNION, VALUE_UNION, nesting);
		} else if (take_name(self, "enum")) {
			type = tagged_type(self, SPACE_ENUM, VALUE_ENUM, nesting);
		} else {
			const struct name *name = name_find(self->prototypes, SPACE_TYPEDEF, self->token.text);
			if (!name) {
				fail(self, "this type is not known", self->token.text);
				break;
			}
			type = name->type;
			next(self);
		}
	}
	if (!type && !any_word)
		fail(self, "a type is expected here", self->token.text);
	return type ? type : basic_type(self, &words);
}

/* ---- declarators ------------------------------------------------------- */

static struct value_type *pointer_to(struct parser *self, struct value_type *target)
{
	struct value_type *type = type_new(self, VALUE_POINTER, 8);
	type->target = target;
	return type;
}

static struct value_type *with_flags(struct parser *self, struct value_type *type, uint32_t flags)
{
	struct value_type *copy = type_new(self, type->kind, type->size);
	*copy = *type;
	copy->flags |= flags;
	return copy;
}

/* Behind '('. Fills the prototype; buffers are known by the names of other parameters. */
static void parameters_read(struct parser *self, struct value_prototype *prototype, unsigned nesting)
{
	struct value_parameter list[PARAMETERS_MAXIMUM];
	char (*buffers)[NAME_MAXIMUM] = calloc(PARAMETERS_MAXIMUM, NAME_MAXIMUM);
	uint32_t count = 0;
	while (buffers && !self->error && !is_mark(self, ')')) {
		if (take_mark(self, '.'))
			break;
		if (count == PARAMETERS_MAXIMUM) {
			fail(self, "too many parameters", "");
			break;
		}
		struct attributes attributes = {0};
		char name[NAME_MAXIMUM] = "";
		struct value_type *type = declaration_type(self, &attributes, nesting);
		list[count] = (struct value_parameter){0};
		type = declarator(self, type, name, &list[count], buffers[count], nesting);
		attributes_read(self, &attributes);
		if (type->kind == VALUE_VOID && count == 0 && is_mark(self, ')'))
			break;
		if (type->kind == VALUE_ARRAY || type->kind == VALUE_FUNCTION)
			type = pointer_to(self, type->kind == VALUE_ARRAY ? (struct value_type *)type->target : type);
		list[count].type = attributes.not_text ? with_flags(self, type, VALUE_TYPE_NOT_TEXT) : type;
		list[count++].name = name[0] ? value_pool_text(&self->prototypes->pool, name, strlen(name)) : NULL;
		if (!take_mark(self, ','))
			break;
	}
	for (uint32_t i = 0; buffers && i < count; i++) {
		list[i].buffer = !strcmp(buffers[i], "result") ? VALUE_BUFFER_RESULT : 0;
		for (uint32_t k = 0; buffers[i][0] && k < count; k++)
			if (list[k].name && !strcmp(list[k].name, buffers[i]))
				list[i].buffer = k + 1;
		if (buffers[i][0] && !list[i].buffer)
			fail(self, "no parameter of that name says how long the array is", buffers[i]);
	}
	free(buffers);
	prototype->parameters = value_pool_get(&self->prototypes->pool, count * sizeof list[0] + 1);
	if (!prototype->parameters)
		return;
	memcpy(prototype->parameters, list, count * sizeof list[0]);
	prototype->parameter_count = count;
}

/* Behind '[': a number makes an array, the name of a parameter a buffer. */
static struct value_type *array_of(struct parser *self, struct value_type *element, char *buffer)
{
	struct value_type *type = type_new(self, VALUE_ARRAY, 0);
	type->target = element;
	type->align = element->align;
	while (qualifier(self, &(struct attributes){0}))
		;
	if (buffer && self->token.kind == TOKEN_NAME && !name_find(self->prototypes, SPACE_CONSTANT, self->token.text)) {
		memcpy(buffer, self->token.text, NAME_MAXIMUM);
		next(self);
	} else if (!is_mark(self, ']')) {
		int64_t count = expression(self, NESTING_MAXIMUM);
		if (count < 0 || count > 1 << 20)
			fail(self, "an array cannot be of that length", "");
		type->count = (uint32_t)count;
	}
	expect(self, ']');
	return type;
}

/* Inner dimensions come last, so they are read before the array of them is made. */
static struct value_type *array_suffix(struct parser *self, struct value_type *element, char *buffer, unsigned nesting)
{
	if (nesting == 0) {
		fail(self, "too many dimensions", "");
		return element;
	}
	struct value_type *type = array_of(self, element, buffer);
	if (take_mark(self, '['))
		type->target = array_suffix(self, element, NULL, nesting - 1);
	type->size = type->count * type->target->size;
	type->align = type->target->align;
	return type;
}

/*
 * C11 6.7.6, up to the parameters of a function, which the caller reads. name gets the declared name. (*name)(...) is
 * a pointer to a function, whose own parameters say nothing about values.
 */
static struct value_type *declarator(struct parser *self, struct value_type *type, char *name, struct value_parameter *parameter,
				     char *buffer, unsigned nesting)
{
	struct attributes ignored = {0};
	if (nesting == 0) {
		fail(self, "declarators are nested too deeply", "");
		return type;
	}
	for (;;) {
		if (take_mark(self, '*'))
			type = pointer_to(self, type);
		else if (!qualifier(self, &ignored))
			break;
	}
	if (take_mark(self, '(')) { /* (*name)(...), (*name[N])(...) */
		struct value_type *function = type_new(self, VALUE_FUNCTION, 1);
		struct value_type *inner = declarator(self, function, name, parameter, NULL, nesting - 1);
		expect(self, ')');
		expect(self, '(');
		struct value_prototype unused = {0};
		parameters_read(self, &unused, nesting - 1);
		expect(self, ')');
		return inner;
	}
	if (self->token.kind == TOKEN_NAME && !is_name(self, "__attribute__")) {
		memcpy(name, self->token.text, NAME_MAXIMUM);
		next(self);
	}
	if (take_mark(self, '['))
		type = array_suffix(self, type, buffer, nesting - 1);
	return type;
}

/* ---- declarations ------------------------------------------------------ */

static void function_add(struct parser *self, const char *name, struct value_type *result, const struct attributes *before)
{
	struct value_prototype *prototype = value_pool_get(&self->prototypes->pool, sizeof *prototype);
	struct attributes attributes = *before;
	if (!prototype)
		return;
	parameters_read(self, prototype, NESTING_MAXIMUM);
	expect(self, ')');
	attributes_read(self, &attributes);
	struct name *added = name_add(self->prototypes, SPACE_FUNCTION, name);
	if (!added)
		return;
	prototype->name = added->text;
	prototype->result = attributes.errno_result ? with_flags(self, result, VALUE_TYPE_ERRNO) : result;
	prototype->no_return = (uint32_t)attributes.no_return;
	added->prototype = prototype;
	added->module = self->module;
}

static void typedef_add(struct parser *self, const char *name, struct value_type *type, const struct attributes *attributes)
{
	struct name *added = name_add(self->prototypes, SPACE_TYPEDEF, name);
	if (!added)
		return;
	if (!type->name && (type->kind == VALUE_STRUCT || type->kind == VALUE_UNION || type->kind == VALUE_ENUM))
		type->name = added->text;
	if (attributes->descriptor || attributes->errno_result || attributes->not_text)
		type = with_flags(self, type, (attributes->errno_result ? VALUE_TYPE_ERRNO : 0) | (attributes->not_text ? VALUE_TYPE_NOT_TEXT : 0));
	if (attributes->descriptor)
		type->kind = VALUE_DESCRIPTOR;
	added->type = type;
}

static void declaration(struct parser *self)
{
	struct attributes attributes = {0};
	int is_typedef = take_name(self, "typedef");
	struct value_type *base = declaration_type(self, &attributes, NESTING_MAXIMUM);
	if (take_mark(self, ';'))
		return;
	do {
		char name[NAME_MAXIMUM] = "";
		struct value_type *type = declarator(self, base, name, NULL, NULL, NESTING_MAXIMUM);
		if (!self->error && !name[0])
			fail(self, "a name is expected here", "");
		if (!is_typedef && take_mark(self, '(')) {
			function_add(self, name, type, &attributes);
			continue;
		}
		if (is_typedef && take_mark(self, '(')) { /* a type of functions */
			struct value_prototype unused = {0};
			parameters_read(self, &unused, NESTING_MAXIMUM);
			expect(self, ')');
			type = type_new(self, VALUE_FUNCTION, 1);
		}
		attributes_read(self, &attributes);
		if (is_typedef && !self->error)
			typedef_add(self, name, type, &attributes);
	} while (take_mark(self, ','));
	expect(self, ';');
}

int prototypes_parse(struct prototypes *prototypes, const char *source, const char *text, size_t length, char **error)
{
	struct parser parser = {.prototypes = prototypes, .source = source, .at = text, .end = text + length, .line_start = text, .line = 1};
	next(&parser);
	while (!parser.error && parser.token.kind != TOKEN_END)
		if (!take_mark(&parser, ';'))
			declaration(&parser);
	*error = parser.error;
	return parser.error ? -1 : 0;
}

struct prototypes *prototypes_new(void)
{
	return calloc(1, sizeof(struct prototypes));
}

void prototypes_free(struct prototypes *prototypes)
{
	if (!prototypes)
		return;
	value_pool_free(&prototypes->pool);
	free(prototypes);
}
