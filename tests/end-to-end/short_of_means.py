#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorg itself short of descriptors or address space: the program runs as ever and is not kept waiting, and it is said."""

import resource
import subprocess
import time

from lorgtest import LORG, check, equal, finish, lorg, scratch

PROGRAM = "echo begin; for i in 1 2 3 4 5 6 7 8; do /bin/true; done; echo a | cat; exit 3"
# An image that waits in vain for its part of the shared memory waits 2 s: all of them are far above this.
PATIENCE = 8


def run(kind, value):
    directory = scratch("trace")
    begin = time.monotonic()
    done = subprocess.run([LORG, "run", "-q", "-o", directory, "--", "sh", "-c", PROGRAM], capture_output=True, text=True,
                          timeout=120, preexec_fn=lambda: resource.setrlimit(kind, (value, value)))
    return done, time.monotonic() - begin, directory


def started(done):
    return "begin" in done.stdout


def scan(name, kind, values, tells):
    """Some of the values lie where lorg can start and then gets no further."""
    short = 0
    for value in values:
        done, seconds, directory = run(kind, value)
        what = "means: %s %d" % (name, value)
        if not started(done):
            check(what + ": refused with one line", done.returncode != 0 and done.stderr.count("\n") == 1 and
                  done.stderr.startswith("lorg: "), (done.returncode, done.stderr))
            continue
        equal(what + ": output and status", (done.stdout, done.returncode), ("begin\na\n", 3))
        check(what + ": nobody is kept waiting", seconds < PATIENCE, "%.1f s" % seconds)
        text = done.stderr + lorg("log", directory)[1].decode(errors="replace")
        short += any(tell in text for tell in tells)
    check("means: %s: what was not recorded is said" % name, short > 0, "none of the runs was short of anything")


scan("open files", resource.RLIMIT_NOFILE, (12, 14, 16, 18, 20, 24), ("Too many open files",))
scan("address space", resource.RLIMIT_AS, (28 << 20, 32 << 20, 48 << 20), ("no means for their shared memory",))
finish()
