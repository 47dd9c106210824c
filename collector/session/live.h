/* SPDX-License-Identifier: MIT */
/*
 * live.h: sessions, by their functions: what records for one command (lorg run) has none, and is not linked with them.
 */
#ifndef LORG_SESSION_LIVE_H
#define LORG_SESSION_LIVE_H

#include "collector/session/router.h"
#include "collector/session/session.h"

struct live {
	struct sessions *(*create)(struct family_context *context); /* NULL: no memory */
	void (*free)(struct sessions *sessions);
	void (*settle)(struct sessions *sessions, uint8_t *at, const struct arena_layout *layout);
	void (*pass)(struct sessions *sessions, uint64_t now_ns);
	/* router.c's, of the same names */
	int (*packet)(struct sessions *sessions, struct family *family, struct process *process, const struct lorg_packet *head,
		      size_t length);
	void (*process_over)(struct sessions *sessions, const uint8_t image[16], uint64_t birth);
	void (*image_over)(struct sessions *sessions, const uint8_t image[16]);
	void (*note)(struct sessions *sessions, const struct lorg_packet *packet, size_t length);
	int (*is_live)(const struct sessions *sessions);
};

/* session.c */
extern const struct live session_live;

#endif
