/* SPDX-License-Identifier: MIT */
/* What may be executed, and what may not: scripts, a memory file, by descriptor, through PATH; and each way to fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static char *leaf[] = {"prog", "leaf", NULL};

static void make(const char *name, const char *text, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0700);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		exit(1);
	fchmod(fd, mode);
	close(fd);
}

static int copy_of_self(void)
{
	int from = open("/proc/self/exe", O_RDONLY), to = memfd_create("copy", MFD_CLOEXEC);

	while (sendfile(to, from, NULL, 1 << 20) > 0)
		;
	close(from);
	return to;
}

static int way(int n)
{
	switch (n) {
	case 0: return execl("./script", "script", "leaf", (char *)NULL);
	case 1: return fexecve(copy_of_self(), leaf, environ);
	case 2: return (int)syscall(SYS_execveat, open("/proc/self/exe", O_PATH | O_CLOEXEC), "", leaf, environ, AT_EMPTY_PATH);
	case 3: return setenv("PATH", ".:/nowhere", 1) + execlp("prog", "prog", "leaf", (char *)NULL);
	case 4: return execvp("bare", (char *[]){"bare", "leaf", NULL});
	case 5: return execl("./no-such-file", "x", (char *)NULL);
	case 6: return execl("./plain", "x", (char *)NULL);
	case 7: return execl("./bad-script", "x", (char *)NULL);
	case 8: return execl(".", "x", (char *)NULL);
	case 9: return execv("./bare", leaf);
	case 10: return execv("", leaf);
	case 11: return execv((char *)8, leaf);
	case 12: return execv("./truncated", leaf);
	case 13: return execveat(AT_FDCWD, "./script", (char *[]){"script", "leaf", NULL}, environ, 0);
	default: return -1;
	}
}

int main(int argc, char **argv)
{
	int status;
	pid_t pid;

	if (argc > 1 && strcmp(argv[argc - 1], "leaf") == 0)
		return 4;
	make("script", "#!./prog with-argument\n", 0700);
	make("bare", "exit 4\n", 0700);
	make("plain", "text", 0600);
	make("bad-script", "#!/no/such/interpreter\n", 0700);
	make("truncated", "\177ELF\2\1\1", 0700);
	for (int n = 0; n < 14; n++) {
		if ((pid = fork()) == 0) {
			if (n == 4)
				setenv("PATH", ".:/nowhere", 1);
			way(n);
			_exit(100 + errno);
		}
		waitpid(pid, &status, 0);
		printf("%d: %d\n", n, WIFEXITED(status) ? WEXITSTATUS(status) : -status);
		fflush(stdout);
	}
	printf("spawn of nothing %d", posix_spawn(&pid, "./no-such-file", NULL, NULL, leaf, environ));
	printf(", of plain %d", posix_spawnp(&pid, "./plain", NULL, NULL, leaf, environ));
	printf(", of script %d", posix_spawn(&pid, "./script", NULL, NULL, (char *[]){"script", "leaf", NULL}, environ));
	waitpid(pid, &status, 0);
	printf(" and %d\n", WEXITSTATUS(status));
	return 0;
}
