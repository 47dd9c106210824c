/* SPDX-License-Identifier: MIT */
/* character.h: what Erlang's syntax takes characters for, and UTF-8; for the reader and the printer of terms. */
#ifndef LORG_COLLECTOR_TERM_CHARACTER_H
#define LORG_COLLECTOR_TERM_CHARACTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHARACTER_MAX 0x10ffff

/* The character at text, strictly: no surrogates, nothing longer than needed. Its length, 0 if none stands there. */
int character_read(const char *text, size_t length, uint32_t *code);
/* Writes up to 4 bytes (codes above CHARACTER_MAX as the replacement character); returns how many. */
int character_write(uint32_t code, char *text);
/* First and other characters of atoms without quotes. */
bool character_begins_atom(uint32_t code);
bool character_in_atom(uint32_t code);
bool character_reserved_word(const char *text, size_t length);
/* Shown in strings for people: Unicode without controls, spaces but the plain one, and what is not assigned to characters. */
bool character_printable(uint32_t code);

#endif
