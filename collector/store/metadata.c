/* SPDX-License-Identifier: MIT */
/* metadata.c: see metadata.h. Field names, order and sizes come from the table that makes the C structures. */
#include "collector/store/metadata.h"

#include <inttypes.h>

#include <lorg/events.h>

#define FIELD_TEXT_U64(name) "\t\tu64 " #name ";\n"
#define FIELD_TEXT_U32(name) "\t\tu32 " #name ";\n"
#define FIELD_TEXT_I64(name) "\t\ti64 " #name ";\n"
#define FIELD_TEXT_I32(name) "\t\ti32 " #name ";\n"
#define FIELD_TEXT_LENGTH(name) "\t\tu32 " #name "_length;\n"
#define FIELD_NONE(name) ""
#define FIELD_TEXT_TEXT(name) "\t\ttext8 " #name "[" #name "_length];\n"
#define FIELD_TEXT_BLOB(name) "\t\tu8 " #name "[" #name "_length];\n"

struct event_text {
	unsigned id;
	const char *name;
	const char *fixed;
	const char *bytes;
};

static const struct event_text event_texts[] = {
#define EVENT_TEXT(id, NAME, name)                                                                                          \
	{id, name,                                                                                                          \
	 "" LORG_FIELDS_##NAME(FIELD_TEXT_U64, FIELD_TEXT_U32, FIELD_TEXT_I64, FIELD_TEXT_I32, FIELD_TEXT_LENGTH,           \
			       FIELD_TEXT_LENGTH),                                                                          \
	 "" LORG_FIELDS_##NAME(FIELD_NONE, FIELD_NONE, FIELD_NONE, FIELD_NONE, FIELD_TEXT_TEXT, FIELD_TEXT_BLOB)},
	LORG_EVENTS(EVENT_TEXT)
#undef EVENT_TEXT
};

#define CONTEXT_TIME(name) "\t\tts64 " #name ";\n"
#define CONTEXT_U64(name) "\t\tu64 " #name ";\n"
#define CONTEXT_U32(name) "\t\tu32 " #name ";\n"
#define CONTEXT_UUID(name) "\t\tu8 " #name "[16];\n"

static const char types[] = "typealias integer { size = 8; align = 8; signed = false; } := u8;\n"
			    "typealias integer { size = 8; align = 8; signed = false; encoding = UTF8; } := text8;\n"
			    "typealias integer { size = 16; align = 8; signed = false; } := u16;\n"
			    "typealias integer { size = 16; align = 32; signed = false; } := event_id;\n"
			    "typealias integer { size = 32; align = 8; signed = false; } := u32;\n"
			    "typealias integer { size = 64; align = 8; signed = false; } := u64;\n"
			    "typealias integer { size = 32; align = 8; signed = true; } := i32;\n"
			    "typealias integer { size = 64; align = 8; signed = true; } := i64;\n";

static const char stream[] = "stream {\n"
			     "\tid = 0;\n"
			     "\tpacket.context := struct {\n" LORG_PACKET_CONTEXT(CONTEXT_TIME, CONTEXT_U64, CONTEXT_U32, CONTEXT_UUID)
			     "\t};\n"
			     "\tevent.header := struct {\n"
			     "\t\tenum : integer { size = 5; align = 1; signed = false; } { compact = 0 ... 30, extended = 31 } id;\n"
			     "\t\tvariant <id> {\n"
			     "\t\t\tstruct { ts27 timestamp; } compact;\n"
			     "\t\t\tstruct { event_id id; u16 length; ts64 timestamp; } extended;\n"
			     "\t\t} v;\n"
			     "\t} align(64);\n"
			     "};\n\n";

static void write_uuid(FILE *out, const uint8_t *uuid)
{
	for (unsigned i = 0; i < 16; i++)
		fprintf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

static void write_name(FILE *out, const char *name)
{
	for (; *name; name++)
		if (*name >= 0x20 && *name < 0x7f && *name != '"' && *name != '\\')
			fputc(*name, out);
		else
			fputc('_', out);
}

/* CTF wants the origin of the tick count as seconds and ticks since the epoch. */
static void write_clock(FILE *out, const uint8_t *uuid, const struct lorg_clock *clock)
{
	uint64_t frequency = clock->frequency ? clock->frequency : 1;
	__int128 now_ns = (__int128)clock->base_ns + clock->wall_offset_ns;
	__int128 origin = now_ns * frequency / 1000000000 - clock->base_tick; /* in ticks */
	int64_t seconds = (int64_t)(origin / frequency);
	__int128 rest = origin - (__int128)seconds * frequency;
	if (rest < 0) {
		seconds--;
		rest += frequency;
	}
	fprintf(out, "clock {\n\tname = ticks;\n\tuuid = \"");
	write_uuid(out, uuid);
	fprintf(out,
		"\";\n\tdescription = \"%s\";\n\tfreq = %" PRIu64 ";\n\toffset_s = %" PRId64 ";\n\toffset = %" PRIu64
		";\n\tabsolute = true;\n};\n\n",
		clock->source == LORG_CLOCK_TSC ? "time stamp counter" : "CLOCK_MONOTONIC", frequency, seconds, (uint64_t)rest);
	fprintf(out, "typealias integer { size = 64; align = 8; signed = false; map = clock.ticks.value; } := ts64;\n"
		     "typealias integer { size = 27; align = 1; signed = false; map = clock.ticks.value; } := ts27;\n\n");
}

void metadata_write(FILE *out, const struct metadata *metadata)
{
	fprintf(out, "/* CTF 1.8 */\n\n%s\n", types);
	fprintf(out, "trace {\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"");
	write_uuid(out, metadata->trace_uuid);
	fprintf(out, "\";\n\tbyte_order = le;\n"
		     "\tpacket.header := struct { u32 magic; u8 uuid[16]; u32 stream_id; };\n};\n\n");
	fprintf(out,
		"env {\n\tdomain = \"lorg\";\n\ttracer_name = \"lorg\";\n\tlorg_abi_major = %d;\n\tlorg_abi_minor = %d;\n\thostname = \"",
		LORG_ABI_MAJOR, LORG_ABI_MINOR);
	write_name(out, metadata->node_name);
	fprintf(out, "\";\n};\n\n");
	write_clock(out, metadata->trace_uuid, metadata->clock);
	fputs(stream, out);
	for (size_t i = 0; i < sizeof event_texts / sizeof *event_texts; i++) {
		const struct event_text *event = &event_texts[i];
		fprintf(out, "event {\n\tid = %u;\n\tname = \"%s\";\n\tstream_id = 0;\n\tfields := struct {\n%s%s\t};\n};\n\n", event->id,
			event->name, event->fixed, event->bytes);
	}
}
