#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Signals by a descriptor of the process name it; a cancellation is a message to the thread that it ends."""

import re

from lorgtest import Run, check, equal, finish, fixture, log


def main():
    run = Run([fixture("signal_ways")])
    if not check("signal-ways", run.status == 0, run.why()):
        return
    children = [int(pid) for pid in re.search(r"children (\d+) (\d+) (\d+)", run.stderr).groups()]
    tid = int(re.search(r"thread (\d+)", run.stderr).group(1))
    events = log(run.directory)
    root = events[0]["program"] or next(e["program"] for e in events if e.get("program"))
    sent = [(e["to"], e["signal"]) for e in events if e["tag"] == "signal" and "to" in e and e["process"].startswith("<%d." % root)]
    wanted = ["<%d.%d>" % (pid, pid) for pid in (children[0], children[0], children[1], children[2])]
    equal("by-descriptor", [(to, number) for to, number in sent if number != "SIGCANCEL"], [(to, "SIGTERM") for to in wanted])
    equal("cancel-told", [to for to, number in sent if number == "SIGCANCEL"], ["<%d.%d>" % (root, tid)])
    ends = [e["reason"] for e in events if e["tag"] == "exit" and e["process"] == "<%d.%d>" % (root, tid)]
    equal("cancelled-exit", ends, ["killed"])


main()
finish()
