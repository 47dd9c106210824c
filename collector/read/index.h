/* SPDX-License-Identifier: MIT */
/* index.h: what the files of this folder share about an open trace. Not for others. */
#ifndef LORG_READ_INDEX_H
#define LORG_READ_INDEX_H

#include "collector/read/trace.h"

/* A table of numbers by hash: open addressing, the owner compares. */
struct number_table {
	uint32_t *slots; /* number + 1; 0: empty */
	uint32_t room;   /* power of two */
	uint32_t count;
};

struct stream {
	uint32_t number; /* N of stream-N */
	const uint8_t *bytes;
	size_t length;
	int mapped;         /* 1: to be unmapped */
	uint64_t discarded; /* events_discarded of its last packet */
	uint64_t sequence;  /* that its next packet should have */
	uint32_t packets;
	int damaged; /* 1: something before its next packet was skipped */
};

struct clock_piece {
	uint64_t base_tick, base_ns, multiplier;
	int64_t wall_offset_ns;
};

/* REGISTER of a process name: whose it is can be told when all processes are known. */
struct name_told {
	const struct trace_image *image;
	uint32_t tid;
	unsigned process;
	uint64_t tick;
	struct trace_text name;
};

/* REAPED of a program. */
struct reaped_told {
	const struct trace_image *by;
	uint32_t pid; /* by's number */
	int32_t status; /* as wait(2) has it */
	uint64_t tick;
};

/* SPAWN of a program: its number as its parent sees it. */
struct spawn_told {
	const struct trace_image *by;
	uint64_t child_low, child_high, tick;
	uint32_t pid;
};

/* An EXIT that the collector wrote. */
struct outside_exit {
	size_t packet; /* number before the packets are sorted */
	unsigned process;
	uint64_t tick;
};

struct unload_told {
	const struct trace_image *image;
	uint64_t tick, base;
};

struct trace_index {
	struct trace trace;
	struct stream *streams;
	unsigned stream_count, stream_room;
	size_t packet_room;
	unsigned process_room, image_room, gap_room;
	struct number_table process_table, image_table, gap_table;
	struct trace_module **modules;
	unsigned module_count, module_room;
	struct trace_function *functions;
	unsigned function_count, function_room;
	struct trace_hooked *hooked; /* by id */
	unsigned hooked_count, hooked_room;
	struct clock_piece *clocks;
	unsigned clock_count, clock_room;
	struct name_told *names;
	unsigned name_count, name_room;
	struct trace_port *ports; /* sorted by image, descriptor, generation */
	unsigned port_count, port_room;
	struct trace_port *connections; /* CONNECTED: peer alone */
	unsigned connection_count, connection_room;
	struct reaped_told *reaped;
	unsigned reaped_count, reaped_room;
	/* Of namespaces but the recording's: sorted by namespace, own number, tick. */
	struct trace_image **nested_images;
	struct trace_process **nested_processes;
	unsigned nested_image_count, nested_process_count;
	/* First those of all programs; then, of nested programs' children, those in yet another namespace. */
	struct spawn_told *spawns;
	unsigned spawn_count, spawn_room;
	struct outside_exit *outside_exits;
	unsigned outside_count, outside_room;
	struct unload_told *unloads;
	unsigned unload_count, unload_room;
	uint8_t uuid[16];
	int has_uuid;
	unsigned damage_count;     /* gaps that this reader found */
	uint64_t damage_untold;    /* beyond those that are listed */
	uint64_t packets_promised; /* by the mark that ends a recording; 0: none */
	uint64_t frequency;        /* ticks a second by the metadata; 0 unknown */
	int out_of_memory;
	int lazily; /* as trace_open_lazily() */
	int finished; /* definitions are in order: no more are taken */
	/* Of a trace that grows (grow.c). */
	int unsettled;	    /* there are definitions that are not in order yet */
	uint64_t numbering; /* changes when functions and modules get other numbers */
	unsigned settled_modules, settled_unloads, settled_functions, settled_hooked; /* how many of them are in order */
	unsigned last_process; /* of the packet before: the next is likely its too */
};

/* Grows *array for one more element; returns 0 and sets out_of_memory when it cannot. */
int index_grow(struct trace_index *index, void *array, unsigned count, unsigned *room, size_t element);

/* One stream more, all zero; NULL: out_of_memory. Others may have moved. */
struct stream *index_add_stream(struct trace_index *index);

/* An index of nothing; NULL: out of memory. */
struct trace_index *index_new(void);
/* Looks at every packet of every stream, or of one. */
void index_streams(struct trace_index *index);
void index_stream(struct trace_index *index, struct stream *stream);
/* Goes through the events of a packet; cuts its length to the bytes that are whole, sets earliest and early_count. */
void index_events(struct trace_index *index, struct trace_packet *packet);
/* What was put off with an untouched packet. */
void index_settle(struct trace_index *index, struct trace_packet *packet);
/* namespace.c: tells pid namespaces apart, once images have their parents. */
void index_namespaces(struct trace_index *index);
/* When all packets have been looked at: parents, families, names, order. */
void index_finish(struct trace_index *index);
/* The same once more, with what has come since; packets are left as they are. */
void index_finish_again(struct trace_index *index);

void index_damage(struct trace_index *index, const struct stream *stream, uint64_t offset, uint64_t bytes, const char *why);
/* Something that is missing and has no place in a file. */
void index_missing(struct trace_index *index, const char *what, const char *why);
void index_gap(struct trace_index *index, struct trace_text what, struct trace_text why, uint64_t count, uint32_t pid,
	       uint64_t tick);

/* The number of an image or process, made when it is new; UINT_MAX when memory ran out. */
struct trace_image *index_image(struct trace_index *index, const uint8_t id[16]);
const struct trace_image *index_find_image(const struct trace_index *index, const uint8_t id[16]);
unsigned index_process(struct trace_index *index, const struct lorg_packet *head);

#endif
