#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What keeps calls from being told: depth, time, callers, notrace, limits; with threads, and of modules that come later.

A function whose limit has run out is looked at by the program itself: its entry must be again what it was.
"""

import os
import subprocess

from lorgtest import SCRATCH, Run, check, equal, finish, log, report, scratch

MS = 1000000

SOURCE = r"""
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define KEEP __attribute__((noinline, noclone, used))
#define NOT_LAST __asm__ volatile("" : : : "memory")
volatile long sink;
unsigned char before[16];
static long now_ms(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
KEEP long limited(long a) { return a * 3 + sink; }
KEEP long other(long a) { return limited(a) + 1; }
KEEP long recursive(long n) { long r = n ? recursive(n - 1) + 1 : 0; NOT_LAST; return r; }
KEEP void burns(long ms) { long end = now_ms() + ms; while (now_ms() < end); NOT_LAST; }
KEEP void outer(void) { burns(30); burns(1); burns(40); burns(1); NOT_LAST; }
KEEP long deep(long n) { sink += n; long r = n ? deep(n - 1) + limited(n) : 0; NOT_LAST; return r; }
/* How many ms until the entry is as it was; -1: never. */
static long until_as_before(void)
{
	long begun = now_ms();
	for (;;) {
		if (!memcmp(before, (const void *)limited, sizeof before))
			return now_ms() - begun;
		if (now_ms() - begun > 3000)
			return -1;
		usleep(500);
	}
}
static void *thread(void *n) { for (long i = 0; i < (long)n; i++) { sink += other(i); sink += limited(i); } return 0; }
static void limit_of(long threads, long calls)
{
	pthread_t made[16];
	for (long i = 0; i < threads; i++) pthread_create(&made[i], 0, thread, (void *)calls);
	if (!threads) thread((void *)calls);
	long ms = until_as_before();
	for (long i = 0; i < threads; i++) pthread_join(made[i], 0);
	for (long i = 0; i < 100; i++) sink += limited(i);
	printf("%ld\n", ms);
}
int main(int argc, char **argv)
{
	const char *what = argv[1];
	FILE *self = fopen(argv[0], "r");
	/* The bytes of its own file: it is not position independent. */
	if (!self || fseek(self, (long)limited - 0x400000, SEEK_SET) || fread(before, 1, sizeof before, self) != sizeof before) abort();
	fclose(self);
	if (!strcmp(what, "limit")) limit_of(atol(argv[2]), atol(argv[3]));
	if (!strcmp(what, "deep")) { deep(5); puts("0"); }
	if (!strcmp(what, "recursive")) { recursive(9); puts("0"); }
	if (!strcmp(what, "longer")) { for (int i = 0; i < 3; i++) outer(); puts("0"); }
	if (!strcmp(what, "plugin")) {
		limited(1);
		void *plugin = dlopen(argv[2], RTLD_NOW);
		long (*run)(long (*)(long)) = (long (*)(long (*)(long)))dlsym(plugin, "plugin_runs");
		for (int i = 0; i < 3; i++) sink += run(limited);
		limited(2);
		puts("0");
	}
	return 0;
}
"""

PLUGIN = r"""
#define KEEP __attribute__((noinline, noclone, used))
volatile long plugin_sink;
KEEP long plugin_inner(long a) { return a + plugin_sink; }
long plugin_runs(long (*function)(long)) { long r = function(7) + plugin_inner(5) + plugin_inner(6); plugin_sink = r; return r; }
"""

program, plugin = os.path.join(SCRATCH, "filtered"), os.path.join(SCRATCH, "plugin.so")
for path, source, options in ((program, SOURCE, ["-no-pie", "-fno-pie", "-pthread"]), (plugin, PLUGIN, ["-shared", "-fPIC"])):
    with open(path + ".c", "w", encoding="ascii") as out:
        out.write(source)
    subprocess.run(["gcc", "-O1", "-g", *options, path + ".c", "-o", path], check=True)


def run(name, arguments, *options):
    done = Run([program, *arguments], options=options, directory=scratch("trace"))
    check(name + ": the program runs as ever", done.status == 0 and done.stdout, done.why())
    return done


def tagged(done, *tags):
    return [event for event in log(done.directory) if event["tag"] in tags]


def counted(events):
    counts = {}
    for event in events:
        counts[event["function"]] = counts.get(event["function"], 0) + 1
    return counts


# ---- limits

for threads in (0, 1, 4):
    for limit, extra in ((1, []), (7, []), (1000, ["--no-returns"]), (1001, ["--no-values"]), (10, ["--rate"]), (501, ["--return-to"])):
        option = "--rate" if extra == ["--rate"] else "--limit"
        name = "%s %d, %d threads %s" % (option, limit, threads, " ".join(extra))
        done = run(name, ["limit", str(threads), "3000"], "--call", "filtered:limited", option, "%d%s" % (limit, "/s" if option == "--rate" else ""), *(extra if extra != ["--rate"] else []))
        told = tagged(done, "call", "return_from")
        # The second of the rate may be over in the middle on a machine that is busy.
        check(name + ": exactly as many events", len(told) == limit or (option == "--rate" and limit <= len(told) <= 2 * limit), len(told))
        equal(name + ": one event says so", len(tagged(done, "limit")), 1)
        ms = int(done.stdout)
        check(name + ": the entry is as before", 0 <= ms <= 100, ms)

done = run("limit with callers", ["limit", "0", "50"], "--call", "filtered:limited", "--limit", "9", "--called-from", "filtered:other",
           "--called-from", "filtered:thread")
equal("a limit is the function's, whoever calls", len(tagged(done, "call", "return_from")), 9)

done = run("limit and count", ["limit", "0", "50"], "--call", "filtered:limited", "--limit", "5", "--count", "filtered:limited")
equal("counting goes on behind a limit: events", len(tagged(done, "call", "return_from")), 5)
equal("counting goes on behind a limit: count", [row["count"] for row in report(done.directory)["counted"]], [200])

done = run("limit of long calls", ["longer"], "--call", "filtered:burns", "--longer-than", "20ms", "--limit", "4")
equal("short calls use up no limit", counted(tagged(done, "call")), {"burns": 2})

# ---- depth

done = run("depth", ["recursive"], "--call", "filtered:recursive", "--depth", "3")
equal("depth: counts", (len(tagged(done, "call")), len(tagged(done, "return_from"))), (3, 3))
done = run("depth without returns", ["recursive"], "--call", "filtered:recursive", "--depth", "3", "--no-returns")
equal("depth without returns: counts", (len(tagged(done, "call")), len(tagged(done, "return_from"))), (3, 0))
done = run("depth and counts", ["deep"], "--call", "filtered:limited", "--depth", "1", "--time", "filtered:deep", "--memory", "filtered:deep")
equal("counted calls have no depth", counted(tagged(done, "call")), {"limited": 5})

# ---- time

done = run("longer than", ["longer"], "--call", "filtered:burns", "--call", "filtered:outer", "--longer-than", "20ms")
equal("longer than: counts", counted(tagged(done, "call")), {"burns": 6, "outer": 3})
functions = {f["function"]: f for f in report(done.directory)["functions"]}
check("longer than: the time of callees is theirs", functions["outer"]["self_ns"] < functions["outer"]["total_ns"] - 60 * 3 * MS, functions)
check("longer than: and none is taken away twice", abs(functions["outer"]["self_ns"] + functions["burns"]["self_ns"] -
                                                       functions["outer"]["total_ns"]) < 100, functions)

# ---- callers

done = run("a caller that comes later", ["plugin", plugin], "--call", "filtered:limited", "--called-from", "plugin.so:*")
equal("a caller that comes later: counts", counted(tagged(done, "call")), {"limited": 3})
done = run("a caller among others", ["plugin", plugin], "--call", "filtered:limited", "--called-from", "filtered:main", "--called-from", "plugin.so:plugin_runs")
equal("a caller among others: counts", counted(tagged(done, "call")), {"limited": 5})
done = run("not by others", ["plugin", plugin], "--call", "filtered:limited", "--called-from", "plugin.so:plugin_inner")
equal("not by others: counts", counted(tagged(done, "call")), {})

# ---- modules that come later

done = run("a module that comes later", ["plugin", plugin], "--call", "plugin.so:*")
seen = counted(tagged(done, "call"))
equal("a module that comes later: counts", {name: seen.get(name) for name in ("plugin_runs", "plugin_inner")}, {"plugin_runs": 3, "plugin_inner": 6})
check("a module that comes later: nothing is complained of", "no module" not in done.stderr and "no function" not in done.stderr, done.stderr)
done = run("a module that comes later, in part", ["plugin", plugin], "--call", "*:plugin_*", "--notrace", "plugin.so:*_inner")
equal("notrace in a module that comes later", counted(tagged(done, "call")), {"plugin_runs": 3})

finish()
