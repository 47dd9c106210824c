/* SPDX-License-Identifier: MIT */
/*
 * external.h: writes and reads the encoding of include/lorg/term.h. Both sides; the rules of term.h hold here too.
 */
#ifndef LORG_PRELOAD_EXTERNAL_H
#define LORG_PRELOAD_EXTERNAL_H

#include <lorg/term.h>

#include "preload/term/term.h"

/*
 * A bounded buffer. What does not fit is left out whole, sets `truncated`, and so does everything after it: the buffer
 * never ends inside one put. Who writes a tuple or list of several puts notes `used` before and sets it back when
 * `truncated` is set, so that no half term stays.
 */
struct lorg_external {
	uint8_t *bytes;
	uint32_t size;
	uint32_t used;
	bool truncated;
};

void lorg_put_integer(struct lorg_external *out, int64_t value);
void lorg_put_unsigned(struct lorg_external *out, uint64_t value);
void lorg_put_big(struct lorg_external *out, bool negative, const uint64_t *magnitude, uint32_t words);
/* A float that is infinite or not a number has no form in Erlang: put as the atom inf, '-inf' or nan. */
void lorg_put_float(struct lorg_external *out, double value);
/* More than LORG_ATOM_BYTES_MAX bytes are cut there. */
void lorg_put_atom(struct lorg_external *out, const char *text, size_t length);
void lorg_put_atom_text(struct lorg_external *out, const char *text);
void lorg_put_boolean(struct lorg_external *out, bool value);
/* A string of the program, a list of bytes in Erlang; `true_length` more than length: cut. At most 65535 bytes are kept. */
void lorg_put_string(struct lorg_external *out, const void *bytes, size_t length, uint64_t true_length);
void lorg_put_binary(struct lorg_external *out, const void *bytes, size_t length, uint64_t true_length);
void lorg_put_nil(struct lorg_external *out);
/* Heads: the elements follow as further puts; behind those of a list the tail (lorg_put_nil). count > 0 for a list. */
void lorg_put_tuple_head(struct lorg_external *out, uint32_t arity);
void lorg_put_list_head(struct lorg_external *out, uint32_t count);
/* Keys and values follow, key before value. */
void lorg_put_map_head(struct lorg_external *out, uint32_t count);
/* Then count times a name (lorg_put_atom) and a value. */
void lorg_put_named_tuple_head(struct lorg_external *out, const char *tag, size_t tag_length, uint32_t count);
void lorg_put_pid(struct lorg_external *out, uint32_t program, uint32_t thread, uint32_t process);
void lorg_put_port(struct lorg_external *out, uint32_t program, uint32_t descriptor, uint32_t generation);
void lorg_put_pointer(struct lorg_external *out, uint64_t address);
/* The term pointed to follows. */
void lorg_put_pointer_to(struct lorg_external *out, uint64_t address);
void lorg_put_pointer_unreadable(struct lorg_external *out, uint64_t address);
void lorg_put_code_address(struct lorg_external *out, uint64_t address);
void lorg_put_code_line(struct lorg_external *out, uint64_t address);
void lorg_put_character(struct lorg_external *out, uint32_t code);
/* `names` of the bits; at most 65535 bytes. */
void lorg_put_flags(struct lorg_external *out, uint64_t bits, const char *names, size_t length);

/*
 * Any term. False if it is broken or the scratch memory is too small for the stack that its depth needs
 * (terms->failure), or if it does not fit (out->truncated); nothing of it is in the buffer then.
 */
bool lorg_put_term(struct lorg_external *out, struct lorg_terms *terms, lorg_term term);

/*
 * Reads one term at *at, moves *at behind it. LORG_NONE with terms->failure (LORG_TERM_BROKEN: malformed or cut short,
 * or a tag that is not known) and *at somewhere otherwise. lorg's own tags become Erlang terms as lorg/term.h says; a
 * code address stays one.
 */
lorg_term lorg_get_term(struct lorg_terms *terms, const uint8_t **at, const uint8_t *end);

#endif
