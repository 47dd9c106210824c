#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The C of doc/SESSIONS.md as a newcomer uses it: lorg is installed somewhere, pkg-config finds it, the examples are compiled and do what is said.

Then every function of trace.h with arguments that cannot be, without a lorgd, without descriptors, and from several threads
with a connection each: under AddressSanitizer.
"""

import os
import re
import shutil
import subprocess

from livecommands import Daemon, Program, says, sessions, until
from lorgctl import BUILD, ROOT
from lorgtest import check, equal, finish, scratch, skip

WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

AROUND = """
#include <lorg/trace.h>
#include <stdio.h>
int main(void)
{
%s
	lorg_session_free(session);
	lorg_disconnect(node);
	return 0;
}
"""

ODD = r"""
#include <lorg/trace.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int wrong;
#define EXPECT(what) do { if (!(what)) { wrong = 1; fprintf(stderr, "%d: %s: %s\n", __LINE__, #what, failure.text); } } while (0)

static const char *const odd[] = {NULL, "", " ", "{", "[", "[|]", "'", "\"", "\\", "x.", "a b", "{hunt,", "{hunt,18446744073709551616}", "<1.2>", "<>", "<-1>",
	"#Port<1.2.3>", "-1", "99999999999999999999999999", "\xff\xfe", "\xc3\xa9", "%s%n", "[call|call]", "[[[[[[[[[]]]]]]]]]", "{'_','_','_'}", "on_load", "all", "fun() -> x end"};
enum { ODD = sizeof odd / sizeof *odd };

static void said(const char *function, int failed, const struct lorg_failure *failure)
{
	/* What fails says why, in one line; what does not fail says nothing. */
	if (failed && (failure->kind == LORG_FAILURE_NONE || !failure->text[0] || strchr(failure->text, '\n'))) {
		wrong = 1;
		fprintf(stderr, "%s fails without a word: %d %s\n", function, failure->kind, failure->text);
	}
}

static void odd_arguments(struct lorg_connection *node, struct lorg_session *session, struct lorg_failure *failure)
{
	for (int i = 0; i < ODD; i++) {
		const char *o = odd[i];
		struct lorg_session *other = lorg_session_create(node, o, "client", "[]", failure);
		said("create name", !other, failure);
		if (other)
			lorg_session_destroy(other, NULL);
		lorg_session_free(other);
		other = lorg_session_create(node, "odd", o, "[]", failure);
		said("create tracer", !other, failure);
		if (other)
			lorg_session_destroy(other, NULL);
		lorg_session_free(other);
		other = lorg_session_create(node, "odd", "client", o, failure);
		said("create options", !other, failure);
		if (other)
			lorg_session_destroy(other, NULL);
		lorg_session_free(other);
		other = lorg_session_find(node, o, failure);
		said("find", !other, failure);
		if (other) {
			said("adopt", lorg_session_adopt(other, failure) < 0, failure);
			char *tracer = lorg_session_tracer(other, failure);
			said("tracer", !tracer, failure);
			free(tracer);
			said("destroy", lorg_session_destroy(other, failure) < 0, failure);
			said("process of it", lorg_process(other, "all", 1, "[call]", failure) < 0, failure);
		}
		lorg_session_free(other);
		char *text = lorg_session_info(node, o, failure);
		said("session_info", !text, failure);
		free(text);
		for (int k = 0; k < ODD; k++) {
			said("process", lorg_process(session, o, k & 1, odd[k], failure) < 0, failure);
			said("port", lorg_port(session, o, k & 1, odd[k], failure) < 0, failure);
			said("system", lorg_system(session, o, odd[k], failure) < 0, failure);
			text = lorg_info(session, o, odd[k], failure);
			said("info", !text, failure);
			free(text);
			said("function", lorg_function(session, o, odd[k], "[]", failure) < 0, failure);
			said("function", lorg_function(session, "{x,'_','_'}", o, odd[k], failure) < 0, failure);
			said("send", lorg_send(session, o, odd[k], failure) < 0, failure);
			said("recv", lorg_recv(session, o, odd[k], failure) < 0, failure);
		}
		lorg_process(session, o, 2, o, NULL);
		text = lorg_delivered(session, o, failure);
		said("delivered", !text, failure);
		free(text);
	}
	said("limit", lorg_session_limit(session, NULL, failure) < 0, failure);
	const struct lorg_limits most = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}, none = {0, 0, 0, 0};
	said("limit", lorg_session_limit(session, &most, failure) < 0, failure);
	said("limit", lorg_session_limit(session, &none, failure) < 0, failure);
}

static void without_anything(void)
{
	struct lorg_failure failure;
	struct lorg_message message;
	lorg_disconnect(NULL);
	lorg_session_free(NULL);
	EXPECT(!lorg_connect("/nonexistent/place", &failure) && failure.kind == LORG_FAILURE_NO_DAEMON);
	EXPECT(!lorg_connect("/dev/null", &failure) && failure.kind != LORG_FAILURE_NONE);
	EXPECT(!lorg_connect("", &failure) && failure.kind != LORG_FAILURE_NONE);
	EXPECT(!lorg_connect("/nonexistent/place", NULL));
	static char length[5000];
	memset(length, 'x', sizeof length - 1);
	EXPECT(!lorg_connect(length, &failure) && failure.kind != LORG_FAILURE_NONE);
	EXPECT(lorg_receive(NULL, 0, &message, &failure) == -1 && failure.kind == LORG_FAILURE_BADARG);
	EXPECT(lorg_descriptor(NULL) == -1);
	EXPECT(!lorg_session_create(NULL, "x", "client", "[]", &failure) && failure.kind == LORG_FAILURE_BADARG);
	EXPECT(!lorg_session_find(NULL, "x", &failure) && !lorg_session_info(NULL, "all", &failure) && !lorg_programs(NULL, &failure));
	EXPECT(lorg_process(NULL, "all", 1, "[call]", &failure) == -1 && failure.kind == LORG_FAILURE_BADARG);
	EXPECT(lorg_port(NULL, "all", 1, "[ports]", &failure) == -1 && lorg_function(NULL, "{a,b,1}", "true", "[]", &failure) == -1);
	EXPECT(lorg_send(NULL, "true", "[]", &failure) == -1 && lorg_recv(NULL, "true", "[]", &failure) == -1);
	EXPECT(lorg_system(NULL, "busy_port", "true", &failure) == -1 && !lorg_info(NULL, "new", "flags", &failure));
	EXPECT(!lorg_delivered(NULL, "all", &failure) && lorg_session_destroy(NULL, &failure) == -1 && lorg_session_adopt(NULL, &failure) == -1);
	EXPECT(!lorg_session_tracer(NULL, &failure) && !lorg_session_handle(NULL) && lorg_session_limit(NULL, NULL, &failure) == -1);
	EXPECT(strcmp(lorg_function_refused(NULL), "[]") == 0);
}

/* Descriptors run out in the middle: it fails and says so, and what was opened is closed. */
static void without_descriptors(void)
{
	struct lorg_failure failure = {0};
	struct rlimit limit, low;
	getrlimit(RLIMIT_NOFILE, &limit);
	for (int free_ones = 0; free_ones < 4; free_ones++) {
		int next = open("/dev/null", O_RDONLY);
		close(next);
		low = limit;
		low.rlim_cur = (rlim_t)(next + free_ones);
		setrlimit(RLIMIT_NOFILE, &low);
		struct lorg_connection *node = lorg_connect(NULL, &failure);
		setrlimit(RLIMIT_NOFILE, &limit);
		EXPECT(free_ones >= 3 ? node != NULL : !node && failure.kind == LORG_FAILURE_IO && failure.error == EMFILE);
		lorg_disconnect(node);
		int after = open("/dev/null", O_RDONLY);
		close(after);
		EXPECT(after == next);
	}
}

/* A connection a thread, all at once: nothing is shared. */
static void *in_a_thread(void *argument)
{
	struct lorg_failure failure = {0};
	struct lorg_message message;
	char name[32];
	snprintf(name, sizeof name, "thread-%p", argument);
	for (int i = 0; i < 5; i++) {
		struct lorg_connection *node = lorg_connect(NULL, &failure);
		EXPECT(node);
		if (!node)
			return NULL;
		struct lorg_session *session = lorg_session_create(node, name, "client", "[]", &failure);
		EXPECT(session && lorg_process(session, "all", 1, "[call,strict_monotonic_timestamp]", &failure) >= 1);
		EXPECT(lorg_function(session, "{live_calls,work,1}", "[{'_',[],[{return_trace}]}]", "[local]", &failure) >= 1);
		int got = 0, of = 0;
		while (of < 20 && (got = lorg_receive(node, 10000000000, &message, &failure)) > 0) {
			EXPECT(strcmp(message.session, name) == 0);
			of += message.kind == LORG_MESSAGE_TRACE;
		}
		EXPECT(got > 0 && of == 20);
		EXPECT(lorg_session_destroy(session, &failure) == 1 && lorg_session_destroy(session, &failure) == 0);
		lorg_session_free(session);
		lorg_disconnect(node);
	}
	return NULL;
}

/* lorgd is stopped by who runs this, at a line of ours. */
static void dead(struct lorg_connection *node, struct lorg_session *session)
{
	struct lorg_failure failure = {0};
	struct lorg_message message;
	int got;
	puts("kill it");
	fflush(stdout);
	getchar();
	while ((got = lorg_receive(node, 5000000000, &message, &failure)) > 0)
		;
	EXPECT(got == -1 && failure.kind == LORG_FAILURE_NO_DAEMON);
	EXPECT(lorg_receive(node, 0, &message, &failure) == -1 && failure.kind == LORG_FAILURE_NO_DAEMON);
	EXPECT(lorg_process(session, "all", 1, "[call]", &failure) == -1 && failure.kind == LORG_FAILURE_NO_DAEMON);
	EXPECT(!lorg_info(session, "new", "flags", &failure) && failure.kind == LORG_FAILURE_NO_DAEMON);
	EXPECT(!lorg_programs(node, &failure) && failure.kind == LORG_FAILURE_NO_DAEMON);
	EXPECT(lorg_session_destroy(session, &failure) == -1 && failure.kind == LORG_FAILURE_NO_DAEMON);
	EXPECT(!lorg_session_create(node, "x", "client", "[]", &failure) && failure.kind == LORG_FAILURE_NO_DAEMON);
}

int main(void)
{
	struct lorg_failure failure = {0};
	pthread_t threads[4];
	without_anything();
	without_descriptors();
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, in_a_thread, (void *)(uintptr_t)(i + 1));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	struct lorg_connection *node = lorg_connect(NULL, &failure);
	struct lorg_session *session = node ? lorg_session_create(node, "hunt", "client", "[]", &failure) : NULL;
	EXPECT(session);
	if (!session)
		return 1;
	odd_arguments(node, session, &failure);
	dead(node, session);
	lorg_session_free(session);
	lorg_disconnect(node);
	return wrong;
}
"""


def blocks(section):
    """The C of a section of doc/SESSIONS.md."""
    with open(os.path.join(ROOT, "doc", "SESSIONS.md"), encoding="utf-8") as document:
        text = document.read()
    part = re.search(r"^## %d\..*?(?=^## |\Z)" % section, text, re.M | re.S)[0]
    return re.findall(r"^```c\n(.*?)^```", part, re.M | re.S)


def installed():
    """Where `meson install` has put it, and what pkg-config says of it."""
    place = scratch("installed")
    done = subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", place], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        return None, [], done.stdout.decode(errors="replace")[-500:]
    found = next((folder for folder, _, files in os.walk(place) if "lorgctl.pc" in files), None)
    environment = dict(os.environ, PKG_CONFIG_PATH=found or "", PKG_CONFIG_SYSROOT_DIR=place)
    said = subprocess.run(["pkg-config", "--cflags", "--libs", "lorgctl"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    return os.path.dirname(found or ""), said.stdout.decode().split(), said.stderr.decode()


def compile_c(name, text, *options):
    source, program = scratch(name + ".c"), scratch(name)
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    done = subprocess.run(["cc", *WARNINGS, "-g", "-o", program, source, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return program if check("%s: compiles" % name, done.returncode == 0, done.stdout.decode(errors="replace")[-600:]) else None


def example(flags, library):
    found = blocks(4)
    if not check("example: there is one", len(found) == 1, len(found)):
        return
    program = compile_c("example", AROUND % re.sub("^", "\t", found[0], flags=re.M), *flags)
    if not program:
        return
    environment = dict(os.environ, LD_LIBRARY_PATH=library)
    nowhere = subprocess.run([program], env=dict(environment, LORG_RUNTIME_DIRECTORY="/nonexistent"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    check("example: no lorgd", nowhere.returncode == 1 and b"lorgd &" in nowhere.stderr and nowhere.stderr.count(b"\n") == 1, nowhere.stderr)
    runner = ["valgrind", "-q", "--error-exitcode=99"] if shutil.which("valgrind") else []
    looks = subprocess.Popen([*runner, program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check("example: its session", until(lambda: "{hunt," in sessions(), 20), sessions())
    shell = subprocess.Popen(["/bin/sh", "-c", "while :; do cat /etc/passwd >/dev/null; done"],
                             env=dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "preload", "liblorg.so")))
    line = looks.stdout.readline().decode(errors="replace")
    while "lost" in line: # valgrind is slow
        line = looks.stdout.readline().decode(errors="replace")
    check("example: calls of open", re.match(r"\{trace,<[\d.]+>,(call|return_from),\{'?libc\.so\.6'?,'?open", line), line)
    looks.kill()
    said = looks.communicate()[1].decode(errors="replace")
    check("example: valgrind is content", not said, said[:400])
    check("example: its session goes with it", until(lambda: "{hunt," not in sessions(), 10), sessions())
    shell.kill()
    shell.wait()


def plug_in(flags):
    found = blocks(5)
    if not check("plug-in: there is one", len(found) == 1, len(found)):
        return
    calls = scratch("calls")
    source = found[0].replace('"/tmp/calls"', '"%s"' % calls)
    plug = compile_c("plug.so", source, "-shared", "-fPIC", *[flag for flag in flags if flag.startswith("-I")])
    if not plug:
        return
    says("session", "create", "plug", "--persist", "--tracer", '{module,"%s",[]}' % plug)
    says("process", "plug", "all", "on", "call")
    check("plug-in: functions", says("function", "plug", "live_calls:work", "--local") == "1", says("function", "plug", "live_calls:work", "--local"))

    def calls_written():
        try:
            with open(calls, encoding="utf-8") as file:
                return sum(re.fullmatch(r"\{trace,<[\d.]+>,call,\{live_calls,work,\[\d+\]\}\}\n", line) is not None for line in file)
        except OSError:
            return 0

    check("plug-in: it writes calls", until(lambda: calls_written() > 20, 20), calls_written())
    equal("plug-in: destroy", says("session", "destroy", "plug"), "true")


def odd_calls(flags, library):
    program = compile_c("odd", ODD, "-fsanitize=address,undefined", "-D_GNU_SOURCE", "-pthread", *flags)
    if not program:
        return
    own = Daemon("odd-run")
    standing = Program()
    run = subprocess.Popen([program], env=dict(os.environ, LD_LIBRARY_PATH=library, ASAN_OPTIONS="detect_leaks=1"), stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = run.stdout.readline()
    check("odd: as far as the end of lorgd", line == b"kill it\n", line)
    equal("odd: the program", standing.end(), 0)
    own.kill()
    said = run.communicate(b"\n", timeout=60)[1].decode(errors="replace")
    check("odd: all as it should be", run.returncode == 0 and not said, (run.returncode, said[:1500]))


def main():
    if not shutil.which("meson") or not shutil.which("pkg-config"):
        skip("newcomers", "no meson or pkg-config")
        finish()
    library, flags, error = installed()
    if check("installed", library and flags and not error, (library, flags, error)):
        daemon = Daemon()
        program = Program()
        example(flags, library)
        plug_in(flags)
        equal("the program", program.end(), 0)
        equal("lorgd", daemon.end(), 0)
        odd_calls(flags, library)
    finish()


if __name__ == "__main__":
    main()
