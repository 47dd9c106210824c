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
CREWS, CREW = int(os.environ.get("LORG_TEST_CREWS", 80)), 200


def ask(process, what):
    process.stdin.write(what.encode() + b"\n")
    process.stdin.flush()
    return process.stdout.readline() == b"done\n"


def settled(collector, most=(0, 0, 0)):
    """What the collector holds once it has had time to clear up: some seconds, or until it is no more than `most`."""
    least, until = None, time.monotonic() + (4 if most == (0, 0, 0) else 20)
    while time.monotonic() < until and (least is None or any(have > may for have, may in zip(least, most))):
        time.sleep(0.1)
        now = (collector.descriptors(), collector.mappings(), collector.memory_kb())
        least = now if least is None else tuple(map(min, least, now))
    return least


def main():
    directory = scratch("trace")
    process = subprocess.Popen([LORG, "run", "-o", directory, "--", fixture("crowd")], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if not check("starts", ask(process, "alive 10") and ask(process, "crews 1") and ask(process, "children 10"), "no answer"):
        finish()
    collector = Collector(process.pid)
    before = settled(collector)
    for what in ("alive %d" % ALIVE, "sequence %d" % SEQUENCE, "crews %d" % CREWS, "children %d" % CHILDREN):
        if not check(what, ask(process, what), "no answer"):
            break
        # Of its own, a few bytes a thread that was there at once; of the programs' chunks and threads what is kept warm.
        most = before[0] + 8, before[1] + 40, before[2] + 16 * 1024
        after = settled(collector, most)
        for which, have, may in zip(("descriptors", "mappings", "memory (kB)"), after, most):
            check("%s: %s of the collector are back" % (what, which), have <= may, "%r, then %r" % (before, after))
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
    threads, forks = ALIVE + SEQUENCE + (CREWS + 1) * CREW + 10, CHILDREN + 10 + CREWS + 1
    equal("threads spawned", seen["spawn", "thread"], threads)
    equal("threads ended", seen["exit", "thread"], threads)
    equal("children spawned", seen["spawn", "fork"], forks)
    equal("programs executed", seen["exec"], CHILDREN + 10)
    equal("programs ended", seen["exit", "program"], forks + 1)
    equal("bytes sent by threads", seen["send"], threads)
    number = lost(directory)
    check("lost", number == 0, number and [event for event in log(directory) if event["tag"] in ("lost", "gap")])
    check("nothing said on stderr but lorg's own", not [l for l in error.splitlines() if l and not l.startswith("lorg")], error)
    finish()


if __name__ == "__main__":
    main()
