#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Thousands of threads at once and one after the other, thousands of children: all there, and nothing of them left over."""

import collections
import os
import subprocess
import time

from lorgtest import LORG, Collector, check, equal, finish, fixture, log, lost, scratch

ALIVE = int(os.environ.get("LORG_TEST_ALIVE", 4000))
SEQUENCE = int(os.environ.get("LORG_TEST_SEQUENCE", 20000))
CHILDREN = int(os.environ.get("LORG_TEST_CHILDREN", 3000))


def ask(process, what):
    process.stdin.write(what.encode() + b"\n")
    process.stdin.flush()
    return process.stdout.readline() == b"done\n"


def settled(collector):
    """What the collector holds once it has had time to clear up."""
    least = None
    for _ in range(40):
        time.sleep(0.1)
        now = (collector.descriptors(), collector.mappings(), collector.memory_kb())
        least = now if least is None else tuple(map(min, least, now))
    return least


def main():
    directory = scratch("trace")
    process = subprocess.Popen([LORG, "run", "-o", directory, "--", fixture("crowd")], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if not check("starts", ask(process, "alive 10") and ask(process, "children 10"), "no answer"):
        finish()
    collector = Collector(process.pid)
    before = settled(collector)
    for what in ("alive %d" % ALIVE, "sequence %d" % SEQUENCE, "children %d" % CHILDREN):
        if not check(what, ask(process, what), "no answer"):
            break
        after = settled(collector)
        check("%s: descriptors of the collector are back" % what, after[0] <= before[0] + 8, "%d, then %d" % (before[0], after[0]))
        check("%s: mappings of the collector are back" % what, after[1] <= before[1] + 40, "%d, then %d" % (before[1], after[1]))
        # A thread's record is small and stays for its name; of its chunks only what was in use at once, while lorg was behind.
        check("%s: memory of the collector is back" % what, after[2] <= before[2] + 96 * 1024,
              "%d kB, then %d kB" % (before[2], after[2]))
    process.stdin.close()
    error = process.stderr.read().decode(errors="replace")
    equal("exit status", process.wait(), 0)
    seen = collections.Counter()
    for event in log(directory):
        tag = event["tag"]
        if tag == "spawn":
            seen["spawn", event["how"]] += 1
        elif tag == "exec":
            seen["exec"] += 1
        elif tag == "exit":
            # An exec ends what was there, not the program. Numbers are used again: events are counted, not pids.
            if event["thread"] not in (event["program"], 0, None):
                seen["exit", "thread"] += 1
            elif event["reason"] != "exec":
                seen["exit", "program"] += 1
        elif tag == "send":
            seen["send"] += event.get("fd") != 1
    threads = ALIVE + SEQUENCE + 10
    equal("threads spawned", seen["spawn", "thread"], threads)
    equal("threads ended", seen["exit", "thread"], threads)
    equal("children spawned", seen["spawn", "fork"], CHILDREN + 10)
    equal("programs executed", seen["exec"], CHILDREN + 10)
    equal("programs ended", seen["exit", "program"], CHILDREN + 11)
    equal("bytes sent by threads", seen["send"], threads)
    equal("lost", lost(directory), 0)
    check("nothing said on stderr but lorg's own", not [l for l in error.splitlines() if l and not l.startswith("lorg")], error)
    finish()


if __name__ == "__main__":
    main()
