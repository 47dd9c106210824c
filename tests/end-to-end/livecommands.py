# SPDX-License-Identifier: MIT
"""What the tests of lorg's live commands share: a lorgd, programs that attach to it, commands that stay in front."""

import os
import signal
import subprocess
import time

from lorgctl import BUILD, start_daemon
from lorgtest import LORG, fixture, lorg, scratch

LIBRARY = os.path.join(BUILD, "preload", "liblorg.so")


class Daemon:
    def __init__(self, name="run", keep="0", through=()):
        self.directory, self.keep = scratch(name), keep
        os.mkdir(self.directory, 0o700)
        self.process = start_daemon(self.directory, keep, through)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def start_again(self):
        self.process = start_daemon(self.directory, self.keep)

    def end(self):
        self.process.terminate()
        return self.process.wait(timeout=10)


class Program:
    """tests/fixtures/live_calls.c, attached."""

    def __init__(self):
        self.process = subprocess.Popen([fixture("live_calls")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=dict(os.environ, LD_PRELOAD=LIBRARY))
        self.pid = int(self.process.stdout.readline())

    def code(self):
        """The bytes of the functions work and work_hard, as they are in memory."""
        said = subprocess.run(["nm", fixture("live_calls")], stdout=subprocess.PIPE, check=True).stdout.decode()
        places = {line.split()[2]: int(line.split()[0], 16) for line in said.splitlines() if len(line.split()) == 3}
        if self.process.poll() is not None:
            return b"" # it has ended
        with open("/proc/%d/maps" % self.pid) as maps:
            base = min(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith("/live_calls"))
        with open("/proc/%d/mem" % self.pid, "rb") as memory:
            found = b""
            for name in ("work", "work_hard"):
                memory.seek(base + places[name] if places[name] < base else places[name])
                found += memory.read(32)
            return found

    def end(self):
        """Its status: 0 where every call gave what it should."""
        said = self.process.communicate(timeout=20)[0]
        return self.process.returncode if said.endswith(b" calls\n") else "said %r" % said


class Target:
    """tests/fixtures/attached.c, started without lorg."""

    def __init__(self, *way):
        self.way = way
        self.process = subprocess.Popen([fixture("attached"), *way], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.process.stdout.readline()
        time.sleep(0.02)

    def tracers(self):
        """Who traces its threads."""
        found = set()
        for tid in os.listdir("/proc/%d/task" % self.pid):
            try:
                with open("/proc/%d/task/%s/status" % (self.pid, tid), encoding="utf-8") as file:
                    found.update(line.split()[1] for line in file if line.startswith("TracerPid"))
            except OSError:
                pass
        return found

    def end(self):
        """What it says of itself."""
        try:
            if self.way[0] == "loop":
                self.process.send_signal(signal.SIGUSR1)
            said = self.process.communicate(b"x", timeout=30)[0].decode().strip()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return "hung"
        return said if self.process.returncode == 0 else "status %d %s" % (self.process.returncode, said)


class Front:
    """A command that stays in front."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen([LORG, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def line(self):
        return self.process.stdout.readline().decode(errors="replace").rstrip("\n")

    def end(self, number=signal.SIGINT):
        """(status, the lines that were still to come, stderr)"""
        if number:
            self.process.send_signal(number)
        try:
            said, error = self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said, error = self.process.communicate()
            return "hung", said.decode(errors="replace").splitlines(), error.decode(errors="replace")
        return self.process.returncode, said.decode(errors="replace").splitlines(), error.decode(errors="replace")


def says(*arguments):
    """What a command prints, without its newline; its status and error where it fails."""
    status, said, error = lorg(*arguments, limit=30)
    return said.decode(errors="replace").rstrip("\n") if status == 0 else "status %s: %s" % (status, error.strip())


def sessions():
    return says("session", "list", "--format", "erlang")


def until(what, seconds=5):
    """Whether it becomes true."""
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
