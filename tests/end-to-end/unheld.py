#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs whose threads cannot be held in time, again and again: nobody else waits for them, and in the end their code is put back.

Their threads get next to no processor: they stop seconds after they have been asked to.
"""

import os
import subprocess
import sys
import time

from livecommands import LIBRARY, Daemon, says, until
from lorgtest import check, equal, finish, fixture, lorg, scratch, skip

PROGRAMS, THREADS, LIMIT = 4, 8, 8


def code(pid):
    """All code of the program's own file."""
    found = b""
    with open("/proc/%d/maps" % pid, encoding="utf-8") as maps, open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for line in maps:
            fields = line.split()
            if len(fields) > 5 and fields[5].endswith("/attached") and "x" in fields[1]:
                start, end = (int(word, 16) for word in fields[0].split("-"))
                memory.seek(start)
                found += memory.read(end - start)
    return found


class Slow:
    def __init__(self):
        self.process = subprocess.Popen([fixture("attached"), "allocate", str(THREADS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=dict(os.environ, LD_PRELOAD=LIBRARY))
        self.process.stdout.readline()
        self.before = code(self.process.pid)

    def schedule(self, policy):
        for tid in os.listdir("/proc/%d/task" % self.process.pid):
            os.sched_setaffinity(int(tid), {min(os.sched_getaffinity(0))})
            os.sched_setscheduler(int(tid), policy, os.sched_param(0))

    def is_as_before(self):
        return code(self.process.pid) == self.before

    def end(self):
        said = self.process.communicate(b"x", timeout=60)[0]
        return said == b"right\n" and self.process.returncode == 0


def main():
    if not os.access("/proc/self/mem", os.W_OK):
        skip("unheld", "memory of programs cannot be written to")
        finish()
    os.environ["LORG_LIBRARY"] = LIBRARY
    daemon = Daemon()
    programs = [Slow() for _ in range(PROGRAMS)]
    recording = scratch("recording")
    says("session", "create", "slow", "--persist", "-o", recording)
    says("process", "slow", "all", "on", "call")
    equal("functions", says("function", "slow", "attached:c*", "--local").isdigit(), True)
    check("all are hooked", until(lambda: not any(program.is_as_before() for program in programs), 20))
    for program in programs:
        program.schedule(os.SCHED_IDLE)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    for process in busy:
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    time.sleep(0.3)
    begin = time.monotonic()
    equal("the session is gone", says("session", "destroy", "slow"), "true")
    check("its end does not wait for them", time.monotonic() - begin < LIMIT, time.monotonic() - begin)
    print("     destroy took %.1f s, and left %d of %d" % (time.monotonic() - begin, sum(not p.is_as_before() for p in programs), PROGRAMS))
    begin = time.monotonic()
    for _ in range(5):
        equal("sessions", says("session", "list"), "")
    check("nor does anybody else", time.monotonic() - begin < LIMIT, time.monotonic() - begin)
    print("     five requests took %.1f s" % (time.monotonic() - begin))
    for process in busy:
        process.kill()
        process.wait()
    for program in programs:
        program.schedule(os.SCHED_OTHER)
    check("all code is put back", until(lambda: all(program.is_as_before() for program in programs), 40))
    status, said, _ = lorg("report", recording)
    equal("the recording", status, 0)
    check("it says that code was left", b"stay hooked for now" in said, said.decode(errors="replace"))
    for program in programs:
        check("the program", program.end())
    equal("lorgd", daemon.end(), 0)
    finish()


main()
