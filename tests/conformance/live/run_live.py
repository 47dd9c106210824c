#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The scenarios of real Erlang tracing (tests/conformance/live.list), done to a native program by a lorgd.

  tests/conformance/live/run_live.py            all
  tests/conformance/live/run_live.py -v ID...   these, with everything that differs

scenarios/*.txt hold the steps, in the order of Erlang's own, and what is to come of each:

    == ID  TITLE
    process P1 true [call]            trace(3)'s functions on the scenario's session; -> VALUE, or -> badarg
    run P1 pub 1                      process P1 executes tm:pub(1); -> its value
    do P1 write A text                a system call in P1
    received                          what has come since the last time, grouped by tracee: the lines below, indented
    note TEXT                         for people

P1, P2, ... are the processes, A, B, ... ports that `do P1 pipe A B` names, New1, ... processes that no step names, T the
tracer. `tm` and `late` are the modules tm.so and late.so. TEST_BUILD names the build folder.
"""

import os
import re
import shutil
import signal
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "tests", "end-to-end"))
from livehost import Host, build  # noqa: E402
from lorgctl import Refused, Session, library, start_daemon  # noqa: E402

def split_terms(text, limit):
    """Words or terms that are separated by spaces, at most `limit`; the last takes the rest."""
    parts, depth, quote, now = [], 0, None, ""
    for letter in text:
        if quote:
            quote = None if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{<":
            depth += 1
        elif letter in "]}>":
            depth -= 1
        if letter == " " and not depth and not quote and len(parts) < limit - 1:
            parts += [now] if now else []
            now = ""
        else:
            now += letter
    return parts + ([now] if now else [])


DEEP = "{'not'," * 100000 + "true" + "}" * 100000
MODULES = {"tm": "'tm.so'", "late": "'late.so'", "libc": "'libc.so.6'"}


class Scenario:
    def __init__(self, lib, folder, directory, name):
        self.name, self.folder, self.lib, self.directory = name, folder, lib, directory
        self.host = Host(folder, directory)
        self.session = Session(lib)
        self.mine = lib.lorg_session_handle(self.session.handle).decode()
        self.other = None
        self.slots = {"P%d" % (i + 1): i for i in range(4)}
        self.next = 5
        self.names = {}
        self.pids = {name: self.host.pid(index) for name, index in self.slots.items()}
        self.problems = []
        self.fresh = {}  # processes that no step has named

    # -- names of the scenario <-> the program's

    def native(self, text):
        for short, module in MODULES.items():
            text = re.sub(r"\{%s," % short, "{%s," % module, text)
        text = text.replace("Deep", DEEP).replace("Dead", "<1.4000000.0>")
        return re.sub(r"\b(P\d+|[A-F])\b", lambda m: self.pids.get(m[0]) or self.names.get(m[0], m[0]).replace(".*>", ">"), text)

    def plain(self, text):
        for short, module in MODULES.items():
            text = text.replace(module, short)
        for name, pid in self.pids.items():
            text = text.replace(pid, name)
        for name, port in self.names.items():
            text = re.sub(re.escape(port[:-1]).replace(r"\.\*", r"\.\d+") + ">", name, text) if port.endswith("*>") else text.replace(port, name)
        text = re.sub(r"<0\.0\.0>|<%d\.%d\.0>" % (self.host.process.pid, self.host.process.pid), "Main", text)
        text = re.sub(r"<%d\.\d+\.0>" % os.getpid(), "T", text)
        text = re.sub(r"(?<!Port)<\d+\.\d+\.0>", lambda m: self.fresh.setdefault(m[0], "New%d" % (len(self.fresh) + 1)), text)
        if ",PortNew," not in text:
            text = re.sub(r"#Port<[\d.]+>", "PortNew", text)
        if text.startswith("{monitor"):
            text = re.sub(r"(timeout|size),\d+", r"\1,<N>", text)
        text = re.sub(r"\{host,(serve),\[\d+\]\}", r"{host,\1,[<N>]}", text)
        text = re.sub(r'"[^"]*?(\w+\.cc",)\d+', r'"\1<LINE>', text)
        if text.startswith("{trace,P") and ",gc_" in text:
            text = re.sub(r",\d+\}", ",_}", text)
        text = re.sub(r",\{\d{3,},\d{1,6},\d{1,6}\}\}$", ",<TS:now>}", text)
        text = re.sub(r",\{0,\d{1,6},\d{1,6}\}\}$", ",<TS:cpu>}", text)
        text = re.sub(r",\{\d{6,},-?\d+\}\}$", ",<TS:strict_monotonic>}", text)
        return re.sub(r"^(\{trace_ts,.*),\d{6,}\}$", r"\1,<TS:monotonic>}", text)

    def new_process(self, index, name):
        self.slots[name] = index
        self.pids[name] = self.host.pid(index)
        return name

    # -- steps

    def step(self, line):
        """The value of a step, as text."""
        word, _, rest = line.partition(" ")
        if word in ("run", "do", "begin"):
            return self.execute(word, rest)
        if word == "session":
            return self.second(rest)
        target = self.session
        if word == "in":
            word, _, rest = rest.partition(" ")[2].partition(" ")
            target = self.other
        if word == "kill":
            who, number = rest.split()
            os.kill(int(self.pids[who][1:].split(".")[0]), int(number))
            time.sleep(0.05)
            return "ok"
        try:
            return self.plain(self.ask(target, word, rest))
        except Refused as refused:
            return str(refused.args[0])

    def ask(self, session, word, rest):
        rest = self.native(rest)
        if word in ("process", "port"):
            subject, how, flags = split_terms(rest, 3)
            if how not in ("true", "false"):
                return "badarg"  # the C interface has no other how
            return str(session.call(word, subject, int(how == "true"), flags))
        if word == "function":
            pattern, match, options = split_terms(rest, 3)
            return str(session.call("function", pattern, match, options))
        if word in ("send", "recv"):
            match, options = split_terms(rest, 2)
            return str(session.call(word, match, options))
        if word == "system":
            event, value = split_terms(rest, 2)
            return "ok" if session.call("system", event, value) >= 0 else "?"
        if word == "info":
            of, item = split_terms(rest, 2)
            return session.call("info", of, item)
        if word == "delivered":
            return "reference" if session.call("delivered", rest) else "?"
        if word == "sessions":
            said = session.text(self.lib.lorg_session_info(session.connection, rest.encode(), session.failure))
            return said.replace(self.mine, "mine")
        if word == "destroy":
            return {1: "true", 0: "false"}[session.must(self.lib.lorg_session_destroy(session.handle, session.failure))]
        raise ValueError("no such step: " + word)

    def second(self, rest):
        """session create TRACER: another session; session end: its connection goes."""
        word, _, tracer = rest.partition(" ")
        try:
            if word == "create":
                self.other = Session(self.lib, tracer or "client", "other")
            elif word == "lose":
                self.session.free()
                self.session = None
            elif word == "again":
                self.session = Session(self.lib)
            else:
                self.other.free()
                self.other = None
            return "ok"
        except Refused as refused:
            return str(refused.args[0])

    def number(self, word):
        if word in self.names:
            return int(re.match(r"#Port<\d+\.(\d+)\.", self.names[word])[1])
        if word in self.slots:
            return int(self.pids[word].split(".")[1])
        return int(word)

    def execute(self, how, rest):
        who, name, *words = rest.split()
        index = self.slots[who]
        text, numbers = "", []
        if name in ("pipe", "socketpair", "datagrams"):
            result = self.host.execute(index, name)
            pid = self.pids[who][1:].split(".")[0]
            self.names[words[0]] = "#Port<%s.%d.*>" % (pid, result >> 32)
            self.names[words[1]] = "#Port<%s.%d.*>" % (pid, result & 0xffffffff)
            return "ok"
        if name in ("open", "shut", "late"):
            text = os.path.join(self.folder, "late.so")
            numbers = [int(one) for one in words]
        else:
            for word in words:
                if re.fullmatch(r"-?\d+|P\d+|[A-F]", word):
                    numbers.append(self.number(word))
                else:
                    text = word
        numbers = (numbers + [0, 0])[:2]
        if how == "begin" or name == "end" and not self.host.begin(index, name):
            if how == "begin":
                self.host.begin(index, name, *numbers, text)
            time.sleep(0.05)
            return "ok"
        result = self.host.execute(index, name, *numbers, text)
        if name in ("spawn", "spawn_link", "fork"):
            made = self.new_process(result, "P%d" % self.next)
            self.next += 1
            return made
        return str(result)

    # -- what came

    def received(self, session, expected):
        try:
            said = [self.plain(one) for one in session.received()]
        except Refused as refused:
            self.problems.append("received: %s: %s" % refused.args)
            return
        wanted = [line for line in expected if line != "(nothing)"]
        if by_tracee(said) != by_tracee(wanted):
            self.problems.append("received\n      got    %s\n      wanted %s" % ("\n             ".join(said) or "nothing",
                                                                             "\n             ".join(wanted) or "nothing"))

    def end(self):
        for session in (self.session, self.other):
            if session:
                session.free()
        status = self.host.end()
        if status != 0:
            self.problems.append("the program ended with %s" % status)


def by_tracee(messages):
    groups = {}
    for one in messages:
        tracee = re.match(r"\{(?:trace|trace_ts|monitor|seq_trace),(#?[^,]+)", one)
        groups.setdefault(tracee[1] if tracee else "", []).append(one)
    return groups


def same_value(got, wanted):
    def sort(match):
        return "{flags,[%s]}" % ",".join(sorted(match[1].split(",")))
    flags = re.compile(r"\{flags,\[([^]]*)\]\}")
    got, wanted = flags.sub(sort, got), flags.sub(sort, wanted)
    pattern = re.escape(wanted).replace("<S>", r"\d+").replace("<US>", r"\d+").replace("<N>", r"\d+")
    return re.fullmatch(pattern, got) is not None


def parse(path):
    """(id, title, [(step, expected value or list)])."""
    scenarios = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if line.startswith("== "):
                name, _, title = line[3:].partition(" ")
                scenarios.append((name, title.strip(), []))
            elif line.startswith("-> "):
                step, _ = scenarios[-1][2][-1]
                scenarios[-1][2][-1] = (step, line[3:])
            elif line.startswith("  ") and scenarios[-1][2][-1][1] is not None:
                scenarios[-1][2][-1][1].append(line.strip())
            elif line and not line.startswith("#") and not line.startswith("note"):
                scenarios[-1][2].append((line, [] if "received" in line.split()[:3] else None))
    return scenarios


def do(lib, folder, directory, scenario):
    name, _, steps = scenario
    done = Scenario(lib, folder, directory, name)
    try:
        for step, expected in steps:
            if isinstance(expected, list):
                done.received(done.other if step.startswith("in ") else done.session, expected)
                continue
            got = done.step(step)
            if expected is not None and not same_value(got, expected):
                done.problems.append("%s\n      got    %s\n      wanted %s" % (step, got, expected))
    except (Refused, ValueError, KeyError) as refused:
        done.problems.append(": ".join(str(one) for one in refused.args))
    finally:
        done.end()
    return done.problems


def listed():
    """id -> reason why there is no native equivalent, "" where it is a test."""
    with open(os.path.join(os.path.dirname(HERE), "live.list"), encoding="utf-8") as file:
        rows = [line.rstrip("\n").split(None, 2) for line in file if line.strip() and not line.startswith("#")]
    return {row[0]: row[2] if row[1] == "none" else "" for row in rows}


HEADINGS = {"call", "flag", "tag", "item"}


def rows_of_semantics():
    """(section, first column) of each row of doc/SEMANTICS.md, sections 2 to 5."""
    section = ""
    with open(os.path.join(ROOT, "doc", "SEMANTICS.md"), encoding="utf-8") as file:
        for line in file:
            if line.startswith("## "):
                section = line[3]
            name = line.split("|")[1].strip() if line.startswith("| ") else ""
            if section in "2345" and name and name not in HEADINGS:
                yield section, name


def check_semantics(names):
    """Each row has tests, and each of those is there. Returns how many have none."""
    tests, wrong = {}, 0
    with open(os.path.join(os.path.dirname(HERE), "semantics.list"), encoding="utf-8") as file:
        for line in file:
            if not line.startswith("#"):
                section, row, ids = line.rstrip("\n").split("\t")
                tests[section, row] = ids.split()
    for row in rows_of_semantics():
        missing = [one for one in tests.get(row, [row]) if one not in names]
        wrong += bool(missing)
        if missing:
            print("FAIL semantics %s: no test: %s" % (": ".join(row), missing))
    print("%s semantics.list: %d rows" % ("FAIL" if wrong else "ok  ", len(tests)))
    return wrong


def main(arguments):
    verbose = "-v" in arguments
    chosen = [one for one in arguments if one != "-v"]
    scenarios = []
    for file in sorted(os.listdir(os.path.join(HERE, "scenarios"))):
        scenarios += parse(os.path.join(HERE, "scenarios", file))
    work = tempfile.mkdtemp(prefix="lorg-live.")
    build(work)
    runtime = os.path.join(work, "runtime")
    os.mkdir(runtime, 0o700)
    daemon = start_daemon(runtime)
    lib, failed = library(), 0
    try:
        for scenario in scenarios:
            if chosen and scenario[0] not in chosen:
                continue
            problems = do(lib, work, work, scenario)
            failed += bool(problems)
            if problems:
                print("FAIL live %s: %s" % (scenario[0], " ".join(problems[0].split())[:400]))
                if verbose:
                    print("    " + "\n    ".join(problems))
            else:
                print("ok   live %s: %s" % (scenario[0], scenario[1]))
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(timeout=20)
    names, rows = {one[0] for one in scenarios}, listed()
    if not chosen:
        for name, why in rows.items():
            if (name in names) == bool(why):
                failed += 1
                print("FAIL live %s: live.list and scenarios do not agree" % name)
        tests = sum(not why for why in rows.values())
        print("%s live.list: %d of %d scenarios are tests" % ("ok  " if tests >= 75 else "FAIL", tests, len(rows)))
        failed += (tests < 75) + check_semantics(names)
    shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if failed else 0)


main(sys.argv[1:])
