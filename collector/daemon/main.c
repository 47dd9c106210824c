/* SPDX-License-Identifier: MIT */
/* main.c: lorgd: the collector of all programs of a user, and the sessions that look at them. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <lorg/plan.h>

#include "collector/client/place.h"
#include "collector/collect/collector.h"
#include "collector/command/error.h"
#include "collector/daemon/directory.h"
#include "collector/daemon/keeper.h"
#include "collector/daemon/manager.h"
#include "collector/daemon/server.h"
#include "collector/daemon/state.h"
#include "collector/session/live.h"
#include "collector/session/session.h"

enum { MOST_CONNECTIONS = 1024, MOST_DESCRIPTORS = 1 << 20 };

struct options {
	char directory[PATH_MAX];
	unsigned long idle_exit_s;
};

static const char help[] =
	"Usage: lorgd [OPTION...]\n"
	"Lets lorg look at programs while they run: those that start with LD_PRELOAD=liblorg.so find it by themselves.\n"
	"\n"
	"  --directory DIR      where its socket stands ($LORG_RUNTIME_DIRECTORY, else /run/lorg for root and\n"
	"                       $XDG_RUNTIME_DIR/lorg for others); whole path, mode 0700\n"
	"  --foreground         stay in front (it always does)\n"
	"  --idle-exit SECONDS  end when no client, session or program has been there for so long\n"
	"  --help, --version\n"
	"\n"
	"It serves its own user, and root. SIGTERM ends it: programs go on, and forward only. SIGUSR1 starts it again, as\n"
	"after a kill: programs and the sessions that persist go on.\n";

/* ---- options ------------------------------------------------------------------------ */

static void usage(const char *what, const char *why, const char *advice)
{
	lorg_error(what, why, advice);
	exit(EXIT_STATUS_USAGE);
}

static void set_directory(struct options *options, const char *path)
{
	if (path[0] != '/')
		usage("--directory", path, "give its whole path");
	if (strlen(path) >= sizeof options->directory - 64)
		usage("--directory", "the path is too long", "give a shorter one");
	snprintf(options->directory, sizeof options->directory, "%s", path);
}

static void set_idle_exit(struct options *options, const char *text)
{
	char *end;
	errno = 0;
	options->idle_exit_s = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || options->idle_exit_s > 86400ul * 365)
		usage("--idle-exit", text, "give whole seconds");
}

static void print_and_end(const char *text)
{
	fputs(text, stdout);
	exit(fflush(stdout) ? EXIT_STATUS_FAILURE : 0);
}

static void parse(struct options *options, int argc, char **argv)
{
	static const struct option names[] = {{"directory", required_argument, NULL, 'd'}, {"foreground", no_argument, NULL, 'f'},
					      {"idle-exit", required_argument, NULL, 'i'}, {"help", no_argument, NULL, 'h'},
					      {"version", no_argument, NULL, 'V'},	   {NULL, 0, NULL, 0}};
	int key;
	opterr = 0;
	while ((key = getopt_long(argc, argv, "+:hV", names, NULL)) != -1) {
		switch (key) {
		case 'd':
			set_directory(options, optarg);
			break;
		case 'f':
			break;
		case 'i':
			set_idle_exit(options, optarg);
			break;
		case 'h':
			print_and_end(help);
			break;
		case 'V':
			print_and_end("lorgd " LORG_VERSION "\n");
			break;
		default:
			usage(argv[optind - 1], key == ':' ? "it needs a value" : "no such option", "see lorgd --help");
		}
	}
	if (optind < argc)
		usage(argv[optind], "lorgd takes no arguments", "see lorgd --help");
	if (!options->directory[0] && place_directory(options->directory, sizeof options->directory - 64))
		usage("LORG_RUNTIME_DIRECTORY", "the path is too long", "give a shorter one");
	if (options->directory[0] != '/')
		usage("LORG_RUNTIME_DIRECTORY", options->directory, "give its whole path");
}

/* ---- the daemon ------------------------------------------------------------------------- */

struct daemon {
	struct options options;
	struct directory directory;
	struct collector *collector;
	struct server *server;
	int signals;
	unsigned descriptors; /* at most */
	uint64_t epoch;
	char program[PATH_MAX]; /* this one's file; empty: not known */
	char **arguments;
	struct keeper *keeper; /* NULL: there is none, and a restart finds nothing */
	struct state *state;
	/* What one that was killed has left; its keeper waits until it is told. */
	struct kept *kept;
	unsigned kept_count;
	int old_keeper;
	const struct memory *old_state; /* NULL: there is nothing to go on with */
	struct adopted adopted;
};

static int complain(const struct directory_failure *failure)
{
	lorg_error(failure->what, failure->why, failure->advice);
	return -1;
}

/* Each program takes a descriptor or two. */
static unsigned raise_descriptors(void)
{
	struct rlimit limit;
	if (getrlimit(RLIMIT_NOFILE, &limit))
		return 256;
	limit.rlim_cur = limit.rlim_max < MOST_DESCRIPTORS ? limit.rlim_max : MOST_DESCRIPTORS;
	setrlimit(RLIMIT_NOFILE, &limit);
	getrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur < MOST_DESCRIPTORS ? (unsigned)limit.rlim_cur : MOST_DESCRIPTORS;
}

static int take_signals(struct daemon *daemon)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN); /* a tracer's end is an error of its write */
	daemon->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return daemon->signals < 0 ? -1 : 0;
}

static const char *programs_value(const struct daemon *daemon)
{
	return strchr(collector_environment(daemon->collector), '=') + 1;
}

/* SIGHUP: what stands in the directory is put there anew. */
static void reload(void *context)
{
	struct daemon *daemon = context;
	struct directory_failure failure;
	manager_notify_reloading();
	if (directory_write_programs(&daemon->directory, programs_value(daemon), &failure))
		complain(&failure);
	manager_notify("READY=1");
}

/* ---- what one that was killed has left ---------------------------------------------------- */

static void drop_kept(struct daemon *daemon)
{
	for (unsigned i = 0; i < daemon->kept_count; i++)
		if (daemon->kept[i].memory.at)
			memory_free(&daemon->kept[i].memory);
	for (uint32_t i = 0; i < daemon->adopted.count; i++)
		if (daemon->adopted.arenas[i].memory.at)
			memory_free(&daemon->adopted.arenas[i].memory);
	free(daemon->adopted.arenas);
	free(daemon->kept);
	daemon->adopted = (struct adopted){.node = {.descriptor = -1}};
	daemon->kept = NULL;
	daemon->kept_count = 0;
	daemon->old_state = NULL;
}

/* Of functions that were hooked for it: nobody is left that could read what they tell. */
static void close_control(const struct memory *memory)
{
	struct lorg_control *control = (struct lorg_control *)memory->at;
	const struct lorg_control head = *control; /* copied, then checked */
	uint64_t size = (uint64_t)head.function_count * sizeof(struct lorg_function_control);
	if (head.magic != LORG_CONTROL_MAGIC || head.functions % 8 || head.functions > memory->size || memory->size - head.functions < size)
		return;
	struct lorg_function_control *functions = (struct lorg_function_control *)(memory->at + head.functions);
	for (uint32_t i = 0; i < head.function_count; i++)
		__atomic_store_n(&functions[i].gate, 0, __ATOMIC_RELAXED);
	__atomic_add_fetch(&control->generation, 1, __ATOMIC_RELEASE);
}

static void adopt(struct daemon *daemon, struct kept *kept)
{
	struct adopted *adopted = &daemon->adopted;
	switch (kept->role) {
	case KEPT_NODE:
		adopted->node = kept->memory;
		memcpy(adopted->node_id, kept->id, sizeof adopted->node_id);
		kept->memory.at = NULL;
		break;
	case KEPT_ARENA:
		adopted->arenas[adopted->count].memory = kept->memory;
		memcpy(adopted->arenas[adopted->count++].id, kept->id, sizeof kept->id);
		kept->memory.at = NULL;
		break;
	case KEPT_CONTROL:
		close_control(&kept->memory);
		break;
	case KEPT_STATE:
		break;
	}
}

static void find_kept(struct daemon *daemon)
{
	char path[PATH_MAX];
	snprintf(path, sizeof path, "%.4000s/keeper", daemon->directory.path);
	daemon->kept_count = keeper_take_over(path, &daemon->kept, &daemon->old_keeper);
	daemon->adopted.node.descriptor = -1;
	daemon->adopted.arenas = calloc(daemon->kept_count ? daemon->kept_count : 1, sizeof(struct adopted_memory));
	for (unsigned i = 0; daemon->adopted.arenas && i < daemon->kept_count; i++)
		if (daemon->kept[i].role == KEPT_STATE &&
		    state_read(&daemon->kept[i].memory, &daemon->adopted.clock, daemon->adopted.trace_uuid, &daemon->epoch) == 0)
			daemon->old_state = &daemon->kept[i].memory;
	daemon->epoch++;
	for (unsigned i = 0; daemon->old_state && i < daemon->kept_count; i++)
		adopt(daemon, &daemon->kept[i]);
	/* Programs of another version, or of one that was killed while it began: they go on, and forward only. */
	if (!daemon->adopted.node.at)
		drop_kept(daemon);
}

static void start_keeper(struct daemon *daemon)
{
	int listener = directory_socket(&daemon->directory, "keeper", SOCK_SEQPACKET);
	if (listener < 0)
		return;
	daemon->keeper = keeper_start(listener);
	close(listener);
}

/* Sessions are as they were, and programs are led here. */
static void go_on(struct daemon *daemon)
{
	if (daemon->old_state) {
		state_restore(daemon->old_state, server_service(daemon->server));
		sessions_adopt(collector_sessions(daemon->collector));
		collector_lead_adopted(daemon->collector);
		collector_pass(daemon->collector);
		state_restore_functions(daemon->old_state, server_service(daemon->server));
	}
	drop_kept(daemon);
	keeper_taken_over(daemon->old_keeper);
	daemon->state = state_create(daemon->collector, daemon->epoch, keeper_keeping(daemon->keeper));
	state_save(daemon->state, server_service(daemon->server));
}

/* A socket that was handed over is handed on. */
static void hand_on_listener(const struct daemon *daemon)
{
	char pid[16];
	if (!daemon->directory.is_given)
		return;
	snprintf(pid, sizeof pid, "%d", getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	/* Without close-on-exec, where it is another number; else that is taken away from it. */
	if (daemon->directory.listener == 3)
		fcntl(3, F_SETFD, 0);
	else
		dup2(daemon->directory.listener, 3);
}

/*
 * SIGUSR1: this process becomes the lorgd that is installed now. The keeper sees only that this one has gone.
 */
static void restart(void *context)
{
	struct daemon *daemon = context;
	manager_notify_reloading();
	server_let_go(daemon->server);
	state_save(daemon->state, server_service(daemon->server));
	if (!daemon->keeper || !daemon->program[0]) {
		lorg_error("lorgd", "there is no keeper", "stop it and start it again");
		manager_notify("READY=1");
		return;
	}
	hand_on_listener(daemon);
	execv(daemon->program, daemon->arguments);
	lorg_error(daemon->program, strerror(errno), "install lorgd there, and send SIGUSR1 again");
	manager_notify("READY=1");
}

static void changed(void *context)
{
	struct daemon *daemon = context;
	state_save(daemon->state, server_service(daemon->server));
}

static int open_collector(struct daemon *daemon)
{
	const char *what, *why;
	const struct collector_settings settings = {
		.live = &session_live,
		.session = "all",
		.options = "",
		.overflow = LORG_OVERFLOW_DISCARD,
		.message_length = LORG_MESSAGE_LENGTH,
		.open_files = daemon->descriptors / 4,
		.keeping = keeper_keeping(daemon->keeper),
		.adopted = daemon->old_state ? &daemon->adopted : NULL,
	};
	daemon->collector = collector_open(&settings, &what, &why);
	if (daemon->collector)
		return 0;
	lorg_error(what, why ? why : strerror(errno), "raise the limits on memory and open files");
	return -1;
}

static int open_server(struct daemon *daemon)
{
	const unsigned share = daemon->descriptors / 4;
	const struct server_settings settings = {
		.collector = daemon->collector,
		.listener = daemon->directory.listener,
		.signals = daemon->signals,
		.epoch = daemon->epoch,
		.idle_exit_ns = (uint64_t)daemon->options.idle_exit_s * 1000000000,
		.connections = share < MOST_CONNECTIONS ? share : MOST_CONNECTIONS,
		.reload = reload,
		.restart = restart,
		.changed = changed,
		.context = daemon,
	};
	daemon->server = server_create(&settings);
	if (daemon->server)
		return 0;
	lorg_error("lorgd", strerror(errno), "raise the limits on memory and open files");
	return -1;
}

/* In the order in which each needs the one before; ready at the end. */
static int start(struct daemon *daemon)
{
	struct directory_failure failure;
	int given = manager_listener();
	daemon->descriptors = raise_descriptors();
	if (take_signals(daemon)) {
		lorg_error("lorgd", strerror(errno), "raise the limit on open files");
		return -1;
	}
	if (directory_open(&daemon->directory, daemon->options.directory, &failure))
		return complain(&failure);
	find_kept(daemon);
	start_keeper(daemon);
	if (directory_listen(&daemon->directory, given, &failure))
		return complain(&failure);
	if (open_collector(daemon) || open_server(daemon))
		return -1;
	go_on(daemon);
	if (directory_write_programs(&daemon->directory, programs_value(daemon), &failure))
		return complain(&failure);
	manager_notify("READY=1\nSTATUS=waiting for programs and clients");
	return 0;
}

static void end(struct daemon *daemon)
{
	manager_notify("STOPPING=1");
	/* Who comes now runs by itself. */
	directory_remove_programs(&daemon->directory);
	if (daemon->server)
		server_end(daemon->server);
	else if (daemon->collector)
		collector_close(daemon->collector, NULL, 0);
	state_free(daemon->state);
	keeper_end(daemon->keeper);
	directory_close(&daemon->directory);
}

int main(int argc, char **argv)
{
	struct daemon daemon = {.directory = {.lock = -1, .listener = -1}, .signals = -1, .old_keeper = -1};
	parse(&daemon.options, argc, argv);
	daemon.arguments = argv;
	if (readlink("/proc/self/exe", daemon.program, sizeof daemon.program - 1) < 0)
		daemon.program[0] = 0;
	int status = start(&daemon) ? EXIT_STATUS_FAILURE : 0;
	if (status == 0 && server_run(daemon.server)) {
		lorg_error("lorgd", strerror(errno), "start it again");
		status = EXIT_STATUS_FAILURE;
	}
	end(&daemon);
	return status;
}
