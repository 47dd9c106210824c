/* SPDX-License-Identifier: MIT */
/* launch.c: see launch.h. */
#include "collector/command/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <paths.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- what is inherited ------------------------------------------------- */

/* Signals whose action lorg changes. Others stay as they are: the program gets them by inheritance. */
static const int changed_signals[] = {SIGCHLD, SIGPIPE, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU};

static void raise_limit(int resource, struct rlimit *was)
{
	if (getrlimit(resource, was))
		was->rlim_cur = was->rlim_max = RLIM_INFINITY;
	struct rlimit most = {was->rlim_max, was->rlim_max};
	setrlimit(resource, &most);
}

/* Signals that a program may be sent on purpose: who knows only our pid means the program. */
static const int passed_signals[] = {SIGTERM, SIGHUP,	 SIGINT,  SIGQUIT,  SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM,
				     SIGPROF, SIGWINCH, SIGCONT, SIGURG, SIGIO,   SIGPWR};

static void await(struct inherited *inherited, int signal)
{
	struct sigaction action;
	/* What is ignored stays so (nohup, a shell's background). */
	if (sigaction(signal, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
		sigaddset(&inherited->awaited, signal);
}

void inherited_save(struct inherited *inherited)
{
	for (size_t i = 0; i < sizeof changed_signals / sizeof *changed_signals; i++) {
		int signal = changed_signals[i];
		struct sigaction action = {.sa_handler = signal == SIGCHLD ? SIG_DFL : SIG_IGN};
		sigaction(signal, &action, &inherited->actions[signal]);
	}
	sigemptyset(&inherited->awaited);
	sigaddset(&inherited->awaited, SIGCHLD);
	for (size_t i = 0; i < sizeof passed_signals / sizeof *passed_signals; i++)
		await(inherited, passed_signals[i]);
	for (int signal = SIGRTMIN; signal <= SIGRTMAX; signal++)
		await(inherited, signal);
	sigprocmask(SIG_BLOCK, &inherited->awaited, &inherited->mask);
	raise_limit(RLIMIT_NOFILE, &inherited->files);
	raise_limit(RLIMIT_FSIZE, &inherited->file_size);
	raise_limit(RLIMIT_AS, &inherited->address_space);
}

void inherited_restore(const struct inherited *inherited)
{
	setrlimit(RLIMIT_NOFILE, &inherited->files);
	setrlimit(RLIMIT_FSIZE, &inherited->file_size);
	for (size_t i = 0; i < sizeof changed_signals / sizeof *changed_signals; i++)
		sigaction(changed_signals[i], &inherited->actions[changed_signals[i]], NULL);
	sigprocmask(SIG_SETMASK, &inherited->mask, NULL);
	setrlimit(RLIMIT_AS, &inherited->address_space);
}

/* ---- finding files ----------------------------------------------------- */

static int check_file(const char *path)
{
	struct stat status;
	if (stat(path, &status))
		return errno;
	if (S_ISDIR(status.st_mode))
		return EISDIR;
	if (faccessat(AT_FDCWD, path, X_OK, AT_EACCESS))
		return errno;
	return S_ISREG(status.st_mode) ? 0 : EACCES;
}

int program_find(const char *name, char *path)
{
	if (strchr(name, '/')) {
		snprintf(path, PATH_MAX, "%s", name);
		return strlen(name) < PATH_MAX ? check_file(path) : ENAMETOOLONG;
	}
	const char *list = getenv("PATH");
	int result = ENOENT;
	if (!*name)
		return ENOENT;
	for (const char *at = list ? list : _PATH_STDPATH;; at++) {
		size_t length = strcspn(at, ":");
		int n = length ? snprintf(path, PATH_MAX, "%.*s/%s", (int)length, at, name) : snprintf(path, PATH_MAX, "%s", name);
		int error = n < PATH_MAX ? check_file(path) : ENAMETOOLONG;
		if (!error)
			return 0;
		if (error == EACCES)
			result = EACCES; /* there is one, though not to be executed: said if none is found later */
		at += length;
		if (!*at)
			return result;
	}
}

static int is_readable(const char *path)
{
	return access(path, R_OK) == 0;
}

int library_find(char *path)
{
	static const char *const places[] = {
		"../preload/liblorg.so", /* a build tree */
		"../lib/lorg/liblorg.so",
		"../lib/liblorg.so",
		"../lib/x86_64-linux-gnu/liblorg.so",
		"../lib64/liblorg.so",
		"../../lib/lorg/liblorg.so", /* from libexec/lorg */
		"../../lib/liblorg.so",
		"../../lib/x86_64-linux-gnu/liblorg.so",
		"liblorg.so",
	};
	const char *given = getenv("LORG_LIBRARY");
	char own[PATH_MAX], beside[PATH_MAX + 64];
	if (given && *given)
		return realpath(given, path) && is_readable(path) ? 0 : -1;
	ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
	if (length <= 0)
		return -1;
	own[length] = 0;
	*strrchr(own, '/') = 0;
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		snprintf(beside, sizeof beside, "%s/%s", own, places[i]);
		if (realpath(beside, path) && is_readable(path))
			return 0;
	}
	return -1;
}

/* ---- the environment --------------------------------------------------- */

static int names_sanitizer(const char *list)
{
	static const char *const names[] = {"libasan", "libtsan", "liblsan", "libubsan", "libhwasan", "libclang_rt."};
	for (const char *at = list; *at; at++) {
		if (at != list && !strchr("/: ", at[-1]))
			continue;
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			if (strncmp(at, names[i], strlen(names[i])) == 0)
				return 1;
	}
	return 0;
}

/* Its value as the loader would take it: the last one. */
static const char *users_preload(void)
{
	const char *value = "";
	for (char **entry = environ; entry && *entry; entry++)
		if (strncmp(*entry, "LD_PRELOAD=", 11) == 0)
			value = *entry + 11;
	return value;
}

/* LD_PRELOAD=[sanitizers:]liblorg.so[:the user's] */
static char *preload_variable(const struct launch *launch)
{
	const char *users = users_preload();
	int users_first = names_sanitizer(users);
	const char *before = users_first ? users : launch->sanitizers ? launch->sanitizers : "";
	const char *after = users_first ? "" : users;
	char *text;
	if (asprintf(&text, "LD_PRELOAD=%s%s%s%s%s", before, *before ? ":" : "", launch->library, *after ? ":" : "", after) < 0)
		return NULL;
	return text;
}

/* Our two variables last: there liblorg.so finds them and takes them away. */
static char **program_environment(const struct launch *launch)
{
	size_t count = 0;
	while (environ && environ[count])
		count++;
	char **variables = calloc(count + 3, sizeof *variables);
	if (!variables)
		return NULL;
	if (count)
		memcpy(variables, environ, count * sizeof *variables);
	if (!launch->library)
		return variables;
	variables[count] = preload_variable(launch);
	variables[count + 1] = (char *)launch->variable;
	return variables[count] ? variables : NULL;
}

/* ---- starting ---------------------------------------------------------- */

/* A file of no known format is a script of the shell's, as execvp has it. */
static void execute_by_shell(const struct launch *launch, char *const *variables)
{
	size_t count = 0;
	while (launch->argv[count])
		count++;
	char **argv = calloc(count + 2, sizeof *argv);
	if (!argv)
		return;
	argv[0] = (char *)_PATH_BSHELL;
	argv[1] = (char *)launch->path;
	for (size_t i = 1; i < count; i++)
		argv[i + 1] = launch->argv[i];
	execve(_PATH_BSHELL, argv, variables);
}

/* On the parent's memory: whatever it says there is in *error. */
static __attribute__((noreturn)) void child(const struct launch *launch, char *const *variables, volatile int *error)
{
	inherited_restore(launch->inherited);
	execve(launch->path, launch->argv, variables);
	if (errno == ENOEXEC)
		execute_by_shell(launch, variables);
	*error = errno;
	_exit(127);
}

pid_t launch(const struct launch *launch)
{
	char **variables = program_environment(launch);
	volatile int error = 0;
	if (!variables)
		return -1;
	/* Not fork: nothing of this process is to be copied, and it goes on when the program runs. */
	pid_t pid = vfork();
	if (pid == 0)
		child(launch, variables, &error);
	if (pid < 0)
		error = errno;
	else if (error)
		waitpid(pid, NULL, 0);
	if (launch->library)
		for (char **entry = variables; *entry; entry++)
			if (entry[1] == launch->variable) {
				free(*entry);
				break;
			}
	free(variables);
	errno = error;
	return error ? -1 : pid;
}

void launch_in_place(const struct launch *launch)
{
	char **variables = program_environment(launch);
	if (!variables)
		return;
	execve(launch->path, launch->argv, variables);
	if (errno == ENOEXEC)
		execute_by_shell(launch, variables);
}
