#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""AF_UNIX connections: each receive names the send that it took its bytes from, and never another one."""

import sys

from lorgtest import Run, check, equal, finish, fixture, log, lost, scratch

PROGRAM = fixture("meetings")


def text_of(event):
    msg = event.get("msg")
    return repr(msg)


def edges(directory):
    """(receives of the program's own messages, how many of them have a cause, those whose cause is another message)"""
    events = log(directory)
    sends = {}
    for event in events:
        if event["tag"] == "send":
            sends.setdefault(event["hlc"], []).append(text_of(event))
    received, caused, wrong = 0, 0, []
    for event in events:
        if event["tag"] != "receive" or event.get("driver") not in ("unix", "unix_seqpacket") or not event.get("bytes"):
            continue
        received += 1
        causes = event.get("cause") or []
        caused += bool(causes)
        for hlc in causes:
            if text_of(event) not in sends.get(hlc, []):
                wrong.append((text_of(event), sends.get(hlc)))
    return received, caused, wrong


def meet(kind, name, way, receives, all_caused=True, at_least=0):
    label = "%s %s %s" % (way, kind, "abstract" if name.startswith("@") else "path")
    run = Run([PROGRAM, kind, name, way])
    if not check(label + ": runs", run.status == 0, run.why()):
        return
    received, caused, wrong = edges(run.directory)
    equal(label + ": receives", received, receives)
    check(label + ": none has a wrong cause", not wrong, wrong[:3])
    if all_caused:
        equal(label + ": receives with a cause", caused, received)
    else:
        check(label + ": some have a cause", caused >= at_least, "%d of %d" % (caused, received))
    equal(label + ": lost", lost(run.directory), 0)


WAYS = (("each", 80, True, 0), ("queue", 40, True, 0), ("gone", 5, True, 0), ("failing", 6, True, 0), ("again", 6, True, 0),
        ("poll", 24, True, 0), ("inherited", 4, True, 0), ("passed", 4, True, 0),
        ("threads", 160, False, 0), ("workers", 160, False, 0))

for way, receives, all_caused, at_least in WAYS:
    meet("stream", scratch("s." + way), way, receives, all_caused, at_least)
    meet("stream", "@lorg.test." + way, way, receives, all_caused, at_least)
    meet("seqpacket", scratch("q." + way), way, receives, all_caused, at_least)
meet("stream", scratch("names"), "names", 4)
finish()
