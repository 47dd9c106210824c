#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorg log shows the first events of a large recording at once, and all of them as if it had looked through it before."""

import glob
import os
import shutil
import struct
import subprocess
import time

from lorgtest import LORG, Run, check, equal, finish, fixture, lorg, scratch

MAGIC = 0xC1FC1FC1
# Offsets in a packet's head: sizes in bits, then the writer's words.
PACKET_BITS, LAST, HOLDS = 48, 24 + 7 * 8 + 16 + 8 + 16, 24 + 7 * 8 + 16 + 8 + 16 + 12
KNOWN, DEFINITIONS = 1, 2


def packets(data):
    at = 0
    while at < len(data):
        assert struct.unpack_from("<I", data, at)[0] == MAGIC
        yield at, struct.unpack_from("<Q", data, at + PACKET_BITS)[0] // 8
        at += struct.unpack_from("<Q", data, at + PACKET_BITS)[0] // 8


def rewrite(directory, change):
    """A copy of a recording whose packets `change(data, at, length)` has changed; returns its path and what that gave."""
    copy, results = scratch("copy"), []
    shutil.copytree(directory, copy)
    for path in sorted(glob.glob(os.path.join(copy, "stream-*"))):
        with open(path, "rb") as file:
            data = bytearray(file.read())
        for at, length in packets(data):
            results.append(change(data, at, length))
        with open(path, "wb") as file:
            file.write(data)
    return copy, results


def without_hints(data, at, _length):
    holds = struct.unpack_from("<I", data, at + HOLDS)[0]
    struct.pack_into("<Q", data, at + LAST, 0)
    struct.pack_into("<I", data, at + HOLDS, 0)
    return holds == KNOWN


def same(name, command, options=(), put_off=False):
    run = Run(command, options=options)
    if not check(name, run.status == 0, run.why()):
        return
    copy, plain = rewrite(run.directory, without_hints)
    if put_off:
        check(name + "-put-off", any(plain), "no packet without definitions")
    for shape in ("text", "json", "erlang"):
        for more in ([], ["--kind", "all"]):
            ours, theirs = (lorg("log", "--format", shape, *more, place) for place in (run.directory, copy))
            equal("%s-%s%s" % (name, shape, "-all" if more else ""), (ours[0], ours[1] == theirs[1]), (0, True))


def damaged():
    """Found when it comes to that; the rest is shown."""
    run = Run([fixture("many_events"), "4", "50000"])
    whole = lorg("log", run.directory)[1].count(b" enter ")
    done = []

    def flip(data, at, length):
        if struct.unpack_from("<I", data, at + HOLDS)[0] == KNOWN and not done:
            data[at + length // 2] ^= 0x10
            done.append(length)

    copy, _ = rewrite(run.directory, flip)
    status, said, error = lorg("log", copy)
    shown = said.count(b" enter ")
    check("damaged-told", status == 1 and "checksum" in error and b"checksum" in said.splitlines()[-1], (status, error[:200]))
    check("damaged-rest", whole - 10000 < shown < whole, "%d of %d" % (shown, whole))


def first_line(directory):
    begin = time.monotonic()
    with subprocess.Popen([LORG, "log", directory], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()
        taken = time.monotonic() - begin
        process.stdout.close()
    return taken


def at_once():
    """As soon, nearly, as in a small one."""
    small = Run(["true"]).directory
    large = Run([fixture("many_events"), "8", "1000000"], limit=300).directory
    short, long = (min(first_line(place) for _ in range(7)) for place in (small, large))
    check("first-line", long < short + 0.1, "%.1f ms in a recording of 16 million events, %.1f ms in an empty one" %
          (long * 1e3, short * 1e3))


same("calls", [fixture("many_events"), "4", "20000"], put_off=True)
same("pipes", ["sh", "-c", "dd if=/dev/zero bs=64 count=20000 | dd bs=64 of=/dev/null"], ["--all"], put_off=True)
same("messages", [fixture("messages")], ["--all"])
same("threads", [fixture("crowd"), "50"])
same("programs", ["sh", "-c", "for i in 1 2 3 4 5; do seq 20000 | sort | tail -n 1; done"], ["--all"])
damaged()
at_once()
finish()
