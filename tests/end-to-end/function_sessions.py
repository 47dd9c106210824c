#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""function/4 of sessions on programs that run: what is counted is exact, for each session from its own zero; functions that come and
go; and nothing is left in the program."""

import concurrent.futures
import hashlib
import os
import re
import shutil
import signal
import subprocess
import time

from lorgctl import BUILD, Refused, Session, library, start_daemon
from lorgtest import check, equal, finish, fixture, scratch, skip

THREADS = 4


class Program:
    """The fixture `counted`, with the library."""

    def __init__(self):
        environment = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "preload", "liblorg.so"))
        self.process = subprocess.Popen([fixture("counted")], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.process.stdout.readline()

    def do(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() == "done\n"

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(timeout=20)


def code(pid):
    """Of all files but the library itself, and what is constant in them."""
    said = hashlib.sha256()
    with open("/proc/%d/maps" % pid, encoding="utf-8") as maps, open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for line in maps:
            part = line.split(None, 5)
            path = part[5].strip() if len(part) > 5 else ""
            low, high = (int(one, 16) for one in part[0].split("-"))
            if path.startswith("/") and "liblorg" not in path and "memfd:" not in path and "w" not in part[1] and "r" in part[1]:
                memory.seek(low)
                said.update(memory.read(high - low))
    return said.hexdigest()


def number(session, item, function="{counted,work,1}"):
    found = re.fullmatch(r"\{%s,(\d+|false|undefined)\}" % item, session.call("info", function, item))
    return None if not found else int(found.group(1)) if found.group(1).isdigit() else found.group(1)


def by_process(session, item, function="{counted,work,1}"):
    """{tid: (Count, the rest)}."""
    text = session.call("info", function, item)
    found = re.findall(r"\{<\d+\.(\d+)\.0>,(\d+),([\d,]+)\}", text)
    return {int(tid): (int(count), [int(one) for one in rest.split(",")]) for tid, count, rest in found}


def awaited(what, seconds=5):
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.01)
    return what()


def count(lib):
    """call_count: one number over all programs and threads, which survives them; each session has its own zero."""
    one, two = Session(lib, name="one"), Session(lib, name="two")
    first, second = Program(), Program()
    first.do("all 10")
    equal("count: one function", one.call("function", "{counted,work,1}", "true", "[call_count]"), 1)
    equal("count: from zero", number(one, "call_count"), 0)
    first.do("all 100")
    equal("count: all threads", number(one, "call_count"), THREADS * 100)
    equal("count: the other session counts nothing", number(two, "call_count"), "false")
    two.call("function", "{counted,work,'_'}", "true", "[call_count]")
    second.do("all 50")
    equal("count: of all programs", number(one, "call_count"), THREADS * 150)
    equal("count: a zero of its own", number(two, "call_count"), THREADS * 50)
    first.do("short 7")
    equal("count: threads that have ended", number(one, "call_count"), THREADS * 150 + 7)
    equal("count: pause", one.call("function", "{counted,work,1}", "pause", "[call_count]"), 1)
    first.do("all 5")
    equal("count: paused", number(one, "call_count"), THREADS * 150 + 7)
    equal("count: the other goes on", number(two, "call_count"), THREADS * 55 + 7)
    one.call("function", "{counted,work,1}", "restart", "[call_count]")
    equal("count: restart is zero", number(one, "call_count"), 0)
    second.do("all 3")
    second.end()
    check("count: programs that have ended", awaited(lambda: number(one, "call_count") == THREADS * 3), number(one, "call_count"))
    equal("count: and the other session", number(two, "call_count"), THREADS * 58 + 7)
    third = Program()
    third.do("all 2")
    equal("count: a program that comes later", number(one, "call_count"), THREADS * 5)
    one.call("function", "{counted,work,1}", "false", "[call_count]")
    first.do("all 4")
    equal("count: false", number(one, "call_count"), "false")
    equal("count: not for the other", number(two, "call_count"), THREADS * 64 + 7)
    for session in (one, two):
        lib.lorg_session_destroy(session.handle, session.failure)
        session.free()
    equal("count: programs end as ever", [first.end(), third.end()], [0, 0])


def times(lib):
    """call_time and call_memory: of processes with the flag call, by process."""
    session = Session(lib, name="times")
    program = Program()
    session.call("function", "{counted,work,1}", "true", "[call_time]")
    session.call("function", "{counted,takes,1}", "true", "[call_memory]")
    program.do("all 9")
    equal("time: without the flag", by_process(session, "call_time"), {})
    equal("time: flags", session.call("process", "<%d.%d.0>" % (program.pid, program.pid), 1, "[call]"), 1)
    program.do("all 20")
    program.do("words 100")
    program.do("words 23")
    got = by_process(session, "call_time")
    equal("time: one process", {tid: one[0] for tid, one in got.items()}, {program.pid: 20})
    equal("memory: words", by_process(session, "call_memory", "{counted,takes,1}"), {program.pid: (2, [123])})
    session.call("process", "<%d>" % program.pid, 1, "[call]")
    program.do("all 5")
    got = by_process(session, "call_time")
    equal("time: all processes", sorted(one[0] for one in got.values()), [5, 5, 5, 25])
    session.call("process", "<%d.%d.0>" % (program.pid, program.pid), 0, "[call]")
    program.do("all 5")
    equal("time: the flag is gone", sorted(one[0] for one in by_process(session, "call_time").values()), [10, 10, 10, 25])
    session.call("function", "{counted,work,1}", "pause", "[call_time]")
    program.do("all 5")
    equal("time: paused", sorted(one[0] for one in by_process(session, "call_time").values()), [10, 10, 10, 25])
    session.call("function", "{counted,work,1}", "true", "[call_time]")
    equal("time: from zero", by_process(session, "call_time"), {})
    session.call("function", "{counted,work,1}", "true", "[global]")
    check("time: global ends it", number(session, "call_time") in ("false", None), session.call("info", "{counted,work,1}", "all"))
    session.free()
    equal("time: the program ends as ever", program.end(), 0)


def loading(lib, module):
    """A module that comes while it is traced nowhere, on_load, and one that goes."""
    session = Session(lib, name="loading")
    program = Program()
    equal("load: not there", session.call("function", "{'counted_late.so',late,1}", "true", "[call_count]"), 0)
    program.do("load " + module)
    equal("load: not remembered", number(session, "call_count", "{'counted_late.so',late,1}"), "false")
    equal("load: there", session.call("function", "{'counted_late.so',late,1}", "true", "[call_count]"), 1)
    program.do("loaded 12")
    equal("load: counted", number(session, "call_count", "{'counted_late.so',late,1}"), 12)
    program.do("unload")
    program.do("load " + module)
    program.do("loaded 12")
    equal("load: dropped with the module", number(session, "call_count", "{'counted_late.so',late,1}"), "false")
    program.do("unload")
    equal("on_load: 0", session.call("function", "on_load", "true", "[call_count]"), 0)
    check("on_load: the module is known to be gone",
          awaited(lambda: number(session, "call_count", "{'counted_late.so',late,1}") == "undefined"))
    # Whoever looks first, the program that asks about it or lorgd at all programs: it has come, and is traced from its first call on.
    counts = []
    for _ in range(5):
        program.do("load " + module)
        program.do("loaded 8")
        counts.append(number(session, "call_count", "{'counted_late.so',late,1}"))
        program.do("unload")
        awaited(lambda: number(session, "call_count", "{'counted_late.so',late,1}") == "undefined")
    equal("on_load: counted", counts, [8] * 5)
    session.free()
    equal("load: the program ends as ever", program.end(), 0)


def standing(lib, module):
    """A request that stands is asked of modules that old programs load later, and of no others."""
    session, other = Session(lib, name="standing"), Session(lib, name="other")
    program = Program()
    late = "{'counted_late.so',late,1}"
    equal("standing: nothing yet", session.call("function", "{'counted_late.so','_','_'}", "true", "[call_count, on_load]"), 0)
    equal("standing: a pattern", other.call("function", "\"counted_l*:la?e\"", "[{['$1'],[{'<','$1',3}],[]}]", "[local, on_load]"), 0)
    other.call("process", "<%d>" % program.pid, 1, "[call]")
    for turn in range(3):
        program.do("load " + module)
        program.do("loaded 6")
        equal("standing: counted, time %d" % turn, number(session, "call_count", late), 6)
        equal("standing: told, time %d" % turn, [text.split(",call,")[1] for text in other.received()],
              ["{'counted_late.so',late,[%d]}}" % one for one in range(3)])
        program.do("unload")
    equal("standing: another function is not asked", number(session, "call_count", "{counted,work,1}"), "false")
    other.call("function", "\"counted_l*:la?e\"", "false", "[local]")
    session.call("function", "{'_','_','_'}", "false", "[call_count]")
    program.do("load " + module)
    program.do("loaded 6")
    equal("standing: ended", number(session, "call_count", late), "false")
    equal("standing: ended, the other", other.received(), [])
    for one in (session, other):
        one.free()
    equal("standing: the program ends as ever", program.end(), 0)


def declared(lib, module):
    """Nobody knows how many arguments a function has: who says it gets as many, as integers; each session for itself."""
    one, two, none = (Session(lib, name=name) for name in ("one", "two", "none"))
    program = Program()
    program.do("load " + module)
    for session in (one, two, none):
        session.call("process", "<%d>" % program.pid, 1, "[call]")
    function = "'counted_bare.so',late"
    equal("declared: three", one.call("function", "{%s,3}" % function, "[{['$1','$2','$3'],[{'=<','$1',1}],[]}]", "[local]"), 1)
    equal("declared: one, in a condition", two.call("function", "{%s,1}" % function, "{'if',\"arg0 =:= 2\"}", "[local]"), 1)
    equal("declared: none", none.call("function", "{%s,'_'}" % function, "true", "[local]"), 1)
    program.do("loaded 4")
    told = [text.split(",call,")[1] for text in one.received()]
    check("declared: three arguments", len(told) == 2 and all(re.fullmatch(r"\{'counted_bare.so',late,\[%d(,-?\d+){2}\]\}\}" % number, text)
                                                              for number, text in enumerate(told)), told)
    equal("declared: one argument", [text.split(",call,")[1] for text in two.received()], ["{'counted_bare.so',late,[2]}}"])
    equal("declared: no argument", [text.split(",call,")[1] for text in none.received()], ["{'counted_bare.so',late,[]}}"] * 4)
    none.call("process", "<%d>" % program.pid, 1, "[arity]")
    none.call("function", "{%s,5}" % function, "true", "[local]")
    program.do("loaded 1")
    equal("declared: how many", [text.split(",call,")[1] for text in none.received()], ["{'counted_bare.so',late,5}}"])
    equal("declared: a known signature has to fit", one.call("function", "{counted,work,3}", "true", "[local]"), 0)
    for session in (one, two, none):
        session.free()
    equal("declared: the program ends as ever", program.end(), 0)


def nothing_is_left(lib):
    """Threads are inside of the function all the time; another tool may hold the program."""
    program = Program()
    program.do("spin")
    one, two = Session(lib, name="first"), Session(lib, name="second")
    two.call("function", "{counted,takes,1}", "true", "[call_count]")
    two.call("function", "{counted,takes,1}", "false", "[call_count]")
    before = code(program.pid)
    for _ in range(20):
        equal_quietly = one.call("function", "{counted,work,1}", "[{[5],[],[{return_trace}]}]", "[local]")
        if equal_quietly != 1 or code(program.pid) == before:
            check("left: hooked", False, equal_quietly)
        one.call("function", "{counted,work,1}", "false", "[local]")
        if code(program.pid) != before:
            check("left: put back", False, "the code differs")
    check("left: 20 times on and off", program.do("all 1"))
    one.call("function", "{counted,work,1}", "true", "[local, meta, call_count, call_time, call_memory]")
    two.call("function", "{counted,work,1}", "true", "[call_count]")
    check("left: hooked by both", code(program.pid) != before)
    lib.lorg_session_destroy(one.handle, one.failure)
    check("left: the other still has it", code(program.pid) != before)
    if shutil.which("strace"):
        held_by_another(lib, two, program, before)
    else:
        lib.lorg_session_destroy(two.handle, two.failure)
    equal("left: nothing", code(program.pid), before)
    one.free()
    two.free()
    program.process.kill()
    program.process.wait()


def start_in_between(lib):
    """A program that starts just as the last session that asks goes, and so waits for its plan in vain: the next one has it at once."""
    first, counts = Program(), []
    for step in range(12):
        before = Session(lib, name="before")
        before.call("function", "{counted,work,1}", "true", "[call_count]")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            starting = [pool.submit(Program) for _ in range(6)]
            time.sleep(0.004 * step)
            before.free()
            programs = [one.result() for one in starting]
        after = Session(lib, name="after")
        after.call("function", "{counted,work,1}", "true", "[call_count]")
        for program in programs:
            program.do("all 5")
        counts.append(number(after, "call_count") // THREADS)
        after.free()
        for program in programs:
            program.end()
    first.end()
    equal("start in between: all is counted", counts, [30] * len(counts))


def held_by_another(lib, session, program, before):
    other = subprocess.Popen(["strace", "-f", "-qq", "-e", "trace=none", "-p", str(program.pid)], stderr=subprocess.DEVNULL)

    def is_held():
        with open("/proc/%d/status" % program.pid, encoding="utf-8") as status:
            return "TracerPid:\t0\n" not in status.read()
    if not awaited(is_held):
        other.kill()
        skip("left: held by another", "strace cannot attach")
        return
    begin = time.monotonic()
    lib.lorg_session_destroy(session.handle, session.failure)
    check("left: held by another: it ends in time", time.monotonic() - begin < 3, time.monotonic() - begin)
    check("left: held by another: the program runs", program.do("all 1"))
    other.send_signal(signal.SIGTERM)
    other.wait()
    check("left: held by another: later", awaited(lambda: code(program.pid) == before, 10))


def refusals(lib):
    session = Session(lib, name="refused")
    for pattern, match, options in (("{'_',work,1}", "true", "[local]"), ("{counted,'_',1}", "true", "[local]"),
                                    ("{counted,work,1}", "true", "[global, call_count]"), ("{counted,work,1}", "[{'_',[],[]}]", "[call_count]"),
                                    ("{counted,work,1}", "[{'_',[{'is_nothing','$1'}],[]}]", "[local]")):
        try:
            session.call("function", pattern, match, options)
            check("badarg: %s %s %s" % (pattern, match, options), False, "it was taken")
        except Refused as refused:
            check("badarg: %s %s %s" % (pattern, match, options), refused.args[0] == "badarg" and refused.args[1], refused.args)
    try:
        check("badarg: info of no arity", False, session.call("info", "{counted,work,'_'}", "call_count"))
    except Refused as refused:
        check("badarg: info of no arity says what to give", "(counted:work/1)" in refused.args[1], refused.args)
    session.free()


def latency(lib):
    """Not timed: a benchmark. But never seconds."""
    program = Program()
    program.do("spin")
    session = Session(lib, name="latency")
    session.call("process", "<%d>" % program.pid, 1, "[call]")
    begin = time.monotonic()
    session.call("function", "{counted,work,1}", "[{[1],[],[]}]", "[local]")
    asked = time.monotonic()
    message = session.receive(5000000000)
    print("     from command to answer %.1f ms, to the first event %.1f ms" % ((asked - begin) * 1e3, (time.monotonic() - begin) * 1e3))
    check("latency: an event", message is not None and time.monotonic() - begin < 3, message)
    session.free()
    program.process.kill()
    program.process.wait()


def main():
    work = scratch("function-sessions")
    os.mkdir(work)
    runtime = os.path.join(work, "run")
    os.mkdir(runtime, 0o700)
    module = os.path.join(work, "counted_late.so")
    subprocess.run(["cc", "-g", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", module], check=True, text=True,
                   input="__attribute__((noinline)) long late(long x) { return 5 * x + 2; }\n")
    bare = os.path.join(work, "counted_bare.so")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", bare], check=True, text=True,
                   input="__attribute__((noinline)) long late(long x) { return 5 * x + 2; }\n")
    daemon = start_daemon(runtime)
    lib = library()
    for part in (refusals, count, times, nothing_is_left, start_in_between, latency):
        part(lib)
    loading(lib, module)
    standing(lib, module)
    declared(lib, bare)
    daemon.send_signal(signal.SIGTERM)
    equal("lorgd ends when told", daemon.wait(timeout=20), 0)
    finish()


main()
