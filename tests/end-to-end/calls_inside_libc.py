#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""sort < file | uniq -c | head -3: each read and write that stdio makes inside libc is a call in the recording, and a
message through both pipes, as many as strace counts in the same run."""

import collections
import os
import re
import shutil
import subprocess

from lorgtest import SCRATCH, Run, check, equal, finish, log, scratch, skip

LINES = os.path.join(SCRATCH, "lines")
PIPELINE = "sort < %s | uniq -c | head -3" % LINES
with open(LINES, "w", encoding="ascii") as out:
    out.writelines("line %d\n" % (i * 7919 % 3000) for i in range(30000))
witness = os.path.join(SCRATCH, "strace.out")
strace = shutil.which("strace")
before = [strace, "-f", "-e", "trace=read,write", "-o", witness] if strace else []
names = ("read", "write", "__read_nocancel", "__write_nocancel")
done = Run([*before, "sh", "-c", PIPELINE], options=[part for name in names for part in ("--call", "libc.so.6:%s/_" % name)],
           directory=scratch("trace"))
plain = subprocess.run(["sh", "-c", PIPELINE], stdout=subprocess.PIPE, check=True).stdout
equal("what it prints", done.stdout, plain)
events = log(done.directory)
root = next(event["program"] for event in events if event.get("program"))

calls = collections.Counter()
messages = collections.Counter()
for event in events:
    if event["tag"] == "call" and event["function"] in names and (event["program"] != root or not strace):
        calls[event["program"], event["function"].strip("_").replace("_nocancel", "")] += 1
    if event["tag"] in ("send", "receive") and event.get("driver") == "pipe" and (event["program"] != root or not strace):
        messages[event["tag"]] += 1
check("messages through both pipes", messages["send"] >= 2 and messages["receive"] >= 2, messages)
if strace:
    seen = collections.Counter()
    with open(witness, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            # The loader reads ELF headers before there is a libc.
            found = re.match(r"(\d+) +(read|write)\(", line)
            if found and r'"\177ELF' not in line:
                seen[int(found.group(1)), found.group(2)] += 1
    equal("calls as strace counts them", calls, seen)
else:
    skip("calls as strace counts them", "there is no strace")
finish()
