#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorgd is killed in the middle of its work and started again: programs go on, sessions that persist come back."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import daemon as raw
from daemon import Client, Daemon, PACKET, attached, handle_of, place, program
from lorgtest import check, equal, finish, log, skip

# Writes its count into a pipe to itself, a thousand times a second, and says how far it is when asked.
WORKER = """
import os, sys, threading, time
inside, outside = os.pipe()
count, stop = 0, False
def work():
    global count
    while not stop:
        os.write(outside, b"%8d" % count)
        os.read(inside, 8)
        count += 1
        time.sleep(0.001)
thread = threading.Thread(target=work)
thread.start()
for line in sys.stdin:
    print(count, flush=True)
stop = True
thread.join()
"""


# By which keepers of other lorgds are told from those of this test.
MARK = "LORG_TEST_MARK=%d" % os.getpid()


def one_keeper(limit=5):
    """Of two, the one before ends when the other has everything."""
    until = time.monotonic() + limit
    while len(keepers()) != 1 and time.monotonic() < until:
        time.sleep(0.01)
    return len(keepers())


def progress(worker):
    worker.stdin.write(b"\n")
    worker.stdin.flush()
    return int(worker.stdout.readline())


def keepers():
    """Processes that hold a killed lorgd's memory."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry, encoding="ascii", errors="replace") as stat:
                    alive = re.match(r"\d+ \(lorgd-keeper\) [^ZX]", stat.read())
                with open("/proc/%s/environ" % entry, "rb") as environment:
                    if alive and MARK.encode() in environment.read().split(b"\0"):
                        found.add(int(entry))
            except OSError:
                pass
    return found


def graceful(environment):
    """SIGUSR1: the same process goes on as a new lorgd."""
    path = place("g")
    lorgd = Daemon(path, environment=environment)
    client = Client(path)
    worker = program(path, [sys.executable, "-c", WORKER])
    check("graceful/attached", attached(client, worker.pid))
    kept = handle_of(client.ask("{session_create,kept,client,[persist]}"))
    client.ask("{session_create,gone,client,[]}")
    client.ask("{process,kept,%d,true,[send]}" % worker.pid)
    lorgd.process.send_signal(signal.SIGUSR1)
    equal("graceful/clients-are-told", client.next(raw.ENDED), b"lorgd is started again")
    client = None
    until = time.monotonic() + 10
    while client is None and time.monotonic() < until:
        try:
            client = Client(path)
            # In the queue of the socket before: it was closed with that.
            client = client if client.hello else None
        except OSError:
            time.sleep(0.01)
    check("graceful/same-process", client.hello.startswith("{ok,{lorgd,%d," % lorgd.process.pid) and client.hello.endswith(",2}}"), client.hello)
    equal("graceful/sessions", client.ask("{session_info,all}"), "[%s]" % kept)
    equal("graceful/adopt", client.ask("{adopt,kept}"), "true")
    check("graceful/events-come", client.next(PACKET) is not None)
    check("graceful/attached-again", attached(client, worker.pid))
    equal("graceful/one-keeper", one_keeper(), 1)
    worker.stdin.close()
    equal("graceful/program-ends-well", worker.wait(timeout=20), 0)
    equal("graceful/clean-end", lorgd.end(), (0, ""))


def main():
    if not os.path.exists(raw.LORGD):
        skip("restart", "lorgd is not built")
        finish()
    environment = dict(os.environ, LORG_TEST_MARK=str(os.getpid()))
    path, directory = place("r"), place("trace")
    lorgd = Daemon(path, environment=environment)
    client = Client(path)
    worker = program(path, [sys.executable, "-c", WORKER])
    check("restart/attached", attached(client, worker.pid))
    kept = handle_of(client.ask('{session_create,kept,{directory,"%s"},[persist]}' % directory))
    live = handle_of(client.ask("{session_create,live,client,[persist]}"))
    handle_of(client.ask("{session_create,gone,client,[]}"))
    client.ask("{process,kept,%d,true,[send,procs]}" % worker.pid)
    check("restart/function", client.ask("{function,kept,{'libc.so.6',getppid,'_'},true,[local]}").startswith("{1,"))
    client.ask("{process,live,new,true,[running,timestamp]}")
    client.ask("{process,live,<%d.%d.0>,true,[call,timestamp]}" % (worker.pid, worker.pid))
    client.ask("{process,gone,existing,true,['receive']}")
    client.ask("{send,live,[{['_','$1'],[{is_binary,'$1'}],[]}],[]}")
    client.ask("{system,live,long_schedule,50}")
    client.ask("{session_limit,live,[{rate,5000}]}")
    progress(worker)  # it has begun
    time.sleep(0.5)
    before = progress(worker)
    lorgd.end(signal.SIGKILL)
    equal("restart/keeper-holds-on", one_keeper(), 1)
    time.sleep(0.5)
    between = progress(worker)
    check("restart/program-goes-on", worker.poll() is None and between - before > 100, (before, between))
    lorgd = Daemon(path, environment=environment)
    check("restart/starts", lorgd.ready, lorgd.process.poll())
    client = Client(path)
    check("restart/epoch", client.hello.endswith(",2}}"), client.hello)
    equal("restart/sessions-that-persist", client.ask("{session_info,all}"), "[%s,%s]" % (kept, live))
    check("restart/program-is-attached-again", attached(client, worker.pid))
    name = "<%d.%d.0>" % (worker.pid, worker.pid)
    equal("restart/flags-of-a-process", client.ask("{info,kept,%s,flags}" % name), "{flags,[send,procs]}")
    equal("restart/flags-of-another-session", client.ask("{info,live,%s,flags}" % name), "{flags,[call,timestamp]}")
    equal("restart/flags-of-new", client.ask("{info,live,new,flags}"), "{flags,[running,timestamp]}")
    equal("restart/send", client.ask("{info,live,send,match_spec}"), "{match_spec,[{['_','$1'],[{is_binary,'$1'}],[]}]}")
    equal("restart/system", client.ask("{info,live,system,all}"), "{system,[{long_schedule,50}]}")
    equal("restart/adopt", client.ask("{adopt,live}"), "true")
    equal("restart/set", client.ask("{process,live,existing,true,['receive']}"), "2")
    check("restart/events-come", client.next(PACKET) is not None)
    check("restart/new-programs-attach", attached(client, program(path, ["sleep", "30"]).pid))
    time.sleep(0.5)
    after = progress(worker)
    check("restart/program-still-goes-on", worker.poll() is None and after > between, (between, after))
    equal("restart/one-keeper", one_keeper(), 1)
    child = handle_of(client.ask("{session_create,later,client,[]}"))
    check("restart/numbers-go-on", child and int(re.search(r",(\d+)\}", child).group(1)) > int(re.search(r",(\d+)\}", live).group(1)), child)
    # What the module holds is found out anew, which takes its time.
    until = time.monotonic() + 20
    while client.ask("{info,kept,{'libc.so.6',getppid,0},traced}") == "{traced,false}" and time.monotonic() < until:
        time.sleep(0.05)
    equal("restart/function-of-new-programs", client.ask("{info,kept,{'libc.so.6',getppid,0},traced}"), "{traced,local}")
    equal("restart/destroy", [client.ask("{session_destroy,%s}" % name) for name in ("kept", "live", "later")], ["true"] * 3)
    with open(os.path.join(path, "programs"), encoding="ascii") as programs:
        pid = int(programs.read().split(":")[1])
    equal("restart/programs-names-the-new-one", pid, lorgd.process.pid)
    sends = [event for event in log(directory) if event.get("tag") == "send"]
    named = [event for event in sends if event.get("program") == worker.pid]
    check("restart/the-recording-goes-on", len(named) > 50, (len(sends), sends[:1]))
    older = [event for event in log(directory + ".1") if event.get("tag") == "send"]
    check("restart/the-recording-before-is-whole", len(older) > 50, len(older))
    # Each write has its number: none is missing, and none is there twice, also of the time without a lorgd.
    numbers = [int(event["msg"]) for event in older + sends if event["bytes"] == 8]
    missing = sorted(set(range(min(numbers), max(numbers) + 1)) - set(numbers))
    last = max(int(event["msg"]) for event in older if event["bytes"] == 8)
    check("restart/nothing-is-lost", not missing, "%d are missing: %r; the last before the kill is %d" % (len(missing), missing[:3], last))
    equal("restart/nothing-comes-twice", len(numbers) - len(set(numbers)), 0)
    worker.stdin.close()
    equal("restart/program-ends-well", (worker.wait(timeout=20), worker.stderr.read()), (0, b""))
    equal("restart/clean-end", lorgd.end(), (0, ""))
    time.sleep(0.2)
    equal("restart/no-keeper-is-left", keepers(), set())
    graceful(environment)
    shutil.rmtree(raw.BASE, ignore_errors=True)
    finish()


if __name__ == "__main__":
    main()
