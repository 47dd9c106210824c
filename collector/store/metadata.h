/* SPDX-License-Identifier: MIT */
/* metadata.h: the CTF 1.8 description of a trace, generated from include/lorg/events.h. */
#ifndef LORG_STORE_METADATA_H
#define LORG_STORE_METADATA_H

#include <stdint.h>
#include <stdio.h>

#include <lorg/abi.h>

struct metadata {
	const uint8_t *trace_uuid; /* 16 bytes */
	const struct lorg_clock *clock;
	const char *node_name;
};

/* Writes the text; errors stay in the stream's error indicator. */
void metadata_write(FILE *out, const struct metadata *metadata);

#endif
