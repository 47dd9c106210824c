#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Where a program may not read any clock, time goes on all the same: in order, over many chunks."""

import json
import os

from lorgtest import Run, check, equal, finish, fixture, lorg, skip

COUNT = 20000  # messages; some 80 chunks

run = Run([fixture("strict"), str(COUNT)])
if run.status == 77:
    skip("strict seccomp", "not allowed here")
    finish()
equal("strict seccomp: status", run.status, 0)
status, said, error = lorg("log", run.directory, "--format", "json", "--kind", "send,receive")
equal("strict seccomp: the log", (status, error), (0, ""))
events = [json.loads(line) for line in said.splitlines()]
messages = [e for e in events if e["tag"] in ("send", "receive")]
equal("all messages are there", len(messages), 2 * COUNT)
equal("one after the other", [e["tag"] for e in messages], ["send", "receive"] * COUNT)
stamps = [e["hlc"] for e in messages]
check("stamps rise", all(a < b for a, b in zip(stamps, stamps[1:])))
check("times never go back", all(a["time"] <= b["time"] for a, b in zip(messages, messages[1:])))
check("each receive tells its send", all(e["cause"] == [before["hlc"]] for before, e in zip(messages[::2], messages[1::2])))
equal("one thread, one stream", len([f for f in os.listdir(run.directory) if f.startswith("stream-")]), 2)
finish()
