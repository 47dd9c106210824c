/* SPDX-License-Identifier: MIT */
/*
 * grow.c: a trace that comes packet by packet. What packets define stays and is
 * put in order again when there is more of it; the packets themselves come and
 * go.
 */
#include <stdlib.h>
#include <string.h>

#include "collector/read/index.h"

/* Each packet is a stream of its own: whoever gives it knows what came before. */
static void look_at(struct trace_index *index, const void *bytes, size_t length)
{
	uint32_t number = index->stream_count;
	struct stream *stream = index_add_stream(index);
	if (!stream)
		return;
	*stream = (struct stream){.number = number, .bytes = bytes, .length = length, .damaged = 1};
	index_stream(index, stream);
}

struct trace *trace_begin(void)
{
	struct trace_index *index = index_new();
	return index ? &index->trace : NULL;
}

static void forget_packets(struct trace_index *index)
{
	index->trace.packet_count = 0;
	index->stream_count = 0;
	index->outside_count = 0;
}

int trace_define(struct trace *trace, const void *packet, size_t length)
{
	struct trace_index *index = trace->index;
	forget_packets(index);
	index->finished = 0;
	look_at(index, packet, length);
	index->unsettled = 1;
	forget_packets(index);
	return index->out_of_memory ? -1 : 0;
}

static int by_earliest(const void *left, const void *right)
{
	const struct trace_packet *a = left, *b = right;
	if (a->earliest != b->earliest)
		return a->earliest < b->earliest ? -1 : 1;
	return a->stream < b->stream ? -1 : a->stream > b->stream;
}

int trace_show(struct trace *trace, const struct trace_memory *packets, size_t count)
{
	struct trace_index *index = trace->index;
	unsigned processes = trace->process_count;
	forget_packets(index);
	index->finished = 1; /* what they define has been taken by trace_define() */
	for (size_t i = 0; i < count && !index->out_of_memory; i++)
		look_at(index, packets[i].bytes, packets[i].length);
	if (trace->packet_count > 1)
		qsort(trace->packets, trace->packet_count, sizeof *trace->packets, by_earliest);
	if ((index->unsettled || trace->process_count != processes) && !index->out_of_memory)
		index_finish_again(index);
	index->unsettled = 0;
	return index->out_of_memory ? -1 : 0;
}

uint64_t trace_numbering(const struct trace *trace)
{
	return trace->index->numbering;
}
