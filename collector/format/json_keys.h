/* SPDX-License-Identifier: MIT */
/* json_keys.h: a key and its value at once, for the objects of log and report. */
#ifndef LORG_FORMAT_JSON_KEYS_H
#define LORG_FORMAT_JSON_KEYS_H

#include "collector/format/json.h"
#include "collector/read/trace.h"

static inline void key_text(struct json *json, const char *key, const char *text)
{
	json_key(json, key);
	json_text(json, text);
}

static inline void key_bytes(struct json *json, const char *key, struct trace_text text)
{
	json_key(json, key);
	json_bytes(json, text.bytes, text.length);
}

static inline void key_number(struct json *json, const char *key, uint64_t number)
{
	json_key(json, key);
	json_number(json, number);
}

#endif
