#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorg session, process, info, ps, delivered and tail: what they print, and that they leave nothing behind."""

import json
import os
import re
import select
import signal
import subprocess

from livecommands import LIBRARY, Daemon, Front, Program, says, sessions, until
from lorgtest import LORG, check, equal, finish, log, lorg, scratch


def run_attached(*command):
    return subprocess.run([LORG, "run", "--daemon", "--", *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=dict(os.environ, LORG_LIBRARY=LIBRARY), check=False, timeout=30)


def no_daemon():
    saved, os.environ["LORG_RUNTIME_DIRECTORY"] = os.environ.get("LORG_RUNTIME_DIRECTORY"), scratch("nowhere")
    for command in (["ps"], ["session", "list"], ["tail", "x"], ["calls", "a:b"], ["run", "--daemon", "--", "true"]):
        status, said, error = lorg(*command)
        check("no lorgd: %s" % command[0], status == 1 and not said and "lorgd &" in error, (status, said, error))
    if saved is None:
        del os.environ["LORG_RUNTIME_DIRECTORY"]
    else:
        os.environ["LORG_RUNTIME_DIRECTORY"] = saved


def usage():
    for command in (["session"], ["session", "create"], ["session", "make"], ["process", "hunt", "all", "on"],
                    ["process", "hunt", "all", "maybe", "call"], ["function", "hunt"], ["function", "hunt", "nothing"],
                    ["tail"], ["tail", "hunt", "--format", "xml"], ["calls"], ["calls", "a:b", "--max", "0"],
                    ["calls", "a:b", "--match", "true", "--if", "true"], ["info", "hunt"], ["system", "hunt", "long_gc"],
                    ["session", "create", "x", "-o", "d", "--tracer", "client"], ["session", "create", "x", "--limit-memory", "5x"],
                    *(["calls", "a:b", "--rate", rate] for rate in ("0", "x", "5/", "5/week", "/s", "-1", "1.5/s", "5 /s", "99999999999999999999")),
                    ["session", "create", "x", "--limit-rate", "5/m"]):
        status, said, error = lorg(*command)
        check("usage: %s" % " ".join(command), status == 2 and not said and error.startswith("lorg: ") and error.count("\n") == 1,
              (status, said, error))
    for command, meant in ((["tial", "x"], "lorg tail"), (["sesion"], "lorg session"), (["session", "lits"], "list"), (["tail", "x", "--formt", "json"], "--format"),
                           (["session", "create", "x", "--persists"], "--persist"), (["calls", "a:b", "--no-return"], None), (["function", "x", "a:b", "--locl"], "--local"),
                           (["calls", "a:b", "--max"], "its value is missing"), (["ps", "--format=xml"], "no such format"), (["tail", "x", "--quiet"], "no such option")):
        status, said, error = lorg(*command)
        check("meant: %s" % " ".join(command), status == 2 - (meant is None) and (meant or "lorgd &") in error and error.count("\n") == 1, (status, said, error))
    for command in (["tail", "hunt", "--help"], ["process", "a", "b", "--help"], ["session", "--help"], ["session", "create", "-h"], ["calls", "-?"], ["ps", "--usage"]):
        status, said, error = lorg(*command)
        check("help behind arguments: %s" % " ".join(command), status == 0 and said.startswith(b"Usage: lorg") and not error, (status, said[:80], error))
    for command in ("session", "process", "port", "function", "send", "recv", "system", "info", "delivered", "ps", "tail", "calls"):
        status, said, error = lorg(command, "--help")
        check("help: %s" % command, status == 0 and b"lorg" in said and not error, (status, error))


def programs(program):
    listed = json.loads(says("ps", "--format", "json"))["programs"]
    found = [one for one in listed if one["pid"] == program.pid]
    check("ps: json", len(found) == 1 and found[0]["file"].endswith("/live_calls") and found[0]["sessions"] == [], listed)
    check("ps: text", re.search(r"^ *%d  \S*/live_calls +-$" % program.pid, says("ps"), re.M), says("ps"))
    check("ps: erlang", says("ps", "--format", "erlang").startswith("[{%d," % program.pid), says("ps", "--format", "erlang"))


def asking(program):
    equal("create", says("session", "create", "hunt", "--persist"), "{hunt,1}")
    equal("list", says("session", "list"), "     1  hunt")
    equal("list: json", json.loads(says("session", "list", "--format", "json")), {"sessions": [{"name": "hunt", "number": 1}]})
    pid = str(program.pid)
    equal("process: a program", says("process", "hunt", pid, "on", "procs", "send,receive"), "1")
    equal("info: flags", says("info", "hunt", pid, "flags"), "{flags,[send,'receive',procs]}")
    equal("process: off", says("process", "1", pid, "off", "receive"), "1")
    equal("info: fewer flags", says("info", "{hunt,1}", pid, "flags"), "{flags,[send,procs]}")
    equal("session info", says("session", "info", pid), "[{hunt,1}]")
    check("ps: traced", re.search(r"%d  \S+ +hunt$" % program.pid, says("ps"), re.M), says("ps"))
    equal("process: new", says("process", "hunt", "new", "on", "procs"), "0")
    equal("info: new", says("info", "hunt", "new", "flags"), "{flags,[procs]}")
    equal("send", says("send", "hunt", "false"), "1")
    equal("info: send", says("info", "hunt", "send", "match_spec"), "{match_spec,false}")
    equal("recv", says("recv", "hunt", "true"), "1")
    equal("system", says("system", "hunt", "long_schedule", "500"), "ok")
    equal("info: system", says("info", "hunt", "system", "all"), "{system,[{long_schedule,500}]}")
    status, _, error = lorg("process", "hunt", "all", "on", "procs", "exitting")
    check("flags: what may have been meant", status == 1 and "did you mean exiting?" in error, error)
    status, _, error = lorg("info", "hunt", "live_calls:work", "traced")
    check("a function without its arity", status == 2 and "MODULE:FUNCTION/ARITY" in error, error)
    for command in (["process", "hunt", "all", "on", "calls"], ["process", "nobody", "all", "on", "call"],
                    ["process", "hunt", "1", "on", "call"], ["info", "hunt", "new", "colour"], ["system", "hunt", "long_lunch", "5"],
                    ["send", "hunt", "[{"], ["function", "hunt", "{a,'_',1}"], ["session", "create", "y", "--persist", "--tracer", "{x}"]):
        status, said, error = lorg(*command)
        check("refused: %s" % " ".join(command), status == 1 and not said and error.startswith("lorg: ") and error.count("\n") == 1,
              (status, said, error))
    equal("destroy", says("session", "destroy", "hunt"), "true")
    equal("destroy: gone", says("session", "destroy", "hunt"), "false")
    equal("list: none", sessions(), "[]")
    equal("flags are gone", says("session", "info", pid), "[]")


def first_line(front):
    """What a command in front prints first: it may be a while until it looks."""
    for _ in range(50):
        run_attached("true")
        if select.select([front.process.stdout], [], [], 0.1)[0]:
            break
    line = front.line()
    # What happened while nobody looked is told as lost.
    return first_line(front) if "lost" in line else line


def tailing():
    says("session", "create", "births", "--persist")
    says("process", "births", "all", "on", "procs", "set_on_spawn")
    tail = Front("tail", "births", "--format", "erlang")
    lines = [first_line(tail)]
    status, _, error = lorg("tail", "births", "--max", "1")
    check("tail: one at a time", status == 1 and "client" in error, (status, error))
    done = run_attached("sh", "-c", "sleep 0.01 & wait; exit 7")
    equal("run --daemon: status", done.returncode, 7)
    while lines[-1] and not re.search(r",exit,7\}$", lines[-1]):
        lines.append(tail.line())
    check("tail: spawn and exit", any(",spawn," in line for line in lines) and ",exit,7}" in lines[-1], lines)
    check("tail: terms", all(re.fullmatch(r"\{trace,[<#].*\}", line) for line in lines), lines)
    status, rest, error = tail.end()
    check("tail: interrupted", status == 0 and not error, (status, rest, error))
    equal("tail: the session stays", "births" in sessions(), True)
    says("process", "births", "all", "on", "strict_monotonic_timestamp")
    for name, pattern in (("json", r"\{\"tag\":.*\}"), ("erlang", r"\{trace_ts,.*,\{\d+,\d+\}\}"), ("text", r" +\d+\.\d{9} <\d+\.\d+> +\w+.*")):
        tail = Front("tail", "births", "--format", name, "--max", "3")
        lines = [first_line(tail)]
        run_attached("sh", "-c", "true & wait")
        status, rest, error = tail.end(0)
        lines += rest
        check("tail: %s" % name, status == 0 and len(lines) == 3 and all(re.fullmatch(pattern, line) for line in lines), (status, lines, error))
        if name == "json":
            keys = {"tag", "process", "time", "hlc", "program", "thread", "session"}
            equal("tail: json objects", [keys - set(json.loads(line)) for line in lines], [set()] * 3)
    tail = Front("tail", "births")
    first_line(tail)
    says("session", "destroy", "births")
    status, lines, error = tail.end(0)
    check("tail: ends with its session", status == 0 and "session births has ended" in error, (status, lines, error))


def in_front():
    for number, expected in ((signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGKILL, -9)):
        front = Front("session", "create", "front", "--format", "erlang")
        handle = front.line()
        check("in front: handle", re.fullmatch(r"\{front,\d+\}", handle), handle)
        says("process", "front", "all", "on", "procs")
        run_attached("true")
        check("in front: messages", ",exit,normal}" in front.line(), "")
        equal("in front: status", front.end(number)[0], expected)
        check("in front: takes its session with it", until(lambda: sessions() == "[]"), sessions())


def directories():
    directory = scratch("rec")
    says("session", "create", "rec", "--persist", "-o", directory)
    says("process", "rec", "all", "on", "procs")
    tail = Front("tail", "rec", "--format", "erlang")
    files = lambda: os.path.exists(os.path.join(directory, "metadata"))
    check("directory: made", until(files), os.listdir(os.path.dirname(directory)))
    line = first_line(tail)
    check("directory: tail", re.fullmatch(r"\{trace,.*\}", line), line)
    check("delivered", re.fullmatch(r"#Ref<[\d.]+>\n\{trace_delivered,all,#Ref<[\d.]+>\}", says("delivered", "rec", "all")), says("delivered", "rec", "all"))
    says("session", "destroy", "rec")
    status, rest, error = tail.end(0)
    equal("directory: tail ends with it", (status, error), (0, ""))
    exits = [event for event in log(directory) if event["tag"] == "exit"]
    check("directory: log", len(exits) >= 2, exits)


def attached():
    done = run_attached("sh", "-c", "kill -9 $$")
    equal("run --daemon: signal", done.returncode, -9)
    done = run_attached("/no/such/program")
    equal("run --daemon: not found", done.returncode, 127)
    status, _, error = lorg("run", "--daemon", "-o", "x", "--", "true")
    check("run --daemon: no recording", status == 2 and "--daemon" in error, (status, error))
    done = run_attached("env")
    check("run --daemon: environment", not re.search(rb"^(LORG|LD_PRELOAD)=", done.stdout, re.M), done.stdout[-200:])


def lines_with(front, pattern, do):
    """The lines until one is `pattern`, for which `do` is done again and again."""
    lines = []
    for _ in range(100):
        do()
        while select.select([front.process.stdout], [], [], 0.1)[0]:
            lines.append(front.line())
            if re.search(pattern, lines[-1]) or not lines[-1]:
                return lines
    return lines


def restarted():
    """lorgd is killed and started again, and started anew by a signal: who looks on goes on."""
    own = Daemon("again", "20")
    says("session", "create", "births", "--persist")
    says("process", "births", "all", "on", "procs", "set_on_spawn")
    directory = scratch("rec-again")
    says("session", "create", "rec", "--persist", "-o", directory)
    says("process", "rec", "all", "on", "procs", "set_on_spawn")
    fronts = [Front("tail", name, "--format", "erlang") for name in ("births", "rec")]
    exits = lambda status: lambda: run_attached("sh", "-c", "exit %d" % status)
    seen = [lines_with(front, r",exit,11\}$", exits(11)) for front in fronts]
    check("again: they look on", all(",exit,11}" in lines[-1] for lines in seen), seen)
    own.kill()
    own.start_again()
    for lines, front in zip(seen, fronts):
        lines += lines_with(front, r",exit,12\}$", exits(12))
    check("again: they go on after a kill", all(",exit,12}" in lines[-1] for lines in seen), seen)
    own.process.send_signal(signal.SIGUSR1)
    for lines, front in zip(seen, fronts):
        lines += lines_with(front, r",exit,13\}$", exits(13))
    check("again: they go on after SIGUSR1", all(",exit,13}" in lines[-1] for lines in seen), seen)
    ends = [front.end() for front in fronts]
    # Programs ended while each was waited for: each end is told once.
    for lines, (_, rest, _) in zip(seen, ends):
        told = [line for line in lines + rest if ",exit," in line]
        check("again: nothing comes twice", len(told) == len(set(told)), told)
    equal("again: status", [status for status, _, _ in ends], [0, 0])
    errors = ends[0][2].splitlines()
    check("again: told once each time", len(errors) == 2 and all(error.startswith("lorg: lorgd has gone: session births goes on") for error in errors), ends[0][2])
    own.kill()
    own.start_again()
    says("session", "destroy", "births")
    status, said, error = lorg("tail", "births")
    check("again: a session that is no more", status == 1 and not said and error.count("\n") == 1, (status, said, error))
    own.process.send_signal(signal.SIGINT)
    equal("again: lorgd", own.process.wait(timeout=10), 0)


def stands_still(daemon):
    """A lorgd that is stopped is not waited for without end."""
    daemon.process.send_signal(signal.SIGSTOP)
    status, said, error = lorg("ps", limit=30)
    daemon.process.send_signal(signal.SIGCONT)
    check("stopped: ps", status == 1 and not said and "does not answer" in error and error.count("\n") == 1, (status, said, error))
    check("stopped: it goes on", says("ps") is not None and says("session", "list") == "", says("session", "list"))


def shell(line):
    """(status, stdout, stderr) of a line with $lorg in it."""
    done = subprocess.run(["bash", "-c", line.replace("$lorg", LORG)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def surroundings():
    """Where commands write to, and what they are started with, as it may be."""
    says("session", "create", "around", "--persist")
    for command in ("ps", "session list", "session info all", "info around new flags", "--help", "--version", "ps --format json", "tail --help"):
        status, said, error = shell("$lorg %s >/dev/full" % command)
        check("full disk: %s" % command, status == 1 and error == "lorg: standard output: No space left on device: free some space, or write elsewhere\n", (status, error))
        status, said, error = shell("$lorg %s >&-" % command)
        check("closed output: %s" % command, status == 1 and error.startswith("lorg: standard output: Bad file descriptor") and error.count("\n") == 1, (status, error))
        for closed in ("<&-", "2>&-", "<&- 2>&-"):
            status, said, error = shell("$lorg %s %s" % (command, closed))
            check("closed %s: %s" % (closed, command), status == 0 and said and not error, (status, said, error))
        status, said, error = shell("set -o pipefail; $lorg %s | true" % command)
        check("a reader that goes: %s" % command, status in (0, 1, 141) and not error, (status, error))
        status, said, error = shell("LC_ALL=tr_TR.UTF-8 LANGUAGE=de LANG=xx $lorg %s" % command)
        check("another language: %s" % command, status == 0 and said == shell("$lorg " + command)[1] and not error, (status, error))
    says("process", "around", "all", "on", "procs")
    status, said, error = shell("$lorg tail around --max 1 >/dev/full & sleep 0.5; while kill -0 $! 2>/dev/null; do $lorg run --daemon -- true; done; wait $!")
    check("full disk: tail", status == 1 and "No space left" in error and error.count("\n") == 1, (status, error))
    # Stopped by Ctrl-Z and brought back.
    tail = Front("tail", "around", "--format", "erlang")
    first_line(tail)
    tail.process.send_signal(signal.SIGTSTP)
    until(lambda: open("/proc/%d/stat" % tail.process.pid).read().rsplit(")", 1)[1].split()[0] == "T")
    run_attached("sh", "-c", "exit 21")
    tail.process.send_signal(signal.SIGCONT)
    lines = lines_with(tail, r",exit,21\}$", lambda: None)
    check("stopped and brought back: tail", lines and ",exit,21}" in lines[-1], lines)
    equal("stopped and brought back: status", tail.end()[0], 0)
    says("session", "destroy", "around")


def names():
    """Sessions may be called anything that is an atom."""
    wanted = ["\u00e9 \u00fc", "\u65e5\u672c\u8a9e", "a\nb", "", "3", "'", "{x}", "\x1b[31mred", "-x", "x" * 255, "all", "\U0001f600"]
    for name in wanted:
        check("name %r: create" % name[:12], says("session", "create", "--persist", "--", name).startswith("{"), says("session", "list"))
    listed = json.loads(says("session", "list", "--format", "json"))["sessions"]
    equal("names: json", [one["name"] for one in listed], wanted)
    text = says("session", "list")
    check("names: a line each, and nothing a terminal obeys", text.count("\n") == len(wanted) - 1 and "\x1b" not in text, text)
    for one in listed:
        quoted = "'3'" if one["name"] == "3" else one["name"] if one["name"] and one["name"][0] not in "-{" else str(one["number"])
        equal("name %r: info" % one["name"][:12], says("info", quoted, "new", "flags"), "{flags,[]}")
        equal("name %r: destroy" % one["name"][:12], says("session", "destroy", quoted), "true")
    status, said, error = lorg("session", "create", "--persist", "--", "x" * 256)
    check("names: too long", status == 1 and not said and error.count("\n") == 1, (status, said, error))
    equal("names: none is left", sessions(), "[]")


def many_programs():
    """A page of them: in the order of their numbers, in columns."""
    environment = dict(os.environ, LD_PRELOAD=LIBRARY)
    started = [subprocess.Popen(["sleep", "100"], env=environment, stdin=subprocess.DEVNULL) for _ in range(60)]
    pids = sorted(one.pid for one in started)
    listed = lambda: [one["pid"] for one in json.loads(says("ps", "--format", "json"))["programs"]]
    check("many programs: all are there", until(lambda: set(pids) <= set(listed()), 20), len(listed()))
    equal("many programs: json is sorted", listed(), sorted(listed()))
    lines = says("ps").splitlines()
    told = [int(line.split()[0]) for line in lines[1:]]
    check("many programs: text is sorted", told == sorted(told) and set(pids) <= set(told), told)
    equal("many programs: one column", {line.rindex("  -") for line in lines if "/sleep" in line}, {lines[0].index("SESSIONS") - 2})
    for one in started:
        one.kill()
        one.wait()


no_daemon()
usage()
restarted()
daemon = Daemon()
program = Program()
programs(program)
asking(program)
tailing()
in_front()
directories()
attached()
surroundings()
names()
many_programs()
stands_still(daemon)
equal("the program", program.end(), 0)
equal("lorgd", daemon.end(), 0)
finish()
