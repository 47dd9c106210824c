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
                    ["session", "create", "x", "-o", "d", "--tracer", "client"], ["session", "create", "x", "--limit-memory", "5x"]):
        status, said, error = lorg(*command)
        check("usage: %s" % " ".join(command), status == 2 and not said and error.startswith("lorg: ") and error.count("\n") == 1,
              (status, said, error))
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


no_daemon()
usage()
daemon = Daemon()
program = Program()
programs(program)
asking(program)
tailing()
in_front()
directories()
attached()
equal("the program", program.end(), 0)
equal("lorgd", daemon.end(), 0)
finish()
