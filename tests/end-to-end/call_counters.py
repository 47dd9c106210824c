#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""call_count, call_time and call_memory: what is counted of functions without events, a thread each, in every way that a
call begins and ends: recursion, tail calls, threads, fork and vfork, longjmp, exceptions, and ends that no call returns from."""

import os
import re
import signal
import subprocess

from lorgtest import SCRATCH, Run, check, equal, finish, log, lorg, report, scratch

MS = 1000000

SOURCE = r"""
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define KEEP extern "C" __attribute__((noinline, noclone, used))
#define NOT_LAST __asm__ volatile("" : : : "memory")
volatile long sink;
jmp_buf place;
sigjmp_buf signal_place;
static void burn(long ms)
{
	struct timespec now, until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += ms * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec < until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec));
}
KEEP void leaf(void) { sink++; }
KEEP int recursive(int n) { int r = n ? 1 + recursive(n - 1) : 0; NOT_LAST; return r; }
KEEP void last_of_tail(void) { sink++; burn(20); }
KEEP void middle_of_tail(void) { sink++; last_of_tail(); }
KEEP void first_of_tail(void) { sink++; middle_of_tail(); }
KEEP void jumps(void) { burn(10); longjmp(place, 1); }
KEEP void jumped_over(void) { burn(10); jumps(); NOT_LAST; }
KEEP void throws(void) { burn(10); throw 1; }
KEEP void thrown_through(void) { burn(10); throws(); NOT_LAST; }
KEEP void inner(void) { burn(30); NOT_LAST; }
KEEP void outer(void) { burn(20); inner(); burn(10); NOT_LAST; }
KEEP void waits(void) { burn(10); usleep(50000); burn(10); NOT_LAST; }
KEEP void waits_inside(void) { waits(); usleep(20000); NOT_LAST; }
KEEP void never_returns(void) { burn(30); exit(3); }
KEEP void is_killed(void) { burn(40); NOT_LAST; kill(getpid(), SIGKILL); pause(); }
KEEP void killed_in_wait(void) { burn(20); alarm(1); pause(); }
KEEP void *takes(long bytes) { void *p = malloc(bytes); sink += (long)p; NOT_LAST; return p; }
KEEP void takes_inside(void) { free(takes(800)); free(malloc(80)); NOT_LAST; }
KEEP void grows(void) { void *p = malloc(24); p = realloc(p, 8184); sink += (long)p; free(p); NOT_LAST; }
KEEP void takes_new(void) { long *p = new long[100]; sink += (long)p; delete[] p; free(calloc(10, 8)); NOT_LAST; }
KEEP void takes_and_throws(void) { sink += (long)malloc(400); throw 1; }
KEEP void takes_and_stays(void) { free(malloc(800)); exit(0); }
KEEP void parent_and_child(int how) { leaf(); int child = how ? vfork() : fork(); if (!child) { leaf(); leaf(); if (!how) burn(20); _exit(0); } waitpid(child, 0, 0); NOT_LAST; }
KEEP void in_child(void) { leaf(); int child = fork(); free(malloc(child ? 80 : 160)); burn(20); leaf(); NOT_LAST; if (child) waitpid(child, 0, 0); }
KEEP void spawns(void) { for (int i = 0; i < 20; i++) if (system("exit 0")) abort(); NOT_LAST; }
KEEP void exits_thread(void) { leaf(); burn(10); pthread_exit(0); }
static void on_alarm(int) { leaf(); siglongjmp(signal_place, 1); }
KEEP void left_in_wait(void)
{
	struct itimerspec soon = {}; soon.it_value.tv_nsec = 30000000;
	timer_t timer;
	signal(SIGALRM, on_alarm);
	timer_create(CLOCK_MONOTONIC, 0, &timer);
	if (!sigsetjmp(signal_place, 1)) { timer_settime(timer, 0, &soon, 0); pause(); }
	burn(30);
	NOT_LAST;
}
static void map_over(void)
{
	char line[512], flags[5];
	unsigned long from, to;
	FILE *maps = fopen("/proc/self/maps", "r");
	for (int i = 0; i < 100; i++) leaf();
	while (fgets(line, sizeof line, maps))
		if (sscanf(line, "%lx-%lx %4s", &from, &to, flags) == 3 && flags[3] == 's' && to - from > 1 << 20) {
			mmap((void *)from, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
			for (int i = 0; i < 100; i++) leaf();
			for (char *at = (char *)from; at < (char *)to; at++) if (*at) abort();
		}
	for (int i = 0; i < 100; i++) leaf();
	fclose(maps);
}
static void *thread(void *n) { for (long i = 0; i < (long)n; i++) leaf(); if ((long)n == 3000) exits_thread(); return 0; }
static void pick(const char *what)
{
	if (!strcmp(what, "recursion")) { for (int i = 0; i < 3; i++) recursive(9); }
	if (!strcmp(what, "tail")) for (int i = 0; i < 2; i++) first_of_tail();
	if (!strcmp(what, "jump")) for (int i = 0; i < 3; i++) { if (!setjmp(place)) jumped_over(); leaf(); }
	if (!strcmp(what, "throw")) for (int i = 0; i < 3; i++) { try { thrown_through(); } catch (int) { leaf(); } }
	if (!strcmp(what, "nested")) outer();
	if (!strcmp(what, "waits")) waits_inside();
	if (!strcmp(what, "left-in-wait")) left_in_wait();
	if (!strcmp(what, "exit")) never_returns();
	if (!strcmp(what, "killed")) is_killed();
	if (!strcmp(what, "killed-in-wait")) killed_in_wait();
	if (!strcmp(what, "memory")) { free(takes(16)); takes_inside(); grows(); takes_new(); }
	if (!strcmp(what, "memory-thrown")) { try { takes_and_throws(); } catch (int) {} free(malloc(8000)); }
	if (!strcmp(what, "memory-stays")) takes_and_stays();
	if (!strcmp(what, "fork")) parent_and_child(0);
	if (!strcmp(what, "vfork")) for (int i = 0; i < 3; i++) parent_and_child(1);
	if (!strcmp(what, "in-child")) in_child();
	if (!strcmp(what, "over")) map_over();
	if (!strcmp(what, "spawns")) { leaf(); spawns(); leaf(); }
	if (!strcmp(what, "threads")) {
		pthread_t threads[4];
		for (long i = 0; i < 4; i++) pthread_create(&threads[i], 0, thread, (void *)(i * 1000));
		for (int i = 0; i < 4; i++) pthread_join(threads[i], 0);
	}
}
int main(int, char **argv) { pick(argv[1]); return 0; }
"""

program = os.path.join(SCRATCH, "counted")
with open(program + ".cc", "w", encoding="ascii") as out:
    out.write(SOURCE)
# Without builtins, or malloc and free go away together.
subprocess.run(["g++", "-O2", "-g", "-pthread", "-fno-builtin", program + ".cc", "-o", program], check=True)


def run(what, *options, status=0):
    done = Run([program, what], options=options, directory=scratch("trace"))
    check(what + ": it runs as ever", (done.status, done.stdout) == (status, b""), done.why())
    return done


def counters(done):
    """{function: {process: {count, time_ns, words}}}, summed."""
    found = {}
    for event in log(done.directory, "--kind", "counts"):
        if event["tag"] != "function_counters":
            continue
        row = found.setdefault(event["function"], {}).setdefault(event["process"], {"count": 0})
        for key in ("count", "time_ns", "words"):
            if key in event:
                row[key] = row.get(key, 0) + event[key]
    return found


def summed(found, key="count"):
    return {function: sum(row.get(key, 0) for row in rows.values()) for function, rows in found.items()}


def near(name, ns, ms, slack=12):
    """What the program spends itself, by the clock on the wall; a loaded machine adds some."""
    return check(name, ms * MS * 0.9 <= ns <= (ms + slack) * MS * 1.5, "%.1f ms, not %d" % (ns / MS, ms))


# ---- counts

done = run("recursion", "--count", "counted:recursive")
equal("recursion: counts", summed(counters(done)), {"recursive": 30})
equal("recursion: no events of calls", [e for e in log(done.directory) if e["tag"] in ("call", "return_from")], [])

done = run("tail", "--count", "counted:*_of_tail")
equal("tail calls: counts", summed(counters(done)), {"first_of_tail": 2, "middle_of_tail": 2, "last_of_tail": 2})

done = run("threads", "--count", "counted:leaf")
equal("threads: counts", sorted(row["count"] for row in counters(done)["leaf"].values()), [1000, 2000, 3001])
rows = [row for row in report(done.directory)["counted"] if row["function"] == "leaf"]
equal("threads: the report's counts", sorted(row["count"] for row in rows), [1000, 2000, 3001])
equal("threads: and its sum", [f["entries"] for f in report(done.directory)["functions"] if f["function"] == "leaf"], [6001])

done = run("fork", "--count", "counted:leaf")
equal("fork: counts", sorted(row["count"] for row in counters(done)["leaf"].values()), [1, 2])

done = run("vfork", "--count", "counted:leaf")
equal("vfork: the child's counts are not its parent's", sorted(row["count"] for row in counters(done)["leaf"].values()), [2, 2, 2, 3])

done = run("spawns", "--count", "counted:leaf", "--count", "counted:spawns")
equal("spawns: counts go on behind children on one's memory", summed(counters(done)), {"leaf": 2, "spawns": 1})

# ---- time

done = run("nested", "--time", "counted:outer", "--time", "counted:inner")
found = counters(done)
equal("nested: counts", summed(found), {"outer": 1, "inner": 1})
near("nested: outer's own time", summed(found, "time_ns")["outer"], 30)
near("nested: inner's", summed(found, "time_ns")["inner"], 30)
functions = {f["function"]: f for f in report(done.directory)["functions"]}
near("nested: in the report", functions["outer"]["self_ns"], 30)

done = run("nested", "--time", "counted:outer")
near("nested: callees that are not timed are the caller's", summed(counters(done), "time_ns")["outer"], 60)

done = run("tail", "--time", "counted:*_of_tail")
found = summed(counters(done), "time_ns")
near("tail calls: the last one's time", found["last_of_tail"], 40)
check("tail calls: the first one's", found["first_of_tail"] < 5 * MS, found)

done = run("waits", "--time", "counted:waits*")
found = counters(done)
near("waits: what is waited for is no time", summed(found, "time_ns")["waits"], 20)
check("waits: of the caller neither", summed(found, "time_ns")["waits_inside"] < 10 * MS, found)

done = run("left-in-wait", "--time", "counted:left_in_wait", "--time", "counted:leaf")
near("a wait left by a jump ends", summed(counters(done), "time_ns")["left_in_wait"], 30)

for what, names in (("jump", ("jumped_over", "jumps")), ("throw", ("thrown_through", "throws"))):
    done = run(what, *[word for name in (*names, "leaf") for word in ("--time", "counted:" + name)])
    found = counters(done)
    equal(what + ": counts", summed(found), {names[0]: 3, names[1]: 3, "leaf": 3})
    for name in names:
        near("%s: time of %s" % (what, name), summed(found, "time_ns")[name], 30)
    check(what + ": and of the one that is called next", summed(found, "time_ns")["leaf"] < 5 * MS, found)

done = run("exit", "--time", "counted:never_returns", status=3)
found = counters(done)
equal("never returns: count", summed(found), {"never_returns": 1})
near("never returns: time up to the end", summed(found, "time_ns")["never_returns"], 30)

done = run("killed", "--time", "counted:is_killed", "--count", "counted:leaf", status=-signal.SIGKILL)
found = counters(done)
equal("SIGKILL: count", summed(found).get("is_killed"), 1)
near("SIGKILL: time up to the end", summed(found, "time_ns").get("is_killed", 0), 40, slack=60)

done = run("killed-in-wait", "--time", "counted:killed_in_wait", status=-signal.SIGALRM)
near("killed in a wait: that is no time", summed(counters(done), "time_ns").get("killed_in_wait", 0), 20)

done = run("threads", "--time", "counted:exits_thread", "--time", "counted:leaf")
found = counters(done)
equal("pthread_exit: counts", summed(found), {"exits_thread": 1, "leaf": 6001})
near("pthread_exit: time", summed(found, "time_ns")["exits_thread"], 10)

done = run("in-child", "--time", "counted:in_child", "--memory", "counted:in_child", "--count", "counted:leaf")
found = counters(done)
equal("fork inside: counts", sorted(row["count"] for row in found["in_child"].values()), [0, 1])
for row in found["in_child"].values():
    near("fork inside: the %s's time" % ("parent" if row["count"] else "child"), row["time_ns"], 20, slack=150) # a fork takes long where others work, too
equal("fork inside: words", sorted(row["words"] for row in found["in_child"].values()), [10, 20])
equal("fork inside: other counts", sorted(row["count"] for row in found["leaf"].values()), [1, 2])

# ---- memory

done = run("memory", "--memory", "counted:takes*", "--memory", "counted:grows")
found = counters(done)
equal("memory: counts", summed(found), {"takes": 2, "takes_inside": 1, "grows": 1, "takes_new": 1})
equal("memory: words", summed(found, "words"), {"takes": 102, "takes_inside": 10, "grows": 3 + 1020, "takes_new": 110})
equal("memory: the report's words", {f["function"]: f["words"] for f in report(done.directory)["counted"]},
      {"takes": 102, "takes_inside": 10, "grows": 1023, "takes_new": 110})

done = run("memory", "--memory", "counted:takes_inside")
equal("memory: of callees that are not traced, too", summed(counters(done), "words"), {"takes_inside": 110})

done = run("memory-thrown", "--memory", "counted:takes_and_throws")
found = summed(counters(done), "words")
# What the exception itself takes is allocated inside of the call.
check("memory: an exception ends it", 50 <= found["takes_and_throws"] <= 90, found)

done = run("memory-stays", "--memory", "counted:takes_and_stays")
equal("memory: of a call that never returns", summed(counters(done), "words"), {"takes_and_stays": 100})

# ---- where counters stand

# A program that maps memory of its own where the counters stood: they go elsewhere, and its memory stays as it is.
done = run("over", "--count", "counted:leaf")
# There are one or two mappings as large.
check("mapped over: counts", summed(counters(done)).get("leaf") in (300, 400), counters(done))

# ---- how it is told

done = run("memory", "--count", "counted:grows", "--time", "counted:takes", "--memory", "counted:takes_inside")
_, said, _ = lorg("log", "--format", "erlang", "--kind", "counts", done.directory)
for pattern in (r"\{trace,<\d+\.\d+\.0>,info,\{counted,grows,\d+\},\[\{call_count,1\}\]\}",
                r"\{trace,<\d+\.\d+\.0>,info,\{counted,takes,\d+\},\[\{call_count,2\},\{call_time,\[\{<\d+\.\d+\.0>,2,0,\d+\}\]\}\]\}",
                r"\{trace,<\d+\.\d+\.0>,info,\{counted,takes_inside,\d+\},\[\{call_count,1\},\{call_memory,\[\{<\d+\.\d+\.0>,1,110\}\]\}\]\}"):
    check("Erlang: " + pattern[32:60], re.search(pattern, said.decode()), said.decode()[:800])
_, said, _ = lorg("log", "--kind", "counts", done.directory)
check("people: counts", re.search(r"takes_inside/\d+ 1 call memory 110 words", said.decode()), said.decode()[:800])
_, said, _ = lorg("report", done.directory)
check("people: the report", re.search(r"\n\s+1\s+-\s+110\s+<\d+\.\d+> counted:takes_inside\n", said.decode()), said.decode()[:1500])

finish()
