#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SIGKILL at random moments: every event that the program had committed is in the directory.

LORG_TEST_KILLS sets how often (40; the long run of this test takes 200).
"""

import collections
import json
import os
import random
import signal
import struct
import subprocess
import time

from lorgtest import LORG, check, descendants, finish, fixture, lorg, scratch

KILLS = int(os.environ.get("LORG_TEST_KILLS", 40))
THREADS = 3


def once(number, generator):
    """One run, killed; returns what was wrong with it, or None."""
    directory, progress = scratch("trace"), scratch("progress")
    process = subprocess.Popen([LORG, "run", "-o", directory, "--", fixture("committed"), progress, str(THREADS)],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.05)
    deadline = time.monotonic() + 10
    pid = None
    while pid is None and time.monotonic() < deadline:
        pid = first_program(process.pid)
        time.sleep(0.005)
    if pid is None:
        process.kill()
        return "the program did not start: %s" % process.communicate()[1][-300:]
    time.sleep(generator.uniform(0, 0.12))
    os.kill(pid, signal.SIGKILL)
    try:
        _, error = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        return "lorg run did not end"
    if process.returncode not in (137, -9):
        return "ended with %s, not as the program did: %s" % (process.returncode, error[-300:])
    return compare(directory, progress)


def first_program(parent):
    """The pid of the traced program: the one below lorg run that has become it."""
    return next((pid for pid, name in descendants(parent) if name == "committed"), None)


def compare(directory, progress):
    with open(progress, "rb") as stream:
        raw = stream.read()
    wanted = {tid: (calls, sends, receives) for tid, calls, sends, receives in struct.iter_unpack("<4Q", raw) if tid}
    status, said, error = lorg("log", "--format", "json", directory)
    if status != 0:
        return "lorg log: %s %s" % (status, error[-300:])
    got = collections.Counter()
    exits = 0
    for line in said.splitlines():
        # Millions of lines: only what is counted is parsed.
        if b'"exit_function"' in line or b'"send"' in line or b'"receive"' in line or b'"exit"' in line:
            event = json.loads(line)
            got[(event["thread"], event["tag"])] += 1
            exits += event["tag"] == "exit" and event.get("reason") in ({"signal": 9}, {"signal": "sigkill"})
    for tid, (calls, sends, receives) in wanted.items():
        for tag, least in (("exit_function", calls), ("send", sends), ("receive", receives)):
            if not least <= got[(tid, tag)] <= least + 1:
                return "thread %d: %d %s recorded, %d made" % (tid, got[(tid, tag)], tag, least)
    return None if exits else "no exit event names signal 9"


def main():
    seed = int(os.environ.get("LORG_TEST_SEED", time.time_ns() % 100000))
    generator = random.Random(seed)
    wrong = [(number, why) for number in range(KILLS) for why in [once(number, generator)] if why]
    check("SIGKILL %d times" % KILLS, not wrong, "seed %d: %d wrong, first: %s" % (seed, len(wrong), wrong[:3]))
    finish()


if __name__ == "__main__":
    main()
