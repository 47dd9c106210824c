#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorg attach, a session of calls, sends, receives and processes, lorg detach: round after round, in programs of many kinds.

    attach_rounds.py [KIND...]      LORG_TEST_ATTACH_ROUNDS: how many rounds of each (3); 100 takes a quarter of an hour

Nothing may be left of it: code, slots, descriptors, signals, threads and what the program says are as they were, its memory does
not grow from round to round, and none of its requests fails.
"""

import glob
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

from livecommands import LIBRARY, Daemon, says
from lorgtest import SCRATCH, check, equal, finish, fixture, lorg, scratch, skip

ROUNDS = int(os.environ.get("LORG_TEST_ATTACH_ROUNDS", 3))


# ---- what a program is -----------------------------------------------------------------


def mappings(pid):
    """(start, end, rights, path) of all that is mapped."""
    found = []
    with open("/proc/%d/maps" % pid, encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.split(None, 5)
            start, end = (int(word, 16) for word in fields[0].split("-"))
            found.append((start, end, fields[1], fields[5].strip() if len(fields) > 5 else ""))
    return found


def is_ours(path):
    return "lorg" in os.path.basename(path.split(" ")[0])


def code(pid):
    """The bytes of all code that comes from files, by mapping."""
    found = {}
    with open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for start, end, rights, path in mappings(pid):
            if path.startswith("/") and "x" in rights and "r" in rights and not is_ours(path) and "memfd:" not in path:
                memory.seek(start)
                try:
                    found[(start, path)] = hash(memory.read(end - start))
                except OSError:  # closed by the program meanwhile
                    continue
    return found


def changed(now, was):
    """Of what is still there: modules that the program opens and closes are somewhere else each time."""
    return [key for key, value in now.items() if was.get(key, value) != value]


def leads_to_lorg(pid):
    """Words in the data of files (slots are there) that are addresses in liblorg.so's code or its trampolines."""
    areas = mappings(pid)
    targets = [(start, end) for start, end, rights, path in areas if path.endswith("/liblorg.so")]
    if not targets:
        return []
    low, high = min(start for start, _ in targets), max(end for _, end in targets)
    found = []
    with open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for start, end, rights, path in areas:
            if not path.startswith("/") or is_ours(path) or "x" in rights or "s" in rights or end - start > 1 << 23 or "ld-linux" in path:
                continue
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except OSError:
                continue
            for at, (word,) in enumerate(struct.iter_unpack("<Q", data[:len(data) & ~7])):
                if low <= word < high:
                    found.append("%s+0x%x" % (path, start + at * 8 - start))
    return found


def status(pid):
    with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def outward(pid, all_descriptors):
    """Descriptors, signals, who traces it."""
    names = []
    for name in os.listdir("/proc/%d/fd" % pid):
        try:
            target = os.readlink("/proc/%d/fd/%s" % (pid, name))
        except OSError:
            continue
        if all_descriptors or not target.startswith(("socket:", "anon_inode", "pipe:", "/tmp", "/var", "/dev/shm")):
            names.append((int(name), target))
    now = status(pid)
    return sorted(names), [now[key] for key in ("SigIgn", "SigCgt", "TracerPid", "NoNewPrivs", "Seccomp")]


def size(pid):
    """(mappings, KiB of them) but for the arena and what the program itself lets grow."""
    areas = [area for area in mappings(pid)]
    own = [area for area in areas if is_ours(area[3]) or "memfd" in area[3]]
    return len(areas), sum(end - start for start, end, _, _ in areas) >> 10, len(own), sum(end - start for start, end, _, _ in own) >> 10


# ---- kinds of programs --------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def missing(*names):
    return [name for name in names if not shutil.which(name)]


class Kind:
    needs = ()
    calls = None            # a pattern of functions of its own
    steady = True           # its threads and descriptors do not change by themselves
    grows = False           # its memory does, by itself
    fills = False           # it makes thousands of threads a second, for which a session makes the arena grow

    def start(self):
        raise NotImplementedError

    def pids(self):
        return [self.process.pid]

    def end(self):
        """What is wrong with it; "": nothing."""
        raise NotImplementedError


class Fixture(Kind):
    """tests/fixtures/attached.c in one of its ways."""
    ways = ()
    environment = {}

    def start(self):
        self.process = subprocess.Popen([fixture("attached"), *self.ways], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=dict(os.environ, **self.environment))
        self.process.stdout.readline()

    def end(self):
        try:
            said = self.process.communicate(b"x", timeout=30)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "hung"
        return "" if said == b"right\n" and self.process.returncode == 0 else "status %d, %r" % (self.process.returncode, said)


def of(*way, **more):
    return type("".join(way), (Fixture,), dict({"ways": way, "calls": "attached:c*"}, **more))


class Loop(Fixture):
    ways, calls = ("loop",), "attached:c*"

    def end(self):
        self.process.send_signal(10)
        return Fixture.end(self)


class Server(Kind):
    """Something that is asked, and what asks: that may not fail, and says how long it was kept waiting."""
    steady = False
    grows = True
    failed = re.compile(r"[Ee]rror|refused|reset|timed out|timeout [1-9]|Non-2xx|aborted")

    def load(self, *command):
        self.said = open(scratch("load"), "w+b")
        self.loading = subprocess.Popen(command, stdout=self.said, stderr=subprocess.STDOUT, start_new_session=True)

    def load_failed(self, terminate=True):
        if self.loading.poll() is not None and self.loading.returncode:
            return "the load ended by itself, status %d: %s" % (self.loading.returncode, self.text())
        if terminate:
            self.loading.send_signal(2)
        try:
            self.loading.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.loading.kill()
            return "the load hung"
        text = self.text()
        return text[-400:] if self.failed.search(text) else ""

    def text(self):
        self.said.seek(0)
        return self.said.read().decode(errors="replace")


class Redis(Server):
    needs, calls = ("redis-server", "redis-benchmark"), "redis-server:*Command"

    def start(self):
        self.port = free_port()
        folder = scratch("redis")
        os.mkdir(folder)
        self.process = subprocess.Popen(["redis-server", "--port", str(self.port), "--save", "", "--dir", folder], stdout=subprocess.DEVNULL)
        time.sleep(0.7)
        self.load("redis-benchmark", "-p", str(self.port), "-n", "100000000", "-c", "10", "-t", "get,set", "-q")
        self.latency, self.over = 0, False
        self.thread = threading.Thread(target=self.ping)
        self.thread.start()

    def ping(self):
        with socket.create_connection(("127.0.0.1", self.port)) as one:
            while not self.over:
                begin = time.monotonic()
                one.sendall(b"PING\r\n")
                if one.recv(100) != b"+PONG\r\n":
                    self.latency = 1e9
                self.latency = max(self.latency, time.monotonic() - begin)
                time.sleep(0.002)

    def end(self):
        self.over = True
        self.thread.join()
        print("     redis: longest answer %.1f ms" % (self.latency * 1e3))
        self.loading.terminate()
        why = "" if self.loading.wait(20) in (0, -15) else self.text()
        why = why or (self.text() if self.failed.search(self.text()) else "")
        self.process.terminate()
        return why or ("" if self.process.wait(20) == 0 else "status %s" % self.process.returncode)


class Nginx(Server):
    needs, calls = ("nginx", "wrk"), "nginx:ngx_http_*handler"

    def start(self):
        port, folder = free_port(), scratch("nginx")
        os.mkdir(folder)
        with open(folder + "/index.html", "w", encoding="utf-8") as file:
            file.write("x" * 5000)
        with open(folder + "/nginx.conf", "w", encoding="utf-8") as file:
            file.write("daemon off; master_process on; worker_processes 1; error_log %s/error.log; pid %s/pid;\n"
                       "events {} http { access_log off; server { listen 127.0.0.1:%d; root %s; } }\n" % (folder, folder, port, folder))
        os.chmod(SCRATCH, 0o755)
        self.folder = folder
        self.process = subprocess.Popen(["nginx", "-e", folder + "/error.log", "-c", folder + "/nginx.conf"], stderr=subprocess.DEVNULL)
        time.sleep(0.7)
        self.load("wrk", "-t1", "-c8", "-d1000s", "--latency", "http://127.0.0.1:%d/index.html" % port)

    def pids(self):
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid), encoding="utf-8") as file:
            return [self.process.pid] + [int(word) for word in file.read().split()]

    def end(self):
        why = self.load_failed()
        latency = re.search(r"Latency +\S+ +\S+ +(\S+)", self.text())
        print("     nginx: longest answer %s" % (latency.group(1) if latency else "?"))
        self.process.terminate()
        return why or ("" if self.process.wait(20) == 0 else "status %s" % self.process.returncode)


class Postgres(Server):
    needs, calls = ("postgres", "initdb", "pgbench", "setpriv"), "postgres:exec_simple_query"

    def start(self):
        import pwd
        user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        become = ["setpriv", "--reuid=%d" % user.pw_uid, "--regid=%d" % user.pw_gid, "--clear-groups"] if user else []
        folder, port = scratch("postgres"), str(free_port())
        os.mkdir(folder)
        os.chmod(SCRATCH, 0o755)
        if user:
            os.chown(folder, user.pw_uid, user.pw_gid)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
        subprocess.run(become + ["initdb", "-D", folder + "/data", "-A", "trust", "-U", "bench", "-N"], check=True, **quiet)
        self.process = subprocess.Popen(become + ["postgres", "-D", folder + "/data", "-p", port, "-k", folder, "-c", "fsync=off",
                                                  "-c", "shared_buffers=16MB"], **quiet)
        time.sleep(2)
        connection = ["-h", folder, "-p", port, "-U", "bench", "postgres"]
        subprocess.run(["pgbench", "-i", "-s", "1", "-q", *connection], check=True, **quiet)
        self.load("pgbench", "-c", "2", "-T", "10000", "-n", *connection)
        time.sleep(1)

    def pids(self):
        with open("/proc/%d/task/%d/children" % (self.process.pid, self.process.pid), encoding="utf-8") as file:
            children = [int(word) for word in file.read().split()]
        backends = [pid for pid in children if b"bench" in open("/proc/%d/cmdline" % pid, "rb").read()]
        return [self.process.pid] + backends[:1]

    def end(self):
        why = self.text() if self.failed.search(self.text()) or self.loading.poll() is not None else ""
        self.loading.kill()
        self.loading.wait()
        self.process.send_signal(2)
        return why[-400:] or ("" if self.process.wait(20) == 0 else "status %s" % self.process.returncode)


class Script(Kind):
    """A program in some language that counts in several threads until its standard input ends, and says what is right."""
    steady = False
    grows = True

    def start(self):
        path = scratch("script" + self.suffix)
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)
        self.process = subprocess.Popen([*self.command, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdout.readline()

    def end(self):
        try:
            said = self.process.communicate(b"", timeout=30)[0]
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "hung"
        return "" if said == b"right\n" and self.process.returncode == 0 else "status %d, %r" % (self.process.returncode, said)


class Python(Script):
    suffix, command, calls = ".py", (sys.executable,), "libpython*:PyObject_GetAttr"
    text = """
import hashlib, os, socket, sys, threading, time
over, wrong = threading.Event(), []
def echo(one):
    while data := one.recv(4096):
        one.sendall(data)
def ask(one):
    while not over.is_set():
        one.sendall(b"x" * 1000)
        got = b""
        while len(got) < 1000:
            got += one.recv(4096)
        if got != b"x" * 1000:
            wrong.append("echo")
    one.shutdown(socket.SHUT_RDWR)
def count():
    while not over.wait(0.001):
        if hashlib.sha256(b"a" * 100000).hexdigest()[:8] != "6d1cf22d":
            wrong.append("sha256")
pairs = [socket.socketpair() for _ in range(2)]
threads = [threading.Thread(target=echo, args=(a,)) for a, _ in pairs] + [threading.Thread(target=ask, args=(b,)) for _, b in pairs]
threads += [threading.Thread(target=count) for _ in range(2)]
for thread in threads:
    thread.start()
print("ready", flush=True)
sys.stdin.read()
over.set()
for thread in threads:
    thread.join()
print(wrong[0] if wrong else "right")
"""


class Node(Script):
    needs, suffix, command, calls = ("node",), ".js", ("node",), "node:uv_*"
    text = """
const net = require('net'), crypto = require('crypto');
let wrong = '', over = false;
const server = net.createServer(s => s.pipe(s)).listen(0, '127.0.0.1', () => {
  const s = net.connect(server.address().port, '127.0.0.1');
  let got = 0;
  s.on('data', d => { got += d.length; if (got === 1000) { got = 0; if (over) { s.end(); server.close(); } else s.write(Buffer.alloc(1000, 'x')); } });
  s.on('error', e => { wrong = String(e); });
  s.write(Buffer.alloc(1000, 'x'));
  console.log('ready');
});
const hash = () => { if (over) return; crypto.pbkdf2('a', 'b', 2000, 32, 'sha256', (e, k) => { if (e) wrong = String(e); setTimeout(hash, 5); }); };
hash();
process.stdin.on('end', () => { over = true; });
process.stdin.resume();
process.on('exit', () => console.log(wrong || 'right'));
"""


class Java(Script):
    needs, suffix, command, calls = ("java",), ".java", ("java", "-Xmx128m", "-XX:+UseSerialGC"), None
    text = """
import java.io.*; import java.net.*; import java.util.*;
public class script { static volatile boolean over; static volatile String wrong = null;
  public static void main(String[] a) throws Exception {
    ServerSocket server = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
    List<Thread> threads = new ArrayList<>();
    threads.add(new Thread(() -> { try (Socket s = server.accept()) { byte[] b = new byte[4096]; int n;
      while ((n = s.getInputStream().read(b)) > 0) s.getOutputStream().write(b, 0, n); } catch (Exception e) { wrong = e.toString(); } }));
    threads.add(new Thread(() -> { try (Socket s = new Socket(server.getInetAddress(), server.getLocalPort())) { byte[] b = new byte[1000];
      while (!over) { s.getOutputStream().write(b); s.getInputStream().readNBytes(1000); Thread.sleep(1); } } catch (Exception e) { wrong = e.toString(); } }));
    for (int i = 0; i < 2; i++) threads.add(new Thread(() -> { try { while (!over) { StringBuilder t = new StringBuilder();
      for (int k = 0; k < 20000; k++) t.append(k); if (t.length() != 88890) wrong = "length"; Thread.sleep(2); } } catch (Exception e) { wrong = e.toString(); } }));
    for (Thread t : threads) t.start();
    System.out.println("ready"); System.out.flush();
    while (System.in.read() >= 0); over = true;
    for (Thread t : threads) t.join();
    System.out.println(wrong == null ? "right" : wrong); } }
"""


def preloaded(pattern):
    found = glob.glob(pattern)
    return {"environment": {"LD_PRELOAD": found[0]}} if found else None


KINDS = {
    "read": of("read"), "epoll": of("epoll"), "condition": of("condition"), "compute": of("compute"), "loop": Loop,
    "allocate": of("allocate", "50"), "signals": of("signals"), "small": of("small"),
    "open": of("open", grows=True), "threads": of("threads", steady=False, grows=True, fills=True),
    "redis": Redis, "nginx": Nginx, "postgres": Postgres, "python": Python, "node": Node, "java": Java,
}
for name, pattern in (("jemalloc", "/usr/lib/*/libjemalloc.so.2"), ("tcmalloc", "/usr/lib/*/libtcmalloc_minimal.so.4")):
    if preloaded(pattern):
        KINDS[name] = of("allocate", "8", grows=True, **preloaded(pattern))


# ---- rounds -------------------------------------------------------------------------------------


def one_round(name, kind, number, took):
    """Whether it went well."""
    pids = [str(pid) for pid in kind.pids()]
    session = "%s%d" % (name, number)
    begin = time.monotonic()
    status_of, _, error = lorg("attach", *pids, limit=90)
    took.append(time.monotonic() - begin)
    if status_of:
        return check("%s %d: attach" % (name, number), False, error)
    recording = scratch("recording")
    says("session", "create", session, "--persist", "-o", recording)
    for pid in pids:
        says("process", session, pid, "on", "call,procs,send,receive")
    if kind.calls:
        said = says("function", session, kind.calls, "--local")
        if said.startswith("status"):
            check("%s %d: functions" % (name, number), False, said)
    time.sleep(0.05)
    destroyed = says("session", "destroy", session)
    status_of, _, error = lorg("detach", *pids, limit=90)
    if status_of or destroyed != "true":
        return check("%s %d: detach" % (name, number), False, "%s, session: %s" % (error, destroyed))
    return True


def settle(what, wanted, seconds=8):
    end = time.monotonic() + seconds
    while (now := what()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    return now


def resident(pid):
    """KiB of shared memory that it really has: the arena."""
    return int(status(pid)["RssShmem"].split()[0])


def settled(condition, seconds=8):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.1)
    return condition()


def rounds(name, kind):
    kind.start()
    time.sleep(0.3)
    pids = kind.pids()
    before = {pid: (code(pid), outward(pid, kind.steady), status(pid)["Threads"]) for pid in pids}
    sizes, took, done = [], [], 0
    for number in range(ROUNDS):
        if not one_round(name, kind, number, took):
            break
        done += 1
        sizes.append(size(pids[-1]))
    check("%s: rounds" % name, done == ROUNDS, done)
    for pid in pids:
        if not os.path.exists("/proc/%d/maps" % pid) or status(pid)["State"].startswith("Z"):
            check("%s: lives" % name, False, pid)
            continue
        was_code, was_outward, was_threads = before[pid]
        equal("%s: code" % name, settle(lambda pid=pid, was=was_code: changed(code(pid), was), []), [])
        equal("%s: descriptors and signals" % name, settle(lambda pid=pid: outward(pid, kind.steady), was_outward, 3), was_outward)
        if kind.steady:
            equal("%s: threads" % name, status(pid)["Threads"], was_threads)
        equal("%s: slots that lead to liblorg.so" % name, leads_to_lorg(pid)[:5], [])
    if len(sizes) > 1:
        first, last = sizes[min(1, len(sizes) - 1)], sizes[-1]
        print("     %s: attach takes %.0f ms (median), %.0f at most; mappings %s, KiB %s, of lorg's %s, KiB %s" % (
            name, sorted(took)[len(took) // 2] * 1e3, max(took) * 1e3, *("%d..%d" % pair for pair in zip(first, last))), flush=True)
        if not kind.fills:
            check("%s: lorg's memory does not grow" % name, last[2] <= first[2] + 2 and last[3] <= first[3] + 16384, (first, last))
        else:
            check("%s: what it let the arena grow by is given back" % name, settled(lambda: resident(pids[-1]) < 16384), resident(pids[-1]))
        if not kind.grows:
            check("%s: memory does not grow" % name, last[0] <= first[0] + 8 and last[1] <= first[1] + 16384 + 512, (first, last))
    why = kind.end()
    check("%s: the program" % name, not why, why)


def main():
    if not os.access("/proc/self/mem", os.W_OK):
        skip("attach_rounds", "memory of programs cannot be written to")
        finish()
    os.environ["LORG_LIBRARY"] = LIBRARY
    daemon = Daemon()
    for name in sys.argv[1:] or KINDS:
        kind = KINDS[name]()
        if missing(*kind.needs):
            skip(name, "%s is not installed" % ", ".join(missing(*kind.needs)))
            continue
        rounds(name, kind)
    equal("lorgd", daemon.end(), 0)
    finish()


main()
