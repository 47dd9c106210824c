#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorg run --call and what goes with it: which calls are recorded, which are not, and what is said where a pattern names nothing."""

import os
import subprocess

from lorgtest import SCRATCH, Run, check, equal, finish, log, report, scratch

SOURCE = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define KEEP __attribute__((noinline, noclone, used))
volatile int sink;
KEEP int leaf(int a, int b) { return a * 3 + b + sink; }
KEEP int middle(int a) { return leaf(a, 1) + 1; }
KEEP int outer(int a) { return middle(a) + leaf(a, 2); }
KEEP int recursive(int n) { return n < 2 ? 1 : n + recursive(n - 1); }
KEEP void slow(void) { usleep(20000); }
KEEP void fast(void) { sink = 0; }
int main(void)
{
	int sum = 0;
	for (int i = 0; i < 10; i++)
		sum += outer(i);
	sum += recursive(5);
	slow();
	fast();
	puts("done");
	return sum == 0;
}
"""

program = os.path.join(SCRATCH, "calls")
with open(program + ".c", "w", encoding="ascii") as out:
    out.write(SOURCE)
subprocess.run(["gcc", "-O1", "-g", program + ".c", "-o", program], check=True)


def run(name, *options):
    done = Run([program], options=options, directory=scratch("trace"))
    equal(name + ": the program runs as ever", (done.status, done.stdout), (0, b"done\n"))
    return done


def calls(done, tag="call"):
    return [event for event in log(done.directory) if event["tag"] == tag]


def counted(events):
    counts = {}
    for event in events:
        counts[event["function"]] = counts.get(event["function"], 0) + 1
    return counts


OWN = {"leaf": 20, "middle": 10, "outer": 10, "recursive": 5, "slow": 1, "fast": 1, "main": 1}

done = run("all", "--call", "calls:*")
seen = counted(calls(done))
equal("all: counts of calls", {name: seen.get(name) for name in OWN}, OWN)
seen = counted(calls(done, "return_from"))
equal("all: and of returns", {name: seen.get(name) for name in OWN}, OWN)
leaf = [event for event in calls(done) if event["function"] == "leaf"]
equal("all: arguments", [event["args"] for event in leaf[:2]], [[0, 1], [0, 2]])
functions = {function["function"]: function for function in report(done.directory)["functions"]}
equal("all: the report's entries", {name: functions.get(name, {}).get("entries") for name in OWN}, OWN)

done = run("by number of arguments", "--call", "calls:leaf/2", "--call", "calls:middle/2")
equal("by number of arguments: counts", counted(calls(done)), {"leaf": 20})
check("by number of arguments: the other is told of", "calls:middle/2" in done.stderr and "no function" in done.stderr, done.stderr)

done = run("notrace", "--call", "calls:*", "--notrace", "calls:*e*")
equal("notrace: counts", {name: counted(calls(done)).get(name) for name in OWN}, {**dict.fromkeys(OWN), "slow": 1, "fast": 1, "main": 1})

done = run("called from", "--call", "calls:leaf", "--called-from", "calls:middle")
equal("called from: counts", counted(calls(done)), {"leaf": 10})

done = run("depth", "--call", "calls:outer", "--call", "calls:middle", "--call", "calls:leaf", "--depth", "2")
equal("depth: counts", counted(calls(done)), {"outer": 10, "middle": 10, "leaf": 10})

done = run("longer than", "--call", "calls:*", "--notrace", "calls:main", "--notrace", "calls:_start", "--longer-than", "10ms")
equal("longer than: counts", counted(calls(done)), {"slow": 1})

done = run("limit", "--call", "calls:leaf", "--no-returns", "--limit", "5")
equal("limit: counts", counted(calls(done)), {"leaf": 5})

done = run("without values", "--call", "calls:leaf", "--no-values")
equal("without values: counts", counted(calls(done)), {"leaf": 20})
check("without values", all("args" not in event for event in calls(done)))

done = run("count", "--count", "calls:*", "--time", "calls:slow")
functions = {function["function"]: function for function in report(done.directory)["functions"]}
equal("count: entries", {name: functions.get(name, {}).get("entries") for name in OWN}, OWN)
check("count: time is told, and what was waited is none of it", 0 < functions.get("slow", {}).get("self_ns", 0) < 15e6, functions.get("slow"))
equal("count: no events", calls(done), [])

done = run("global", "--call-global", "libc.so.6:puts")
equal("global: counts", counted(calls(done)), {"puts": 1})

for options, words in ((["--call", "calls:nothing_here"], ["calls:nothing_here", "no function of that name"]),
                       (["--call", "no-such-module:*"], ["no-such-module:*", "no module of that name"])):
    done = run(options[1], *options)
    lines = done.stderr.splitlines()
    check(options[1] + ": said in one line", len(lines) == 1 and all(word in lines[0] for word in words), done.stderr)

for condition, words in (("c > 1", ["c: no parameter of leaf", "a, b"]), ("a > 1 andalso lenght == b", ["lenght: no parameter of leaf"])):
    done = run("--if " + condition, "--call", "calls:leaf", "--if", condition)
    lines = done.stderr.splitlines()
    check("--if %s: said in one line" % condition, len(lines) == 1 and all(word in lines[0] for word in words), done.stderr)
    equal("--if %s: nothing is traced" % condition, calls(done), [])
for condition in ("b == 2", "{a, b} == {1, 2} orelse b == 2", "a == true orelse b == 2"):
    equal("--if %s: is no mistake" % condition, counted(calls(run("--if", "--call", "calls:leaf", "--if", condition))), {"leaf": 10})

done = run("the loader", "--call", "ld-linux*:*")
check("the loader: is no module", "the loader is no module" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr)
done = Run([""], directory=scratch("trace"))
check("no name: is named", done.status == 127 and done.stderr.startswith("lorg: '': "), (done.status, done.stderr))

for options, words in ((["--call", "calls:leaf/x"], ["at byte 12"]), (["--call", "calls"], ["no function is named"]), (["--depth", "3"], ["--call"]),
                       (["--call", "calls:*", "--longer-than", "soon"], ["--longer-than"]), (["--call", "calls:*", "--limit", "0"], ["--limit"]),
                       (["--call", "calls:*", "--longer-than", "5"], ["--longer-than", "5ms"]), (["--call", "calls:*", "--rate", "5/week"], ["--rate"]),
                       (["-o", ""], ["-o ''", "directory"])):
    done = Run([program], options=options, directory=scratch("trace"))
    lines = done.stderr.splitlines()
    check(" ".join(options) + ": refused", done.status == 2 and done.stdout == b"" and len(lines) == 1 and lines[0].startswith("lorg: ") and
          all(word in lines[0] for word in words), (done.status, done.stderr))

finish()
