#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every way to make a child, a program or a thread, and every way to end: what the trace says of each."""

import collections
import os
import subprocess

from lorgtest import Run, check, equal, finish, fixture, log, scratch, skip


def table(program, columns):
    lines = subprocess.run([program, "list"], check=True, stdout=subprocess.PIPE).stdout.decode().split("\n")
    return [(name, *map(int, rest)) for name, *rest in (line.split() for line in lines if line) if len(rest) == columns]


def first_thread(child):
    """<PID> names a program: its first thread is <PID.PID>."""
    return child if "." in child else "<%s.%s>" % (child[1:-1], child[1:-1])


def counts(events):
    """Programs spawned, programs executed, programs ended, threads; and what contradicts itself."""
    spawned = [e for e in events if e["tag"] == "spawn"]
    threads = [e for e in spawned if e["how"] == "thread"]
    executed = [e for e in events if e["tag"] == "exec"]
    ended = [e for e in events if e["tag"] == "exit" and e.get("whole_program")]
    return len(spawned) - len(threads), len(executed), len(ended), len(threads)


def order(events):
    """What stands before its cause in the order of the log."""
    wrong, begun, ended = [], {}, {}
    for at, event in enumerate(events):
        tag = event["tag"]
        if tag == "spawn":
            begun[first_thread(event["child"])] = at
        elif tag == "spawned" and event["process"] not in begun:
            wrong.append("%s runs before it is spawned" % event["process"])
        elif tag == "exit":
            ended.setdefault(event["process"], at)
        elif tag == "reaped" and event["child"].count(".") and event["child"] not in ended:
            wrong.append("%s is joined before its exit" % event["child"])
    return wrong


def ways_to_spawn(program):
    for name, spawns, execs, exits, threads in table(program, 4):
        run = Run([program, name, "3"], directory=scratch("trace"), limit=60)
        if not check("%s: as untraced" % name, run.status == 0 and run.stdout == ("%s 3 ok\n" % name).encode(),
                     run.why() + run.stdout.decode(errors="replace")):
            continue
        events = log(run.directory)
        equal("%s: spawns, execs, exits, threads" % name, counts(events), (3 * spawns, 3 * execs, 3 * exits + 1, 3 * threads))
        wrong = order(events)
        check("%s: causes come first" % name, not wrong, "; ".join(wrong[:5]))
        children = [first_thread(e["child"]) for e in events if e["tag"] == "spawn"]
        first = {}
        for event in events:
            first.setdefault(event["process"], event["tag"])
        check("%s: spawned comes first in each child" % name, all(first.get(child) == "spawned" for child in children),
              ["%s %s" % (child, first.get(child)) for child in children])


def ways_to_end(program):
    for name, status in table(program, 1):
        # Its parent, a shell, tells the status.
        run = Run(["/bin/sh", "-c", "%s %s >/dev/null 2>&1; exit $?" % (program, name)], directory=scratch("trace"), limit=60)
        if not equal("ends by %s: as untraced" % name, run.status, status):
            continue
        events = log(run.directory)
        exits = [e for e in events if e["tag"] == "exit" and e.get("whole_program")]
        # The shell may execute its last command itself: one program or two.
        programs = len({e["program"] for e in events})
        equal("ends by %s: one exit a program" % name, len(exits), programs)
        last = {}
        for event in events:
            last[event["process"]] = event["tag"]
        check("ends by %s: exit comes last" % name, all(last[e["process"]] == "exit" for e in exits),
              collections.Counter(last.values()))


def settings(program):
    """What a program takes away from itself, and the names it gives itself."""
    for name, _ in table(program, 1):
        bare = subprocess.run([program, name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
        if bare.returncode == 77:
            skip("settings %s" % name, "this machine cannot do it")
            continue
        run = Run([program, name], directory=scratch("trace"), limit=60)
        equal("settings %s: as untraced" % name, (run.status, run.stdout), (bare.returncode, bare.stdout))
        events = log(run.directory)
        if name == "names":
            equal("names", [(e["tag"], e["name"]) for e in events if e["tag"] in ("register", "unregister")],
                  [("register", "first-name"), ("unregister", "first-name"), ("register", "second-name"),
                   ("register", "other-thread")])
        elif name == "links":
            equal("links", [e["tag"] for e in events if e["tag"] in ("link", "unlink")], ["link", "unlink"])
        elif name == "handler_in_system":
            main_thread = [e["process"] for e in events if e["tag"] == "spawn" and e["how"] == "system"]
            senders = [e["process"] for e in events if e["tag"] == "send" and "handler" in str(e.get("msg"))]
            check("a handler in system() is the parent's", len(senders) == 2 and set(senders) == set(main_thread), "%s, not %s" % (senders, main_thread))


def main():
    ways_to_spawn(fixture("spawns"))
    ways_to_end(fixture("exits"))
    settings(fixture("settings"))
    # The program is in no other environment than the one it asked for.
    run = Run([fixture("spawns"), "all"], directory=scratch("trace"), env=dict(os.environ, LD_LIBRARY_PATH="/nowhere"))
    check("all at once", run.status == 0, run.why())
    finish()


if __name__ == "__main__":
    main()
