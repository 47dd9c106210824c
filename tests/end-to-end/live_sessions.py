#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sessions beside each other on one program: each gets exactly its events, and a client that does not read hurts nobody."""

import ctypes
import os
import re
import signal
import subprocess
import time

from livehost import Host, build
from lorgctl import BUILD, Failure, Refused, Session, library, start_daemon
from lorgtest import check, equal, finish, scratch

MANY = int(os.environ.get("LORG_TEST_LIVE_CALLS", 300000))


def arguments_of(messages):
    """The arguments of pub that the call messages tell, and what {message, V} has added."""
    found = []
    for text in messages:
        match = re.fullmatch(r"\{trace,<[\d.]+>,call,\{'tm\.so',pub,\[(\d+)\]\}(?:,(.*))?\}", text)
        found.append((int(match[1]), match[2]) if match else text)
    return found


def different_specifications(lib, host):
    first, second, third = (Session(lib, name=name) for name in ("first", "second", "third"))
    pid = host.pid(0)
    for session in (first, second, third):
        equal("sessions: process", session.call("process", pid, 1, "[call]"), 1)
    equal("sessions: function", first.call("function", "{'tm.so',pub,1}", "[{['$1'],[{'>','$1',150}],[{message,large}]}]", "[local]"), 1)
    equal("sessions: function", second.call("function", "{'tm.so',pub,1}", "[{['$1'],[{'=:=',{'rem','$1',2},0}],[]}]", "[local]"), 1)
    equal("sessions: function", third.call("function", "{'tm.so',pub,1}", "true", "[local]"), 1)
    host.execute(0, "many", 200)
    equal("sessions: the first has its own", arguments_of(first.received()), [(i, "large") for i in range(151, 200)])
    equal("sessions: the second has its own", arguments_of(second.received()), [(i, None) for i in range(0, 200, 2)])
    equal("sessions: the third has all", arguments_of(third.received()), [(i, None) for i in range(200)])
    second.free()
    host.execute(0, "many", 10)
    equal("sessions: one less: the first", arguments_of(first.received()), [])
    equal("sessions: one less: the third", arguments_of(third.received()), [(i, None) for i in range(10)])
    third.call("process", pid, 0, "[call]")
    host.execute(0, "many", 160)
    equal("sessions: a flag less: the first", arguments_of(first.received()), [(i, "large") for i in range(151, 160)])
    equal("sessions: a flag less: the third", arguments_of(third.received()), [])
    first.free()
    third.free()


def no_reader(lib, host):
    quick, lazy = Session(lib, name="quick"), Session(lib, name="lazy")
    pid = host.pid(1)
    for session in (quick, lazy):
        session.call("process", pid, 1, "[call]")
    lazy.call("function", "{'tm.so',pub,1}", "true", "[local]")
    quick.call("function", "{'tm.so',fact,1}", "true", "[local]")
    begin = time.monotonic()
    for _ in range(10):
        host.execute(1, "many", MANY // 10)
    spent = time.monotonic() - begin
    check("no reader: the program goes on", spent < 20, "%.1f s" % spent)
    host.execute(1, "fact", 3)
    said = quick.received()
    equal("no reader: the other session has its own", len([one for one in said if ",fact," in one]), 4)
    seen = lost = 0
    for one in lazy.received():
        if one.startswith("lost "):
            lost += int(one[5:])
        elif ",pub," in one:
            seen += 1
    equal("no reader: seen and lost are all", seen + lost, MANY)
    quick.free()
    lazy.free()


def refusal(function, *arguments):
    """The kind of the failure, or None where it succeeds."""
    try:
        function(*arguments)
        return None
    except Refused as refused:
        return refused.args[0]


def handle_of(session):
    return session.lib.lorg_session_handle(session.handle).decode()


def all_sessions(lib, host):
    """As many as there can be, each with a specification of its own for one function."""
    sessions = [Session(lib, name="s%d" % i) for i in range(127)]
    equal("all sessions: one more is too many", refusal(Session, lib), "system_limit")
    for i, session in enumerate(sessions):
        session.call("process", host.pid(0), 1, "[call]")
        session.call("function", "{'tm.so',pub,1}", "[{['$1'],[{'=:=','$1',%d}],[{message,%d}]}]" % (i, i), "[local]")
    host.execute(0, "many", 130)
    wrong = [i for i, session in enumerate(sessions) if arguments_of(session.received()) != [(i, str(i))]]
    equal("all sessions: each has its own", wrong, [])
    for session in sessions:
        session.free()
    again = Session(lib)
    equal("all sessions: numbers are never used twice", handle_of(again), "{scenario,128}")
    again.free()


def many_programs(lib):
    """More than 64 programs, one by one."""
    environment = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "preload", "liblorg.so"))
    programs = [subprocess.Popen(["sleep", "300"], env=environment, stdin=subprocess.DEVNULL) for _ in range(80)]
    session = Session(lib)
    end = time.monotonic() + 20
    while session.call("process", "existing", 1, "[]") < 80 and time.monotonic() < end:
        time.sleep(0.1)
    refused = [refusal(session.call, "process", str(program.pid), 1, "[procs]") for program in programs]
    equal("many programs: each is taken", [one for one in refused if one], [])
    for program in programs:
        program.terminate()
    for program in programs:
        program.wait()
    ends = [one for one in session.received() if one.endswith(",exit,{signal,sigterm}}")]
    equal("many programs: each has said its end", len(ends), 80)
    session.free()


def destroyed_in_a_flood(lib, host):
    """By its own client, which has not read yet what has come; then its handle is nobody's."""
    session, other = Session(lib, name="flood"), Session(lib, name="other")
    for one in (session, other):
        one.call("process", host.pid(0), 1, "[call]")
    session.call("function", "{'tm.so',pub,1}", "[{'_',[],[{return_trace}]}]", "[local]")
    other.call("function", "{'tm.so',fact,1}", "true", "[local]")
    host.begin(0, "many", MANY * 10)
    time.sleep(0.2)
    begin = time.monotonic()
    equal("flood: destroyed", lib.lorg_session_destroy(session.handle, session.failure), 1)
    check("flood: without taking all that waits", time.monotonic() - begin < 5, "%.1f s" % (time.monotonic() - begin))
    equal("flood: once only", lib.lorg_session_destroy(session.handle, session.failure), 0)
    equal("flood: nothing is left", session.text(lib.lorg_session_info(other.connection, b"{'tm.so',pub,1}", other.failure)), "[]")
    weak = lib.lorg_session_find(other.connection, handle_of(session).encode(), other.failure)
    equal("flood: a weak handle is worth nothing", lib.lorg_process(weak, b"all", 1, b"[call]", other.failure), -1)
    equal("flood: which is a badarg", other.failure.kind, 1)
    lib.lorg_session_free(weak)
    host.wait(lambda: host.slot(0)[0] == 2, 60)
    host.execute(0, "fact", 2)
    equal("flood: the other session has its own", len(other.received()), 3)
    session.free()
    other.free()


def names(lib):
    """Any atom is a name; what looks like a number is one only without quotes."""
    long, first, second = Session(lib, name="n" * 255), Session(lib, name="twin"), Session(lib, name="twin")
    equal("names: the longest atom", handle_of(long).split(",")[0], "{" + "n" * 255)
    equal("names: too long a one", refusal(Session, lib, "client", "n" * 256), "system_limit")
    equal("names: several have it", lib.lorg_session_find(first.connection, b"twin", first.failure), None)
    for session in (first, second):
        found = lib.lorg_session_find(first.connection, handle_of(session).encode(), first.failure)
        equal("names: by both", lib.lorg_session_destroy(found, first.failure), 1)
        lib.lorg_session_free(found)
    for session in (long, first, second):
        session.free()


class Limits(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("events", "rate", "memory", "rate_ns")]


def told(session, seconds=5):
    """Messages until the session's end, or for some time: (kind, text, count)."""
    said, end = [], time.monotonic() + seconds
    while time.monotonic() < end and not (said and said[-1][0] == 4):
        message = session.receive(100000000)
        if message:
            said.append((message.kind, message.text.decode(errors="replace"), message.count))
    return said


def limits(lib, host):
    for count in (1, 5, 100):
        session = Session(lib)
        session.call("process", host.pid(0), 1, "[call]")
        session.call("function", "{'tm.so',pub,1}", "true", "[local]")
        lib.lorg_session_limit(session.handle, Limits(events=count), session.failure)
        host.execute(0, "many", 10000)
        said = told(session)
        equal("limits: as many events", arguments_of(text for kind, text, _ in said if kind == 1), [(i, None) for i in range(count)])
        equal("limits: and the end", said[-1][:2], (4, "its limit on events was reached"))
        session.free()
    for memory in (1, 4096, 100000):
        session = Session(lib)
        session.call("process", host.pid(0), 1, "[call]")
        session.call("function", "{'tm.so',pub,1}", "true", "[local]")
        lib.lorg_session_limit(session.handle, Limits(memory=memory), session.failure)
        host.execute(0, "many", MANY)
        said = session.received() + [text for _, text, _ in told(session, 1)]
        lost = sum(int(re.search(r"\d+", one)[0]) for one in said if "lost" in one)
        seen = sum(",pub," in one for one in said)
        equal("limits: %d bytes: seen and lost are all" % memory, seen + lost, MANY)
        session.free()


PLUGIN = """
#include <lorg/tracer.h>
#include <unistd.h>
static int begin(const char *state, void **context) { *context = (void *)state; return state[0] == 'n'; }
static enum lorg_tracer_answer trace(void *context, const struct lorg_tracer_message *message, const char **changed)
{
	(void)message, (void)changed;
	for (const char *state = context; state[0] == 's';)
		pause();
	return LORG_TRACER_TRACE;
}
const struct lorg_tracer *lorg_tracer(void)
{
	static const struct lorg_tracer tracer = {.abi = LORG_TRACER_ABI, .begin = begin, .trace = trace};
	return &tracer;
}
"""


def left(path):
    """Processes that have the path among their arguments."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as file:
                found += [int(pid)] if path.encode() in file.read() else []
        except OSError:
            pass
    return found


def tracers_that_die(lib, host, work):
    """Who made the session is told why it ended; a plug-in that never returns is gone a while after its session."""
    plugin = os.path.join(work, "plug.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-I", os.path.join(os.environ["TEST_SOURCE"], "include"), "-o", plugin, "-xc", "-"],
                   input=PLUGIN.encode(), check=True)
    hangs = Session(lib, '{module,"%s",stays}' % plugin)
    hangs.call("process", host.pid(0), 1, "[call]")
    hangs.call("function", "{'tm.so',pub,1}", "true", "[local]")
    host.execute(0, "pub", 1)
    check("tracers: a plug-in that never returns is there", left(plugin))
    hangs.free()
    for tracer, why in (('{file,"/dev/full"}', "No space left on device"), ('{module,"%s",no}' % plugin, "does not want this state"),
                        ('{module,"%s/tm.so",[]}' % work, "has no lorg_tracer()")):
        session = Session(lib, tracer)
        refusal(session.call, "process", host.pid(0), 1, "[call]")
        refusal(session.call, "function", "{'tm.so',pub,1}", "true", "[local]")
        host.execute(0, "pub", 2)
        said = told(session)
        check("tracers: %s: why" % tracer, said and said[-1][0] == 4 and why in said[-1][1], str(said))
        session.free()
    end = time.monotonic() + 60
    while left(plugin) and time.monotonic() < end:
        time.sleep(0.2)
    equal("tracers: and then it is gone", left(plugin), [])


def main():
    work = scratch("live")
    os.mkdir(work)
    build(work)
    runtime = os.path.join(work, "runtime")
    os.mkdir(runtime, 0o700)
    daemon = start_daemon(runtime)
    lib, host = library(), Host(work, work)
    lib.lorg_session_find.restype = ctypes.c_void_p
    lib.lorg_session_find.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(Failure)]
    lib.lorg_session_limit.argtypes = [ctypes.c_void_p, ctypes.POINTER(Limits), ctypes.POINTER(Failure)]
    all_sessions(lib, host)
    different_specifications(lib, host)
    no_reader(lib, host)
    many_programs(lib)
    destroyed_in_a_flood(lib, host)
    names(lib)
    limits(lib, host)
    tracers_that_die(lib, host, work)
    equal("sessions: the program ends as ever", host.end(), 0)
    daemon.send_signal(signal.SIGTERM)
    equal("sessions: lorgd ends when told", daemon.wait(timeout=20), 0)
    finish()


main()
