/* SPDX-License-Identifier: MIT */
/* Prints what a program can know of itself: the same with and without a tracer. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static int start_errno;

static void entries(const char *path)
{
	DIR *directory = opendir(path);
	int n = 0;

	for (struct dirent *e; (e = readdir(directory));) {
		char name[512], target[512] = "";
		snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
		if (e->d_name[0] == '.')
			continue;
		n++;
		/* Descriptors by number and kind; thread numbers are another's each time. */
		if (readlink(name, target, sizeof(target) - 1) > 0)
			printf("%s is a %.*s\n", e->d_name, (int)strcspn(target, ":[0123456789"), target);
	}
	printf("%s: %d\n", path, n);
	closedir(directory);
}

static void status_lines(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[256];

	while (fgets(line, sizeof(line), status))
		for (const char *const *key = (const char *const[]){"Name", "TracerPid", "FDSize", "Threads", "SigPnd", "ShdPnd",
			     "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp:", "Uid", "Gid", "Groups", "Cap", "Umask", "CoreDumping", "Cpus_allowed", "VmLck", NULL}; *key; key++)
			if (strncmp(line, *key, strlen(*key)) == 0)
				fputs(line, stdout);
	fclose(status);
}

static unsigned long from_kernel(unsigned long type)
{
	FILE *vector = fopen("/proc/self/auxv", "r");
	unsigned long pair[2], found = 0;

	while (fread(pair, sizeof(pair), 1, vector) == 1)
		if (pair[0] == type)
			found = pair[1];
	fclose(vector);
	return found;
}

int main(int argc, char **argv)
{
	struct rlimit limit;
	struct itimerval timer;
	sigset_t mask;
	int n = 0;
	char directory[4096];
	stack_t alternate;

	start_errno = errno;
	if (argc > 1)
		return 1;
	printf("errno %d, name %s\n", start_errno, argv[0]);
	entries("/proc/self/fd");
	entries("/proc/self/task");
	status_lines();
	/* The runner's own word differs. */
	for (char **e = environ; *e; e++, n++)
		if (strncmp(*e, "TRACER=", 7) != 0)
			printf("%s\n", *e);
	printf("last %s, _ %s, LD_PRELOAD %s, LORG %s\n", n ? environ[n - 1] : "none", getenv("_") ? getenv("_") : "none",
	       getenv("LD_PRELOAD") ? "yes" : "no", getenv("LORG") ? "yes" : "no");
	/* The auxiliary vector begins behind the environment's NULL. */
	ElfW(auxv_t) *vector = (ElfW(auxv_t) *)(environ + n + 1);
	int ignored = 0, entry = 0;
	for (; vector->a_type != AT_NULL; vector++) {
		ignored += vector->a_type == AT_IGNORE;
		entry += vector->a_type == AT_ENTRY;
	}
	printf("auxiliary vector: entry %d, page size %lu %lu, secure %lu\n", entry, getauxval(AT_PAGESZ), from_kernel(AT_PAGESZ),
	       getauxval(AT_SECURE));
	for (int resource = 0; resource < 16; resource++)
		if (getrlimit((__rlimit_resource_t)resource, &limit) == 0)
			printf("limit %d: %llx %llx\n", resource, (unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
	sigprocmask(SIG_BLOCK, NULL, &mask);
	sigaltstack(NULL, &alternate);
	getitimer(ITIMER_REAL, &timer);
	int death = 0, dumpable = prctl(PR_GET_DUMPABLE), reaper = 0;
	prctl(PR_GET_PDEATHSIG, &death);
	prctl(PR_GET_CHILD_SUBREAPER, &reaper);
	printf("blocked %d, alternate %d, timer %ld, death signal %d, dumpable %d, reaper %d, umask %o\n", sigismember(&mask, SIGCHLD),
	       alternate.ss_flags == SS_DISABLE, (long)timer.it_value.tv_sec, death, dumpable, reaper, umask(0));
	printf("policy %d, nice %d, group leader %d, directory %s\n", sched_getscheduler(0), getpriority(PRIO_PROCESS, 0),
	       getpgrp() == getpid(), getcwd(directory, sizeof(directory)) ? "there" : "gone");
	printf("stdin %ld, stdout at %ld\n", (long)lseek(0, 0, SEEK_CUR), (long)lseek(1, 0, SEEK_CUR));
	struct rusage use;
	printf("children %d, no wait %d\n", getrusage(RUSAGE_CHILDREN, &use) || use.ru_utime.tv_sec || use.ru_maxrss, wait3(NULL, 1, NULL) == -1);
	return 0;
}
