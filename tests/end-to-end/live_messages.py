#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What messages of a session say beyond what they are about: the CPU time of the program (cpu_timestamp), threads that have not
come to wait yet (long_schedule), and for whom what was lost (only those who had asked for it)."""

import os
import re
import signal
import time

from livehost import DONE, Host, build
from lorgctl import Session, library, start_daemon
from lorgtest import check, equal, finish, scratch


def cpu_clock(pid):
    """The clock of another program's CPU time, as clock_getcpuclockid(3) names it."""
    return (~pid << 3) | 2


def cpu_us(pid):
    return time.clock_gettime_ns(cpu_clock(pid)) // 1000


def stamp_us(text):
    """The {MegaSecs,Secs,MicroSecs} that a message ends in."""
    match = re.search(r",\{(\d+),(\d+),(\d+)\}\}$", text)
    return (int(match[1]) * 1000000 + int(match[2])) * 1000000 + int(match[3]) if match else None


def refused(session, *arguments):
    try:
        return session.call(*arguments)
    except Exception as why:  # Refused: its kind
        return why.args[0]


# ---- cpu_timestamp -------------------------------------------------------------------------------


def cpu_of_calls(lib, host):
    """A call's stamp lies between what the program had used before and after it; others have the wall clock meanwhile."""
    session, other = Session(lib, name="cpu"), Session(lib, name="wall")
    program, pid = host.process.pid, host.pid(0)
    session.call("process", "all", 1, "[call,timestamp,cpu_timestamp]")
    other.call("process", pid, 1, "[call,timestamp]")
    for one in (session, other):
        one.call("function", "{'tm.so',pub,1}", "true", "[local]")
    bounds = []
    for _ in range(3):
        before = cpu_us(program)
        host.execute(0, "pub", 5)
        bounds.append((before, cpu_us(program)))
        host.execute(0, "spin", 30)
    said = session.received()
    equal("cpu: a call each", [text.startswith("{trace_ts,%s,call,{'tm.so',pub,[5]},{" % pid) for text in said], [True] * 3)
    stamps = [stamp_us(text) for text in said]
    check("cpu: each is what the program had used", all(low <= stamp <= high for stamp, (low, high) in zip(stamps, bounds)), (stamps, bounds))
    wall = [stamp_us(text) for text in other.received()]
    now = time.time_ns() // 1000
    check("cpu: another session's are of the day", len(wall) == 3 and all(now - 60000000 < stamp <= now for stamp in wall), wall)
    other.free()
    return session


def cpu_forms(session, host):
    """Precedence, memory, meta, and what info/3 says of it."""
    program, pid = host.process.pid, host.pid(0)

    def call_stamp():
        host.execute(0, "pub", 6)
        return session.received()[-1]

    equal("cpu: no flag of a process", session.call("info", pid, "flags"), "{flags,[call,timestamp]}")
    equal("cpu: nor of new ones", session.call("info", "new", "flags"), "{flags,[call,timestamp]}")
    session.call("process", pid, 1, "[strict_monotonic_timestamp,monotonic_timestamp]")
    check("cpu: timestamp is before the others", (stamp_us(call_stamp()) or 1 << 62) < cpu_us(program), call_stamp())
    session.call("process", pid, 0, "[timestamp]")
    text = call_stamp()
    check("cpu: strict_monotonic_timestamp is no time of day", re.search(r",\{\d{6,},-?\d+\}\}$", text), text)
    session.call("process", pid, 0, "[strict_monotonic_timestamp]")
    text = call_stamp()
    match = re.search(r",(\d+)\}$", text)
    check("cpu: nor is monotonic_timestamp", match and abs(int(match[1]) - time.monotonic_ns()) < 60e9, text)
    session.call("process", pid, 0, "[monotonic_timestamp]")
    check("cpu: alone it is no stamp", call_stamp().startswith("{trace,"), "")
    session.call("process", pid, 1, "[timestamp]")
    session.call("function", "{'tm.so',fact,1}", "true", "[meta]")
    host.execute(0, "fact", 0)
    text = session.received()[-1]
    check("cpu: of meta messages, too", text.startswith("{trace_ts,") and stamp_us(text) < cpu_us(program), text)
    session.call("process", "all", 0, "[cpu_timestamp]")
    before = time.time_ns() // 1000
    text = call_stamp()
    check("cpu: switched off, the day's", before <= stamp_us(text) <= time.time_ns() // 1000, text)
    for who in (pid, "existing", "new", str(program)):
        equal("cpu: refused for %s" % who, refused(session, "process", who, 1, "[cpu_timestamp]"), "badarg")
    equal("cpu: no flag of ports", refused(session, "port", "all", 1, "[cpu_timestamp]"), "badarg")


def cpu_of_waits(session, host):
    """What a message tells of its entry has the entry's time: another thread works between out and in."""
    program, pid = host.process.pid, host.pid(0)
    session.call("process", "all", 0, "[all]")
    session.call("process", "all", 1, "[cpu_timestamp]")
    session.call("process", pid, 1, "[running,send,'receive',procs,timestamp]")
    before = cpu_us(program)
    host.begin(1, "spin", 120)
    host.execute(0, "poll", 80)
    after = cpu_us(program)
    while host.slot(1)[0] != DONE:
        time.sleep(0.001)
    said = [text for text in session.received() if ",poll," in text]
    equal("cpu: out and in", [text.split(",")[2] for text in said], ["out", "in"])
    out, back = [stamp_us(text) for text in said]
    check("cpu: out before, in after what another thread used meanwhile",
          before <= out < back <= after and back - out > (after - before) // 2, (before, out, back, after))
    ends = host.execute(0, "pipe")
    read, write = ends >> 32, ends & 0xffffffff
    before = cpu_us(program)
    host.execute(0, "write", write, 0, "text")
    host.execute(0, "read", read)
    stamps = [stamp_us(text) for text in session.received() if ",send," in text or ",'receive'," in text]
    check("cpu: of messages", len(stamps) == 2 and before <= stamps[0] <= stamps[1] <= cpu_us(program), (before, stamps))
    began = host.execute(0, "spawn")
    said = [text for text in session.received() if ",spawn," in text]
    check("cpu: of a spawn", len(said) == 1 and stamp_us(said[0]) <= cpu_us(program), said)
    host.execute(began, "end")
    session.free()


# ---- long_schedule --------------------------------------------------------------------------------


def monitors(session, timeout=0.0):
    """Messages of the system monitor that come in that time: (seconds until then, text)."""
    begin, said = time.monotonic(), []
    while time.monotonic() < begin + timeout:
        message = session.receive(20000000)
        if message and b"monitor" in (message.text or b""):
            said.append((time.monotonic() - begin, message.text.decode()))
    return said


def still_running(lib, host):
    fast, slow = Session(lib, name="fast"), Session(lib, name="slow")
    fast.call("system", "long_schedule", "50")
    slow.call("system", "long_schedule", "400")
    host.execute(0, "poll", 1)
    host.begin(0, "spin", 1500)
    first = monitors(fast, 1.0)
    check("long_schedule: while it runs", host.slot(0)[0] != DONE and len(first) == 1, first)
    form = r"\{monitor,%s,long_schedule,\[\{timeout,(\d+)\},\{in,\{'libc\.so\.6',poll,3\}\},\{out,undefined\}\]\}" % re.escape(host.pid(0))
    match = re.fullmatch(form, first[0][1]) if first else None
    check("long_schedule: as trace(3) has it, out is not known", match and 50 <= int(match[1]) < 600, first)
    check("long_schedule: soon after the limit", first and first[0][0] < 0.6, first)
    second = monitors(slow, 0.1)
    match = re.fullmatch(form, second[0][1]) if second else None
    check("long_schedule: a session has its own limit", match and 400 <= int(match[1]) < 1400, second)
    while host.slot(0)[0] != DONE:
        time.sleep(0.005)
    host.execute(0, "poll", 1)
    equal("long_schedule: not told again at the out", [text for text in fast.received() + slow.received() if "monitor" in text], [])
    host.execute(0, "spin", 120)
    host.execute(0, "poll", 1)
    said = [text for text in fast.received() if "monitor" in text]
    equal("long_schedule: the next stretch is another", len(said), 1)
    equal("long_schedule: and not long for the other", [text for text in slow.received() if "monitor" in text], [])
    fast.free()
    slow.free()


def never_waited(lib, host):
    """A thread of which no hook has said anything, since it has run from before anybody asked."""
    host.begin(1, "spin", 1500)
    time.sleep(0.05)
    session = Session(lib, name="late")
    session.call("system", "long_schedule", "100")
    said = [text for _, text in monitors(session, 1.0)]
    check("long_schedule: since before it was asked for", len(said) == 1 and host.pid(1) in said[0] and "{in,undefined},{out,undefined}" in said[0], said)
    while host.slot(1)[0] != DONE:
        time.sleep(0.005)
    equal("long_schedule: once", [text for text in session.received() if "monitor" in text], [])
    # Threads that sleep, where no hook sees it, are not running.
    time.sleep(0.5)
    equal("long_schedule: sleepers are none", [text for text in session.received() if "monitor" in text], [])
    session.free()


# ---- queues ---------------------------------------------------------------------------------------


def queue_of_many(lib, host, kind):
    """Writers and readers of one queue, threads and another program: it becomes long and short in turn, and ends short."""
    session, other = Session(lib, name="queue"), Session(lib, name="queue2")
    session.call("system", "long_message_queue", "{5,7}")
    ends = host.execute(0, kind)
    read, write = ends >> 32, ends & 0xffffffff
    fourth = host.execute(0, "fork")
    other.call("system", "long_message_queue", "{0,40}")
    total = 2000
    for index, name, fd in ((1, "drain", read), (fourth, "drain", read), (0, "pour", write), (2, "pour", write)):
        host.begin(index, name, fd, total)
    for index in (0, 1, 2, fourth):
        host.wait(lambda: host.slot(index)[0] == DONE, 60)
        equal("queue of a %s: its bytes have passed" % kind, host.slot(index)[7], total)
    for one, limits in ((session, "{5,7}"), (other, "{0,40}")):
        said = [text for text in one.received() if "monitor" in text]
        turns = [text.endswith(",true}") for text in said]
        check("queue of a %s, %s: long and short in turn" % (kind, limits),
              turns == [i % 2 == 0 for i in range(len(turns))] and len(turns) % 2 == 0, (len(said), said[:20], said[-5:]))
        check("queue of a %s, %s: it was long" % (kind, limits), limits != "{5,7}" or turns, said)
    host.execute(fourth, "end")
    session.free()
    other.free()


def queue_of_messages(lib, host, kind):
    """Message queues, which have one length for all who use them."""
    session, other, program = Session(lib, name="queue"), Session(lib, name="queue2"), host.process.pid
    session.call("system", "long_message_queue", "{1,3}")
    other.call("system", "long_message_queue", "{2,4}")
    queue = host.execute(0, kind, 0, 0, "/lorg_%d" % program)
    check("%s: there is one" % kind, queue >= 0, queue)
    number = queue + (1 << 31 if kind == "sysv" else 0)
    for index, what, count in ((0, "send", 3), (1, "receive", 1), (2, "send", 2), (2, "receive", 3), (1, "send", 1), (0, "receive", 2)):
        for _ in range(count):
            host.execute(index, "%s_%s" % (kind, what), queue)
    host.execute(0, kind + "_end", queue)
    for one, reader in ((session, 2), (other, 2)):
        said = [re.sub(r"(#Port<%d\.%d)\.\d+>" % (program, number), r"\1>", text) for text in one.received()]
        equal("%s: long once and short once" % kind, said, ["{monitor,#Port<%d.%d>,long_message_queue,true}" % (program, number),
                                                           "{monitor,%s,long_message_queue,false}" % host.pid(reader)])
    session.free()
    other.free()


# ---- losses -----------------------------------------------------------------------------------------


def losses_are_their_own(lib, host, daemon):
    """The arena is full while lorgd stands still: who had not asked for calls is told of none that were lost."""
    calls, names, elsewhere = Session(lib, name="calls"), Session(lib, name="names"), Session(lib, name="elsewhere")
    calls.call("process", host.pid(0), 1, "[call]")
    calls.call("function", "{'tm.so',pub,1}", "true", "[local]")
    names.call("process", host.pid(0), 1, "[procs]")
    elsewhere.call("process", host.pid(1), 1, "[call,procs]")
    elsewhere.call("function", "{'tm.so',pub,1}", "true", "[local]")
    many = 600000
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        for _ in range(10):
            host.execute(0, "many", many // 10)
            host.execute(0, "register", 0, 0, "named")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    host.execute(0, "many", 10)
    told = {"seen": 0, "lost": 0}
    for text in calls.received():
        if text.startswith("lost "):
            told["lost"] += int(text[5:])
        elif ",pub," in text:
            told["seen"] += 1
    equal("losses: of calls, exactly", told["seen"] + told["lost"], many + 10)
    check("losses: there were some", told["lost"] > 0, told)
    said = names.received()
    lost = sum(int(text[5:]) for text in said if text.startswith("lost "))
    seen = len([text for text in said if "register," in text])
    # 10 names are given, and each but the first takes one away that a session sees: of the first, what there was before.
    check("losses: of names, and no calls", 0 < lost and 18 <= seen + lost <= 20, (seen, lost, said[-3:]))
    equal("losses: none of another thread", [text for text in elsewhere.received() if "lost" in text], [])
    for session in (calls, names, elsewhere):
        session.free()


def losses_of_ports(lib, host, daemon):
    """What a port would have told the program cannot know: it is said in another word."""
    ends = host.execute(0, "pipe")
    write = ends & 0xffffffff
    calls, ports = Session(lib, name="calls"), Session(lib, name="ports")
    calls.call("process", host.pid(0), 1, "[call]")
    calls.call("function", "{'tm.so',pub,1}", "true", "[local]")
    ports.call("port", "all", 1, "['receive']")
    host.execute(0, "write", write, 0, "seen")
    equal("losses: what a port receives is told", len(ports.received()), 1)
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        for _ in range(10):
            host.execute(0, "many", 60000)
        for _ in range(20):
            host.execute(0, "write", write, 0, "lost")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    host.execute(0, "many", 10)
    calls.received()
    said = ports.received()
    perhaps = sum(int(text[13:]) for text in said if text.startswith("perhaps lost "))
    seen = len([text for text in said if ",'receive'," in text])
    equal("losses: of ports, perhaps", perhaps + seen, 20)
    equal("losses: and none for certain", [text for text in said if text.startswith("lost")], [])
    calls.free()
    ports.free()


def main():
    work = scratch("live_messages")
    os.mkdir(work)
    build(work)
    runtime = os.path.join(work, "runtime")
    os.mkdir(runtime, 0o700)
    daemon = start_daemon(runtime)
    lib = library()
    host = Host(work, work)
    try:
        session = cpu_of_calls(lib, host)
        cpu_forms(session, host)
        cpu_of_waits(session, host)
        still_running(lib, host)
        never_waited(lib, host)
        queue_of_many(lib, host, "pipe")
        queue_of_many(lib, host, "socketpair")
        queue_of_messages(lib, host, "mq")
        queue_of_messages(lib, host, "sysv")
        losses_are_their_own(lib, host, daemon)
        losses_of_ports(lib, host, daemon)
        equal("the program ends as ever", host.end(), 0)
        daemon.send_signal(signal.SIGTERM)
        equal("lorgd ends", daemon.wait(timeout=20), 0)
    finally:
        for started in (host.process, daemon):
            if started.poll() is None:
                started.kill()
    finish()


main()
