#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorgd is killed in the middle of its work and started again: programs go on, sessions that persist come back."""

import glob
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import daemon as raw
from daemon import Client, Daemon, PACKET, attached, handle_of, place, program
from lorgtest import check, equal, finish, fixture, log, lost, skip

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
    lorgd = Daemon(path, environment=environment, keep=True)
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
    equal("graceful/clean-end", lorgd.end(signal.SIGINT), (0, ""))


def directories(directory):
    """Of one session, in the order in which they were written."""
    older = sorted((name for name in glob.glob(directory + ".*")), key=lambda name: int(name.rsplit(".", 1)[1]))
    return older + [directory]


def numbers_of(client, question):
    """The number that answers info/3; None: none does."""
    found = re.fullmatch(r"\{\w+,(\d+)\}", client.ask(question) or "")
    return found and int(found.group(1))


def is_traced_soon(client, question, wanted, limit=20):
    until = time.monotonic() + limit
    while client.ask(question) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return client.ask(question)


def functions(environment):
    """What is asked of functions comes back as it was: calls under specifications, counters, on_load; each call once."""
    path, directory = place("f"), place("calls")
    lorgd = Daemon(path, environment=environment, keep=True)
    client = Client(path)
    worker = program(path, [fixture("live_calls")])
    check("functions/attached", attached(client, worker.pid))
    client.ask('{session_create,kept,{directory,"%s"},[persist]}' % directory)
    client.ask("{session_create,counts,client,[persist]}")
    client.ask("{session_create,gone,client,[]}")
    for session in ("kept", "counts", "gone"):
        client.ask("{process,%s,existing,true,[call]}" % session)
    specification = "[{['$1'],[{'>','$1',0}],[{return_trace}]}]"
    equal("functions/asked", [client.ask("{function,kept,{live_calls,work,'_'},%s,[local]}" % specification),
                              client.ask("{function,counts,{live_calls,work_hard,'_'},true,[call_count,call_time]}"),
                              client.ask("{function,counts,on_load,true,[local]}")], ["{1,[]}", "{1,[]}", "{0,[]}"])
    client.ask("{function,gone,{live_calls,'_','_'},true,[local]}")
    question = "{info,counts,{live_calls,work_hard,2},call_count}"
    time.sleep(1)
    before = numbers_of(client, question)
    lorgd.end(signal.SIGKILL)
    time.sleep(1)
    lorgd = Daemon(path, environment=environment, keep=True)
    client = Client(path)
    between = numbers_of(client, question)
    check("functions/counted-meanwhile", before and between and between - before > 60, (before, between))
    equal("functions/specification", client.ask("{info,kept,{live_calls,work,1},match_spec}"), "{match_spec,%s}" % specification)
    timed = client.ask("{info,counts,{live_calls,work_hard,2},call_time}")
    found = re.match(r"\{call_time,\[\{<%d\.%d\.0>,(\d+)," % (worker.pid, worker.pid), timed)
    check("functions/call-time", found and between <= int(found[1]) <= numbers_of(client, question), (between, timed))
    equal("functions/on-load", client.ask("{info,counts,on_load,traced}"), "{traced,local}")
    equal("functions/paused", [client.ask("{function,counts,{live_calls,work_hard,'_'},pause,[call_count]}"),
                               numbers_of(client, question) == numbers_of(client, question)], ["{1,[]}", True])
    equal("functions/new-request", client.ask("{function,kept,{live_calls,work_hard,'_'},true,[local]}"), "{1,[]}")
    time.sleep(0.3)
    lorgd.end(signal.SIGKILL)
    lorgd = Daemon(path, environment=environment, keep=True)
    client = Client(path)
    paused = numbers_of(client, question)
    time.sleep(0.3)
    equal("functions/is-paused-still", numbers_of(client, question), paused)
    worker.stdin.close()
    said = worker.stdout.read().split()
    equal("functions/program-ends-well", (worker.wait(timeout=20), worker.stderr.read()), (0, b""))
    last = int(said[1])
    time.sleep(0.3)
    client.ask("{session_destroy,kept}")
    events = [event for name in directories(directory) for event in log(name)]
    calls = [event["args"][0] for event in events if event["tag"] == "call" and event["function"] == "work"]
    returns = [event for event in events if event["tag"] == "return_from" and event["function"] == "work"]
    check("functions/each-call-once", calls and sorted(calls) == list(range(min(calls), last + 1)),
          (len(calls), len(set(calls)), min(calls, default=0), last))
    check("functions/each-return-once", abs(len(returns) - len(calls)) <= 1, (len(returns), len(calls)))
    hard = [event["args"][0] for event in events if event["tag"] == "call" and event["function"] == "work_hard"]
    check("functions/asked-later", hard and sorted(hard) == list(range(min(hard), last + 1)), (len(hard), last))
    equal("functions/clean-end", lorgd.end(signal.SIGINT), (0, ""))


# Two pipes to itself, one message each, each time it is asked.
PIPES = """
import os, sys
pipes = [os.pipe() for _ in range(2)]
print(*[end for pipe in pipes for end in pipe], flush=True)
for line in sys.stdin:
    for inside, outside in pipes:
        os.write(outside, b"%07d" % int(line))
        os.read(inside, 7)
    print("done", flush=True)
"""


def ports(environment):
    path, directory = place("p"), place("ports")
    lorgd = Daemon(path, environment=environment, keep=True)
    client = Client(path)
    worker = program(path, [sys.executable, "-c", PIPES])
    check("ports/attached", attached(client, worker.pid))
    ends = worker.stdout.readline().decode().split()
    client.ask('{session_create,kept,{directory,"%s"},[persist]}' % directory)
    equal("ports/one", client.ask("{port,kept,#Port<%d.%s>,true,[send,'receive']}" % (worker.pid, ends[1])), "1")

    def message(number):
        worker.stdin.write(b"%d\n" % number)
        worker.stdin.flush()
        worker.stdout.readline()

    flags = "{info,kept,#Port<%d.%s>,flags}" % (worker.pid, ends[1])
    message(1)
    before = client.ask(flags)
    lorgd.end(signal.SIGKILL)
    message(2)
    lorgd = Daemon(path, environment=environment, keep=True)
    client = Client(path)
    message(3)
    equal("ports/flags", before, "{flags,[send,'receive']}")
    equal("ports/flags-come-back", client.ask(flags), before)
    client.ask("{session_destroy,kept}")
    events = [event for name in directories(directory) for event in log(name)]
    seen = [(int(event["msg"]), event["fd"]) for event in events if event["tag"] == "port_receive"]
    equal("ports/each-message-of-that-port", sorted(seen), [(number, int(ends[1])) for number in (1, 2, 3)])
    worker.stdin.close()
    equal("ports/program-ends-well", (worker.wait(timeout=20), worker.stderr.read()), (0, b""))
    equal("ports/clean-end", lorgd.end(signal.SIGINT), (0, ""))


def told_to_end(environment):
    """SIGTERM leaves to the next one what there is, as a kill does; --keep says for how long."""
    path, directory = place("t"), place("told")
    lorgd = Daemon(path, environment=environment, keep=True)
    client = Client(path)
    worker = program(path, [sys.executable, "-c", WORKER])
    check("told/attached", attached(client, worker.pid))
    kept = handle_of(client.ask('{session_create,kept,{directory,"%s"},[persist]}' % directory))
    client.ask("{session_create,gone,client,[]}")
    client.ask("{process,kept,%d,true,[send]}" % worker.pid)
    client.ask("{process,kept,new,true,[send]}")
    progress(worker)
    time.sleep(0.3)
    equal("told/ends", lorgd.end(), (0, ""))
    equal("told/clients-are-told", client.next(raw.ENDED), b"lorgd is started again")
    equal("told/keeper-holds-on", one_keeper(), 1)
    # Neither a program that starts now nor one that it executes waits for anybody; both are seen when there is a lorgd again.
    begun = time.monotonic()
    late = program(path, ["/bin/sh", "-c", "echo first; exec /bin/sh -c 'echo second; read x'"])
    said = late.stdout.readline() + late.stdout.readline()
    check("told/programs-start-meanwhile", said == b"first\nsecond\n" and time.monotonic() - begun < 5, (said, time.monotonic() - begun))
    lorgd = Daemon(path, environment=environment, keep=True)
    client = Client(path)
    equal("told/sessions-that-persist", client.ask("{session_info,all}"), "[%s]" % kept)
    check("told/program-is-attached-again", attached(client, worker.pid))
    check("told/program-that-came-meanwhile", attached(client, late.pid))
    progress(worker)
    late.stdin.close()
    late.wait(timeout=20)
    worker.stdin.close()
    equal("told/program-ends-well", (worker.wait(timeout=20), worker.stderr.read()), (0, b""))
    time.sleep(0.3)
    client.ask("{session_destroy,kept}")
    sends = [event for name in directories(directory) for event in log(name) if event["tag"] == "send"]
    numbers = [int(event["msg"]) for event in sends if event["program"] == worker.pid and event["bytes"] == 8]
    equal("told/each-message-once", (sorted(set(numbers)) == list(range(min(numbers), max(numbers) + 1)), len(numbers)),
          (True, len(set(numbers))))
    check("told/messages-of-the-late", {"first\n", "second\n"} <= {event["msg"] for event in sends if event["program"] == late.pid},
          [event["msg"] for event in sends if event["program"] == late.pid])
    lorgd.end(signal.SIGINT)
    equal("told/nothing-stays-after-an-interrupt", (sorted(os.listdir(path)), len(keepers())), (["lock"], 0))
    lorgd = Daemon(path, "--keep", "1", environment=environment, keep=True)
    client = Client(path)
    worker = program(path, [sys.executable, "-c", WORKER])
    check("told/attached-for-a-second", attached(client, worker.pid))
    lorgd.end()
    equal("told/keeper-for-a-second", one_keeper(), 1)
    until = time.monotonic() + 10
    while keepers() and time.monotonic() < until:
        time.sleep(0.1)
    equal("told/no-longer", keepers(), set())
    progress(worker)
    worker.stdin.close()
    equal("told/program-goes-on-alone", (worker.wait(timeout=20), worker.stderr.read()), (0, b""))


def killed_often(environment, kills=8):
    """Under load, at whatever moment: each message, child and call is told once."""
    path, directory = place("o"), place("often")
    random.seed(20)
    lorgd = Daemon(path, environment=environment, keep=True)
    client = Client(path)
    worker = program(path, [fixture("forking")])
    check("often/attached", attached(client, worker.pid))
    client.ask('{session_create,kept,{directory,"%s"},[persist]}' % directory)
    client.ask("{session_create,counts,client,[persist]}")
    client.ask("{process,kept,%d,true,[send,procs,set_on_spawn]}" % worker.pid)
    equal("often/function", client.ask("{function,counts,{forking,counted,'_'},true,[call_count]}"), "{1,[]}")
    worker.stdin.write(b"1")
    worker.stdin.flush()
    ready = 0
    for _ in range(kills):
        time.sleep(random.uniform(0.02, 0.4))
        lorgd.end(signal.SIGTERM if random.random() < 0.25 else signal.SIGKILL)
        time.sleep(random.uniform(0, 0.1))
        lorgd = Daemon(path, environment=environment, keep=True)
        ready += lorgd.ready
    equal("often/starts-each-time", ready, kills)
    client = Client(path)
    worker.stdin.write(b"2")
    worker.stdin.flush()
    calls, messages = (int(number) for number in worker.stdout.readline().split())
    question = "{info,counts,{forking,counted,1},call_count}"
    equal("often/each-call-is-counted-once", is_traced_soon(client, question, "{call_count,%d}" % calls, 5), "{call_count,%d}" % calls)
    worker.stdin.close()
    equal("often/program-ends-well", (worker.wait(timeout=20), worker.stderr.read()), (0, b""))
    time.sleep(0.5)
    client.ask("{session_destroy,kept}")
    names = directories(directory)
    events = [event for name in names for event in log(name)]
    numbers = [int(event["msg"]) for event in events if event["tag"] == "send" and event["program"] == worker.pid and event["bytes"] == 8]
    dropped = sum(lost(name) for name in names)
    equal("often/no-message-twice", len(numbers) - len(set(numbers)), 0)
    check("often/seen-and-lost-is-all", len(numbers) == messages or (dropped and len(numbers) + dropped >= messages),
          (len(numbers), dropped, messages))
    spawns = [event["child"] for event in events if event["tag"] == "spawn"]
    exits = [event["process"] for event in events if event["tag"] == "exit"]
    equal("often/children-once", (len(spawns) - len(set(spawns)), len(exits) - len(set(exits))), (0, 0))
    equal("often/clean-end", lorgd.end(signal.SIGINT), (0, ""))


def killed_at_its_start(environment):
    """Before it has taken over what there is: the next one finds all of it."""
    path = place("b")
    random.seed(30)
    lorgd = Daemon(path, environment=environment, keep=True)
    client = Client(path)
    worker = program(path, [sys.executable, "-c", WORKER])
    check("start/attached", attached(client, worker.pid))
    kept = handle_of(client.ask("{session_create,kept,client,[persist]}"))
    client.ask("{process,kept,%d,true,[send,procs]}" % worker.pid)
    client.ask("{function,kept,{'libc.so.6',getppid,'_'},true,[local]}")
    progress(worker)
    lorgd.end(signal.SIGKILL)
    for _ in range(12):
        process = subprocess.Popen([raw.LORGD, "--directory", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=environment)
        time.sleep(random.uniform(0, 0.08))
        process.kill()
        process.wait()
    lorgd = Daemon(path, environment=environment, keep=True)
    check("start/starts", lorgd.ready)
    client = Client(path)
    equal("start/sessions", client.ask("{session_info,all}"), "[%s]" % kept)
    check("start/programs", attached(client, worker.pid))
    equal("start/flags", client.ask("{info,kept,<%d.%d.0>,flags}" % (worker.pid, worker.pid)), "{flags,[send,procs]}")
    equal("start/function", client.ask("{info,kept,{'libc.so.6',getppid,0},traced}"), "{traced,local}")
    equal("start/one-keeper", one_keeper(), 1)
    progress(worker)
    worker.stdin.close()
    equal("start/program-ends-well", (worker.wait(timeout=20), worker.stderr.read()), (0, b""))
    equal("start/clean-end", lorgd.end(signal.SIGINT), (0, ""))


def main():
    if not os.path.exists(raw.LORGD):
        skip("restart", "lorgd is not built")
        finish()
    environment = dict(os.environ, LORG_TEST_MARK=str(os.getpid()))
    path, directory = place("r"), place("trace")
    lorgd = Daemon(path, environment=environment, keep=True)
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
    lorgd = Daemon(path, environment=environment, keep=True)
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
    equal("restart/function", client.ask("{info,kept,{'libc.so.6',getppid,0},traced}"), "{traced,local}")
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
    equal("restart/clean-end", lorgd.end(signal.SIGINT), (0, ""))
    time.sleep(0.2)
    equal("restart/no-keeper-is-left", keepers(), set())
    graceful(environment)
    functions(environment)
    ports(environment)
    told_to_end(environment)
    killed_often(environment)
    killed_at_its_start(environment)
    shutil.rmtree(raw.BASE, ignore_errors=True)
    finish()


if __name__ == "__main__":
    main()
