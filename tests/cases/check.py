#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the "see:" and "gap:" lines of a case against what was recorded.

  check.py NAME EXPECT.TXT OUT

OUT holds recordings/1, 2, ... and .err, what the last run wrote on its standard error. Prints one line for each
"see:" entry of a kind that lorg records without being asked for, and for each "gap:" line: "ok NAME: ..." or
"FAIL NAME: ...". README.md beside this file has the grammar.
"""

import collections
import json
import os
import re
import signal
import subprocess
import sys

KINDS = ("spawn", "exec", "exit", "signal", "killed", "send", "recv", "catch")
ENTRY = re.compile(r"(?P<kind>\w+)(?: (?P<name>[\w.-]+))? (?P<relation>=|>=)(?P<count>\d+)(?: (?P<where>main|thread|child|any))?$")
OWN_TAGS = {"spawn": "spawn", "exec": "exec", "exit": "exit", "signal": "exit", "killed": "signal", "catch": "catch"}


class Recording:
    """The events of one trace directory, and which process ran main."""

    def __init__(self, directory):
        lorg = os.environ["TEST_LORG"]
        done = subprocess.run([lorg, "log", "--format", "json", directory], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False)
        self.error = done.stderr.decode(errors="replace").strip() if done.returncode else ""
        self.events = []
        for line in done.stdout.splitlines():
            try:
                self.events.append(json.loads(line))
            except ValueError as error:
                self.error = self.error or "lorg log --format json printed %r: %s" % (line[:80], error)
        self.root = next((event["program"] for event in self.events if event.get("program")), None)

    def shape(self):
        """Who made, ended and waited for whom: lines with A, B, ... for the numbers in order of appearance."""
        letters = {}

        def name(number):
            return letters.setdefault(number, chr(ord("A") + len(letters)) if len(letters) < 26 else str(number))

        def letter(text):
            return re.sub(r"\d+", lambda found: name(found.group()), text)

        for event in self.events:
            if event.get("tag") not in ("spawn", "spawned", "exec", "exit", "reaped"):
                continue
            words = [letter(event["process"]), event["tag"]]
            words += [letter(event[key]) for key in ("child", "parent") if key in event]
            reason = event.get("reason") if event["tag"] == "exit" else None
            if event.get("whole_program"):
                words += ["program", json.dumps(reason)]
            yield " ".join(words)

    def place(self, event):
        if event.get("program") != self.root:
            return "child"
        return "main" if event.get("thread") in (self.root, 0, None) else "thread"


def split_see(text):
    """The entries of a "see:" line: parentheses are said to people, but for "code N" and "descriptor N"."""
    note = " ".join(re.findall(r"\(([^)]*)\)", text))
    code = re.search(r"\bcode (\d+)", note)
    for entry in re.sub(r"\([^)]*\)", "", text).split(","):
        found = ENTRY.match(entry.strip())
        if found:
            yield entry.strip(), found.groupdict(), int(code.group(1)) if code else None


def matches(recording, entry, code):
    """How many of a recording's events an entry means."""
    kind, name, where = entry["kind"], entry["name"], entry["where"] or "any"
    seen = collections.Counter()
    for event in recording.events:
        tag = event.get("tag")
        place = recording.place(event)
        if where not in ("any", place):
            continue
        if kind == "spawn" and tag == "spawn":
            seen["n"] += name is None or event.get("how") == name
        elif kind == "exec" and tag == "exec":
            seen["n"] += not event.get("error")
        elif kind == "catch" and tag == "catch":
            seen["n"] += 1
        elif kind == "exit" and tag == "exit" and name == "thread":
            seen["n"] += place == "thread" or event.get("thread") not in (event.get("program"), 0, None)
        elif kind == "exit" and tag == "exit":
            # A program's end may be told of its thread and of itself: it counts once.
            if code is None or event.get("reason") == code:
                seen[("program", event.get("program"))] = 1
        elif kind == "signal" and tag == "exit":
            # How a child ended: by its own exit, or by what its parent's wait was told.
            if signal_of(event.get("reason")) == int(name):
                seen[("program", event.get("program"))] = 1
        elif kind == "signal" and tag == "reaped":
            if signal_of(event.get("reason", event.get("status"))) == int(name):
                seen[("program", int(re.match(r"<(\d+)", event["child"]).group(1)))] = 1
        elif kind == "killed" and tag == "signal":
            seen["n"] += "to" in event and (name is None or signal_is(event.get("signal"), name))
        elif kind == "send" and tag in ("send", "send_to_non_existing_process"):
            seen["n"] += event.get("fd", 3) > 2 and called(event, name)
        elif kind == "recv" and tag == "receive":
            seen["n"] += event.get("fd", 3) > 2 and called(event, name)
    return sum(seen.values())


def signal_of(reason):
    """The number of the signal that a reason names, else None."""
    value = reason.get("signal") if isinstance(reason, dict) else None
    if isinstance(value, str):
        value = getattr(signal, value.upper(), 0)
    return value


def called(event, name):
    return name is None or event.get("function") in (None, name, "__" + name, "__" + name + "_chk")


def signal_is(value, name):
    return str(value).lower().removeprefix("sig") == name.lower().removeprefix("sig")


def main():
    name, expect, out = sys.argv[1:4]
    folder = os.path.join(out, "recordings")
    names = sorted(os.listdir(folder), key=int) if os.path.isdir(folder) else []
    recordings = [Recording(os.path.join(folder, n)) for n in names]
    with open(os.path.join(out, ".err"), errors="replace") as stream:
        stderr = stream.read()
    told = [event for recording in recordings for event in recording.events if event.get("tag") == "gap"]
    lines, shapes = [], []

    def judge(good, what, why):
        lines.append("ok   %s: %s" % (name, what) if good else "FAIL %s: %s: %s" % (name, what, why))

    unreadable = [recording.error for recording in recordings if recording.error]
    lost = sum(event.get("count", 0) for r in recordings for event in r.events if event.get("tag") == "lost")
    judge(recordings and not unreadable, "recording can be read", "; ".join(unreadable) or "there is none")
    with open(expect, encoding="utf-8") as stream:
        for line in stream:
            key, _, text = line.rstrip("\n").partition(": ")
            if key == "see":
                for shown, entry, code in split_see(text):
                    if entry["kind"] not in KINDS:
                        continue
                    count, want = sum(matches(r, entry, code) for r in recordings), int(entry["count"])
                    good = count == want if entry["relation"] == "=" else count >= want
                    judge(good or count < want <= count + lost, "see " + shown, "%d seen, %d lost" % (count, lost))
            elif key == "shape":
                # All such lines of all recordings, in any order: one number a process throughout.
                shapes.append(text.strip())
            elif key == "gap-record":
                texts = ["%s: %s" % (event.get("what"), event.get("why")) for event in told]
                found = any(re.search(text, t) for t in texts) or re.search("lorg: .*" + text, stderr)
                judge(found, "gap " + text, "told: " + ("; ".join(texts) or "none"))
            elif key == "never":
                # A gap or a line that must not be told: see:-lines say what has to be seen instead.
                texts = ["%s: %s" % (event.get("what"), event.get("why")) for event in told]
                judge(not any(re.search(text, t) for t in texts), "no gap " + text, "; ".join(texts))
    if shapes:
        seen = sorted(line for recording in recordings for line in recording.shape())
        wrong = ["+ " + line for line in (collections.Counter(seen) - collections.Counter(shapes)).elements()]
        wrong += ["- " + line for line in (collections.Counter(shapes) - collections.Counter(seen)).elements()]
        judge(not wrong, "shape", "; ".join(wrong))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
