#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Hours of a lorgd in a minute: programs and sessions come and go, and neither lorgd nor its keeper grows by them.

LORG_TEST_PROGRAMS and LORG_TEST_SESSIONS make it longer.
"""

import os
import re
import signal
import subprocess
import sys
import time

from livecommands import LIBRARY, Daemon, Program, lorg, says, sessions, until
from lorgctl import Session, library
from lorgtest import check, equal, finish, scratch

PROGRAMS = int(os.environ.get("LORG_TEST_PROGRAMS", 1200))
SESSIONS = int(os.environ.get("LORG_TEST_SESSIONS", 60))
AT_ONCE = 4
# In each hundred: most only start and end; some fork, execute others, have threads, or are killed.
SHAPES = [["/bin/true"]] * 6 + [["/bin/sh", "-c", "/bin/true & wait"], ["/bin/sh", "-c", "exec /bin/true"], ["/bin/sh", "-c", "kill -9 $$"],
                                ["/bin/sh", "-c", "(exit 3); echo x | cat >/dev/null"]]


def lorgd_and_keeper(pid):
    found = {"lorgd": pid}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open("/proc/%s/stat" % entry) as stat, open("/proc/%s/environ" % entry, "rb") as environment:
                name, own = re.match(r"\d+ \((.*)\)", stat.read())[1], environment.read()
        except OSError:
            continue
        if name == "lorgd-keeper" and os.environ["LORG_RUNTIME_DIRECTORY"].encode() in own:
            found["keeper"] = int(entry)
    return found


def holdings(pid):
    """(kB of its own, kB shared, descriptors, mappings)"""
    with open("/proc/%d/status" % pid) as status, open("/proc/%d/maps" % pid) as maps:
        said = status.read()
        own, shared = (int(re.search(r"^%s:\s+(\d+)" % name, said, re.M)[1]) for name in ("RssAnon", "RssShmem"))
        return own, shared, len(os.listdir("/proc/%d/fd" % pid)), sum(1 for _ in maps)


def programs(count):
    environment, alive = dict(os.environ, LD_PRELOAD=LIBRARY), []
    for i in range(count):
        alive.append(subprocess.Popen(SHAPES[i % len(SHAPES)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL))
        if len(alive) == AT_ONCE:
            alive.pop(0).wait()
    for one in alive:
        one.wait()


def one_session(number, standing):
    """Asked as people do: of all, of one program, its calls, its messages; some are recorded, some are left to lorgd to clean up."""
    tracer = "client" if number % 3 else '{directory,"%s"}' % scratch("rec-%d" % number)
    session = Session(library(), tracer, "s%d" % number)
    lib, failure, handle = session.lib, session.failure, session.handle
    session.must(lib.lorg_process(handle, b"all", 1, b"[procs,send,call,set_on_spawn]", failure))
    session.must(lib.lorg_function(handle, b"{live_calls,work,1}", b"[{'_',[],[{return_trace}]}]" if number % 2 else b"true", b"[local]", failure))
    session.must(lib.lorg_send(handle, b"[{['_','$1'],[{is_binary,'$1'}],[]}]", b"[]", failure))
    session.must(lib.lorg_process(handle, b"<%d>" % standing.pid, 1, b"['receive']", failure))
    programs(2)
    if number % 4:
        session.must(lib.lorg_session_destroy(handle, failure))
    lib.lorg_session_free(handle)
    lib.lorg_disconnect(session.connection)


def long_on_offer():
    """A program that takes what has been on offer for long, before lorgd has looked at it: it is traced from its first event on."""
    session = Session(library(), "client", "late")
    session.must(session.lib.lorg_process(session.handle, b"new", 1, b"[procs]", session.failure))
    time.sleep(11)
    daemon.process.send_signal(signal.SIGSTOP)
    programs(1)
    time.sleep(0.2)
    daemon.process.send_signal(signal.SIGCONT)
    said = session.received()
    check("long on offer: nothing is lost", any(",exit,normal}" in line for line in said) and not any("lost" in line for line in said), said)
    session.free()


SCRIBBLES = """
import ctypes
for line in open("/proc/self/maps"):
    if "lorg-node" in line:
        first, end = (int(place, 16) for place in line.split()[0].split("-"))
        ctypes.memset(first, %d, min(end - first, 8192))
"""


def exits_are_told(session, what):
    environment = dict(os.environ, LD_PRELOAD=LIBRARY)
    status = subprocess.run(["/bin/sh", "-c", "exit 33"], env=environment, stdin=subprocess.DEVNULL, check=False).returncode
    said = session.received()
    check("%s: the program" % what, status == 33, status)
    return any(line.endswith(",exit,33}") for line in said)


def scribbled_over():
    """One program writes over the memory that all of the node map: those to come are traced all the same."""
    session = Session(library(), "client", "scribbled")
    session.must(session.lib.lorg_process(session.handle, b"new", 1, b"[procs,set_on_spawn]", session.failure))
    for value in (0, 255, 1, 2):
        subprocess.run([sys.executable, "-c", SCRIBBLES % value], env=dict(os.environ, LD_PRELOAD=LIBRARY), stdin=subprocess.DEVNULL, check=False)
        check("scribbled over with %d" % value, until(lambda: exits_are_told(session, "scribbled over"), 10), "no program is traced any more")
    session.free()


def few_descriptors():
    """More programs than lorgd has descriptors for: those beyond run untraced, and people are answered."""
    own = Daemon("few", through=("prlimit", "--nofile=160:160"))
    environment = dict(os.environ, LD_PRELOAD=LIBRARY)
    started = [subprocess.Popen(["sleep", "100"], env=environment, stdin=subprocess.DEVNULL) for _ in range(120)]
    time.sleep(1)
    attached = len(re.findall(r"/sleep  ", says("ps")))
    check("few descriptors: as many as there is room for", 30 <= attached < 120, attached)
    equal("few descriptors: all run", sum(one.poll() is None for one in started), 120)
    own_sessions = [Session(library(), "client", "few-%d" % i) for i in range(8)]
    check("few descriptors: sessions", says("session", "list").count("few-") == 8, says("session", "list"))
    check("few descriptors: they trace", own_sessions[0].must(own_sessions[0].lib.lorg_process(own_sessions[0].handle, b"all", 1, b"[procs]", own_sessions[0].failure)) >= attached, "")
    for session in own_sessions:
        session.free()
    for one in started:
        one.kill()
        one.wait()
    equal("few descriptors: lorgd", own.end(), 0)


def round_of(programs_now, sessions_now, first, standing):
    for i in range(sessions_now):
        programs(programs_now // sessions_now)
        one_session(first + i, standing)
    check("round %d: all sessions have ended" % first, until(lambda: sessions() == "[]", 20), sessions())


def settled(processes, before=None):
    """The least of each in some seconds, or as soon as it is what it was before."""
    least = {}

    def is_back():
        for name, pid in processes.items():
            now = holdings(pid)
            least[name] = tuple(map(min, least.get(name, now), now))
        return before is not None and all(have <= was for name in before for have, was in zip(least[name], before[name]))

    until(is_back, 15 if before else 4)
    return least


few_descriptors()
daemon = Daemon()
standing = Program()
processes = lorgd_and_keeper(daemon.process.pid)
check("there is a keeper", "keeper" in processes, processes)
long_on_offer()
scribbled_over()
# What is made once, and what malloc keeps of the highest that there ever was at once: on a busy machine some MB of events that wait.
round_of(PROGRAMS // 2, SESSIONS // 2, 0, standing)
before = settled(processes)
round_of(PROGRAMS, SESSIONS, SESSIONS, standing)
allowed = {name: (own + 8192, shared + 1024, descriptors + 2, mappings + 8)
           for name, (own, shared, descriptors, mappings) in before.items()}
after = settled(processes, allowed)
for name in processes:
    for which, was, have, may in zip(("memory of its own (kB)", "shared memory (kB)", "descriptors", "mappings"), before[name], after[name], allowed[name]):
        check("%s: %s" % (name, which), have <= may, "%d, then %d" % (was, have))
print("#", before, after, flush=True)
equal("only the program that stays is attached", len(re.findall(r"^ *\d+  ", says("ps"), re.M)), 1)
equal("the program", standing.end(), 0)
equal("lorgd", daemon.end(), 0)
check("the keeper ends with it", until(lambda: not os.path.exists("/proc/%d" % processes.get("keeper", 0)) , 5), processes)
finish()
