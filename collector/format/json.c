/* SPDX-License-Identifier: MIT */
/* json.c: see json.h. */
#include "collector/format/json.h"

#include <stdlib.h>
#include <string.h>
#include <yajl/yajl_gen.h>

struct json {
	yajl_gen gen;
	struct output *output;
	struct output scratch; /* a string, escaped */
};

static void print(void *context, const char *text, size_t length)
{
	output_bytes(context, text, length);
}

struct json *json_new(struct output *output)
{
	struct json *json = calloc(1, sizeof *json);
	if (!json)
		return NULL;
	json->gen = yajl_gen_alloc(NULL);
	if (!json->gen) {
		free(json);
		return NULL;
	}
	json->output = output;
	output_begin(&json->scratch, -1);
	yajl_gen_config(json->gen, yajl_gen_print_callback, print, output);
	return json;
}

void json_free(struct json *json)
{
	if (!json)
		return;
	yajl_gen_free(json->gen);
	output_end(&json->scratch);
	free(json);
}

void json_begin(struct json *json)
{
	yajl_gen_map_open(json->gen);
}

void json_end(struct json *json)
{
	yajl_gen_map_close(json->gen);
}

void json_begin_list(struct json *json)
{
	yajl_gen_array_open(json->gen);
}

void json_end_list(struct json *json)
{
	yajl_gen_array_close(json->gen);
}

void json_end_line(struct json *json)
{
	yajl_gen_reset(json->gen, NULL);
	output_byte(json->output, '\n');
}

void json_key(struct json *json, const char *key)
{
	yajl_gen_string(json->gen, (const unsigned char *)key, strlen(key));
}

static int is_plain(const uint8_t *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] >= 0x80 || bytes[i] == '\\')
			return 0;
	return 1;
}

void json_bytes(struct json *json, const void *bytes, size_t length)
{
	if (is_plain(bytes, length)) {
		yajl_gen_string(json->gen, bytes, length);
		return;
	}
	json->scratch.length = 0;
	output_reversible(&json->scratch, bytes, length);
	yajl_gen_string(json->gen, (const unsigned char *)json->scratch.text, json->scratch.length);
}

void json_text(struct json *json, const char *text)
{
	json_bytes(json, text, strlen(text));
}

void json_number(struct json *json, uint64_t number)
{
	char digits[20];
	size_t at = sizeof digits;
	do
		digits[--at] = (char)('0' + number % 10);
	while (number /= 10);
	yajl_gen_number(json->gen, digits + at, sizeof digits - at);
}

void json_signed(struct json *json, int64_t number)
{
	yajl_gen_integer(json->gen, number);
}

void json_number_text(struct json *json, const char *digits)
{
	yajl_gen_number(json->gen, digits, strlen(digits));
}

void json_boolean(struct json *json, int truth)
{
	yajl_gen_bool(json->gen, truth);
}

void json_null(struct json *json)
{
	yajl_gen_null(json->gen);
}
