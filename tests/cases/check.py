#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the "see:" and "gap:" lines of a case against what was recorded.

  check.py NAME EXPECT.TXT OUT      OUT holds recordings/1, 2, ... and .err, what the last run wrote on its standard error
  check.py --calls EXPECT.TXT       prints the functions that have to be hooked for its "see: call" entries, a line each

Prints one line for each "see:" entry, for each of its remarks that is known here, and for each "gap:" line: "ok NAME: ..."
or "FAIL NAME: ...". TEST_NO_VALUES=1: calls were recorded without their values. README.md beside this file has the grammar.
"""

import collections
import json
import os
import re
import signal
import subprocess
import sys

KINDS = ("spawn", "exec", "exit", "signal", "killed", "send", "recv", "catch", "call")
ENTRY = re.compile(r"(?P<kind>\w+)(?: (?P<name>[\w.-]+))? (?P<relation>=|>=)(?P<count>\d+)(?: (?P<where>main|thread|child|any))?$")
OWN_TAGS = {"spawn": "spawn", "exec": "exec", "exit": "exit", "signal": "exit", "killed": "signal", "catch": "catch"}


CALLS = re.compile(rb'\{"tag":"(?:call|return_from|return_to|exception_from)",')
FUNCTION = re.compile(rb'"function":"((?:[^"\\]|\\.)*)"')
NUMBERS = {"io_uring_setup": 425, "io_uring_enter": 426}


class Calls:
    """What became of the calls of one function."""

    def __init__(self):
        self.seen = collections.Counter()  # by place
        self.ends = collections.Counter()  # "returned", or the class and type of an exception
        self.callers, self.programs = collections.Counter(), collections.Counter()
        self.values, self.arguments = [], []
        self.open = collections.Counter()  # by process
        self.nested = 0  # begun while another call was open in the same process
        self.main_returned = collections.Counter()  # whether main had returned
        self.last = {}  # by process: number of its last event


class Recording:
    """The events of one trace directory, and which process ran main. Of calls, those of `functions` alone."""

    def __init__(self, directory, functions=()):
        lorg = os.environ["TEST_LORG"]
        self.events, self.error, self.root = [], "", None
        self.calls = {name: Calls() for name in functions}
        self.stacks = collections.defaultdict(list)
        self.crossed = 0  # returns of another call than the innermost one
        self.main_has_returned = False
        with subprocess.Popen([lorg, "log", "--format", "json", directory], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as log:
            for number, line in enumerate(log.stdout):
                self.take(number, line)
            error = log.stderr.read()
        if log.returncode:
            self.error = error.decode(errors="replace").strip()

    def take(self, number, line):
        is_call = CALLS.match(line)
        if is_call and self.root:
            found = FUNCTION.search(line)
            if not found or found.group(1).decode() not in self.calls:
                return
        try:
            event = json.loads(line)
        except ValueError as error:
            self.error = self.error or "lorg log --format json printed %r: %s" % (line[:80], error)
            return
        self.root = self.root or event.get("program")
        if not is_call:
            event["number"] = number
            self.events.append(event)
        elif event.get("function") in self.calls:
            self.take_call(number, event)

    def take_call(self, number, event):
        calls, process, name = self.calls[event["function"]], event["process"], event["function"]
        stack = self.stacks[process]
        calls.last[process] = number
        if event["tag"] == "call":
            calls.seen[self.place(event)] += 1
            calls.open[process] += 1
            calls.callers[event.get("caller")] += 1
            calls.programs[event["program"]] += 1
            calls.arguments.append(event.get("args"))
            calls.nested += bool(stack)
            calls.main_returned[self.place(event), self.main_has_returned] += 1
            stack.append(name)
            return
        if event["tag"] == "return_to":
            return
        calls.open[process] -= 1
        if event["tag"] == "return_from":
            calls.ends["returned"] += 1
            calls.values.append(event.get("value"))
        else:
            calls.ends["%s %s" % (event.get("class"), event.get("type"))] += 1
        # A fork child returns from calls that its parent has begun.
        if stack:
            self.crossed += stack.pop() != name
        if name == "main":
            self.main_has_returned = True

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


def functions_of(expect):
    """The functions whose calls an expect.txt wants to see, and those that its remarks need."""
    names = []
    with open(expect, encoding="utf-8") as stream:
        for line in stream:
            if not line.startswith("see: "):
                continue
            names += [entry["name"] for _, entry, _ in split_see(line[5:]) if entry["kind"] == "call"]
            if "call" in line and "after main returned" in line:
                names.append("main")
            names += re.findall(r"made as (\w+)", line)
    return list(dict.fromkeys(names))


def ends_wrong(recordings, name, wanted):
    """What became of the calls otherwise than `wanted`, a regular expression on the ends; "" is nothing."""
    ends = sum((r.calls[name].ends for r in recordings), collections.Counter())
    still_open = sum(sum((+r.calls[name].open).values()) for r in recordings)
    others = {end: count for end, count in ends.items() if not re.fullmatch(wanted, end)}
    return str(dict(others, **{"open": still_open} if still_open else {})) if others or still_open else ""


def callers_wrong(recordings, name, wanted):
    callers = sum((r.calls[name].callers for r in recordings), collections.Counter())
    return ", ".join(str(caller) for caller in callers if not re.match(wanted, str(caller)))


def jumped(recordings, name, *_):
    return ends_wrong(recordings, name, "exit longjmp")


def thrown(recordings, name, *_):
    return ends_wrong(recordings, name, "throw .*")


def left_open(recordings, name, *_):
    calls = [r.calls[name] for r in recordings]
    still_open, seen = sum(sum((+c.open).values()) for c in calls), sum(sum(c.seen.values()) for c in calls)
    return "" if still_open == seen else "%d of %d are open" % (still_open, seen)


def nested(recordings, name, *_):
    crossed = sum(r.crossed for r in recordings)
    count = sum(r.calls[name].nested for r in recordings)
    return "%d returns crossed another call's" % crossed if crossed else "" if count else "none is nested"


def called_by(recordings, name, found, _):
    return callers_wrong(recordings, name, re.escape(found.group(1)) + ":")


def made_as(recordings, name, found, _):
    """Seen under either name."""
    counts = [sum(sum(r.calls[n].seen.values()) for r in recordings) for n in (name, found.group(1))]
    return "" if counts[0] == counts[1] else "%d and %d" % tuple(counts)


def each_program(recordings, name, *_):
    wrong = [sum(r.calls[name].seen.values()) for r in recordings]
    return "" if all(count == 2 for count in wrong) else "%s in the recordings" % wrong


def own_processes(recordings, name, found, _):
    gaps = sum(e.get("tag") == "gap" for r in recordings for e in r.events)
    programs = [(p == r.root, count) for r in recordings for p, count in r.calls[name].programs.items()]
    children = [count for is_root, count in programs if not is_root]
    if len(children) + gaps < int(found.group(1)) or len(set(children)) > 1:
        return "%d children with %s calls, %d gaps" % (len(children), sorted(set(children)), gaps)
    return ""


def numbers(recordings, name, found, _):
    wanted = {NUMBERS[found.group(1)], NUMBERS[found.group(2)]}
    got = {arguments[0] for r in recordings for arguments in r.calls[name].arguments if arguments}
    return "" if got == wanted else "numbers %s" % sorted(got)


def bytes_kept(recordings, name, *_):
    first = [arguments[0] for r in recordings for arguments in r.calls[name].arguments if arguments]
    others = [a[0] for r in recordings for calls in r.calls.values() for a in calls.arguments if a]
    return "" if first and all(type(x) is str and x == first[0] for x in others) else "shown as %r" % others


def after_main(recordings, name, _, where):
    before = sum(r.calls[name].main_returned[where, False] for r in recordings)
    return "%d before main returned" % before if before else ""


def failed(recordings, name, *_):
    wrong = [v for r in recordings for v in r.calls[name].values if (v.get("value") if isinstance(v, dict) else v) != -1]
    return "results %s" % wrong if wrong else ""


def has_result(recordings, name, *_):
    wrong = [v for r in recordings for v in r.calls[name].values if v is None or isinstance(v, int)]
    return "results %s" % wrong if wrong else ""


def last_of_all(recordings, *_):
    """The threads' ends come after the last of their calls."""
    late = 0
    for r in recordings:
        ends = {e["process"]: e["number"] for e in r.events if e.get("tag") == "exit" and not e.get("whole_program")}
        for calls in r.calls.values():
            late += sum(ends.get(process, last) < last for process, last in calls.last.items())
    return "%d threads went on after their end" % late if late else ""


# What is said of calls in parentheses: regular expression, whether values or callers must have been recorded, check.
REMARKS = (
    (r"left by a jump|likewise closed", False, jumped),
    (r"left by an exception", False, thrown),
    (r"open, with the enter event present", False, left_open),
    (r"nested in the interrupted call", False, nested),
    (r"the caller is named as ([\w.]+)", True, called_by),
    (r"made as (\w+)", True, made_as),
    (r"two a program", False, each_program),
    (r"under (\d+) processes of their own", False, own_processes),
    (r"numbers of (\w+) and (\w+)", True, numbers),
    (r"the name can be told apart", True, bytes_kept),
    (r"after main returned", False, after_main),
    (r"\bfailed\b", True, failed),
    (r"result through a hidden pointer", True, has_result),
    (r"after the calls of the destructors", False, last_of_all),
)


def judge_remarks(judge, recordings, text):
    """A remark is said of the entry before it."""
    for part, remark in re.findall(r"([^(]*)\(([^)]*)\)", text):
        entries = [entry for _, entry, _ in split_see(part.strip().lstrip(",").strip())]
        for wanted, with_values, check in REMARKS:
            found = re.search(wanted, remark)
            if not found or not entries or (with_values and os.environ.get("TEST_NO_VALUES")):
                continue
            name = entries[-1]["name"]
            if entries[-1]["kind"] == "call" or check is last_of_all:
                wrong = check(recordings, name, found, entries[-1]["where"])
                judge(not wrong, "see %s %s: %s" % (entries[-1]["kind"], name, found.group()), wrong)


def matches(recording, entry, code):
    """How many of a recording's events an entry means."""
    kind, name, where = entry["kind"], entry["name"], entry["where"] or "any"
    seen = collections.Counter()
    if kind == "call":
        return sum(count for place, count in recording.calls[name].seen.items() if where in ("any", place))
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
    if sys.argv[1] == "--calls":
        print("\n".join(functions_of(sys.argv[2])))
        return
    name, expect, out = sys.argv[1:4]
    functions = functions_of(expect)
    folder = os.path.join(out, "recordings")
    names = sorted(os.listdir(folder), key=int) if os.path.isdir(folder) else []
    recordings = [Recording(os.path.join(folder, n), functions) for n in names]
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
                judge_remarks(judge, recordings, text)
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
