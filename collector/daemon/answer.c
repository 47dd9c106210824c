/* SPDX-License-Identifier: MIT */
/* answer.c: see answer.h. */
#include "collector/daemon/answer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collector/session/session.h"
#include "collector/term/printer.h"

static const struct flag_name {
	const char *name;
	uint32_t flag;
} flag_names[] = {
	{"send", LORG_TRACE_SEND},
	{"receive", LORG_TRACE_RECEIVE},
	{"procs", LORG_TRACE_PROCS},
	{"ports", LORG_TRACE_PORTS},
	{"call", LORG_TRACE_CALL},
	{"silent", LORG_TRACE_SILENT},
	{"return_to", LORG_TRACE_RETURN_TO},
	{"arity", LORG_TRACE_ARITY},
	{"running", LORG_TRACE_RUNNING},
	{"running_procs", LORG_TRACE_RUNNING_PROCS},
	{"running_ports", LORG_TRACE_RUNNING_PORTS},
	{"exiting", LORG_TRACE_EXITING},
	{"garbage_collection", LORG_TRACE_GARBAGE_COLLECTION},
	{"timestamp", LORG_TRACE_TIMESTAMP},
	{"monotonic_timestamp", LORG_TRACE_MONOTONIC_TIMESTAMP},
	{"strict_monotonic_timestamp", LORG_TRACE_STRICT_MONOTONIC_TIMESTAMP},
	{"set_on_spawn", LORG_TRACE_SET_ON_SPAWN},
	{"set_on_first_spawn", LORG_TRACE_SET_ON_FIRST_SPAWN},
	{"set_on_link", LORG_TRACE_SET_ON_LINK},
	{"set_on_first_link", LORG_TRACE_SET_ON_FIRST_LINK},
};
enum { FLAG_COUNT = sizeof flag_names / sizeof *flag_names };

uint32_t flag_named(const char *name)
{
	for (int i = 0; i < FLAG_COUNT; i++)
		if (strcmp(flag_names[i].name, name) == 0)
			return flag_names[i].flag;
	return 0;
}

void answer_string(FILE *out, const char *text)
{
	putc('"', out);
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;
		if (byte == '"' || byte == '\\')
			fprintf(out, "\\%c", byte);
		else if (byte < 0x20 || byte == 0x7f)
			fprintf(out, "\\x{%X}", byte);
		else
			putc(byte, out);
	}
	putc('"', out);
}

void answer_atom(FILE *out, const char *text)
{
	char *quoted = lorg_atom_quoted(text, strlen(text));
	fputs(quoted ? quoted : "''", out);
	free(quoted);
}

void answer_session(FILE *out, const struct session *session)
{
	putc('{', out);
	answer_atom(out, session->name);
	fprintf(out, ",%" PRIu64 "}", session->number);
}

void answer_flags(FILE *out, uint32_t flags)
{
	const char *before = "";
	putc('[', out);
	for (int i = 0; i < FLAG_COUNT; i++) {
		if (!(flags & flag_names[i].flag))
			continue;
		fputs(before, out);
		answer_atom(out, flag_names[i].name);
		before = ",";
	}
	putc(']', out);
}

void answer_error(FILE *out, const char *kind, const char *sentence)
{
	fprintf(out, "{error,%s,", kind);
	answer_string(out, sentence);
	putc('}', out);
}
