#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nothing stays behind: no process, folder, shared memory or descriptor after a recording, nor for long after a killed lorg."""

import glob
import os
import signal
import subprocess
import time

from lorgtest import LORG, Run, check, equal, finish, scratch

SETTLED = 10  # seconds after which a killed lorg's folder counts as abandoned


def folders():
    return {f for f in glob.glob("/tmp/lorg-??????") + glob.glob("/run/lorg-??????") if os.stat(f).st_uid == os.geteuid()}


def start(command):
    """A recording in the background; returns its process and its folder."""
    before = folders()
    process = subprocess.Popen([LORG, "run", "-q", "-o", scratch("background"), "--", *command], stdout=subprocess.PIPE)
    for _ in range(100):
        new = folders() - before
        if new:
            return process, new.pop()
        time.sleep(0.05)
    return process, None


before = folders()
run = Run(["git", "--version"])
equal("an ordinary run: status", run.status, 0)
equal("an ordinary run: no folder", folders() - before, set())

killed, folder = start(["sh", "-c", "sleep 1; echo alive"])
check("it has a folder while it runs", folder)
time.sleep(0.3)
killed.send_signal(signal.SIGKILL)
equal("lorg killed: the program goes on", killed.stdout.read(), b"alive\n")
killed.wait()
check("lorg killed: its folder is left", folder in folders())
living, other = start(["sleep", "%d" % (SETTLED + 6)])
time.sleep(SETTLED + 2)
Run(["true"], directory=scratch("later"))
check("the next one takes it away", folder not in folders())
check("a living one's stays", other in folders())
equal("the living one ends as ever", living.wait(timeout=60), 0)
check("and takes its own away", other not in folders())
finish()
