# SPDX-License-Identifier: MIT
"""What the end-to-end tests share: running lorg, reading what it recorded, and saying how a check went.

A script prints "ok NAME", "FAIL NAME: why" or "skip NAME: why" for each check and ends with finish().
TEST_LORG names the lorg command, TEST_FIXTURES the folder with the programs built from tests/fixtures.
"""

import atexit
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LORG = os.environ.get("TEST_LORG") or os.path.join(ROOT, "build", "collector", "lorg")
FIXTURES = os.environ.get("TEST_FIXTURES") or os.path.join(ROOT, "build", "fixtures")
SCRATCH = tempfile.mkdtemp(prefix="lorg-e2e.")
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)

_failed = 0


def check(name, good, why=""):
    """Says how one check went; returns whether it was good."""
    global _failed
    if good:
        print("ok   %s" % name, flush=True)
    else:
        _failed += 1
        print("FAIL %s: %s" % (name, " ".join(str(why).split())[:600]), flush=True)
    return bool(good)


def equal(name, got, want):
    return check(name, got == want, "%r, not %r" % (got, want))


def skip(name, why):
    print("skip %s: %s" % (name, why), flush=True)


def finish():
    sys.exit(1 if _failed else 0)


def fixture(name):
    path = os.path.join(FIXTURES, name)
    if not os.path.exists(path):
        subprocess.run([os.path.join(ROOT, "tests", "fixtures", "build"), FIXTURES], check=True)
    return path


def scratch(name):
    """A fresh path below this run's own folder."""
    path = os.path.join(SCRATCH, name)
    if os.path.isfile(path):
        os.unlink(path)
    shutil.rmtree(path, ignore_errors=True)
    return path


class Run:
    """One recorded run, to its end. status is None when it had to be stopped after `limit` seconds."""

    def __init__(self, command, options=(), directory=None, limit=120, stdin=None, cwd=None, env=None):
        self.directory = directory or scratch("trace")
        self.command = [LORG, "run", *options, "-o", self.directory, "--", *command]
        process = subprocess.Popen(self.command, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=env, start_new_session=True)
        try:
            self.stdout, self.stderr = process.communicate(stdin, timeout=limit)
            self.status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            self.stdout, self.stderr = process.communicate()
            self.status = None
        self.stderr = self.stderr.decode(errors="replace")

    def why(self):
        return "status %s, stderr: %s" % (self.status, self.stderr[-400:])


def lorg(*arguments, limit=120):
    """(status, stdout bytes, stderr text) of a reading command; status None: it hung."""
    try:
        done = subprocess.run([LORG, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None, b"", "hung for %d s" % limit
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def log(directory, *arguments):
    """Every event of a trace directory, as lorg log --format json gives it."""
    status, said, error = lorg("log", "--format", "json", *arguments, directory)
    if status != 0:
        raise RuntimeError("lorg log: status %s: %s" % (status, error.strip()[:300]))
    return [json.loads(line) for line in said.splitlines()]


def report(directory):
    status, said, error = lorg("report", "--format", "json", directory)
    if status != 0:
        raise RuntimeError("lorg report: status %s: %s" % (status, error.strip()[:300]))
    return json.loads(said)


def lost(directory):
    """How many events a recording says it lost."""
    total = report(directory).get("lost", 0)
    if isinstance(total, dict):
        total = total.get("count", sum(v for v in total.values() if isinstance(v, int)))
    if isinstance(total, list):
        total = sum(part.get("count", 0) for part in total)
    return total


def babeltrace_events(directory):
    """(events, discarded events) that babeltrace2 counts in a directory."""
    done = subprocess.run(["babeltrace2", "-c", "sink.utils.counter", directory], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    # The counter prints its table several times: the last one is the whole.
    events = re.findall(r"([\d,]+) Event messages", text)
    if done.returncode != 0 or not events:
        raise RuntimeError("babeltrace2: status %d: %s" % (done.returncode, text[-300:]))
    return int(events[-1].replace(",", ""))


def descendants(root):
    """Processes below one, itself included: (pid, name of its executable)."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open("/proc/%s/stat" % entry, errors="replace") as stat:
                    parents[int(entry)] = int(stat.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    found, grew = {root}, True
    while grew:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grew = bool(more)
    result = []
    for pid in found:
        try:
            result.append((pid, os.path.basename(os.readlink("/proc/%d/exe" % pid))))
        except OSError:
            pass
    return result


class Collector:
    """What the collector behind a running `lorg run` holds."""

    def __init__(self, root):
        self.pids = [pid for pid, name in descendants(root) if name in ("lorg", "lorgd")]

    def descriptors(self):
        return sum(len(os.listdir("/proc/%d/fd" % pid)) for pid in self.pids)

    def mappings(self):
        total = 0
        for pid in self.pids:
            with open("/proc/%d/maps" % pid) as maps:
                total += sum(1 for _ in maps)
        return total

    def memory_kb(self):
        """Private memory and what it mapped of arenas."""
        total = 0
        for pid in self.pids:
            with open("/proc/%d/status" % pid) as status:
                total += int(re.search(r"^VmRSS:\s+(\d+)", status.read(), re.M).group(1))
        return total
