#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calls of libc's functions that liblorg.so has wrappers for: each is seen once, with the program's own code as its caller,
whether its entry is hooked by liblorg.so itself (read), by the plan (malloc), or never reached (execl)."""

import os
import subprocess

from lorgtest import SCRATCH, Run, check, equal, finish, log, scratch

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#define KEEP __attribute__((noinline, noclone, used))
extern char **environ;
KEEP int copy(const char *from, const char *to)
{
	char buffer[8];
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	long length = read(in, buffer, sizeof buffer);
	length = write(out, buffer, length);
	close(in);
	close(out);
	return (int)length;
}
KEEP void *begin(void *from) { return copy(from, "copied") == 8 ? from : NULL; }
KEEP void execute(void)
{
	char *const argv[] = {"x", NULL};
	execv("/nowhere/v", argv);
	execvp("/nowhere/vp", argv);
	execl("/nowhere/l", "x", (char *)0);
	execle("/nowhere/le", "x", (char *)0, environ);
	execlp("/nowhere/lp", "x", (char *)0);
	execve("/nowhere/ve", argv, environ);
}
int main(int argc, char **argv)
{
	pthread_t thread;
	int status;
	execute();
	begin(argv[0]);
	pthread_create(&thread, NULL, begin, argv[0]);
	pthread_join(thread, NULL);
	if (vfork() == 0)
		_exit(3);
	wait(&status);
	free(malloc(argc));
	printf("%d\n", WEXITSTATUS(status));
	return 0;
}
"""

EXECUTED = {"execv": "v", "execvp": "vp", "execl": "l", "execle": "le", "execlp": "lp", "execve": "ve"}
program = os.path.join(SCRATCH, "wrapped")
with open(program + ".c", "w", encoding="ascii") as out:
    out.write(SOURCE)
subprocess.run(["gcc", "-O1", "-g", "-fno-builtin", "-Wno-unused-result", "-pthread", program + ".c", "-o", program], check=True)


def events_of(name, *options):
    done = Run([program], options=options, directory=scratch("trace"))
    equal(name + ": the program runs as ever", (done.status, done.stdout), (0, b"3\n"))
    return log(done.directory)


def calls_from_program(events, function):
    """Those that the program itself makes, not others of libc."""
    return [event for event in events
            if event["tag"] == "call" and event["function"] == function and event.get("caller", "").startswith("wrapped:")]


os.chdir(SCRATCH)
names = ["open", "read", "write", "close", "pthread_create", "vfork", "_exit", "malloc", "free", *EXECUTED]
for way in ("--call", "--call-global"):
    events = events_of(way, *(part for name in names for part in (way, "libc.so.6:%s/_" % name)))
    own = [event["caller"] for event in events if event["tag"] == "call" and event.get("caller", "").startswith("liblorg")]
    check("%s: no caller is liblorg.so" % way, not own, own)
    for name, count in {"open": 4, "read": 2, "write": 2, "close": 4, "pthread_create": 1, "vfork": 1, "_exit": 1, "malloc": 1,
                        "free": 1}.items():
        equal("%s: calls of %s" % (way, name), len(calls_from_program(events, name)), count)
    for name, file in EXECUTED.items():
        calls = calls_from_program(events, name)
        # libc's own execv, execl, ... are not run: their execve is made for them.
        made = [(call["args"][0], call["caller"].split("+")[0]) for call in calls if name != "execve" or call["args"][0].endswith("ve")]
        equal("%s: %s" % (way, name), made, [("/nowhere/" + file, "wrapped:execute")])
    if way == "--call":
        returned = [event for event in events if event["tag"] == "return_from" and event["function"] == "read"]
        check("read's results", 8 in [event["value"] for event in returned], returned[:3])
        inner = [event for event in events if event["tag"] == "call" and event["function"] == "write" and
                 event.get("caller", "").startswith("libc.so.6:")]
        equal("the write inside printf", len([event for event in inner if event["program"] == event["thread"]]), 1)
    flags = [call["args"][1] for call in calls_from_program(events, "open")]
    equal("%s: flags by name" % way, sorted(flags), ["O_RDONLY"] * 2 + ["O_WRONLY|O_CREAT|O_TRUNC"] * 2)

events = events_of("start", "--call", "wrapped:_start", "--call", "wrapped:begin")
starts = [event for event in events if event["tag"] == "call" and event["function"] == "_start"]
equal("_start is called by nobody", [event.get("caller") for event in starts], [None])
begun = [event["caller"].split("+")[0] for event in events if event["tag"] == "call" and event["function"] == "begin"]
check("a thread's start is called by libc", sorted(begun)[0].startswith("libc.so.6:") and sorted(begun)[1] == "wrapped:main", begun)
finish()
