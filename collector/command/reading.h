/* SPDX-License-Identifier: MIT */
/* reading.h: what the commands that read a trace have in common. */
#ifndef LORG_COMMAND_READING_H
#define LORG_COMMAND_READING_H

#include "collector/format/names.h"
#include "collector/format/output.h"
#include "collector/format/pager.h"
#include "collector/read/trace.h"

#define DEFAULT_DIRECTORY "lorg.trace"

struct reading {
	struct trace *trace;
	struct names *names;
	struct pager pager;
	struct output output;
};

/* Opens a trace directory. Returns 0, or -1 when it has said why not. */
int reading_open(struct reading *reading, const char *directory, int lazily);

/* Begins the output: with_pager: through a pager, if a person reads. */
void reading_begin_output(struct reading *reading, int with_pager);

/*
 * Ends the output and closes all. Says what was damaged and which files changed since the recording, once each.
 * Returns the exit status: a reader that went away early (a closed pipe) is no failure, a damaged trace is one.
 */
int reading_close(struct reading *reading, int tell_troubles);

#endif
