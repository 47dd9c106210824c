#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A signal that is sent to `lorg run` reaches the program as if it had been sent there; a terminal's reaches it once."""

import os
import pty
import select
import signal
import subprocess
import time

from lorgtest import LORG, check, equal, finish, scratch

SENT = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
        signal.SIGWINCH, signal.SIGRTMIN + 3]
COUNTER = """
import os, signal, sys
count = [0]
def handler(*_): count[0] += 1
signal.signal(%d, handler)
print("ready", flush=True)
sys.stdin.readline()
print(count[0], flush=True)
"""


def count_of_one(number):
    """What a recorded program has counted after one signal to lorg itself, and how lorg ended."""
    process = subprocess.Popen([LORG, "run", "-q", "-o", scratch("trace"), "--", "python3", "-c", COUNTER % number],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
                               preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in SENT])
    process.stdout.readline()
    process.send_signal(number)
    time.sleep(0.3)
    output, _ = process.communicate("\n", timeout=30)
    return output.strip(), process.returncode


def default_action(number):
    process = subprocess.Popen([LORG, "run", "-q", "-o", scratch("trace"), "--", "sh", "-c", "echo ready; exec sleep 30"],
                               stdout=subprocess.PIPE, text=True, start_new_session=True)
    process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=20)
    return process.returncode


def interrupt_of_terminal():
    """What the program counts when the terminal sends one SIGINT to its foreground group."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(LORG, [LORG, "run", "-q", "-o", scratch("trace"), "--", "python3", "-c", COUNTER % signal.SIGINT])
    output, sent, deadline = b"", 0, time.monotonic() + 30
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.5)[0]:
            continue
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        output += piece
        if b"ready" in output and not sent:
            sent = 1
            os.write(terminal, b"\x03")
            time.sleep(0.3)
            os.write(terminal, b"\n")
    os.waitpid(pid, 0)
    return output.split()[-1:]


for one in SENT:
    equal("signals: %d to lorg reaches the program once" % one, count_of_one(one), ("1", 0))
for one in (signal.SIGUSR1, signal.SIGINT, signal.SIGALRM):
    equal("signals: %d to lorg ends both alike" % one, default_action(one), -one)
got = interrupt_of_terminal()
check("signals: a terminal's interrupt reaches the program once", got == [b"1"], got)
finish()
