#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What one client asks of programs with very many functions (a compiler, node) holds up nobody else: not the other clients, and not the
taking of events."""

import os
import shutil
import signal
import subprocess
import threading
import time

from lorgctl import BUILD, Session, library, start_daemon
from lorgtest import check, equal, finish, fixture, scratch, skip

# What holds lorgd by itself takes seconds on a machine at rest; a busy one makes everybody wait, also where nothing big is asked.
LONGEST, TIMES = 0.5, 6


def environment():
    return dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "preload", "liblorg.so"))


class Program:
    """One that waits for its input."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def end(self):
        self.process.kill()
        self.process.stdin.close()
        self.process.wait(timeout=20)


class Watcher(threading.Thread):
    """The second client: asks little, again and again, and sees its own events come."""

    def __init__(self, lib, pid):
        super().__init__()
        self.session = Session(lib, name="watcher")
        self.session.call("process", "<%d>" % pid, 1, "[call]")
        self.session.call("function", "{counted,work,1}", "true", "[call_count]")
        self.ending, self.longest, self.asked, self.what = False, 0.0, 0, ""

    def measure(self, what, *arguments):
        begin = time.monotonic()
        self.session.call(*arguments)
        taken = time.monotonic() - begin
        self.asked += 1
        if taken > self.longest:
            self.longest, self.what = taken, what

    def run(self):
        while not self.ending:
            self.measure("info", "info", "{counted,work,1}", "call_count")
            self.measure("function", "function", "{counted,takes,1}", "true" if self.asked & 2 else "false", "[call_count]")
            time.sleep(0.002)

    def end(self):
        self.ending = True
        self.join()
        self.session.free()
        return self.longest


def usual(lib, pid):
    """What it waits for the longest where nobody else asks."""
    watcher = Watcher(lib, pid)
    watcher.start()
    time.sleep(1.5)
    return watcher.end()


def asks(lib, pid, name, what, *questions):
    """The latencies of the watcher while each question is asked by another."""
    for pattern, match, options in questions:
        limit = LONGEST + TIMES * usual(lib, pid)
        watcher = Watcher(lib, pid)
        watcher.start()
        session = Session(lib, name="monster")
        begin = time.monotonic()
        number = session.call("function", pattern, match, options)
        asked = time.monotonic()
        session.call("info", what, "call_count")
        session.lib.lorg_session_destroy(session.handle, session.failure)
        ended = time.monotonic()
        longest = watcher.end()
        session.free()
        text = "%s %s %s: %d functions in %.0f ms, end in %.0f ms; the other waited %.0f ms (%s) of %.0f" % (
            pattern, match, options, number, (asked - begin) * 1e3, (ended - asked) * 1e3, longest * 1e3, watcher.what, limit * 1e3)
        check("%s: %s %s %s" % (name, pattern, match, options), number > 0 and longest < limit, text)
        print("     " + text)


def compiler():
    found = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=False).stdout.strip()
    return found if os.path.isabs(found) else None


def main():
    work = scratch("function-monsters")
    os.mkdir(work)
    runtime = os.path.join(work, "run")
    os.mkdir(runtime, 0o700)
    daemon = start_daemon(runtime)
    lib = library()
    counted = subprocess.Popen([fixture("counted")], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    counted.stdout.readline()
    cc1 = compiler()
    if cc1:
        program = Program([cc1, "-quiet", "-", "-o", "/dev/null"])
        time.sleep(0.5)
        asks(lib, counted.pid, "cc1", "{cc1,main,2}",
             ("{cc1,main,'_'}", "true", "[call_count]"), ("{cc1,'_','_'}", "true", "[call_count]"),
             ("{cc1,'_','_'}", "[{'_',[],[{return_trace}]}]", "[local]"), ("{cc1,main,'_'}", "true", "[global]"),
             ("\"cc1:*a*\"", "{'if',\"caller_module =:= cc1\"}", "[local]"))
        program.end()
    else:
        skip("cc1", "there is no gcc")
    node = shutil.which("node")
    if node:
        program = Program([node, "-e", "process.stdin.resume()"])
        time.sleep(1)
        asks(lib, counted.pid, "node", "{node,main,2}",
             ("{node,main,'_'}", "true", "[call_count]"), ("{node,'_','_'}", "true", "[call_count]"),
             ("\"node:*Buffer*\"", "[{'_',[],[{return_trace}]}]", "[local]"), ("{'_','_','_'}", "true", "[global]"))
        program.end()
    else:
        skip("node", "it is not installed")
    counted.stdin.close()
    counted.stdout.close()
    equal("the program ends as ever", counted.wait(timeout=20), 0)
    daemon.send_signal(signal.SIGTERM)
    equal("lorgd ends when told", daemon.wait(timeout=30), 0)
    finish()


main()
