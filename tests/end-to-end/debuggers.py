#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A debugger that attaches to a program whose every function is hooked walks through all frames, to main."""

import os
import re
import shutil
import subprocess
import time

from lorgtest import SCRATCH, check, finish, scratch, skip

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int compare(const void *a, const void *b)
{
	if (write(1, "x", 1) == 1)
		pause();
	return *(const int *)a - *(const int *)b;
}
__attribute__((noinline)) int deep(int n)
{
	int values[3] = {3, 1, 2};
	if (n)
		return deep(n - 1) + 1;
	qsort(values, 3, sizeof values[0], compare);
	return 0;
}
int main(void) { return deep(5); }
"""
DEBUGGERS = {"gdb": (["gdb", "-batch", "-ex", "bt", "-p"], r"^#\d+ .*\b%s \("), "eu-stack": (["eu-stack", "-p"], r"^#\d+ .*\b%s\b")}

program = os.path.join(SCRATCH, "frames")
with open(program + ".c", "w", encoding="ascii") as out:
    out.write(SOURCE)
subprocess.run(["gcc", "-O1", "-g", program + ".c", "-o", program], check=True)


def frames(name, *options):
    recorder = subprocess.Popen([os.environ["TEST_LORG"], "run", *options, "-o", scratch("trace"), "--", program],
                                stdout=subprocess.PIPE)
    recorder.stdout.read(1)
    time.sleep(0.2)
    children = "/proc/%d/task/%d/children" % (recorder.pid, recorder.pid)
    pids = [int(pid) for pid in open(children, encoding="ascii").read().split() if os.readlink("/proc/%s/exe" % pid) == program]
    for debugger, (command, pattern) in DEBUGGERS.items():
        if not shutil.which(debugger) or not pids:
            skip("%s: %s" % (name, debugger), "it is not there" if pids else "the program is not found")
            continue
        done = subprocess.run([*command, str(pids[0])], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        text = done.stdout.decode(errors="replace")
        seen = {function: len(re.findall(pattern % function, text, re.M)) for function in ("compare", "deep", "main")}
        if not re.search(r"^#0", text, re.M):
            skip("%s: %s" % (name, debugger), "it may not attach")
            continue
        check("%s: %s sees all frames" % (name, debugger), seen == {"compare": 1, "deep": 6, "main": 1}, "%s\n%s" % (seen, text))
    for pid in pids:
        os.kill(pid, 9)
    recorder.wait()


os.environ.setdefault("TEST_LORG", os.path.join(os.path.dirname(__file__), "..", "..", "build", "collector", "lorg"))
frames("values", "--call", "frames:_/_", "--call", "libc.so.6:_/_")
frames("lean", "--no-values", "--call", "frames:_/_", "--call", "libc.so.6:_/_")
finish()
