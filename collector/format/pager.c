/* SPDX-License-Identifier: MIT */
/* pager.c: see pager.h. */
#include "collector/format/pager.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *chosen(void)
{
	const char *pager = getenv("LORG_PAGER");
	if (!pager)
		pager = getenv("PAGER");
	return pager ? pager : "less";
}

static void become_pager(const char *command, int input)
{
	dup2(input, STDIN_FILENO);
	signal(SIGPIPE, SIG_DFL);
	setenv("LESS", "FRX", 0);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

int pager_wants_colour(void)
{
	const char *terminal = getenv("TERM"), *none = getenv("NO_COLOR");
	return !(none && *none) && terminal && strcmp(terminal, "dumb") != 0;
}

void pager_begin(struct pager *pager)
{
	const char *command = chosen();
	int ends[2];
	*pager = (struct pager){.fd = STDOUT_FILENO};
	if (!isatty(STDOUT_FILENO))
		return;
	pager->terminal = pager_wants_colour();
	if (!*command || strcmp(command, "cat") == 0 || pipe2(ends, O_CLOEXEC) != 0)
		return;
	pid_t child = fork();
	if (child == 0)
		become_pager(command, ends[0]);
	close(ends[0]);
	if (child < 0) {
		close(ends[1]);
		return;
	}
	pager->child = child;
	pager->fd = ends[1];
}

void pager_end(struct pager *pager)
{
	int status;
	if (!pager->child)
		return;
	close(pager->fd);
	while (waitpid(pager->child, &status, 0) < 0 && errno == EINTR)
		;
}
