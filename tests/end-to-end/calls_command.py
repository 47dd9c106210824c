#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorg calls: one question about calls, and nothing is left behind however it ends."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time

from livecommands import LIBRARY, Daemon, Front, Program, says, sessions, until
from lorgtest import LORG, check, equal, finish, lorg, scratch


def left_nothing(name, program, before):
    check(name + ": no session is left", until(lambda: sessions() == "[]"), sessions())
    check(name + ": the code is as it was", until(lambda: program.code() == before), (program.code().hex(), before.hex()))


def asked(program, *arguments):
    """(status, lines, stderr) of a call of lorg calls in Erlang's form."""
    status, said, error = lorg("calls", "-p", str(program.pid), "--format", "erlang", *arguments, limit=30)
    return status, said.decode(errors="replace").splitlines(), error


def answers(program, before):
    pid = r"<%d\.%d\.0>" % (program.pid, program.pid)
    status, lines, error = asked(program, "live_calls:work*", "--max", "40")
    check("calls: status", status == 0 and not error, (status, error))
    equal("calls: as many as asked for", len(lines), 40)
    shapes = [r"\{trace,%s,call,\{live_calls,work_hard,\[\d+,\[(111,100,100|101,118,101,110)\]\]\}\}" % pid, r"\{trace,%s,call,\{live_calls,work,\[\d+\]\}\}" % pid,
              r"\{trace,%s,return_from,\{live_calls,work,1\},\d+\}" % pid, r"\{trace,%s,return_from,\{live_calls,work_hard,2\},\d+\}" % pid]
    wrong = [line for line in lines if not any(re.fullmatch(shape, line) for shape in shapes)]
    equal("calls: calls and returns", wrong, [])
    numbers = [int(re.search(r"work,\[(\d+)\]", line)[1]) for line in lines if ",work,[" in line]
    equal("calls: none is missing", numbers, list(range(numbers[0], numbers[0] + len(numbers))))
    left_nothing("calls", program, before)


def choices(program, before):
    _, lines, error = asked(program, "live_calls:work/1", "--no-returns", "--max", "3")
    check("no returns", len(lines) == 3 and all(",call,{live_calls,work," in line for line in lines), (lines, error))
    _, lines, error = asked(program, "live_calls:work_hard", "--if", "arg1 =:= \"odd\"", "--max", "4")
    check("a condition", len(lines) >= 3 and all("[111,100,100]" in line for line in lines if ",call," in line), (lines, error))
    _, lines, error = asked(program, "{live_calls,work,1}", "--match", "[{['$1'],[{'=:=',{'rem','$1',5},0}],[{message,five}]}]", "--max", "2")
    check("a specification", len(lines) == 2 and all(re.search(r"\[\d*[05]\]\},five\}$", line) for line in lines), (lines, error))
    _, lines, error = asked(program, "live_calls:work", "--arity", "--no-returns", "--max", "1")
    check("arity", lines and lines[0].endswith(",call,{live_calls,work,1}}"), (lines, error))
    _, lines, error = asked(program, "live_calls:work", "--timestamps", "--max", "2")
    check("timestamps", len(lines) == 2 and all(re.fullmatch(r"\{trace_ts,.*,\{\d+,\d+\}\}", line) for line in lines), (lines, error))
    status, said, _ = lorg("calls", "live_calls:work", "--format", "json", "--max", "2")
    events = [json.loads(line) for line in said.splitlines()]
    equal("json", (status, [event["tag"] for event in events], events[0]["program"]), (0, ["call", "return_from"], program.pid))
    left_nothing("choices", program, before)


def endings(program, before):
    for number, expected in ((signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -9)):
        front = Front("calls", "live_calls:work*")
        check("ending: it traces", front.line(), "")
        check("ending: the code is changed", program.code() != before, "")
        equal("ending by %s" % number.name, front.end(number)[0], expected)
        left_nothing("ending by %s" % number.name, program, before)
    reader = subprocess.run("%s calls 'live_calls:work*' | head -n 2" % LORG, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, check=False, timeout=30)
    equal("ending with its reader", (reader.stdout.count(b"\n"), reader.stderr), (2, b""))
    left_nothing("ending with its reader", program, before)


def refusals(program, before):
    status, lines, error = asked(program, "live_calls:no_such_function")
    check("no such function", status == 1 and not lines and "no function" in error, (status, lines, error))
    status, _, error = lorg("calls", "live_calls:work", "-p", str(os.getpid()))
    check("not attached", status == 1 and "attached" in error, (status, error))
    status, _, error = asked(program, "live_calls:work", "--if", "arg0 >")
    check("a condition that is none", status == 1 and error.startswith("lorg: "), (status, error))
    status, _, error = asked(program, "live_calls:work", "--match", "[{x}]")
    check("a specification that is none", status == 1 and error.startswith("lorg: "), (status, error))
    left_nothing("refusals", program, before)


def rate(program, before):
    front = Front("calls", "live_calls:work", "--no-returns", "--rate", "10/s", "--format", "erlang")
    lines = [front.line() for _ in range(15)]
    front.end()
    numbers = [int(found[1]) for line in lines if (found := re.search(r"work,\[(\d+)\]", line))]
    check("rate: dropped", numbers and numbers[-1] - numbers[0] > len(numbers) + 10, lines)
    check("rate: told", any("lost" in line for line in lines), lines)
    left_nothing("rate", program, before)


def standing():
    """Programs that attach later are asked, too."""
    front = Front("calls", "live_calls:work/1", "--wait", "--max", "2", "--format", "erlang")
    until(lambda: "calls-" in sessions())
    late = Program()
    before = late.code()
    status, lines, error = front.end(0)
    check("standing", status == 0 and len(lines) == 2, (status, lines, error))
    left_nothing("standing", late, before)
    equal("standing: the program", late.end(), 0)


def loaded_later():
    """A program that was there before loads what is asked for: it is asked, too."""
    source, late = scratch("late.c"), scratch("late.so")
    with open(source, "w", encoding="ascii") as file:
        file.write("int late_work(int n) { int sum = 0; for (int i = 0; i < n % 8; i++) sum += i * i ^ n; return sum; }\n")
    subprocess.run(["cc", "-g", "-O1", "-shared", "-fPIC", "-o", late, source], check=True)
    script = "import ctypes,sys,time\nsys.stdin.readline()\nlate=ctypes.CDLL(%r)\nfor i in range(4000): late.late_work(i); time.sleep(0.002)\n" % late
    program = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, env=dict(os.environ, LD_PRELOAD=LIBRARY))
    check("loaded later: attached", until(lambda: " %d " % program.pid in " " + says("ps").replace("\n", " ")), says("ps"))
    front = Front("calls", "late.so:late_work", "--wait", "--max", "6", "--format", "erlang")
    until(lambda: "calls-" in sessions())
    time.sleep(0.5)
    program.stdin.write(b"\n")
    program.stdin.flush()
    status, lines, error = front.end(0)
    check("loaded later: it is traced", status == 0 and len(lines) == 6 and any(",call,{'late.so',late_work,[" in line for line in lines), (status, lines, error))
    program.kill()
    program.wait()


def rates(program, before):
    """N a second, or of another time."""
    for text, most in (("20", 20), ("20/s", 20), ("5/ms", None), ("30/min", 30), ("40/h", 40)):
        front = Front("calls", "live_calls:work", "--no-returns", "--rate", text, "--format", "erlang")
        front.line()
        time.sleep(2.5)
        status, lines, error = front.end()
        told = 1 + sum(",call," in line for line in lines)
        check("rate of %s" % text, status == 0 and not error and (told > 40 if most is None else told <= 5 * most and (told <= most or "/" not in text or text == "20/s")), (told, status, error))
        check("rate of %s: told" % text, most is None or any("{lost," in line for line in lines), lines[-3:])
    left_nothing("rates", program, before)


def restarted():
    """lorgd is killed and started again: the question is asked anew, and nothing is left of either."""
    own = Daemon("again", "20")
    program = Program()
    before = program.code()
    front = Front("calls", "live_calls:work/1", "-p", str(program.pid), "--format", "erlang")
    check("again: it traces", ",call," in front.line(), "")
    own.kill()
    own.start_again()
    until(lambda: "calls-" in sessions(), 20)
    lines, end = [], time.monotonic() + 25
    while time.monotonic() < end and front.process.poll() is None:
        if select.select([front.process.stdout], [], [], 0.2)[0]:
            lines.append(front.line())
        if len(lines) > 400:
            break
    numbers = [int(found[1]) for line in lines if (found := re.search(r"work,\[(\d+)\]\}\}$", line))]
    if front.process.poll() is None:
        check("again: it goes on", numbers and numbers[-1] > numbers[0], lines[-3:])
        status, _, error = front.end()
        check("again: told once", status == 0 and error.count("\n") == 1 and "lorgd has gone" in error, (status, error))
    else:
        status, _, error = front.end(0)
        check("again: it says why it does not go on", status == 1 and error.count("\n") <= 3 and "start the program again" in error, (status, error))
    left_nothing("again", program, before)
    equal("again: the program", program.end(), 0)
    own.process.send_signal(signal.SIGINT)
    equal("again: lorgd", own.process.wait(timeout=10), 0)


restarted()
daemon = Daemon()
standing()
loaded_later()
program = Program()
before = program.code()
answers(program, before)
choices(program, before)
endings(program, before)
refusals(program, before)
rate(program, before)
rates(program, before)
equal("the program", program.end(), 0)
equal("lorgd", daemon.end(), 0)
finish()
