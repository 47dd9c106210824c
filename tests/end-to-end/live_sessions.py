#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sessions beside each other on one program: each gets exactly its events, and a client that does not read hurts nobody."""

import os
import re
import signal
import time

from livehost import Host, build
from lorgctl import Session, library, start_daemon
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


def main():
    work = scratch("live")
    os.mkdir(work)
    build(work)
    runtime = os.path.join(work, "runtime")
    os.mkdir(runtime, 0o700)
    daemon = start_daemon(runtime)
    lib, host = library(), Host(work, work)
    different_specifications(lib, host)
    no_reader(lib, host)
    equal("sessions: the program ends as ever", host.end(), 0)
    daemon.send_signal(signal.SIGTERM)
    equal("sessions: lorgd ends when told", daemon.wait(timeout=20), 0)
    finish()


main()
