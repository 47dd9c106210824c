#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Functions of libraries are hooked however the library comes and whatever its callers' slots look like: each call once."""

import os
import subprocess

from lorgtest import ROOT, Run, check, equal, finish, log, scratch

SOURCE = os.path.join(ROOT, "tests", "fixtures", "opened")
PLACE = scratch("opened")
os.mkdir(PLACE)
LEAF = os.path.join(PLACE, "libleaf.so")

# Of 100 rounds: leaf_add by the caller and by leaf_twice.
OPENED = {"leaf_add": 200, "leaf_twice": 100}
# The library's constructor is a caller too, where the library is there at the start.
LINKED = {"leaf_add": 201, "leaf_twice": 100}


def build(name, *flags, source="main.c"):
    path = os.path.join(PLACE, name)
    subprocess.run(["gcc", "-O2", "-g", "-o", path, os.path.join(SOURCE, source), *flags, "-ldl", "-lpthread"], check=True)
    return path


def calls(directory):
    counts = {}
    for event in log(directory):
        if event["tag"] == "call" and event["function"].startswith("leaf_"):
            counts[event["function"]] = counts.get(event["function"], 0) + 1
    return counts


def expect(name, command, want, options):
    plain = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    run = Run(command, options)
    if not check(name + "-status", run.status == plain.returncode == 0, run.why()):
        return
    equal(name + "-output", run.stdout, plain.stdout)
    counts = calls(run.directory)
    counts.pop("leaf_chosen", None)
    equal(name + "-calls", counts, want)


def main():
    build("libleaf.so", "-fPIC", "-shared", source="leaf.c")
    linked = ["-DLINKED", "-L" + PLACE, "-lleaf", "-Wl,-rpath," + PLACE]
    kinds = {
        "lazy": ["-Wl,-z,lazy", "-Wl,-z,norelro"],
        "relro": ["-Wl,-z,lazy", "-Wl,-z,relro"],
        "now": ["-Wl,-z,now", "-Wl,-z,relro"],
        "no-plt": ["-fno-plt", "-fPIE", "-pie"],
        "no-pie": ["-no-pie", "-fno-pie", "-Wl,-z,lazy"],
    }
    for kind, flags in kinds.items():
        program = build("linked-" + kind, *linked, *flags)
        expect("code-" + kind, [program], LINKED, ["--call", "libleaf.so:leaf_*"])
        expect("slots-" + kind, [program], LINKED, ["--call-global", "libleaf.so:leaf_*"])
    program = build("linked-pointer", *linked, "-DPOINTER", "-fPIE", "-pie")
    expect("code-pointer", [program], LINKED, ["--call", "libleaf.so:leaf_*"])
    expect("slots-pointer", [program], {"leaf_add": 101, "leaf_twice": 100}, ["--call-global", "libleaf.so:leaf_*"])
    opener = build("opener")
    for way in ("lazy", "now", "global", "namespace", "threads"):
        expect("open-" + way, [opener, way, LEAF], OPENED, ["--call", "libleaf.so:leaf_*"])
    expect("open-again", [opener, "again", LEAF], {name: 21 * count for name, count in OPENED.items()}, ["--call", "libleaf.so:leaf_*"])


main()
finish()
