/* SPDX-License-Identifier: MIT */
/* node.c: see node.h. */
#include "collector/daemon/node.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "collector/collect/proc.h"
#include "collector/session/router.h"

/* ---- programs ---------------------------------------------------------------- */

int node_is_running(const struct image *image)
{
	/* lorg has been taken out of it. */
	if (__atomic_load_n(&family_image_entry(image->family, image->index)->detached, __ATOMIC_RELAXED))
		return 0;
	return image->looked_for && image->pid && image->pid != getpid() && !image->left && !image->dead && !image->over;
}

struct image *node_program(struct family_context *context, uint32_t pid)
{
	for (struct image *image = context->images; image; image = image->next)
		if ((uint32_t)image->pid == pid && node_is_running(image) && !image->shared)
			return image;
	return NULL;
}

void node_program_file(const struct image *image, char *path, size_t size)
{
	char link[64];
	snprintf(link, sizeof link, "/proc/%d/exe", image->pid);
	ssize_t length = readlink(link, path, size - 1);
	path[length > 0 ? length : 0] = 0;
}

/* ---- processes ---------------------------------------------------------------- */

enum life { LIFE_NONE, LIFE_STARTING, LIFE_ALIVE };

static enum life life_of(struct family *family, uint32_t index, struct process **process)
{
	const struct lorg_process *entry = process_entry(family, index);
	*process = process_of(family, index);
	uint32_t state = __atomic_load_n(&entry->state, __ATOMIC_ACQUIRE);
	if (state == LORG_PROCESS_STARTING)
		return LIFE_STARTING;
	if (state != LORG_PROCESS_ALIVE || !*process || (*process)->over)
		return LIFE_NONE;
	return (*process)->image && node_is_running((*process)->image) ? LIFE_ALIVE : LIFE_NONE;
}

static int is_slab(const struct family *family, uint32_t chunk)
{
	return lorg_chunk_word_is_slab_in_use(__atomic_load_n(family_control(family, chunk), __ATOMIC_ACQUIRE));
}

static int is_asked_for(const struct family *family, uint32_t index, const struct image *program, pid_t except)
{
	const struct lorg_process *entry = process_entry(family, index);
	uint32_t at = entry->image;
	const struct image *image = at < family->image_room ? family->images[at] : NULL;
	if (program)
		return image == program;
	return !image || !except || image->pid != except;
}

uint32_t node_processes(struct family_context *context, const struct image *program, pid_t except, node_visit_process *visit,
			void *visit_context)
{
	uint32_t alive = 0;
	for (uint32_t i = 0; i < context->family_count; i++) {
		struct family *family = context->families[i];
		if (!family->memory.at || (program && program->family != family))
			continue;
		uint32_t used = family_chunks_used(family);
		for (uint32_t index = 0; index < used * SLAB_ENTRIES; index++) {
			struct node_process found = {family, index, NULL};
			if (index % SLAB_ENTRIES == 0 && !is_slab(family, index / SLAB_ENTRIES)) {
				index += SLAB_ENTRIES - 1;
				continue;
			}
			enum life life = life_of(family, index, &found.process);
			if (life == LIFE_NONE || !is_asked_for(family, index, program, except))
				continue;
			alive += life == LIFE_ALIVE;
			if (visit)
				visit(visit_context, &found);
		}
	}
	return alive;
}

struct wanted_process {
	uint32_t pid, tid, runtime_process;
	struct node_process found;
};

static void compare_process(void *context, const struct node_process *process)
{
	struct wanted_process *wanted = context;
	if (!process->process || process->process->tid != wanted->tid || (uint32_t)process->process->image->pid != wanted->pid ||
	    process_entry(process->family, process->index)->runtime_process != wanted->runtime_process)
		return;
	wanted->found = *process;
}

int node_process(struct family_context *context, uint32_t pid, uint32_t tid, uint32_t runtime_process, struct node_process *found)
{
	struct wanted_process wanted = {pid, tid, runtime_process, {0}};
	const struct image *program = node_program(context, pid);
	if (!program || !proc_thread_exists((pid_t)pid, (pid_t)tid))
		return -1;
	node_processes(context, program, 0, compare_process, &wanted);
	*found = wanted.found;
	return found->process ? 0 : -1;
}

/* ---- ports ---------------------------------------------------------------------- */

enum { MQUEUE_FILES = 0x19800202, TTY_CONSOLES = 4, TTY_OTHERS = 5, PTY_FIRST = 128, PTY_LAST = 143 };
#define SYSV_QUEUE (UINT32_C(1) << 31)

static int is_terminal(const struct stat *status)
{
	unsigned kind = major(status->st_rdev);
	return S_ISCHR(status->st_mode) && (kind == TTY_CONSOLES || kind == TTY_OTHERS || (kind >= PTY_FIRST && kind <= PTY_LAST));
}

static int is_eventfd(const char *path)
{
	char target[32] = "";
	return readlink(path, target, sizeof target - 1) > 0 && strncmp(target, "anon_inode:[eventfd", 19) == 0;
}

static int is_queue(const char *path)
{
	struct statfs files;
	return statfs(path, &files) == 0 && files.f_type == MQUEUE_FILES;
}

/* What /proc shows of a descriptor: something that carries messages. */
static int is_port(uint32_t pid, uint32_t fd)
{
	char path[64];
	struct stat status;
	if (fd & SYSV_QUEUE) {
		struct msqid_ds queue;
		return msgctl((int)(fd & ~SYSV_QUEUE), IPC_STAT, &queue) == 0;
	}
	snprintf(path, sizeof path, "/proc/%u/fd/%u", pid, fd);
	if (stat(path, &status))
		return 0;
	return S_ISSOCK(status.st_mode) || S_ISFIFO(status.st_mode) || is_terminal(&status) || is_eventfd(path) ||
	       (S_ISREG(status.st_mode) && is_queue(path));
}

struct wanted_port {
	int32_t fd;
	int known;
	uint32_t generation;
};

static void compare_port(void *context, const struct router_port *port)
{
	struct wanted_port *wanted = context;
	if (port->fd != wanted->fd)
		return;
	wanted->known = 1;
	wanted->generation = port->generation;
}

/* What is known of a program's ports, by descriptor. */
struct told_ports {
	struct wanted_port *list;
	size_t count, room;
};

static void add_told(void *context, const struct router_port *port)
{
	struct told_ports *told = context;
	if (told->count == told->room) {
		size_t room = told->room ? 2 * told->room : 64;
		struct wanted_port *grown = realloc(told->list, room * sizeof *grown);
		if (!grown)
			return;
		told->list = grown;
		told->room = room;
	}
	told->list[told->count++] = (struct wanted_port){port->fd, 1, port->generation};
}

static int by_descriptor(const void *left, const void *right)
{
	const struct wanted_port *a = left, *b = right;
	return (a->fd > b->fd) - (a->fd < b->fd);
}

int node_port(struct sessions *sessions, uint32_t pid, uint32_t fd, uint32_t generation, int parts, struct node_port *found)
{
	const struct image *program = node_program(sessions->context, pid);
	struct wanted_port wanted = {.fd = (int32_t)fd};
	if (!program || !is_port(pid, fd))
		return -1;
	router_ports(sessions, program->id, compare_port, &wanted);
	if (wanted.known && parts == 3 && wanted.generation != generation)
		return -1;
	if (!wanted.known)
		wanted.generation = parts == 3 ? generation : PORT_GENERATION_NOW;
	*found = (struct node_port){program->id, pid, (int32_t)fd, wanted.generation};
	return 0;
}

/* Of one program, by its folder of descriptors. */
static uint32_t ports_of(struct sessions *sessions, const struct image *program, node_visit_port *visit, void *visit_context)
{
	char path[32];
	uint32_t count = 0;
	struct told_ports told = {0};
	snprintf(path, sizeof path, "/proc/%d/fd", program->pid);
	DIR *directory = opendir(path);
	if (!directory)
		return 0;
	router_ports(sessions, program->id, add_told, &told);
	if (told.count)
		qsort(told.list, told.count, sizeof *told.list, by_descriptor);
	for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
		char *end;
		unsigned long fd = strtoul(entry->d_name, &end, 10);
		if (*end || end == entry->d_name || !is_port((uint32_t)program->pid, (uint32_t)fd))
			continue;
		const struct wanted_port wanted = {.fd = (int32_t)fd};
		const struct wanted_port *found =
			told.count ? bsearch(&wanted, told.list, told.count, sizeof wanted, by_descriptor) : NULL;
		const struct node_port port = {program->id, (uint32_t)program->pid, (int32_t)fd,
					       found ? found->generation : PORT_GENERATION_NOW};
		count++;
		if (visit)
			visit(visit_context, &port);
	}
	closedir(directory);
	free(told.list);
	return count;
}

uint32_t node_ports(struct sessions *sessions, const struct image *program, pid_t except, node_visit_port *visit, void *visit_context)
{
	uint32_t count = 0;
	for (const struct image *image = sessions->context->images; image; image = image->next)
		if (node_is_running(image) && !image->shared && (program ? image == program : !except || image->pid != except))
			count += ports_of(sessions, image, visit, visit_context);
	return count;
}
