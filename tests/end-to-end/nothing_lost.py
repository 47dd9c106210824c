#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Eight threads and millions of events: all of them are in the directory, or exactly so many as are missing were counted.

LORG_TEST_EVENTS sets the number of events (5,000,000; the long run of this test takes 50,000,000).
"""

import os
import subprocess

from lorgtest import Run, babeltrace_events, check, equal, finish, fixture, log, lost, report, scratch

EVENTS = int(os.environ.get("LORG_TEST_EVENTS", 5000000))
THREADS = 8


def entries(directory):
    """Entries of the counted function, by the report."""
    return sum(f["entries"] for f in report(directory)["functions"] if "counted_leaf" in f["function"])


def main():
    calls = EVENTS // THREADS // 2
    program = [fixture("many_events"), str(THREADS), str(calls)]
    made = THREADS * calls

    run = Run(program, directory=scratch("block"), limit=600)
    if check("block: runs as without", run.status == 0 and run.stdout == b"%d\n" % (2 * made), run.why()):
        equal("block: entries in the report", entries(run.directory), made)
        equal("block: nothing lost", lost(run.directory), 0)
        events = babeltrace_events(run.directory)
        check("block: babeltrace2 reads it", events >= 2 * made, "%d events" % events)
        threads = report(run.directory)["threads"]
        check("block: every thread is there", len(threads) >= THREADS + 1, len(threads))

    # Only calls, and the ends of threads, which are always told: one that is missing was lost and counted, too.
    run = Run(program, ["--kinds", "calls", "--overflow", "discard"], directory=scratch("discard"), limit=600)
    if check("discard: runs as without", run.status == 0 and run.stdout == b"%d\n" % (2 * made), run.why()):
        calls, ends = events_seen(run.directory)
        equal("discard: seen and lost are all", calls + ends + lost(run.directory), 2 * made + THREADS + 1)

    small = Run([program[0], str(THREADS), "2000"], directory=scratch("small"))
    if check("small: runs", small.status == 0, small.why()):
        ours = log(small.directory)
        enters = sum(1 for event in ours if event["tag"] == "enter" and "counted_leaf" in str(event.get("function")))
        equal("small: enter events in the log", enters, THREADS * 2000)
        hlc = [event["hlc"] for event in ours if event.get("hlc")]
        check("small: stamps strictly increase", all(a < b for a, b in zip(hlc, hlc[1:])), "they do not")
    finish()


def events_seen(directory):
    """Calls and returns of instrumented functions, and ends of threads that they told themselves, as babeltrace2 prints them."""
    reader = subprocess.Popen(["babeltrace2", directory], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    calls = ends = 0
    for line in reader.stdout:
        calls += b" enter: " in line or b" exit_function: " in line
        ends += b" exit: " in line and b"outside = 0" in line
    reader.wait()
    return calls, ends


if __name__ == "__main__":
    main()
