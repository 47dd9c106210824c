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
#include "collector/live/recording.h"

enum follow_format follow_format(const char *text)
{
	static const char *const names[] = {"text", "erlang", "json"};
	for (int i = 0; i < 3; i++)
		if (strcmp(text, names[i]) == 0)
			return (enum follow_format)i;
	node_usage(text, "no such format", "use text, erlang or json");
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
	if (follow->format == FOLLOW_TEXT && isatty(STDOUT_FILENO) && !getenv("NO_COLOR"))
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
	int lost = message->kind == LORG_MESSAGE_LOST;
	switch (follow->format) {
	case FOLLOW_TEXT:
		if (lost)
			output_printf(out, "%llu event%s lost: nobody took them, or not fast enough\n", count, count == 1 ? " was" : "s were");
		else
			output_printf(out, "%s\n", message->text);
		break;
	case FOLLOW_ERLANG: output_printf(out, "%s\n", message->text); break;
	case FOLLOW_JSON:
		if (lost)
			output_printf(out, "{\"tag\":\"lost\",\"count\":%llu}\n", count);
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

enum going { GOES_ON, ENDS, FAILS };

/* All messages that are there. */
static enum going take_messages(struct follow *follow, struct output *out)
{
	struct lorg_message message;
	struct lorg_failure failure;
	const char *people = NULL;
	int got;
	while ((got = client_receive(follow->connection, 0, &message, &people, &failure)) > 0) {
		if (message.kind == LORG_MESSAGE_ENDED) {
			output_flush(out);
			say_ended(&message);
			return ENDS;
		}
		print(follow, out, &message, people);
		output_may_flush(out);
		if (out->failure || (follow->maximum && follow->count >= follow->maximum))
			return ENDS;
	}
	output_flush(out);
	if (got == 0)
		return out->failure ? ENDS : GOES_ON;
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
	if (is_next_second(follow) && follow->each_second(follow->context))
		return FAILS;
	if (ready[1].revents & POLLIN)
		follow->signal = take_signal(signals);
	if (follow->signal || (ready[2].revents & POLLERR))
		return ENDS;
	return GOES_ON;
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
	int error = output_end(out);
	close(signals);
	sigprocmask(SIG_SETMASK, mask, NULL);
	if (error && error != EPIPE) {
		lorg_error("standard output", strerror(error), "free some space, or write elsewhere");
		return EXIT_STATUS_FAILURE;
	}
	return going == FAILS ? EXIT_STATUS_FAILURE : 0;
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
	while (going == GOES_ON && (going = take_messages(follow, &out)) == GOES_ON)
		going = wait_for_more(follow, signals);
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
	return shown || out->failure || !more ? ENDS : GOES_ON;
}

/* Some time, or until somebody interrupts. */
static enum going wait_for_writer(struct follow *follow, int signals)
{
	enum { LOOKS_EVERY_MS = 50 };
	struct pollfd ready[] = {{.fd = signals, .events = POLLIN}, {.fd = STDOUT_FILENO, .events = 0}};
	poll(ready, 2, LOOKS_EVERY_MS);
	if (ready[0].revents & POLLIN)
		follow->signal = take_signal(signals);
	return follow->signal || (ready[1].revents & POLLERR) ? ENDS : GOES_ON;
}

static enum going follow_recording(struct follow *follow, struct recording *recording, struct output *out, int signals)
{
	struct live *live = live_new(wanted_forms(follow));
	enum going going = live && recording_read(recording, live, 0) >= 0 ? GOES_ON : FAILS;
	if (going == FAILS)
		lorg_error("the trace directory", strerror(errno), "is it still there, and is there memory?");
	while (going == GOES_ON && (going = look_at_directory(follow, recording, live, out)) == GOES_ON)
		going = wait_for_writer(follow, signals);
	live_free(live);
	return going;
}

int follow_directory(struct follow *follow, const char *directory)
{
	char why[512];
	struct output out;
	sigset_t mask;
	struct recording *recording = recording_open(directory, why, sizeof why);
	if (!recording) {
		lorg_error(directory, why, NULL);
		return EXIT_STATUS_FAILURE;
	}
	signal(SIGPIPE, SIG_IGN);
	int signals = begin_signals(&mask), status = EXIT_STATUS_FAILURE;
	if (signals >= 0) {
		output_begin(&out, STDOUT_FILENO);
		status = end_all(&out, signals, &mask, follow_recording(follow, recording, &out, signals));
	}
	recording_close(recording);
	return status;
}
