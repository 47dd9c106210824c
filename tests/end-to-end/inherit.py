#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Flags over threads, forks, clones, spawns and execs, in several sessions at once; and that a session that begins in the middle
of a program's life sees what one from its start sees."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from lorgctl import BUILD, Refused, Session, library, start_daemon
from lorgtest import check, equal, finish, fixture

LIBRARY = os.path.join(BUILD, "preload", "liblorg.so")
DIRECTORY = tempfile.mkdtemp(prefix="lorg-in-", dir="/tmp")


class Offspring:
    """tests/fixtures/offspring."""

    def __init__(self, **environment):
        self.process = subprocess.Popen([fixture("offspring")], env=dict(os.environ, LD_PRELOAD=LIBRARY, **environment),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.term = "<%d.%d.0>" % (self.pid, self.pid)

    def make(self, letter):
        """The child's pid, as a term."""
        self.process.stdin.write(letter)
        self.process.stdin.flush()
        kind, pid, tid = self.process.stdout.readline().split()
        assert kind == letter
        return "<%s.%s.0>" % (pid, tid)

    def end(self):
        try:
            self.process.stdin.write("q")
            self.process.stdin.close()
        except OSError:
            pass
        return self.process.wait(timeout=20)


def flags(session, pid, wanted=None, limit=5):
    """A set of names. Waits for `wanted`, or for any: a child may be on its way. None: there is none."""
    until = time.monotonic() + limit
    while True:
        said = session.call("info", pid, "flags")
        found = re.fullmatch(r"\{flags,\[(.*)\]\}", said)
        answer = set(found[1].split(",")) - {""} if found else None
        if answer is not None and wanted in (None, answer) or time.monotonic() > until:
            return answer
        time.sleep(0.01)


def attached(session, pid, limit=10):
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if flags(session, pid, limit=0) is not None:
            return True
        time.sleep(0.01)
    return False


def set_flags(session, pid, names):
    session.call("process", pid, 1, "[%s]" % ",".join(sorted(names)))


KINDS = {"t": "pthread_create", "f": "fork", "r": "raw-fork", "v": "vfork", "c": "clone", "p": "posix_spawn"}


def over_spawns(lib):
    for letter, name in KINDS.items():
        program, first, second, third = Offspring(), Session(lib, name="first"), Session(lib, name="second"), Session(lib, name="third")
        attached(first, program.term)
        set_flags(first, program.term, {"send", "procs", "set_on_spawn"})
        set_flags(second, program.term, {"'receive'", "set_on_first_spawn"})
        set_flags(third, program.term, {"call", "set_on_spawn", "set_on_first_spawn"})
        child = program.make(letter)
        equal("inherit/%s/set_on_spawn" % name, flags(first, child, {"send", "procs", "set_on_spawn"}),
              {"send", "procs", "set_on_spawn"})
        equal("inherit/%s/set_on_first_spawn" % name, flags(second, child, {"'receive'"}), {"'receive'"})
        equal("inherit/%s/both" % name, flags(third, child, {"call"}), {"call"})
        equal("inherit/%s/parents-keep-and-lose" % name, [flags(one, program.term) for one in (first, second, third)],
              [{"send", "procs", "set_on_spawn"}, {"'receive'"}, {"call"}])
        later = program.make(letter)
        equal("inherit/%s/the-second-child" % name, [flags(first, later, {"send", "procs", "set_on_spawn"}), flags(second, later),
              flags(third, later)], [{"send", "procs", "set_on_spawn"}, set(), set()])
        said = first.received()
        spawns = [one for one in said if ",spawn," in one and one.startswith("{trace,%s," % program.term)]
        equal("inherit/%s/spawn-is-told" % name, len(spawns), 2)
        spawned = [one for one in said if re.match(r"\{trace,(%s|%s),spawned,%s," % (re.escape(child), re.escape(later),
                                                                                    re.escape(program.term)), one)]
        equal("inherit/%s/spawned-is-told" % name, len(spawned), 2)
        program.end()
        for one in (first, second, third):
            one.free()


def over_exec(lib):
    program, first, second = Offspring(), Session(lib, name="first"), Session(lib, name="second")
    attached(first, program.term)
    wanted = {"procs", "call", "arity", "set_on_spawn"}
    set_flags(first, program.term, wanted)
    set_flags(second, program.term, {"send", "set_on_first_spawn"})
    same = program.make("e")
    equal("inherit/exec/same-pid", same, program.term)
    equal("inherit/exec/keeps-flags", (flags(first, same, wanted), flags(second, same)), (wanted, {"send", "set_on_first_spawn"}))
    child = program.make("f")
    equal("inherit/exec/and-hands-them-on", (flags(first, child, wanted), flags(second, child, {"send"})), (wanted, {"send"}))
    equal("inherit/exec/and-loses", flags(second, same), {"send"})
    program.end()
    first.free()
    second.free()


def new_processes(lib):
    early = Offspring()
    session = Session(lib, name="fresh")
    attached(session, early.term)
    session.call("process", "new", 1, "[procs]")
    equal("inherit/new/those-before-are-left-alone", flags(session, early.term), set())
    for letter in "tfvp":
        equal("inherit/new/%s" % KINDS[letter], flags(session, early.make(letter), {"procs"}), {"procs"})
    late = Offspring()
    equal("inherit/new/programs", flags(session, late.term, {"procs"}), {"procs"})
    session.call("process", "new", 0, "[procs]")
    equal("inherit/new/no-more", flags(session, early.make("t")), set())
    session.call("process", "%d" % early.pid, 1, "[send]")
    equal("inherit/program/threads-to-come", flags(session, early.make("t"), {"send"}), {"send"})
    equal("inherit/program/but-not-its-children", flags(session, early.make("f")), set())
    early.end()
    late.end()
    session.free()


def dormant_threads(lib):
    """Threads and children that were made while nobody asked are there, and those that ended are not."""
    program = Offspring()
    threads = [program.make("t") for _ in range(3)]
    child = program.make("f")
    session = Session(lib, name="late")
    check("inherit/dormant/threads-are-known", all(flags(session, one) == set() for one in threads), threads)
    equal("inherit/dormant/children-are-known", flags(session, child, set()), set())
    equal("inherit/dormant/a-program-is-its-threads", session.call("process", "%d" % program.pid, 1, "[send]"), 4)
    session.call("process", threads[0], 0, "[send]")
    equal("inherit/dormant/one-thread-alone", flags(session, threads[0]), set())
    program.end()
    session.free()


ASKED = "[send,'receive',procs,ports,running,exiting]"


def use_told(lib, late, disturbed=False):
    """What is told of the second half of tests/fixtures/latecomer, without numbers that differ from run to run."""
    session = None if late else Session(lib, name="early")
    if session:
        session.call("process", "new", 1, ASKED)
    process = subprocess.Popen([fixture("latecomer")], env=dict(os.environ, LD_PRELOAD=LIBRARY), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    process.stdout.readline()
    if disturbed:  # somebody looked for a while, and stopped
        other = Session(lib, name="other")
        other.call("process", "%d" % process.pid, 1, ASKED)
        other.free()
    if not session:
        session = Session(lib, name="late")
        session.call("process", "%d" % process.pid, 1, ASKED)
    session.received()
    process.stdin.write(b"g")
    process.stdin.flush()
    process.stdout.readline()
    said = session.received()
    process.stdin.close()
    process.wait(timeout=20)
    session.free()
    threads = sorted(set(re.findall(r"(?<!Port)<%d\.(\d+)\.0>" % process.pid, " ".join(said))), key=int)
    names = {tid: "T%d" % i for i, tid in enumerate(threads)}
    streams = {}
    for one in said:
        plain = re.sub(r"#Port<%d\.(\d+)\.\d+>" % process.pid, r"port\1", one)
        plain = re.sub(r"<%d\.(\d+)\.0>" % process.pid, lambda found: names[found[1]], plain)
        plain = re.sub(r"127\.0\.0\.1:\d+", "address", plain)
        streams.setdefault(plain.split(",", 2)[1], []).append(plain)
    return {who: after_open_call(told) for who, told in streams.items()}


def after_open_call(told):
    """Both threads wait in a read when the session begins: what was entered before may be told or not."""
    first = [i for i, one in enumerate(told) if "'receive',<<\"g\">>" in one]
    return told[first[0] + 1:] if first else told


def late_is_as_early(lib):
    early = use_told(lib, late=False)
    for name, told in (("late", use_told(lib, late=True)), ("after-another", use_told(lib, late=True, disturbed=True))):
        for who in sorted(set(early) | set(told)):
            equal("inherit/%s/as-from-the-start/%s" % (name, who), told.get(who), early.get(who))
    check("inherit/early/something-is-told", sum(map(len, early.values())) > 20, early)


def environment_stays():
    """LD_PRELOAD of the user's own stays where it was, for children too; ours does not show."""
    script = 'cat /proc/self/environ | tr "\\0" "\\n" | grep -c "^LD_PRELOAD="; env | grep -c "^LORG="; env | grep "^LD_PRELOAD="'
    done = subprocess.run(["/bin/sh", "-c", script], env=dict(os.environ, LD_PRELOAD=LIBRARY), capture_output=True, text=True,
                          timeout=20, check=False)
    equal("inherit/environment-as-it-was", done.stdout.split(), ["1", "0", "LD_PRELOAD=" + LIBRARY])


def without_daemon():
    """No daemon: forward only, and a file that anybody could have made is not believed."""
    nowhere = tempfile.mkdtemp(prefix="lorg-no-", dir="/tmp")
    done = subprocess.run(["/bin/echo", "there"], env=dict(os.environ, LD_PRELOAD=LIBRARY, LORG_RUNTIME_DIRECTORY=nowhere),
                          capture_output=True, text=True, timeout=20, check=False)
    equal("inherit/no-daemon-no-difference", (done.returncode, done.stdout, done.stderr), (0, "there\n", ""))
    with open(os.path.join(DIRECTORY, "programs"), encoding="ascii") as real:
        text = real.read()
    for name, make in (("written-by-others", lambda path: os.chmod(path, 0o666)), ("a-link", lambda path: (
            os.rename(path, path + ".real"), os.symlink(path + ".real", path))), ("another-users", lambda path: os.chown(path, 65534, 65534))):
        path = os.path.join(nowhere, "programs")
        for old in (path, path + ".real"):
            if os.path.lexists(old):
                os.unlink(old)
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        try:
            make(path)
        except PermissionError:
            continue
        maps = subprocess.run(["/bin/cat", "/proc/self/maps"], env=dict(os.environ, LD_PRELOAD=LIBRARY, LORG_RUNTIME_DIRECTORY=nowhere),
                              capture_output=True, text=True, timeout=20, check=False).stdout
        check("inherit/programs-%s-is-not-believed" % name, "liblorg.so" in maps and "memfd:" not in maps, maps[-300:])
    shutil.rmtree(nowhere)


def main():
    daemon = start_daemon(DIRECTORY)
    lib = library()
    try:
        for part in (over_spawns, over_exec, new_processes, dormant_threads, late_is_as_early):
            try:
                part(lib)
            except (Refused, AssertionError, OSError, ValueError, subprocess.TimeoutExpired) as error:
                check("inherit/%s" % part.__name__, False, "%s: %s" % (type(error).__name__, error))
        environment_stays()
        without_daemon()
    finally:
        daemon.send_signal(signal.SIGTERM)
        equal("inherit/daemon-ends", daemon.wait(timeout=20), 0)
        shutil.rmtree(DIRECTORY, ignore_errors=True)
    finish()


if __name__ == "__main__":
    sys.exit(main())
