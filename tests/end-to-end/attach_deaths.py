#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kill -9 of lorg attach, of lorgd and of the program at any moment of an attach or a detach; and who else is at a program.

    attach_deaths.py [PART...]      LORG_TEST_ATTACH_DEATHS: how many deaths of each kind (6)

The program lives on, unharmed, and is attached later as if nothing had been.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

from livecommands import LIBRARY, Daemon, Target, says, until
from lorgtest import LORG, check, equal, finish, fixture, lorg, scratch, skip

DEATHS = int(os.environ.get("LORG_TEST_ATTACH_DEATHS", 6))
WAYS = (["read"], ["epoll", "again"], ["condition"], ["compute"], ["allocate", "16"], ["signals"], ["loop"])
random.seed(int(os.environ.get("LORG_TEST_SEED", 1)))


def try_again(what, pid):
    """Who was at it before may still be."""
    end = time.monotonic() + 20
    while True:
        status, _, error = lorg(what, str(pid), limit=90)
        if status == 0 or time.monotonic() > end:
            return error if status else ""
        time.sleep(0.1)


def how_long():
    """A usual attach, in seconds."""
    target = Target("read")
    begin = time.monotonic()
    lorg("attach", str(target.pid))
    took = time.monotonic() - begin
    lorg("detach", str(target.pid))
    target.end()
    return took


def command_dies():
    """The command is killed; what it was at is carried out to its end by the thread itself, or has not begun."""
    span = how_long() * 1.3
    for way in WAYS:
        target, wrong = Target(*way), ""
        for death in range(DEATHS):
            what = "detach" if death % 3 == 2 else "attach"
            command = subprocess.Popen([LORG, what, str(target.pid)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0, span))
            command.kill()
            command.wait()
            if death % 2 and target.process.poll() is None:
                # Whatever stands there now can be made whole.
                lorg("attach", str(target.pid), limit=90)
                error = try_again("detach", target.pid)
                wrong = wrong or error
        if target.process.poll() is not None:
            check("command dies: %s: the program" % way[0], False, target.end())
            continue
        equal("command dies: %s: its tracers" % way[0], target.tracers(), {"0"})
        lorg("attach", str(target.pid), limit=90)
        error = try_again("detach", target.pid)
        check("command dies: %s: attached and detached after all" % way[0], not error and not wrong, error or wrong)
        equal("command dies: %s: the program" % way[0], target.end(), "right")


def program_dies():
    span = how_long() * 1.3
    wrong = []
    for death in range(DEATHS * 2):
        target = Target(*WAYS[death % len(WAYS)])
        command = subprocess.Popen([LORG, "attach", str(target.pid)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(random.uniform(0, span))
        target.process.kill()
        target.process.communicate()
        try:
            error = command.communicate(timeout=30)[1].decode()
        except subprocess.TimeoutExpired:
            command.kill()
            error = "hung"
        if command.returncode not in (0, 1) or (command.returncode == 1 and error.count("\n") != 1):
            wrong.append((command.returncode, error))
    equal("program dies: what lorg attach says", wrong, [])
    equal("program dies: lorgd", says("session", "list", "--format", "erlang").startswith("status"), False)


def daemon_dies():
    """lorgd is killed while programs attach; another comes."""
    global daemon
    span = how_long() * 1.3
    targets = [Target(*way) for way in WAYS]
    wrong = []
    for death in range(DEATHS):
        target = targets[death % len(targets)]
        command = subprocess.Popen([LORG, "attach", str(target.pid)], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(random.uniform(0, span))
        daemon.process.kill()
        daemon.process.wait()
        daemon = Daemon.__new__(Daemon)
        from lorgctl import start_daemon
        daemon.process = start_daemon(os.environ["LORG_RUNTIME_DIRECTORY"])
        try:
            error = command.communicate(timeout=30)[1].decode()
        except subprocess.TimeoutExpired:
            command.kill()
            error = "hung"
        if command.returncode not in (0, 1):
            wrong.append((command.returncode, error))
        again = lorg("attach", str(target.pid), limit=90)[2]
        attached = until(lambda: str(target.pid) in says("ps"), 10)
        error = try_again("detach", target.pid)
        if error or not attached:
            wrong.append((target.way, "attached" if attached else "not attached", again, error))
    equal("lorgd dies: a later attach", wrong, [])
    equal("lorgd dies: the programs", [target.end() for target in targets], ["right"] * len(targets))


# ---- who else is at it -----------------------------------------------------------------------------


def held_by_a_debugger():
    for tracer in (["strace", "-f", "-o", "/dev/null", "-p"], ["gdb", "-q", "-nx", "-batch", "-ex", "shell sleep 3", "-p"]):
        if not shutil.which(tracer[0]):
            skip("held by %s" % tracer[0], "it is not installed")
            continue
        target = Target("allocate", "4")
        process = subprocess.Popen([*tracer, str(target.pid)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda target=target: target.tracers() != {"0"})
        time.sleep(0.2)
        status, said, error = lorg("attach", str(target.pid), limit=60)
        check("held by %s: refused" % tracer[0], status == 1 and not said and "another tracer" in error and error.count("\n") == 1, error)
        process.terminate()
        process.wait()
        target.process.send_signal(signal.SIGCONT) # gdb that is ended leaves it stopped
        error = try_again("attach", target.pid) or try_again("detach", target.pid)
        check("held by %s: and then not" % tracer[0], not error, error)
        equal("held by %s: the program" % tracer[0], target.end(), "right")


def stopped():
    target = Target("read")
    target.process.send_signal(signal.SIGSTOP)
    time.sleep(0.05)
    status, _, error = lorg("attach", str(target.pid), limit=60)
    check("stopped: refused", status == 1 and "stopped" in error, error)
    target.process.send_signal(signal.SIGCONT)
    error = try_again("attach", target.pid) or try_again("detach", target.pid)
    check("stopped: and then not", not error, error)
    equal("stopped: the program", target.end(), "right")


def several_at_once(name, what, pids):
    results = [None] * len(pids)

    def one(index):
        results[index] = lorg(what, str(pids[index]), limit=120)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(pids))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def twice():
    """Two commands at once: one attaches, the other does too late or too early, and says so."""
    for _ in range(max(2, DEATHS // 2)):
        target = Target("allocate", "4")
        results = several_at_once("twice", "attach", [target.pid] * 2)
        good = [result[0] for result in results].count(0) >= 1 and all(result[0] in (0, 1) for result in results)
        check("twice at once: attach", good, results)
        results = several_at_once("twice", "detach", [target.pid] * 2)
        good = [result[0] for result in results].count(0) >= 1 and all(result[0] in (0, 1) for result in results)
        check("twice at once: detach", good, results)
        equal("twice at once: the program", target.end(), "right")


def many():
    """Twenty programs at the same time, by a command each, and by one."""
    targets = [Target(*WAYS[index % 3]) for index in range(20)]
    pids = [target.pid for target in targets]
    results = several_at_once("many", "attach", pids)
    equal("many: attach", [result for result in results if result[0]], [])
    listed = says("ps")
    equal("many: all are there", [pid for pid in pids if str(pid) not in listed], [])
    status, _, error = lorg("detach", *map(str, pids), limit=120)
    check("many: detach", status == 0, error)
    equal("many: the programs", [target.end() for target in targets], ["right"] * len(targets))


PARENT = """
import os, subprocess, sys
sys.stdin.readline()
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
forked = os.fork()
if not forked:
    os.execvp("sleep", ["sleep", "1000"])
print(child.pid, forked, flush=True)
sys.stdin.readline()
child.stdin.close()
os.kill(forked, 15)
os.wait()
os.wait()
"""


def children():
    """What an attached program starts is attached from its start on; lorg attach says so; what it had started before is not."""
    program = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(0.3)
    error = try_again("attach", program.pid)
    check("children: attach", not error, error)
    program.stdin.write(b"\n")
    program.stdin.flush()
    pids = program.stdout.readline().split()
    for pid in pids:
        check("children: attached", until(lambda pid=pid: pid.decode() in says("ps"), 10), says("ps"))
        status, _, error = lorg("attach", pid.decode(), limit=60)
        check("children: attach says so", status == 1 and "started with lorg" in error, error)
    error = try_again("detach", program.pid)
    check("children: detach of the parent", not error, error)
    check("children: stay attached", all(pid.decode() in says("ps") for pid in pids), says("ps"))
    program.communicate(b"\n", timeout=20)
    equal("children: the program", program.returncode, 0)


def restless():
    """Programs that open and close libraries, make threads, or become themselves anew all the time."""
    for way in (["open"], ["threads"], ["execute"]):
        target, done = Target(*way), 0
        for _ in range(DEATHS):
            status, _, error = lorg("attach", str(target.pid), limit=90)
            if status == 0:
                done += 1
                error = try_again("detach", target.pid)
                if error and "not attached" not in error: # it has become another
                    check("restless: %s: detach" % way[0], "started with lorg" in error, error)
            elif way[0] != "execute" and not error.startswith("lorg: "):
                check("restless: %s: attach" % way[0], False, error)
        check("restless: %s: %d of %d were attached" % (way[0], done, DEATHS), done or way[0] == "execute", done)
        equal("restless: %s: the program" % way[0], target.end(), "right")


PARTS = (command_dies, program_dies, daemon_dies, held_by_a_debugger, stopped, twice, many, children, restless)


def main():
    global daemon
    if not os.access("/proc/self/mem", os.W_OK):
        skip("attach_deaths", "memory of programs cannot be written to")
        finish()
    os.environ["LORG_LIBRARY"] = LIBRARY
    daemon = Daemon()
    for part in PARTS:
        if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
            part()
    equal("lorgd", daemon.end(), 0)
    finish()


main()
