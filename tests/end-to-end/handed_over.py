#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory that is given away with the message that is sent from it, and memory that is not there: the program goes on as
it would by itself, and what is told of a message is what was sent."""

import os
import subprocess

from lorgtest import Run, check, equal, finish, fixture, log

PROGRAM = fixture("handed_over")
COUNT = int(os.environ.get("LORG_TEST_HANDED_OVER", "3000"))


def messages(directory):
    sent, received = [], {}
    for event in log(directory):
        if event["tag"] == "send" and event.get("bytes"):
            sent.append((event["hlc"], event["bytes"], repr(event.get("msg"))))
        if event["tag"] == "receive" and event.get("bytes"):
            for hlc in (event.get("cause") or [])[:1]:
                received.setdefault(hlc, repr(event.get("msg")))
    return sent, received


for memory in ("mmap", "malloc"):
    for how in ("write", "writev", "send", "sendmsg"):
        label = "%s by %s" % (memory, how)
        run = Run([PROGRAM, memory, how, str(COUNT)])
        if not check(label + ": goes on", run.status == 0 and run.stdout == b"whole\n", run.why()):
            continue
        sent, received = messages(run.directory)
        equal(label + ": messages", len([one for one in sent if one[1] == 4096]), COUNT)
        wrong = [(one, received[one[0]]) for one in sent if one[0] in received and received[one[0]] != one[2]]
        check(label + ": their bytes", received and not wrong, wrong[:2])

# Beyond the usual length it is copied after the call: what is there then, if anything is.
for memory in ("mmap", "malloc"):
    run = Run([PROGRAM, memory, "sendmsg", str(COUNT)], options=("--message-length", "4096"))
    check("%s, long messages: goes on" % memory, run.status == 0 and run.stdout == b"whole\n", run.why())

for options in ((), ("--message-length", "4096"), ("--all",)):
    label = "faults " + " ".join(options)
    plain = subprocess.run([PROGRAM, "faults"], stdout=subprocess.PIPE, check=True).stdout
    run = Run([PROGRAM, "faults"], options=options)
    check(label + ": as untraced", run.status == 0 and run.stdout == plain and b"wrong" not in plain,
          run.why() + run.stdout.decode()[:300])
finish()
