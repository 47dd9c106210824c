/* SPDX-License-Identifier: MIT */
/*
 * node.h: what is on the node, by the names that requests use: programs, their
 * threads and runtime processes, and their ports. Of now.
 */
#ifndef LORG_DAEMON_NODE_H
#define LORG_DAEMON_NODE_H

#include <stdint.h>
#include <sys/types.h>

#include "collector/collect/family.h"

struct sessions;

/* A process as it is found; `process` NULL: it is just starting. */
struct node_process {
	struct family *family;
	uint32_t index;
	struct process *process;
};

/* A program by the number that it has here; NULL: none of that number is attached and alive. */
struct image *node_program(struct family_context *context, uint32_t pid);

/* <PID.TID.N>. 0, or -1: there is none, or it has ended. */
int node_process(struct family_context *context, uint32_t pid, uint32_t tid, uint32_t runtime_process, struct node_process *found);

/*
 * All processes, those that are just starting too, of one program (NULL: of all); not those of the program numbered
 * `except` (0: none). Returns how many of them are alive. visit may be NULL.
 */
typedef void node_visit_process(void *context, const struct node_process *process);
uint32_t node_processes(struct family_context *context, const struct image *program, pid_t except, node_visit_process *visit,
			void *visit_context);

struct node_port {
	const uint8_t *image; /* its id */
	uint32_t pid;
	int32_t fd; /* a SysV queue: 2^31 + msqid */
	uint32_t generation; /* PORT_GENERATION_NOW (session.h): not known */
};

/* A port by its numbers; parts 2: whatever its generation is. 0, or -1: it is none, or was closed. */
int node_port(struct sessions *sessions, uint32_t pid, uint32_t fd, uint32_t generation, int parts, struct node_port *found);

typedef void node_visit_port(void *context, const struct node_port *port);
uint32_t node_ports(struct sessions *sessions, const struct image *program, pid_t except, node_visit_port *visit, void *visit_context);

/* Path of a program's file into `path`; empty: not to be seen. */
void node_program_file(const struct image *image, char *path, size_t size);

/* True for one that runs, as far as is known. */
int node_is_running(const struct image *image);

#endif
