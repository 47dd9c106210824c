/* SPDX-License-Identifier: MIT */
/* json.h: JSON into an output, by yajl; every string escaped reversibly, so valid whatever the bytes. One thread. */
#ifndef LORG_FORMAT_JSON_H
#define LORG_FORMAT_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "collector/format/output.h"

struct json;

/* NULL: out of memory. */
struct json *json_new(struct output *output);
void json_free(struct json *json);

void json_begin(struct json *json); /* { */
void json_end(struct json *json);   /* } */
void json_begin_list(struct json *json);
void json_end_list(struct json *json);
void json_end_line(struct json *json); /* after an outermost object: a newline, ready for the next */

/* A key is one of ours: ASCII without a backslash. */
void json_key(struct json *json, const char *key);
void json_bytes(struct json *json, const void *bytes, size_t length);
void json_text(struct json *json, const char *text);
void json_number(struct json *json, uint64_t number);
void json_signed(struct json *json, int64_t number);
void json_number_text(struct json *json, const char *digits); /* a number as JSON writes it */
void json_boolean(struct json *json, int truth);
void json_null(struct json *json);

#endif
