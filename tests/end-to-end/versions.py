#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A liblorg.so and a lorg that do not understand each other: said before the program starts, which then runs untraced."""

import os
import struct

from lorgtest import LORG, SCRATCH, Run, check, equal, finish, lorg, scratch

NOTE = struct.pack("<III8s", 5, 8, 1, b"lorg")


def library():
    """The liblorg.so of this build, as lorg finds it."""
    return os.path.join(os.path.dirname(os.path.realpath(LORG)), "..", "preload", "liblorg.so")


def run_with(name, contents):
    """Runs a program with another liblorg.so; returns the run."""
    path = os.path.join(SCRATCH, name.replace(" ", "-"), "liblorg.so")
    os.makedirs(os.path.dirname(path))
    with open(path, "wb") as out:
        out.write(contents)
    return Run(["echo", "hello"], directory=scratch(name + ".trace"), env=dict(os.environ, LORG_LIBRARY=path))


def refused(name, contents, why):
    run = run_with(name, contents)
    equal(name + ": the program runs as ever", (run.status, run.stdout), (0, b"hello\n"))
    lines = run.stderr.splitlines()
    check(name + ": one line says so", len(lines) == 1 and lines[0].startswith("lorg: ") and why in lines[0], run.stderr)
    status, said, _ = lorg("log", run.directory)
    text = said if isinstance(said, str) else said.decode(errors="replace")
    check(name + ": so does the recording", status == 0 and why in text, text)


with open(library(), "rb") as source:
    original = source.read()
place = original.find(NOTE)
if check("the note is in liblorg.so", place >= 0 and original.count(NOTE) == 1):
    values = place + len(NOTE)
    major, minor = struct.unpack_from("<II", original, values)

    def of_version(*version):
        return original[:values] + struct.pack("<II", *version) + original[values + 8:]

    refused("another major", of_version(major + 1, 0), "of version %d.0" % (major + 1))
    refused("not a library", b"#!/bin/true\n", "is no liblorg.so")
    newer = run_with("a higher minor", of_version(major, minor + 1))
    equal("a higher minor is understood", (newer.status, newer.stdout, newer.stderr), (0, b"hello\n", ""))
finish()
