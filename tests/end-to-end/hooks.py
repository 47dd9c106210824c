#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The hooks themselves: in place before anything runs, each call told once, nothing changed where they cannot be placed."""

import collections
import importlib.util
import os
import subprocess
import sys

from lorgtest import LORG, ROOT, Run, check, equal, finish, fixture, log, scratch, skip

PRELOAD = os.path.join(os.path.dirname(os.path.dirname(LORG)), "preload", "liblorg.so")
SOURCES = os.path.join(ROOT, "tests", "fixtures")


def build(output, *arguments):
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-g", "-O1", "-o", output, *arguments], check=True)
    return output


def early_calls():
    """A resolver that runs before liblorg.so is relocated calls hooked functions."""
    folder = scratch("early")
    os.mkdir(folder)
    for binding in ("lazy", "now"):
        library = build(os.path.join(folder, "libchooser.so"), "-shared", "-fPIC", "-Wl,-z," + binding,
                        os.path.join(SOURCES, "early", "chooser.c"))
        program = build(os.path.join(folder, "main"), os.path.join(SOURCES, "early", "main.c"), library,
                        "-Wl,-rpath," + folder)
        plain = subprocess.run([program], stdout=subprocess.PIPE, check=False)
        loaded = subprocess.run([program], stdout=subprocess.PIPE, env=dict(os.environ, LD_PRELOAD=PRELOAD), check=False)
        recorded = Run([program])
        equal("early-calls-preloaded-" + binding, (loaded.returncode, loaded.stdout), (plain.returncode, plain.stdout))
        equal("early-calls-recorded-" + binding, (recorded.status, recorded.stdout), (plain.returncode, plain.stdout))


def told_once():
    """Calls that reach libc's inner entry points are recorded, by one event each."""
    run = Run([fixture("inner_calls")], options=["--all"])
    if not check("inner-calls", run.status == 0 and not run.stderr, run.why()):
        return
    sent, received = collections.Counter(), collections.Counter()
    for event in log(run.directory):
        if event["tag"] == "send":
            sent[event["driver"], event["bytes"]] += 1
        if event["tag"] == "receive":
            received[event["driver"], event["bytes"]] += 1
    equal("inner-calls-sent", dict(sent), {("pipe", n): 1 for n in range(1, 6)} | {("eventfd", 8): 1})
    equal("inner-calls-received", dict(received), {("pipe", n): 1 for n in range(1, 6)} | {("eventfd", 8): 1})


def gaps(directory):
    return [e for e in log(directory) if e["tag"] == "gap"]


def another_in_the_way():
    """A library of the user's takes libc's place: calls are told by symbols alone, once, and the recording says so."""
    library = build(scratch("reader.so"), "-shared", "-fPIC", os.path.join(SOURCES, "hooks", "reader.c"))
    run = Run([fixture("inner_calls")], env=dict(os.environ, LD_PRELOAD=library))
    if not check("another-read", run.status == 0 and not run.stderr, run.why()):
        return
    received = collections.Counter(e["bytes"] for e in log(run.directory) if e["tag"] == "receive" and e["driver"] == "pipe")
    check("another-read-told-once", received[1] == 1 and received[2] == 1, received)
    check("another-read-gap", any("read" in g["what"] for g in gaps(run.directory)), gaps(run.directory))


def no_new_code():
    """Where no memory may become executable the hooks in code find another way, or say that there is none."""
    probe = subprocess.run([fixture("no_new_code"), "true"], check=False)
    if probe.returncode == 77:
        skip("no-new-code", "this kernel has no PR_SET_MDWE")
        return
    run = Run([fixture("no_new_code"), fixture("inner_calls")])
    if not check("no-new-code", run.status == 0 and not run.stderr, run.why()):
        return
    told = [e for e in log(run.directory) if e["tag"] == "send" and e["driver"] == "pipe"]
    check("no-new-code-told", len(told) == 5 or gaps(run.directory), "%d sends, no gap" % len(told))


def under_a_filter():
    """Where the program has set a seccomp filter no code is changed in what it starts, and the recording says so."""
    run = Run([fixture("filtered"), "/bin/sh", "-c", fixture("inner_calls") + "; true"])
    if run.status == 77:
        skip("under-a-filter", "no seccomp here")
        return
    if not check("under-a-filter", run.status == 0 and not run.stderr, run.why()):
        return
    check("under-a-filter-gap", any("filter" in g["why"] for g in gaps(run.directory)), gaps(run.directory))


def inherited_filter():
    """A filter that is on the recorder too, as in a container, takes nothing away."""
    directory = scratch("container")
    done = subprocess.run([fixture("filtered"), LORG, "run", "-o", directory, "--", fixture("inner_calls")], check=False)
    if done.returncode == 77:
        skip("inherited-filter", "no seccomp here")
        return
    told = [e for e in log(directory) if e["tag"] == "send" and e["driver"] == "pipe"]
    check("inherited-filter", done.returncode == 0 and len(told) == 5 and not gaps(directory), "%d sends, gaps: %s" % (
        len(told), gaps(directory)))


def table_is_complete():
    """A function of libc that is in no row and not excluded is named."""
    exclusions = scratch("exclusions.txt")
    with open(os.path.join(ROOT, "preload", "hooks", "exclusions.txt"), encoding="ascii") as file:
        text = file.read().replace("\twordexp\n", "\tnothing\n")
    with open(exclusions, "w", encoding="ascii") as file:
        file.write(text)
    libc = subprocess.run(["gcc", "-print-file-name=libc.so.6"], stdout=subprocess.PIPE, check=True).stdout.decode().strip()
    done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "check_exports.py"),
                           os.path.join(ROOT, "preload", "hooks", "hooks.table"), exclusions, libc],
                          stdout=subprocess.PIPE, check=False)
    check("table-complete", done.returncode == 1 and b"wordexp" in done.stdout, done.stdout.decode())


def rows_have_tests():
    """The test that a row names is there."""
    place = importlib.util.spec_from_file_location("hook_table", os.path.join(ROOT, "scripts", "hooks.py"))
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    rows = module.read_table(os.path.join(ROOT, "preload", "hooks", "hooks.table"))
    there = {os.path.splitext(n)[0].removeprefix("test_")
             for d in ("fixtures", "cases", "unit", "end-to-end") for n in os.listdir(os.path.join(ROOT, "tests", d))}
    missing = {r.column["test"] for r in rows} - there
    check("rows-have-tests", not missing, sorted(missing))


early_calls()
told_once()
another_in_the_way()
no_new_code()
under_a_filter()
inherited_filter()
table_is_complete()
rows_have_tests()
finish()
