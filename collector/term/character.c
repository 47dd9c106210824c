/* SPDX-License-Identifier: MIT */
/* character.c: see character.h. */
#include "collector/term/character.h"

#include <string.h>

/* Length by the first byte and the least code of that length. */
static int length_of(unsigned char first, uint32_t *bits, uint32_t *least)
{
	if (first < 0x80) {
		*bits = first;
		*least = 0;
		return 1;
	}
	if (first >= 0xc2 && first <= 0xdf) {
		*bits = first & 0x1f;
		*least = 0x80;
		return 2;
	}
	if (first >= 0xe0 && first <= 0xef) {
		*bits = first & 0x0f;
		*least = 0x800;
		return 3;
	}
	if (first >= 0xf0 && first <= 0xf4) {
		*bits = first & 0x07;
		*least = 0x10000;
		return 4;
	}
	return 0;
}

int character_read(const char *text, size_t length, uint32_t *code)
{
	uint32_t bits, least;
	if (!length)
		return 0;
	int bytes = length_of((unsigned char)text[0], &bits, &least);
	if (!bytes || (size_t)bytes > length)
		return 0;
	for (int i = 1; i < bytes; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
		bits = bits << 6 | (text[i] & 0x3f);
	}
	if (bits < least || bits > CHARACTER_MAX || (bits >= 0xd800 && bits <= 0xdfff))
		return 0;
	*code = bits;
	return bytes;
}

int character_write(uint32_t code, char *text)
{
	if (code > CHARACTER_MAX || (code >= 0xd800 && code <= 0xdfff))
		code = 0xfffd;
	if (code < 0x80) {
		text[0] = (char)code;
		return 1;
	}
	int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
	static const unsigned char marks[] = {0, 0xc0, 0xe0, 0xf0};
	text[0] = (char)(marks[more] | code >> (6 * more));
	for (int i = 1; i <= more; i++)
		text[i] = (char)(0x80 | (code >> (6 * (more - i)) & 0x3f));
	return more + 1;
}

bool character_begins_atom(uint32_t code)
{
	return (code >= 'a' && code <= 'z') || (code >= 0xdf && code <= 0xff && code != 0xf7);
}

bool character_in_atom(uint32_t code)
{
	return character_begins_atom(code) || (code >= 'A' && code <= 'Z') || (code >= '0' && code <= '9') || code == '_' || code == '@' ||
	       (code >= 0xc0 && code <= 0xde && code != 0xd7);
}

bool character_reserved_word(const char *text, size_t length)
{
	static const char *const words[] = {"after", "and", "andalso", "band", "begin", "bnot", "bor", "bsl", "bsr", "bxor", "case", "catch",
		"cond", "div", "end", "fun", "if", "let", "not", "of", "or", "orelse", "receive", "rem", "try", "when", "xor"};
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		if (strlen(words[i]) == length && memcmp(words[i], text, length) == 0)
			return true;
	return false;
}

bool character_printable(uint32_t code)
{
	if (code < ' ')
		return code == '\n' || code == '\r' || code == '\t' || code == '\v' || code == '\b' || code == '\f' || code == 0x1b;
	return code < 0x7f || (code >= 0xa0 && code < 0xd800) || (code > 0xdfff && code < 0xfffe) || (code > 0xffff && code <= CHARACTER_MAX);
}
