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
#include "collector/daemon/protocol.h"
#include "collector/daemon/server.h"
#include "collector/daemon/state.h"
#include "collector/session/function_state.h"
#include "collector/session/live.h"
#include "collector/session/router.h"
#include "collector/session/session.h"

enum { MOST_CONNECTIONS = 1024, MOST_DESCRIPTORS = 1 << 20 };

struct options {
	char directory[PATH_MAX];
	unsigned long idle_exit_s;
	unsigned keep_s; /* how long programs wait for the next lorgd; 0: they do not */
};

static const char help[] =
	"Usage: lorgd [OPTION...]\n"
	"Lets lorg look at programs while they run: those that start with LD_PRELOAD=liblorg.so find it by themselves.\n"
	"\n"
	"  --directory DIR      where its socket stands ($LORG_RUNTIME_DIRECTORY, else /run/lorg for root and\n"
	"                       $XDG_RUNTIME_DIR/lorg for others); whole path, mode 0700\n"
	"  --foreground         stay in front (it always does)\n"
	"  --idle-exit SECONDS  end when no client, session or program has been there for so long\n"
	"  --keep SECONDS       once it has gone, programs wait so long for the next one (300; 0: they do not)\n"
	"  --help, --version\n"
	"\n"
	"It serves its own user, and root. After SIGTERM, as after a kill, programs go on, and the next lorgd finds them and\n"
	"the sessions that persist as they were; SIGUSR1 does both at once. After SIGINT nothing stays.\n";

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

static unsigned long seconds_of(const char *option, const char *text)
{
	char *end;
	errno = 0;
	unsigned long seconds = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || seconds > 86400ul * 365)
		usage(option, text, "give whole seconds");
	return seconds;
}

static void print_and_end(const char *text)
{
	fputs(text, stdout);
	exit(fflush(stdout) ? EXIT_STATUS_FAILURE : 0);
}

static void parse(struct options *options, int argc, char **argv)
{
	static const struct option names[] = {{"directory", required_argument, NULL, 'd'}, {"foreground", no_argument, NULL, 'f'},
					      {"idle-exit", required_argument, NULL, 'i'}, {"keep", required_argument, NULL, 'k'},
					      {"help", no_argument, NULL, 'h'},		   {"version", no_argument, NULL, 'V'},
					      {NULL, 0, NULL, 0}};
	int key;
	options->keep_s = KEEPER_PATIENCE_S;
	opterr = 0;
	while ((key = getopt_long(argc, argv, "+:hV", names, NULL)) != -1) {
		switch (key) {
		case 'd':
			set_directory(options, optarg);
			break;
		case 'f':
			break;
		case 'i':
			options->idle_exit_s = seconds_of("--idle-exit", optarg);
			break;
		case 'k':
			options->keep_s = (unsigned)seconds_of("--keep", optarg);
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
	const struct memory *old_state; /* NULL: there is nothing to go on with */
	struct adopted adopted; /* what one that has gone has left */
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
	signal(SIGXFSZ, SIG_IGN); /* likewise, a file that may not grow */
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
	int listener = directory_listen_again(&daemon->directory);
	if (listener >= 0)
		server_listen(daemon->server, listener);
	if (directory_write_programs(&daemon->directory, programs_value(daemon), &failure))
		complain(&failure);
	manager_notify("READY=1");
}

/* ---- what one that was killed has left ---------------------------------------------------- */

/* What nobody has taken is of no use to anyone. */
static void drop_kept(struct daemon *daemon)
{
	struct adopted *adopted = &daemon->adopted;
	const struct keeping *keeping = keeper_keeping(daemon->keeper);
	for (uint32_t i = 0; i < adopted->count; i++) {
		if (!adopted->list[i].memory.at)
			continue;
		forget_memory(keeping, adopted->list[i].name.id);
		memory_free(&adopted->list[i].memory);
	}
	free(adopted->list);
	*adopted = (struct adopted){.list = NULL};
	daemon->old_state = NULL;
}

/* Who was killed while the next one's was made has left two. */
static void find_state(struct daemon *daemon)
{
	uint32_t at = 0;
	for (struct kept *kept; (kept = kept_next(&daemon->adopted, KEPT_STATE, &at));) {
		struct lorg_clock clock;
		uint8_t trace_uuid[16];
		uint64_t epoch;
		if (state_read(&kept->memory, &clock, trace_uuid, &epoch) || epoch < daemon->epoch)
			continue;
		daemon->epoch = epoch;
		daemon->adopted.clock = clock;
		memcpy(daemon->adopted.trace_uuid, trace_uuid, sizeof trace_uuid);
		daemon->old_state = &kept->memory;
	}
}

static int has_node(struct daemon *daemon)
{
	uint32_t at = 0;
	return kept_next(&daemon->adopted, KEPT_NODE, &at) != NULL;
}

static void find_kept(struct daemon *daemon)
{
	daemon->keeper = keeper_join(daemon->directory.path, &daemon->adopted.list, &daemon->adopted.count);
	find_state(daemon);
	daemon->epoch++;
	/* Programs of another version, or of one that was killed while it began: they go on, and forward only. */
	if (!daemon->old_state || !has_node(daemon))
		drop_kept(daemon);
}

static void start_keeper(struct daemon *daemon)
{
	int listener = daemon->keeper ? -1 : directory_socket(&daemon->directory, "keeper", SOCK_SEQPACKET);
	if (listener >= 0) {
		daemon->keeper = keeper_start(listener);
		close(listener);
	}
	keeper_set_patience(daemon->keeper, daemon->options.keep_s ? daemon->options.keep_s : KEEPER_PATIENCE_S);
}

/* Sessions are as they were, and programs are led here. */
static void go_on(struct daemon *daemon)
{
	struct sessions *sessions = collector_sessions(daemon->collector);
	collector_take_over(daemon->collector, &daemon->adopted);
	function_state_take_over(sessions, &daemon->adopted);
	flags_take_over(sessions, &daemon->adopted);
	if (daemon->old_state) {
		sessions_take_over(sessions, daemon->epoch);
		state_restore(daemon->old_state, server_service(daemon->server));
		sessions_adopt(sessions);
		function_state_resume(sessions, &daemon->adopted);
		collector_lead_adopted(daemon->collector);
		collector_pass(daemon->collector);
	}
	daemon->state = state_create(daemon->collector, daemon->epoch);
	state_save(daemon->state, server_service(daemon->server));
	/* From now on it counts: only then the one before goes. */
	state_keep(daemon->state, keeper_keeping(daemon->keeper));
	drop_kept(daemon);
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

/* What the next one goes on with is as it should be; nothing comes behind it. */
static void let_go(struct daemon *daemon)
{
	server_let_go(daemon->server);
	state_save(daemon->state, server_service(daemon->server));
	sessions_rest(collector_sessions(daemon->collector), ENDED_BY_RESTART);
	server_say_goodbye(daemon->server);
}

/*
 * SIGUSR1: this process becomes the lorgd that is installed now. The keeper sees only that this one has gone.
 */
static void restart(void *context)
{
	struct daemon *daemon = context;
	if (!daemon->keeper || !daemon->program[0] || access(daemon->program, X_OK)) {
		lorg_error("lorgd", daemon->keeper ? "its program is not where it was" : "there is no keeper", "stop it and start it again");
		return;
	}
	manager_notify_reloading();
	let_go(daemon);
	hand_on_listener(daemon);
	execv(daemon->program, daemon->arguments);
	lorg_error(daemon->program, strerror(errno), "start lorgd again");
	exit(EXIT_STATUS_FAILURE);
}

static void changed(void *context)
{
	struct daemon *daemon = context;
	state_save(daemon->state, server_service(daemon->server));
}

static void alive(void *context)
{
	(void)context;
	manager_notify("WATCHDOG=1");
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
		.alive_ns = manager_watch_ns(),
		.alive = alive,
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
	keeper_set_way(daemon->keeper, daemon->directory.path, programs_value(daemon));
	if (directory_write_programs(&daemon->directory, programs_value(daemon), &failure))
		return complain(&failure);
	manager_notify("READY=1\nSTATUS=waiting for programs and clients");
	return 0;
}

/* Nothing of it is left anywhere. */
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

/* What the next one goes on with stays as it is, with the keeper. */
static void leave(struct daemon *daemon)
{
	manager_notify("STOPPING=1");
	let_go(daemon);
	keeper_leave(daemon->keeper);
	directory_leave(&daemon->directory);
}

int main(int argc, char **argv)
{
	struct daemon daemon = {.directory = {.lock = -1, .listener = -1}, .signals = -1};
	parse(&daemon.options, argc, argv);
	daemon.arguments = argv;
	if (readlink("/proc/self/exe", daemon.program, sizeof daemon.program - 1) < 0)
		daemon.program[0] = 0;
	int status = start(&daemon) ? EXIT_STATUS_FAILURE : 0;
	if (status == 0 && server_run(daemon.server)) {
		lorg_error("lorgd", strerror(errno), "start it again");
		status = EXIT_STATUS_FAILURE;
	}
	if (status == 0 && daemon.keeper && daemon.options.keep_s && server_is_relieved(daemon.server))
		leave(&daemon);
	else
		end(&daemon);
	return status;
}
