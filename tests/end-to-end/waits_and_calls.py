#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Waits, locks, the allocator, instrumented calls, exceptions and handlers: each told as often as it happened.

The programs are deterministic; the head of each says what it does how often.
"""

import collections
import glob
import os
import subprocess

from lorgtest import ROOT, Run, babeltrace_events, check, equal, finish, fixture, log, lost, report, scratch, skip


def record(name, *options):
    """The events of a fixture, once it has been seen to do the same as without us; None if it has not."""
    plain = subprocess.run([fixture(name)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    run = Run([fixture(name)], options=options)
    what = " ".join([name, *options])
    if not check(what + " as untraced", (run.status, run.stdout, run.stderr) == (plain.returncode, plain.stdout, ""), run.why()):
        return None
    equal(what + " lost", lost(run.directory), 0)
    return log(run.directory)


def counted(events, tag, key):
    return dict(collections.Counter(e.get(key) for e in events if e["tag"] == tag))


def waits_of(events, ignore=()):
    """Waits by function, with out and in the same; those in `ignore` left out."""
    left = counted(events, "out", "function")
    came = counted(events, "in", "function")
    return {f: (n, came.get(f, 0)) for f, n in left.items() if f not in ignore}


def both(table):
    return {function: (count, count) for function, count in table.items()}


def locks():
    events = record("locks")
    if events is None:
        return
    equal("locks waited for", waits_of(events, ("pthread_join", "write")), both({
        "pthread_mutex_lock": 3, "pthread_mutex_timedlock": 1, "pthread_rwlock_rdlock": 1, "pthread_rwlock_wrlock": 2,
        "sem_wait": 1, "sem_timedwait": 1, "pthread_barrier_wait": 1, "mtx_lock": 1, "pthread_once": 1, "cnd_wait": 1,
        "pthread_cond_wait": 1, "pthread_cond_timedwait": 1, "pthread_cond_clockwait": 1}))
    events = record("locks", "--all")
    if events is None:
        return
    tags = collections.Counter(e["tag"] for e in events)
    # 1013 times the mutexes, 3004 the rwlock, 1001 semaphores, 1000 spin locks, and those of the other threads.
    check("locks all told", tags["acquired"] > 6000 and tags["released"] > 5000 and tags["woke"] >= 3, tags)


def waits():
    events = record("waits")
    if events is None:
        return
    equal("waits", waits_of(events, ("write",)), both({
        "poll": 5, "ppoll": 1, "select": 2, "pselect": 1, "epoll_wait": 2, "epoll_pwait": 1, "nanosleep": 1,
        "clock_nanosleep": 2, "usleep": 1, "thrd_sleep": 1, "pause": 1, "sigsuspend": 1, "sched_yield": 1, "waitpid": 1,
        "wait": 1, "waitid": 1}))
    timeouts = [e for e in events if e["tag"] == "receive" and e.get("timeout")]
    check("waits timed out", len(timeouts) == 8, "%d time-outs" % len(timeouts))


def waits_left():
    """A wait that has no return has its out all the same, in its place; it is never told twice."""
    for how in ([], ["die"]):
        what = " ".join(["waits left", *how])
        run = Run([fixture("waits_left"), *how])
        check(what + " as untraced", run.status == (-9 if how else 0), run.why())
        by_thread = collections.defaultdict(list)
        for event in log(run.directory):
            if event["tag"] in ("out", "in", "open_call", "receive", "exit") and event.get("function", "read") in ("read", "poll"):
                by_thread[event["thread"]].append(event)
        told = [[e["tag"] + ("" if e.get("function", "read") == "read" else " poll") for e in events]
                for thread, events in sorted(by_thread.items()) if thread != events[0]["program"]]
        poll = ["out poll", "in poll", "receive poll", "exit"]
        equal(what, told, [["out", *poll], ["out", "out", "in", "receive", "in", "receive", "exit"], ["out", "exit"], ["out", "exit"],
                           ["out", "open_call", "exit"]])
        callers = {e["caller"].get("function") if isinstance(e.get("caller"), dict) else e.get("caller")
                   for events in by_thread.values() for e in events if e["tag"] == "out" and e["function"] == "read"}
        check(what + ", by whom", len(callers) == 2 and None not in callers, callers)


def records_and_events():
    """babeltrace2 counts what the files hold; the log shows some of it as the two or three events that it was."""
    run = Run(["sh", "-c", "printf hello | cat"])
    made = babeltrace_events(run.directory)
    shown = len(log(run.directory, "--kind", "all"))
    check("fewer in the files than shown", 0 < made < shown, "%d in the files, %d shown" % (made, shown))
    kept = report(run.directory)["coverage"]["events"]
    check("the files are counted alike", kept < made <= kept + 5000, "%d of programs, %d in all" % (kept, made))


def allocations():
    events = record("allocations", "--all")
    if events is None:
        return
    worker = collections.Counter(e["thread"] for e in events if e["tag"] == "allocate").most_common(1)[0][0]
    mine = [e for e in events if e["thread"] == worker]
    equal("allocations told", collections.Counter(e["tag"] for e in mine if e["tag"] in ("allocate", "free")),
          {"allocate": 1011, "free": 1006})
    events = record("news", "--all")
    if events is None:
        return
    hooks = collections.Counter(e.get("hook", e.get("function")) for e in events if e["tag"] in ("allocate", "free"))
    equal("new told once", sum(n for h, n in hooks.items() if str(h).startswith("_Zn")), 312)
    equal("delete told once", sum(n for h, n in hooks.items() if str(h).startswith("_Zd")), 310)


def calls():
    events = record("instrumented")
    if events is not None:
        equal("instrumented calls entered", counted(events, "enter", "function"), {
            "main": 1, "work": 2, "fibonacci": 43782, "leaf": 50600, "jumps": 1, "jumper": 1000, "through": 1000,
            "signals": 1, "on_signal": 500, "child": 1})
        equal("instrumented calls left", counted(events, "exit_function", "function"), {
            "main": 1, "work": 2, "fibonacci": 43782, "leaf": 50600, "jumps": 1, "signals": 1, "on_signal": 500, "child": 1})
    events = record("functrace")
    if events is not None:
        equal("functrace entered", counted(events, "enter", "function"), {"main": 1, "work": 100, "inner": 1000})
        equal("functrace left", counted(events, "exit_function", "function"), {"work": 100, "inner": 1000})
        equal("functrace caught", [(e["function"], e["file"], e["line"]) for e in events if e["tag"] == "catch"],
              [("main", "functrace.c", 30)])


def exceptions():
    events = record("exceptions")
    if events is None:
        return
    equal("exceptions thrown", counted(events, "throw", "type"), {"i": 1001, "PKc": 3, "5Error": 3, "7Derived": 2})
    equal("exceptions caught", counted(events, "catch", "type"), {"i": 1001, "PKc": 3, "5Error": 4, "7Derived": 1})
    equal("exceptions caught again", counted(events, "catch_again", "type"), {"5Error": 1, "7Derived": 1})


def handlers():
    events = record("handlers")
    if events is None:
        return
    taken = collections.Counter(e["signal"] for e in events if e["tag"] == "signal" and "from" in e)
    equal("signals handled", (taken["SIGUSR1"], taken["SIGRTMIN"] if "SIGRTMIN" in taken else taken["SIGRTMIN+0"],
                              taken["SIGRTMIN+1"]), (1010, 1000, 1000))


def built(folder, output, *arguments):
    path = os.path.join(folder, output)
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-g", "-O1", "-fPIC", "-o", path, *arguments], check=True)
    return path


def source(name):
    return os.path.join(ROOT, "tests", "fixtures", "plugins", name)


def same_as_untraced(name, command):
    """The events of a command that does the same as without us."""
    plain = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    run = Run(command)
    check(name + " as untraced", (run.status, run.stdout, run.stderr) == (plain.returncode, plain.stdout, ""), run.why())
    return collections.Counter(e["tag"] for e in log(run.directory))


def own_tracing_functions():
    """A program's own tracing functions are called after ours, be they linked or in what a plug-in needs."""
    folder = scratch("own")
    os.mkdir(folder)
    library = built(folder, "libown.so", "-shared", source("own_functions.c"))
    linked = ["-finstrument-functions", source("caller.c"), library, "-Wl,-rpath," + folder]
    tags = same_as_untraced("own functions, linked", [built(folder, "caller", *linked)])
    equal("own functions, linked, told", (tags["enter"], tags["exit_function"], tags["catch"]), (22, 22, 10))
    plugin = built(folder, "plugin.so", "-shared", "-DPLUGIN", *linked)
    loader = built(folder, "loader", source("loader.c"))
    tags = same_as_untraced("own functions, loaded", [loader, plugin])
    equal("own functions, loaded, told", (tags["enter"], tags["exit_function"], tags["catch"]), (126, 126, 60))


def two_runtimes():
    """Plug-ins with C++ runtimes of their own throw and catch each by its own."""
    folder = scratch("runtimes")
    os.mkdir(folder)
    loader = built(folder, "loader", source("loader.c"))
    one = built(folder, "one.so", "-shared", source("thrower.cc"), "-lstdc++")
    tags = same_as_untraced("loaded runtime", [loader, one])
    equal("loaded runtime told", (tags["throw"], tags["catch"], tags["catch_again"]), (60, 30, 30))
    others = [p for p in glob.glob("/usr/lib/*/libc++abi.so.1") if os.path.exists(p)]
    if not others:
        skip("two runtimes", "no libc++abi here")
        return
    two = built(folder, "two.so", "-shared", source("thrower.cc"), others[0], "-lgcc_s")
    tags = same_as_untraced("two runtimes", [loader, one, two])
    equal("two runtimes told", (tags["throw"], tags["catch"], tags["catch_again"]), (120, 60, 60))


locks()
waits()
waits_left()
records_and_events()
allocations()
calls()
exceptions()
handlers()
own_tracing_functions()
two_runtimes()
finish()
