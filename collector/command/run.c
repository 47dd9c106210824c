/* SPDX-License-Identifier: MIT */
/*
 * run.c: lorg run. This process is the program's parent and its collector at
 * once: one thread, one loop.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collector/client/place.h"
#include "collector/collect/collector.h"
#include "collector/command/calls.h"
#include "collector/command/command.h"
#include "collector/command/error.h"
#include "collector/command/launch.h"
#include "collector/command/library.h"
#include "preload/lookahead/lookahead.h"

/* ---- options ----------------------------------------------------------- */

enum {
	SEND_KINDS = LORG_GATE_MESSAGE | LORG_MASK_SEND,
	RECEIVE_KINDS = LORG_GATE_MESSAGE | LORG_MASK_RECEIVE,
	DEFAULT_KINDS = SEND_KINDS | RECEIVE_KINDS | LORG_GATE_PORT | LORG_GATE_PROCESS | LORG_GATE_RUNNING | LORG_GATE_CALL | LORG_GATE_COUNT,
	EVERY_KIND = 0x7ff,
	DEFAULT_BLOCK_LIMIT_MS = 2000,
};

struct options {
	struct collector_settings collector;
	char **program; /* argv of what to run; NULL-terminated */
	int quiet;
	char text[1024]; /* the options as given */
	const struct run_calls *calls_interface; /* NULL: not in this program */
	struct calls *calls; /* NULL: no functions are asked for */
	int needs_calls;     /* they are, and this program cannot */
	int daemon;	     /* attach to lorgd */
	int recording;	     /* an option was given that is about a recording */
};

enum option_key { KEY_ALL = 256, KEY_KINDS, KEY_OVERFLOW, KEY_BLOCK_LIMIT, KEY_MESSAGE_LENGTH, KEY_SESSION, KEY_DAEMON };

static const struct argp_option run_options[] = {
	{"output", 'o', "DIR", 0, "Write the trace to DIR (lorg.trace); an older trace is moved to DIR.1, DIR.2, ...", 1},
	{"all", KEY_ALL, NULL, 0, "Record every kind of event", 2},
	{"kinds", KEY_KINDS, "LIST", 0,
	 "Record these kinds: procs, ports, send, receive, running, calls, allocations, garbage_collection, counts, uncontended, all; separated by "
	 "commas, a leading '-' takes one out of the usual ones (procs,ports,send,receive,running,calls,counts)",
	 2},
	{"message-length", KEY_MESSAGE_LENGTH, "BYTES", 0, "Keep so many bytes of a message (64)", 2},
	{"session", KEY_SESSION, "NAME", 0, "Name of the session in the trace (run)", 2},
	{"overflow", KEY_OVERFLOW, "MODE", 0,
	 "When the program is faster than the disk: block (it waits, nothing is lost; the default), discard (count what is lost), "
	 "overwrite (keep the newest)",
	 3},
	{"block-limit", KEY_BLOCK_LIMIT, "MS", 0, "With block: wait so long at most, then lose and count (2000)", 3},
	{"quiet", 'q', NULL, 0, "No coverage line at the end", 4},
	{"daemon", KEY_DAEMON, NULL, 0, "Record nothing: PROGRAM attaches to the running lorgd, whose sessions say what is traced", 4},
	{NULL, 0, NULL, 0, "Calls of functions, in the program and its libraries; PATTERN is MODULE:FUNCTION or MODULE:FUNCTION/ARITY, with * and ? for "
	 "any text; all of these may be repeated:", 5},
	{"call", KEY_CALL, "PATTERN", 0, "Calls and returns, with arguments and results; at the function's own entry where that can be hooked, else where other modules call it by name", 6},
	{"call-global", KEY_CALL_GLOBAL, "PATTERN", 0, "Only calls from other modules, by name", 6},
	{"notrace", KEY_NOTRACE, "PATTERN", 0, "None of these, whatever the others say", 6},
	{"count", KEY_COUNT, "PATTERN", 0, "How often they are called; no events", 6},
	{"time", KEY_TIME, "PATTERN", 0, "How long they take, callees that are timed too taken off; no events", 6},
	{"memory", KEY_MEMORY, "PATTERN", 0, "How much memory they ask for; no events", 6},
	{NULL, 0, NULL, 0, "Of call events:", 7},
	{"no-values", KEY_NO_VALUES, NULL, 0, "Without arguments and results: the smallest records", 8},
	{"no-returns", KEY_NO_RETURNS, NULL, 0, "Only the calls", 8},
	{"return-to", KEY_RETURN_TO, NULL, 0, "Also where each call returns to", 8},
	{"depth", KEY_DEPTH, "N", 0, "Only calls that stand in fewer than N others", 8},
	{"longer-than", KEY_LONGER_THAN, "TIME", 0, "Only calls that take as long: 100us, 5ms, 2s", 8},
	{"called-from", KEY_CALLED_FROM, "PATTERN", 0, "Only calls that these functions make", 8},
	{"limit", KEY_LIMIT, "N", 0, "After N events of a function it is let alone", 8},
	{"rate", KEY_RATE, "N[/UNIT]", 0, "A function with more events a second (UNIT: us, ms, s, min, h) is let alone", 8},
	{"match", KEY_MATCH, "SPEC", 0, "Of the --call before it (before any: of all): a match specification, which decides what is told", 8},
	{"if", KEY_IF, "CONDITION", 0, "The same as a condition: arg0 =:= \"x\" andalso request->length > 4096", 8},
	{"prototypes", KEY_PROTOTYPES, "FILE", 0, "What arguments and results are, in C syntax; may be repeated", 8},
	{NULL, 0, NULL, 0, "Of messages:", 9},
	{"send-match", KEY_SEND_MATCH, "SPEC", 0, "Only those that a match specification on [Receiver, Msg] lets pass", 10},
	{"receive-match", KEY_RECEIVE_MATCH, "SPEC", 0, "The same on [Node, Sender, Msg]", 10},
	{0},
};

static const char run_arguments[] = "[--] PROGRAM [ARGUMENT...]";
static const char run_text[] =
	"Runs PROGRAM and records what it does: processes, threads, messages, ports, waits, calls. It ends as PROGRAM does."
	"\vEverything after the name of PROGRAM belongs to it.\n\n"
	"Then:\n"
	"  lorg report          where the time went\n"
	"  lorg log             what happened, event by event\n\n"
	"lorg run --call 'git:*' -- git status      every call inside git; lorg functions tells what can be hooked\n";

static const struct kind_name {
	const char *name;
	uint32_t mask;
} kind_names[] = {
	{"procs", LORG_GATE_PROCESS},	      {"ports", LORG_GATE_PORT},     {"send", SEND_KINDS},
	{"receive", RECEIVE_KINDS},	      {"running", LORG_GATE_RUNNING}, {"calls", LORG_GATE_CALL},
	{"allocations", LORG_GATE_ALLOCATION}, {"counts", LORG_GATE_COUNT},   {"uncontended", LORG_GATE_ALL},
	{"garbage_collection", LORG_MASK_COLLECTION},
	{"all", EVERY_KIND},
};

static int find_kind(const char *name, size_t length, uint32_t *mask)
{
	for (size_t i = 0; i < sizeof kind_names / sizeof *kind_names; i++) {
		if (strlen(kind_names[i].name) != length || strncmp(kind_names[i].name, name, length) != 0)
			continue;
		*mask = kind_names[i].mask;
		return 0;
	}
	return -1;
}

/* "procs,send" or "-running,-counts". */
static int parse_kinds(const char *list, uint32_t *mask)
{
	uint32_t kinds = list[0] == '-' ? DEFAULT_KINDS : 0;
	for (const char *at = list;; at++) {
		uint32_t kind;
		int take_out = *at == '-';
		size_t length = strcspn(at + take_out, ",");
		if (find_kind(at + take_out, length, &kind)) {
			char what[128];
			snprintf(what, sizeof what, "%.*s", (int)(length < 100 ? length : 100), at + take_out);
			lorg_error(what, "no such kind of event",
				   "use procs, ports, send, receive, running, calls, allocations, garbage_collection, counts, uncontended or all");
			return -1;
		}
		kinds = take_out ? kinds & ~kind : kinds | kind;
		at += (size_t)take_out + length;
		if (!*at)
			break;
	}
	/* One gate for both halves: it is open while one of them is asked for. */
	*mask = kinds & (LORG_MASK_SEND | LORG_MASK_RECEIVE) ? kinds | LORG_GATE_MESSAGE : kinds & ~(uint32_t)LORG_GATE_MESSAGE;
	return 0;
}

static int parse_number(const char *what, const char *text, unsigned long most, unsigned long *value)
{
	char *end;
	char advice[64];
	errno = 0;
	*value = strtoul(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && !errno && *value <= most)
		return 0;
	snprintf(advice, sizeof advice, "give a whole number from 0 to %lu", most);
	lorg_error(what, text, advice);
	return -1;
}

static int parse_overflow(const char *text, enum lorg_overflow *mode)
{
	static const char *const names[] = {"block", "discard", "overwrite"};
	for (int i = 0; i < 3; i++) {
		if (strcmp(text, names[i]) != 0)
			continue;
		*mode = (enum lorg_overflow)i;
		return 0;
	}
	lorg_error("--overflow", text, "use block, discard or overwrite");
	return -1;
}

/* Functions are asked for: the program that can do that takes over; see entry.c. */
static int parse_calls(int key, const char *argument, struct options *options)
{
	if (!options->calls_interface) {
		options->needs_calls = 1;
		return 0;
	}
	if (!options->calls)
		options->calls = options->calls_interface->create();
	return options->calls ? options->calls_interface->option(options->calls, key, argument) : -1;
}

static int parse_option(int key, char *argument, struct options *options)
{
	if (key >= CALLS_KEY_FIRST && key < CALLS_KEY_LAST)
		return parse_calls(key, argument, options);
	struct collector_settings *settings = &options->collector;
	unsigned long number;
	switch (key) {
	case 'o':
		if (!*argument) {
			lorg_error("-o ''", "cannot be the name of a directory", "give the path of one, or leave it out: lorg.trace");
			exit(EXIT_STATUS_USAGE);
		}
		settings->output = argument;
		return 0;
	case 'q':
		options->quiet = 1;
		return 0;
	case KEY_DAEMON:
		options->daemon = 1;
		return 0;
	case KEY_ALL:
		settings->gate_mask = EVERY_KIND;
		return 0;
	case KEY_KINDS:
		return parse_kinds(argument, &settings->gate_mask);
	case KEY_OVERFLOW:
		return parse_overflow(argument, &settings->overflow);
	case KEY_BLOCK_LIMIT:
		if (parse_number("--block-limit", argument, 86400000, &number))
			return -1;
		settings->block_limit_ns = number * 1000000;
		return 0;
	case KEY_MESSAGE_LENGTH:
		if (parse_number("--message-length", argument, LORG_MESSAGE_MAXIMUM, &number))
			return -1;
		settings->message_length = (uint32_t)number;
		return 0;
	case KEY_SESSION:
		settings->session = argument;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static error_t on_key(int key, char *argument, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case ARGP_KEY_ARG:
		/* The program's name: all that follows is its own. */
		options->program = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		lorg_error("run", "no program given", "lorg run -- PROGRAM [ARGUMENT...]; more with lorg run --help");
		exit(EXIT_STATUS_USAGE);
	default:
		break;
	}
	int result = parse_option(key, argument, options);
	if (result == 0 && key != KEY_DAEMON && key != 'q')
		options->recording = 1;
	if (result < 0)
		exit(EXIT_STATUS_USAGE);
	return result;
}

static void keep_text(struct options *options, int argc, char **argv)
{
	size_t length = 0;
	for (int i = 1; i < argc && &argv[i] != options->program; i++) {
		int n = snprintf(options->text + length, sizeof options->text - length, "%s%s", length ? " " : "", argv[i]);
		if (n < 0 || (size_t)n >= sizeof options->text - length)
			break;
		length += (size_t)n;
	}
	options->collector.options = options->text;
}

static void parse(struct options *options, int argc, char **argv, const struct run_calls *calls)
{
	static const struct argp argp = {.options = run_options, .parser = on_key, .args_doc = run_arguments, .doc = run_text};
	*options = (struct options){
		.collector = {.output = "lorg.trace",
			      .session = "run",
			      .overflow = LORG_OVERFLOW_BLOCK,
			      .block_limit_ns = (uint64_t)DEFAULT_BLOCK_LIMIT_MS * 1000000,
			      .message_length = LORG_MESSAGE_LENGTH,
			      .gate_mask = DEFAULT_KINDS},
		.calls_interface = calls,
	};
	command_parse(&argp, argc, argv, options);
	keep_text(options, argc, argv);
}

/* ---- the program ------------------------------------------------------- */

struct run {
	struct options options;
	struct planning planning; /* of hooked functions; used where options.calls is */
	struct inherited inherited;
	struct collector *collector;
	int signals; /* signalfd */
	pid_t child;
	int ended, status; /* of the child */
	int stop;	   /* the user has asked to end the recording */
	int told_waiting, told_failure;
	char path[PATH_MAX], library[PATH_MAX], why[PATH_MAX + 128];
	struct lookahead seen;
};

static int no_program(const char *name, int error)
{
	if (!*name)
		name = "''";
	if (error == ENOENT) {
		lorg_error(name, strchr(name, '/') ? "no such file" : "command not found", "give the path of a program, or check PATH");
		return EXIT_STATUS_NOT_FOUND;
	}
	if (error == EMFILE || error == ENFILE || error == EAGAIN || error == ENOMEM) {
		lorg_error(name, strerror(error), "it was not started; raise the limits on open files, processes or memory");
		return EXIT_STATUS_NOT_EXECUTABLE;
	}
	if (error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP) {
		lorg_error(name, strerror(error), "give the path of a program");
		return EXIT_STATUS_NOT_FOUND;
	}
	lorg_error(name, error == EISDIR ? "is a directory" : strerror(error), "give the path of a program that may be executed");
	return EXIT_STATUS_NOT_EXECUTABLE;
}

/* Why the program cannot be traced; NULL: it can. */
static const char *look(struct run *run)
{
	struct lookahead_caller caller;
	lookahead_caller_now(&caller);
	lookahead(&run->seen, AT_FDCWD, run->path, 0, &caller);
	if (run->seen.error)
		return NULL; /* executing it will tell */
	if (!run->seen.loadable)
		return run->seen.reason ? run->seen.reason : "unknown";
	const char *missing = lookahead_missing(&run->seen, AT_FDCWD, run->path, 0, getenv("LD_LIBRARY_PATH"));
	if (missing) {
		run->seen.loadable = 0;
		return missing;
	}
	if (library_find(run->library))
		return "liblorg.so is not there";
	const char *refused = library_refused(run->library, run->why, sizeof run->why);
	if (refused)
		return refused;
	return strpbrk(run->library, ": ") ? "the path of liblorg.so has a space or colon in it" : NULL;
}

static const char *advice_for(const struct run *run)
{
	if (run->seen.loadable)
		return "install lorg anew, or name liblorg.so in LORG_LIBRARY";
	return "it runs untraced";
}

static int open_signals(const struct inherited *inherited)
{
	return signalfd(-1, &inherited->awaited, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Its terminal has stopped the program: its job is stopped, and we are the job that the shell knows. */
static void stop_with_it(struct run *run, int signal)
{
	if (signal != SIGTSTP && signal != SIGTTIN && signal != SIGTTOU)
		return;
	struct sigaction ordinary = {.sa_handler = SIG_DFL}, was;
	sigset_t only, mask;
	collector_pass(run->collector);
	sigaction(signal, &ordinary, &was);
	sigemptyset(&only);
	sigaddset(&only, signal);
	sigprocmask(SIG_UNBLOCK, &only, &mask);
	raise(signal); /* has no effect in a group that no shell looks after */
	sigprocmask(SIG_SETMASK, &mask, NULL);
	sigaction(signal, &was, NULL);
	/* What has woken us is passed on here, and not once more as a signal of its own. */
	const struct timespec none = {0, 0};
	sigemptyset(&only);
	sigaddset(&only, SIGCONT);
	sigtimedwait(&only, NULL, &none);
	kill(run->child, SIGCONT);
}

static void reap(struct run *run)
{
	int status;
	pid_t pid;
	while (!run->ended && (pid = waitpid(run->child, &status, WNOHANG | WUNTRACED)) != 0) {
		if (pid < 0 && errno == EINTR)
			continue;
		if (pid > 0 && WIFSTOPPED(status)) {
			stop_with_it(run, WSTOPSIG(status));
			continue;
		}
		run->ended = 1;
		run->status = pid > 0 ? status : 0;
		collector_child_ended(run->collector, run->status);
	}
}

/* A terminal sends to all of its foreground group: the program has it already. */
static int is_from_terminal(const struct signalfd_siginfo *signal)
{
	switch (signal->ssi_signo) {
	case SIGINT:
	case SIGQUIT:
	case SIGWINCH:
		return signal->ssi_code == SI_KERNEL;
	default:
		return 0;
	}
}

static int asks_to_end(const struct signalfd_siginfo *signal)
{
	return signal->ssi_signo == SIGTERM || signal->ssi_signo == SIGHUP || signal->ssi_signo == SIGINT || signal->ssi_signo == SIGQUIT;
}

static void pass_on(const struct run *run, const struct signalfd_siginfo *signal)
{
	union sigval value = {.sival_ptr = (void *)(uintptr_t)signal->ssi_ptr};
	if (signal->ssi_code == SI_QUEUE)
		sigqueue(run->child, (int)signal->ssi_signo, value);
	else
		kill(run->child, (int)signal->ssi_signo);
}

static void on_signal(struct run *run, const struct signalfd_siginfo *signal)
{
	if (signal->ssi_signo == SIGCHLD)
		return; /* reap() looks in any case */
	if (!run->ended && !is_from_terminal(signal))
		pass_on(run, signal);
	if (run->ended && asks_to_end(signal))
		run->stop = 1;
}

static void take_signals(struct run *run)
{
	struct signalfd_siginfo signal;
	while (read(run->signals, &signal, sizeof signal) == (ssize_t)sizeof signal)
		on_signal(run, &signal);
	reap(run);
}

static void tell_waiting(struct run *run)
{
	char text[128];
	if (run->told_waiting || run->options.quiet || !isatty(STDERR_FILENO))
		return;
	run->told_waiting = 1;
	snprintf(text, sizeof text, "the program has ended; waiting for %u that it left behind; Ctrl-C ends the recording",
		 collector_programs(run->collector));
	lorg_say(text);
}

static void tell_failure(struct run *run)
{
	const char *what;
	int error = collector_failure(run->collector, &what);
	if (!error || run->told_failure)
		return;
	run->told_failure = 1;
	lorg_error(what, strerror(error), "the recording ends here, the program goes on; what was written can be read");
}

static void wait_for_work(struct run *run, uint64_t ns)
{
	struct pollfd wanted[2] = {{.fd = run->signals, .events = POLLIN}, {.fd = collector_descriptor(run->collector), .events = POLLIN}};
	const struct timespec limit = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
	ppoll(wanted, 2, &limit, NULL);
}

static void record(struct run *run)
{
	const uint64_t say_after_ns = 500000000;
	uint64_t waited_ns = 0;
	while (!run->stop) {
		take_signals(run);
		uint64_t ns = collector_pass(run->collector);
		tell_failure(run);
		if (run->options.calls)
			run->options.calls_interface->look(run->options.calls);
		if (run->ended && (run->told_failure || !collector_attached(run->collector)))
			break;
		if (run->ended && (waited_ns += ns) > say_after_ns)
			tell_waiting(run);
		wait_for_work(run, ns);
	}
}

static void finish(struct run *run)
{
	char line[512];
	collector_close(run->collector, line, sizeof line);
	run->collector = NULL;
	int quiet = run->options.quiet || !isatty(STDERR_FILENO);
	if (run->options.calls)
		run->options.calls_interface->finish(run->options.calls, quiet);
	if (!quiet)
		lorg_say(line);
}

static int open_calls(struct run *run)
{
	struct options *options = &run->options;
	if (!options->calls)
		return 0;
	options->collector.planning = &run->planning;
	return options->calls_interface->open(options->calls, run->path, &run->planning, &options->collector);
}

static void free_calls(struct run *run)
{
	if (run->options.calls)
		run->options.calls_interface->free(run->options.calls);
	run->options.calls = NULL;
}

/* As the program ended. No core file of our own. */
static int end_as(int status)
{
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	const struct rlimit none = {0, 0};
	struct sigaction ordinary = {.sa_handler = SIG_DFL};
	sigset_t only;
	int signal = WTERMSIG(status);
	setrlimit(RLIMIT_CORE, &none);
	sigaction(signal, &ordinary, NULL);
	sigemptyset(&only);
	sigaddset(&only, signal);
	sigprocmask(SIG_UNBLOCK, &only, NULL);
	raise(signal);
	return 128 + signal;
}

static const char *advice_for_failure(int error)
{
	switch (error) {
	case EFBIG:
		return "raise the limit on file sizes (ulimit -f)";
	case EMFILE:
	case ENFILE:
		return "raise the limit on open files (ulimit -n)";
	case ENOMEM:
		return "raise the limit on memory (ulimit -v)";
	default:
		return "choose another directory with -o DIR";
	}
}

static int open_collector(struct run *run)
{
	const char *what, *why;
	struct rlimit files = {.rlim_cur = 256};
	getrlimit(RLIMIT_NOFILE, &files);
	/* The rest is for pidfds and arenas. */
	rlim_t some = files.rlim_cur / 4;
	run->options.collector.open_files = some > 256 ? 256 : some < 16 ? 16 : (unsigned)some;
	run->collector = collector_open(&run->options.collector, &what, &why);
	if (run->collector)
		return 0;
	char reason[256];
	snprintf(reason, sizeof reason, "%s%s%s", why ? why : "", why && errno ? ": " : "", errno ? strerror(errno) : "");
	lorg_error(what, reason, advice_for_failure(errno));
	return -1;
}

/* ---- attached to lorgd ---------------------------------------------------- */

/* 0, or -1 when it has said what is in the way. */
static int daemon_answers(void)
{
	char directory[PATH_MAX], what[PATH_MAX + 16];
	if (place_directory(directory, sizeof directory)) {
		lorg_error("lorgd", "the name of its directory is too long", "set LORG_RUNTIME_DIRECTORY");
		return -1;
	}
	int fd = place_connect(directory);
	if (fd >= 0) {
		close(fd);
		return 0;
	}
	snprintf(what, sizeof what, "%s/control", directory);
	lorg_error(what, errno == ENOENT || errno == ECONNREFUSED ? "no lorgd answers there" : strerror(errno),
		   "start it with `lorgd &` or `systemctl --user start lorgd`");
	return -1;
}

/* This process becomes the program: it ends as that does. liblorg.so finds lorgd by itself. */
static int run_attached(struct run *run, const char *untraced)
{
	char *const *program = run->options.program;
	if (run->options.recording || run->options.calls || run->options.needs_calls) {
		lorg_error("--daemon", "what is traced is said by sessions", "leave the other options out; see lorg session --help");
		return EXIT_STATUS_USAGE;
	}
	if (daemon_answers())
		return EXIT_STATUS_FAILURE;
	if (untraced)
		lorg_error(program[0], untraced, advice_for(run));
	const struct launch wanted = {
		.path = run->path,
		.argv = program,
		.library = untraced ? NULL : run->library,
		.sanitizers = run->seen.sanitizers,
		.variable = LORG_ENVIRONMENT "=lorgd", /* names no collector: so liblorg.so takes both away and looks for lorgd */
	};
	launch_in_place(&wanted);
	return no_program(program[0], errno);
}

int command_run(int argc, char **argv, const struct run_calls *calls)
{
	struct run *run = calloc(1, sizeof *run);
	if (!run) {
		lorg_error("run", strerror(ENOMEM), NULL);
		return EXIT_STATUS_FAILURE;
	}
	parse(&run->options, argc, argv, calls);
	if (run->options.needs_calls && !run->options.daemon) {
		free(run);
		return RUN_NEEDS_CALLS;
	}
	char *const *program = run->options.program;
	int error = program_find(program[0], run->path);
	if (error)
		return no_program(program[0], error);
	const char *untraced = look(run);
	if (run->options.daemon)
		return run_attached(run, untraced);
	if (open_calls(run))
		return EXIT_STATUS_USAGE;
	inherited_save(&run->inherited);
	if (open_collector(run))
		return EXIT_STATUS_FAILURE;
	run->signals = open_signals(&run->inherited);
	if (untraced) {
		lorg_error(program[0], untraced, advice_for(run));
		collector_not_traced(run->collector, 0, program[0], untraced);
	}
	const struct launch wanted = {
		.path = run->path,
		.argv = program,
		.library = untraced ? NULL : run->library,
		.sanitizers = run->seen.sanitizers,
		.variable = collector_environment(run->collector),
		.inherited = &run->inherited,
	};
	run->child = launch(&wanted);
	if (run->child < 0) {
		int status = no_program(program[0], errno);
		collector_close(run->collector, NULL, 0);
		return status;
	}
	collector_child_started(run->collector, run->child);
	record(run);
	if (!untraced && !collector_ever_attached(run->collector)) {
		const char *why = "it never attached: liblorg.so was not loaded into it, or could not reach lorg";
		lorg_error(program[0], why, "see what LD_DEBUG=libs,files says of liblorg.so");
		collector_not_traced(run->collector, (uint32_t)run->child, program[0], why);
	}
	finish(run);
	int status = run->status;
	free_calls(run);
	free(run);
	return end_as(status);
}
