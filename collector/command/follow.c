/* SPDX-License-Identifier: MIT */
/* follow.c: see follow.h. */
#include "collector/command/follow.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "collector/client/client.h"
#include "collector/command/error.h"
#include "collector/command/node.h"
#include "collector/format/json.h"
#include "collector/format/pager.h"
#include "collector/live/recording.h"

enum follow_format follow_format(const char *text)
{
	static const char *const names[] = {"text", "erlang", "json"};
	for (int i = 0; i < 3; i++)
		if (strcmp(text, names[i]) == 0)
			return (enum follow_format)i;
	node_usage(text, "no such format", "use text, erlang or json");
}

const struct argp_option follow_format_option[] = {
	{"format", 'f', "FORMAT", 0, "text (the default), erlang or json", 1},
	{0},
};

error_t follow_parse_format(int key, char *argument, struct argp_state *state)
{
	enum follow_format *format = state->input;
	if (key != 'f')
		return ARGP_ERR_UNKNOWN;
	*format = follow_format(argument);
	return 0;
}

static void ending_signals(sigset_t *set)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	struct sigaction action;
	sigemptyset(set);
	/* What is ignored stays so: nohup, a shell's background. */
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
		if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(set, signals[i]);
}

static unsigned wanted_forms(const struct follow *follow)
{
	static const unsigned forms[] = {[FOLLOW_TEXT] = LIVE_TEXT, [FOLLOW_ERLANG] = LIVE_ERLANG, [FOLLOW_JSON] = LIVE_JSON};
	if (follow->format == FOLLOW_TEXT && isatty(STDOUT_FILENO) && pager_wants_colour())
		return LIVE_COLOURED_TEXT;
	return forms[follow->format];
}

void follow_begin(struct follow *follow)
{
	client_forms(follow->connection, wanted_forms(follow));
	signal(SIGPIPE, SIG_IGN);
}

/* ---- printing -------------------------------------------------------------------- */

static void print_term_json(struct output *out, const char *term)
{
	struct json *json = json_new(out);
	if (!json)
		return;
	json_begin(json);
	json_key(json, "tag");
	json_text(json, "term");
	json_key(json, "term");
	json_text(json, term);
	json_end(json);
	json_end_line(json);
	json_free(json);
}

/* Something that is no event, in each format. */
static void print_plain(const struct follow *follow, struct output *out, const struct lorg_message *message)
{
	unsigned long long count = message->count;
	int lost = message->kind == LORG_MESSAGE_LOST, perhaps = message->kind == LORG_MESSAGE_PERHAPS_LOST;
	switch (follow->format) {
	case FOLLOW_TEXT:
		if (lost)
			output_printf(out, "%llu event%s lost: nobody took them, or not fast enough\n", count, count == 1 ? " was" : "s were");
		else if (perhaps)
			output_printf(out, "%llu event%s lost that this session may have asked for, or not\n", count, count == 1 ? " was" : "s were");
		else
			output_printf(out, "%s\n", message->text);
		break;
	case FOLLOW_ERLANG: output_printf(out, "%s\n", message->text); break;
	case FOLLOW_JSON:
		if (lost || perhaps)
			output_printf(out, "{\"tag\":\"%s\",\"count\":%llu}\n", lost ? "lost" : "perhaps_lost", count);
		else
			print_term_json(out, message->text);
		break;
	}
}

static void print(struct follow *follow, struct output *out, const struct lorg_message *message, const char *people)
{
	const char *line = follow->format == FOLLOW_TEXT ? people : follow->format == FOLLOW_JSON ? message->json : message->text;
	if (message->kind == LORG_MESSAGE_TRACE)
		follow->count++;
	if (follow->silent)
		return;
	if (!line || (message->kind != LORG_MESSAGE_TRACE && follow->format == FOLLOW_ERLANG)) {
		print_plain(follow, out, message);
		return;
	}
	if (!*line)
		return;
	output_text(out, line);
	output_byte(out, '\n');
}

static void say_ended(const struct lorg_message *message)
{
	char text[700];
	snprintf(text, sizeof text, "session %.100s has ended", message->session);
	lorg_error(text, message->text, NULL);
}

/* ---- the loop ------------------------------------------------------------------------ */

enum going { GOES_ON, ENDS, FAILS, WAITS /* for lorgd to be started again */ };

enum { MESSAGES_AT_ONCE = 4096 /* then it is looked whether somebody interrupts */ };

/* The messages that are there. */
static enum going take_messages(struct follow *follow, struct output *out)
{
	struct lorg_message message;
	struct lorg_failure failure;
	const char *people = NULL;
	int got = 1;
	for (int i = 0; i < MESSAGES_AT_ONCE && (got = client_receive(follow->connection, 0, &message, &people, &failure)) > 0; i++) {
		if (message.kind == LORG_MESSAGE_ENDED) {
			output_flush(out);
			if (follow->come_back && strcmp(message.text, ENDED_BY_RESTART) == 0)
				return WAITS;
			say_ended(&message);
			return ENDS;
		}
		print(follow, out, &message, people);
		output_may_flush(out);
		if (out->failure || (follow->maximum && follow->count >= follow->maximum))
			return ENDS;
	}
	output_flush(out);
	if (got >= 0)
		return out->failure ? ENDS : GOES_ON;
	if (follow->come_back && failure.kind == LORG_FAILURE_NO_DAEMON)
		return WAITS;
	lorg_error(failure.text, NULL, NULL);
	return FAILS;
}

static int take_signal(int fd)
{
	struct signalfd_siginfo signal;
	return read(fd, &signal, sizeof signal) == (ssize_t)sizeof signal ? (int)signal.ssi_signo : 0;
}

static int is_next_second(struct follow *follow)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	if (!follow->each_second || now.tv_sec == follow->second)
		return 0;
	follow->second = now.tv_sec;
	return 1;
}

static enum going wait_for_more(struct follow *follow, int signals)
{
	struct pollfd ready[] = {
		{.fd = lorg_descriptor(follow->connection), .events = POLLIN},
		{.fd = signals, .events = POLLIN},
		{.fd = STDOUT_FILENO, .events = 0}, /* a reader that has gone */
	};
	int some = poll(ready, 3, follow->each_second ? 1000 : -1);
	if (some < 0)
		return errno == EINTR ? GOES_ON : FAILS;
	if (ready[1].revents & POLLIN)
		follow->signal = take_signal(signals);
	if (follow->signal || (ready[2].revents & POLLERR))
		return ENDS;
	enum follow_answer answer = is_next_second(follow) ? follow->each_second(follow->context) : FOLLOW_ON;
	if (answer == FOLLOW_GONE && follow->come_back)
		return GOES_ON; /* what has come is taken first */
	return answer == FOLLOW_ON ? GOES_ON : FAILS;
}

/* ---- lorgd is started again --------------------------------------------------------- */

enum { PATIENCE_S = 300 /* as long as its keeper waits */, LOOK_MS = 100, RECORDING_LOOK_MS = 50 };

static int64_t now_s(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static enum follow_answer try_to_come_back(struct follow *follow)
{
	struct lorg_failure failure;
	struct lorg_connection *connection = lorg_connect(NULL, &failure);
	if (!connection && (failure.kind == LORG_FAILURE_NO_DAEMON || failure.kind == LORG_FAILURE_IO))
		return FOLLOW_GONE;
	if (!connection) {
		lorg_error(failure.text, NULL, NULL);
		return FOLLOW_FAILED;
	}
	client_forms(connection, wanted_forms(follow));
	lorg_disconnect(follow->connection);
	follow->connection = connection;
	return follow->come_back(follow->context, connection);
}

/* Some time, or until somebody interrupts. */
static enum going rest(struct follow *follow, int signals, int ms)
{
	struct pollfd ready[] = {{.fd = signals, .events = POLLIN}, {.fd = STDOUT_FILENO, .events = 0}};
	poll(ready, 2, ms);
	if (ready[0].revents & POLLIN)
		follow->signal = take_signal(signals);
	return follow->signal || (ready[1].revents & POLLERR) ? ENDS : GOES_ON;
}

static enum going await_lorgd(struct follow *follow, int signals)
{
	int64_t until = now_s() + PATIENCE_S;
	char text[300];
	snprintf(text, sizeof text, "%s goes on when it is started again within 5 minutes", follow->goes_on ? follow->goes_on : "");
	if (follow->goes_on)
		lorg_error("lorgd has gone", text, "Ctrl-C ends the waiting");
	for (;;) {
		enum follow_answer answer = try_to_come_back(follow);
		if (answer != FOLLOW_GONE)
			return answer == FOLLOW_ON ? GOES_ON : FAILS;
		if (now_s() > until) {
			lorg_error("lorgd", "it was not started again", "lorgd & or systemctl --user start lorgd starts it");
			return FAILS;
		}
		if (rest(follow, signals, LOOK_MS) == ENDS)
			return ENDS;
	}
}

/* Signals that end following wait for us. A descriptor, or -1 having said why. */
static int begin_signals(sigset_t *mask)
{
	sigset_t set;
	ending_signals(&set);
	sigprocmask(SIG_BLOCK, &set, mask);
	int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0)
		lorg_error("signalfd", strerror(errno), "close some files");
	return signals;
}

static int end_all(struct output *out, int signals, const sigset_t *mask, enum going going)
{
	int status = node_end_output(out);
	if (out->failure == EPIPE)
		status = 0; /* the reader has seen enough */
	close(signals);
	sigprocmask(SIG_SETMASK, mask, NULL);
	return going == FAILS ? EXIT_STATUS_FAILURE : status;
}

int follow_run(struct follow *follow)
{
	struct output out;
	sigset_t mask;
	enum going going = GOES_ON;
	int signals = begin_signals(&mask);
	if (signals < 0)
		return EXIT_STATUS_FAILURE;
	output_begin(&out, STDOUT_FILENO);
	while (going == GOES_ON) {
		going = take_messages(follow, &out);
		if (going == GOES_ON)
			going = wait_for_more(follow, signals);
		else if (going == WAITS)
			going = await_lorgd(follow, signals);
	}
	if (follow->signal && !out.failure) {
		/* Also of what was lost last. */
		client_hurry(follow->connection);
		take_messages(follow, &out);
	}
	return end_all(&out, signals, &mask, going);
}

/* ---- a trace directory ------------------------------------------------------------------- */

struct showing {
	struct follow *follow;
	struct output *out;
};

static int show_live(void *context, const struct live_message *message)
{
	struct showing *showing = context;
	struct follow *follow = showing->follow;
	const char *lines = message->text ? message->text : message->erlang ? message->erlang : message->json;
	output_text(showing->out, lines);
	output_may_flush(showing->out);
	follow->count += message->kind == LIVE_EVENT && *lines;
	return showing->out->failure || (follow->maximum && follow->count >= follow->maximum);
}

static enum going look_at_directory(struct follow *follow, struct recording *recording, struct live *live, struct output *out)
{
	struct showing showing = {follow, out};
	int more = recording_read(recording, live, 1), shown = more >= 0 ? live_show(live, show_live, &showing) : 0;
	output_flush(out);
	if (more < 0 || shown < 0) {
		lorg_error("the trace directory", strerror(errno), "is it still there, and is there memory?");
		return FAILS;
	}
	if (shown || out->failure)
		return ENDS;
	/* What has ended thus goes on in the next one. */
	return more || strcmp(recording_why(recording), ENDED_BY_RESTART) == 0 ? GOES_ON : ENDS;
}

/* Its lorgd has let go of it, and none was started again. *since: when it was seen to rest, seconds; 0: it does not. */
static int was_left(const struct recording *recording, int64_t *since)
{
	if (strcmp(recording_why(recording), ENDED_BY_RESTART) != 0)
		return 0;
	if (!*since)
		*since = now_s();
	if (now_s() - *since <= PATIENCE_S)
		return 0;
	lorg_error("lorgd", "it was not started again", "lorgd & or systemctl --user start lorgd starts it");
	return 1;
}

/* Until it ends, or its writer was started again and goes on in another one at its place: WAITS. */
static enum going follow_recording(struct follow *follow, const char *directory, int is_next, struct output *out, int signals)
{
	char why[512];
	int goes_on_elsewhere = 0;
	int64_t rests_since = 0;
	struct recording *recording = recording_open(directory, why, sizeof why);
	if (!recording) {
		lorg_error(directory, why, NULL);
		return FAILS;
	}
	struct live *live = live_new(wanted_forms(follow));
	/* Of the first, only what comes from now on. */
	enum going going = live && (is_next || recording_read(recording, live, 0) >= 0) ? GOES_ON : FAILS;
	if (going == FAILS)
		lorg_error("the trace directory", strerror(errno), "is it still there, and is there memory?");
	while (going == GOES_ON && (going = look_at_directory(follow, recording, live, out)) == GOES_ON) {
		/* Looked at before: what was written up to then is read. */
		if (goes_on_elsewhere)
			going = WAITS;
		else if ((goes_on_elsewhere = recording_goes_on_elsewhere(recording, directory)) == 0)
			going = was_left(recording, &rests_since) ? FAILS : rest(follow, signals, RECORDING_LOOK_MS);
	}
	live_free(live);
	recording_close(recording);
	return going;
}

int follow_directory(struct follow *follow, const char *directory)
{
	struct output out;
	sigset_t mask;
	signal(SIGPIPE, SIG_IGN);
	int signals = begin_signals(&mask), is_next = 0;
	enum going going;
	if (signals < 0)
		return EXIT_STATUS_FAILURE;
	output_begin(&out, STDOUT_FILENO);
	while ((going = follow_recording(follow, directory, is_next, &out, signals)) == WAITS) {
		lorg_error(directory, "lorgd was started again and goes on in a new directory of this name", NULL);
		is_next = 1;
	}
	return end_all(&out, signals, &mask, going);
}
