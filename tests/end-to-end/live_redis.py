#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sessions that come, change and go on a redis-server under load: no request fails, and afterwards it is as it was."""

import hashlib
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from lorgctl import BUILD, Refused, Session, library, start_daemon
from lorgtest import check, equal, finish, scratch, skip

SECONDS = float(os.environ.get("LORG_TEST_SESSION_SECONDS", 6))
CLIENTS, A_SECOND = 4, 20


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def mappings(pid):
    with open("/proc/%d/maps" % pid, encoding="utf-8") as file:
        for line in file:
            part = line.split(None, 5)
            low, high = (int(one, 16) for one in part[0].split("-"))
            yield low, high, part[1], part[5].strip() if len(part) > 5 else ""


def state(pid):
    """What may not differ: code and constants of all files, descriptors, threads, mappings of files."""
    said = hashlib.sha256()
    files = []
    with open("/proc/%d/mem" % pid, "rb", 0) as memory:
        for low, high, mode, path in mappings(pid):
            if not path.startswith("/") or "memfd:" in path:
                continue
            files.append((low, high, mode, path))
            if "w" not in mode and "r" in mode and "liblorg" not in path:
                memory.seek(low)
                said.update(memory.read(high - low))
    folder = "/proc/%d/fd" % pid
    descriptors = sorted((name, os.readlink(os.path.join(folder, name))) for name in os.listdir(folder))
    descriptors = [one for one in descriptors if not one[1].startswith("socket:")]
    return {"code and constants": said.hexdigest(), "mappings of files": files, "descriptors": descriptors,
            "threads": len(os.listdir("/proc/%d/task" % pid))}


def churn(lib, index, end, failures, pid, counts):
    """Sessions one after the other: what is asked differs from one to the next."""
    number = 0
    while time.monotonic() < end:
        begin = time.monotonic()
        try:
            session = Session(lib, name="churn-%d" % index)
            session.call("process", "<%d>" % pid, 1, "[call, send, 'receive', running]")
            session.call("function", "{'libc.so.6',%s,'_'}" % ("memcpy", "malloc", "epoll_wait", "gettimeofday")[(index + number) % 4],
                         ("true", "[{'_',[],[{return_trace}]}]")[number % 2], "[local]")
            session.call("function", "{'libc.so.6',free,'_'}", "true", "[call_count]")
            session.receive(5000000)
            session.call("process", "<%d>" % pid, 0, "[send, running]")
            session.call("function", "{'libc.so.6',free,'_'}", "false", "[call_count]")
            session.lib.lorg_session_destroy(session.handle, session.failure)
            session.free()
            counts[index] += 1
        except Refused as refused:
            failures.append(refused.args)
        number += 1
        time.sleep(max(0.0, CLIENTS / A_SECOND - (time.monotonic() - begin)))


def benchmark_failures(text):
    return re.findall(r"(?i)error|refused|closed|timeout", text)


def main():
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        skip("live redis", "no redis-server")
        finish()
    work = scratch("live-redis")
    os.mkdir(work)
    runtime = os.path.join(work, "runtime")
    os.mkdir(runtime, 0o700)
    daemon = start_daemon(runtime)
    lib, port = library(), free_port()
    environment = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "preload", "liblorg.so"))
    server = subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", work],
                              env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    benchmark = ["redis-benchmark", "-p", str(port), "-q", "-c", "10", "-t", "set,get,lpush,lpop"]
    for _ in range(100):
        if subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True, check=False).stdout == b"PONG\n":
            break
        time.sleep(0.05)
    subprocess.run([*benchmark, "-n", "2000"], capture_output=True, check=False)
    time.sleep(0.5)
    before = state(server.pid)
    failures, counts, said = [], [0] * CLIENTS, []
    end = time.monotonic() + SECONDS

    def load():
        while time.monotonic() < end:
            done = subprocess.run([*benchmark, "-n", "20000"], capture_output=True, text=True, check=False)
            said.append((done.returncode, benchmark_failures(done.stdout + done.stderr)))
    threads = [threading.Thread(target=load)]
    threads += [threading.Thread(target=churn, args=(lib, i, end, failures, server.pid, counts)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check("live redis: no request failed", said and all(one == (0, []) for one in said), said)
    equal("live redis: no session failed", failures[:3], [])
    check("live redis: sessions came and went", all(counts), counts)
    print("     live redis: %d sessions in %.0f s" % (sum(counts), SECONDS))
    time.sleep(1)
    check("live redis: it runs", server.poll() is None, server.poll())
    after = state(server.pid)
    for name in before:
        equal("live redis: %s as before" % name, after[name], before[name])
    server.send_signal(signal.SIGTERM)
    equal("live redis: it ends as ever", server.wait(timeout=20), 0)
    daemon.send_signal(signal.SIGTERM)
    equal("live redis: lorgd ends when told", daemon.wait(timeout=20), 0)
    finish()


main()
