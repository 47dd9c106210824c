#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Directories that are not what they should be: one clear line or a clean answer, never a crash or a hang."""

import os
import random
import re
import shutil
import signal
import subprocess
import time

from lorgtest import LORG, SCRATCH, Run, check, equal, finish, fixture, lorg, scratch, skip

READERS = (("log",), ("log", "--format", "json"), ("log", "--format", "erlang"), ("report",), ("report", "--format", "json"))
MUTANTS = int(os.environ.get("LORG_TEST_MUTANTS", 150))


def wrong(directory, readers=READERS):
    """What is wrong with how the readers took a directory, or None."""
    for reader in readers:
        status, _, error = lorg(*reader, directory, limit=30)
        lines = [line for line in error.splitlines() if line]
        if status is None:
            return "%s hung" % " ".join(reader)
        if status not in (0, 1):
            return "%s: status %d: %s" % (" ".join(reader), status, error[-200:])
        if status == 1 and (len(lines) != 1 or not re.match(r"lorg: \S.*: .*: ", lines[0])):
            return "%s failed without one clear line: %s" % (" ".join(reader), error[-300:])
        if status == 0 and len(lines) > 3:
            return "%s said %d lines on stderr: %s" % (" ".join(reader), len(lines), error[-300:])
    return None


def refused(name, directory):
    """A directory that no reader can take must fail with one line."""
    for reader in (("log",), ("report",)):
        status, said, error = lorg(*reader, directory, limit=30)
        lines = error.splitlines()
        good = status == 1 and not said and len(lines) == 1 and re.match(r"lorg: \S.*: .*: ", lines[0])
        check("%s: lorg %s says one line" % (name, reader[0]), good, "status %s: %s" % (status, error[-300:]))


def copy_of(directory):
    target = scratch("mutant")
    shutil.copytree(directory, target)
    return target


def mutate(directory, generator):
    """Changes one file a little; returns what was done."""
    name = generator.choice(sorted(os.listdir(directory)))
    path = os.path.join(directory, name)
    with open(path, "rb") as stream:
        data = bytearray(stream.read())
    kind = generator.choice(("cut", "bits", "length", "zeros", "swap", "twice", "gone", "empty"))
    if kind == "gone":
        os.unlink(path)
        return "%s removed" % name
    if kind == "cut":
        data = data[:generator.randrange(len(data) + 1)]
    elif kind == "empty":
        data = bytearray()
    elif kind == "twice":
        data = data + data
    elif len(data) >= 8:
        for _ in range(generator.choice((1, 3, 20))):
            at = generator.randrange(len(data) - 7)
            if kind == "bits":
                data[at] ^= 1 << generator.randrange(8)
            elif kind == "length":
                data[at & ~3:(at & ~3) + 4] = generator.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\0\0", b"\0\0\0\x80"))
            elif kind == "zeros":
                data[at:at + 64] = bytes(len(data[at:at + 64]))
            else:
                data[at:at + 8] = bytes(reversed(data[at:at + 8]))
    with open(path, "wb") as stream:
        stream.write(data)
    return "%s %s" % (name, kind)


def readers_against_mutants():
    run = Run([fixture("messages")], ["--all"], directory=scratch("good"))
    if not check("a good recording", run.status == 0 and wrong(run.directory) is None, run.why() + str(wrong(run.directory))):
        return
    refused("no such directory", os.path.join(SCRATCH, "nowhere"))
    empty = scratch("empty")
    os.makedirs(empty)
    refused("empty directory", empty)
    refused("a file", "/etc/passwd")
    foreign = scratch("foreign")
    os.makedirs(foreign)
    with open(os.path.join(foreign, "metadata"), "w") as stream:
        stream.write("/* CTF 1.8 */\ntypealias integer { size = 8; } := uint8_t;\ntrace { major = 1; minor = 8; byte_order = le; };\n")
    with open(os.path.join(foreign, "stream-0"), "wb") as stream:
        stream.write(os.urandom(5000))
    refused("another program's trace", foreign)
    newer = copy_of(run.directory)
    change_text(os.path.join(newer, "metadata"), r"(lorg_abi_major\s*=\s*)\d+", r"\g<1>99")
    refused("a newer lorg's trace", newer)

    seed = int(os.environ.get("LORG_TEST_SEED", time.time_ns() % 100000))
    generator = random.Random(seed)
    faults = []
    for number in range(MUTANTS):
        mutant = copy_of(run.directory)
        done = mutate(mutant, generator)
        readers = READERS if number % 10 == 0 else (READERS[number % len(READERS)],)
        fault = wrong(mutant, readers)
        if fault:
            faults.append("%s: %s" % (done, fault))
            kept = "/tmp/lorg-mutant-%d-%d" % (seed, number)
            if os.environ.get("LORG_TEST_KEEP"):
                shutil.copytree(mutant, kept)
    check("%d damaged directories" % MUTANTS, not faults, "seed %d: %d wrong, first: %s" % (seed, len(faults), faults[:2]))


def change_text(path, pattern, text):
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:
        whole = stream.read()
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(re.sub(pattern, text, whole))


def places_that_cannot_be_written():
    program = [fixture("many_events"), "2", "400000"]
    for name, directory in (("missing parent", os.path.join(SCRATCH, "no", "such", "parent")), ("a file in the way", "/etc/passwd/x")):
        run = Run(program, directory=directory)
        lines = [line for line in run.stderr.splitlines() if line.startswith("lorg: ")]
        check("%s: one message" % name, len(lines) == 1 and run.stderr.count("\n") <= 2, run.why())

    full = scratch("full")
    os.makedirs(full)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", full], stderr=subprocess.DEVNULL, check=False).returncode:
        skip("full disk", "no mount here")
        return
    try:
        run = Run(program, directory=os.path.join(full, "trace"))
        lines = [line for line in run.stderr.splitlines() if "space" in line]
        check("full disk: the program is unharmed", run.status == 0 and run.stdout == b"1600000\n", run.why())
        check("full disk: one message", len(lines) == 1 and lines[0].startswith("lorg: "), run.stderr)
        fault = wrong(os.path.join(full, "trace"))
        check("full disk: what was written can be read", fault is None, fault)
        status, said, _ = lorg("report", "--format", "json", os.path.join(full, "trace"))
        check("full disk: and holds the beginning", status == 0 and b"counted_leaf" in said, said[:200])
    finally:
        subprocess.run(["umount", "-l", full], check=False)


def directory_taken_away():
    directory = scratch("taken")
    process = subprocess.Popen([LORG, "run", "-o", directory, "--", fixture("many_events"), "2", "3000000"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.15)
    shutil.rmtree(directory, ignore_errors=True)
    try:
        said, error = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        check("directory taken away: the program is unharmed", False, "hung")
        return
    check("directory taken away: the program is unharmed", process.returncode == 0 and said == b"12000000\n", error[-300:])
    equal("directory taken away: at most one message", len([l for l in error.splitlines() if l.startswith(b"lorg: ")]) <= 1, True)


def hostile_programs():
    faults = []
    for seed in range(1, int(os.environ.get("LORG_TEST_HOSTILE", 12)) + 1):
        run = Run([fixture("hostile"), str(seed), "20"], directory=scratch("hostile"), limit=60)
        if run.status is None:
            faults.append("seed %d: hung" % seed)
        elif run.status != 0 or run.stdout != b"done\n":
            faults.append("seed %d: %s" % (seed, run.why()))
        elif wrong(run.directory, READERS[1:4:2]):
            faults.append("seed %d: %s" % (seed, wrong(run.directory, READERS[1:4:2])))
    check("programs that overwrite their arena", not faults, "%d wrong: %s" % (len(faults), faults[:3]))


if __name__ == "__main__":
    readers_against_mutants()
    places_that_cannot_be_written()
    directory_taken_away()
    hostile_programs()
    finish()
