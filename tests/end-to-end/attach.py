#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorg attach and lorg detach: programs in all kinds of states, what is seen of them, and that nothing of it stays."""

import concurrent.futures
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from livecommands import LIBRARY, Daemon, Target, says, until
from lorgtest import LORG, check, equal, finish, fixture, log, lorg, scratch, skip


def attach(name, pid):
    status, _, error = lorg("attach", str(pid), limit=60)
    return check("%s: attach" % name, status == 0, error)


def detach(name, pid):
    status, _, error = lorg("detach", str(pid), limit=60)
    return check("%s: detach" % name, status == 0, error)


def mappings(pid):
    """(start, end, rights, path) of what is mapped from files, but for liblorg.so and its like."""
    found = []
    for line in open("/proc/%d/maps" % pid):
        fields = line.split(None, 5)
        path = fields[5].strip() if len(fields) > 5 else ""
        start, end = (int(word, 16) for word in fields[0].split("-"))
        if path.startswith("/") and "lorg" not in path:
            found.append((start, end, fields[1], path))
    return found


def code_and_slots(pid):
    """Code of all modules, and the read-only data of the program itself: its slots are there."""
    digest = hashlib.sha256()
    with open("/proc/%d/mem" % pid, "rb") as memory:
        for start, end, rights, path in mappings(pid):
            own = os.path.realpath("/proc/%d/exe" % pid) == path
            if "x" in rights or (own and "w" not in rights):
                memory.seek(start)
                digest.update(memory.read(end - start))
    return digest.hexdigest()


def outward(pid):
    """Descriptors, signals, threads, and who traces it."""
    fds = sorted((fd, os.readlink("/proc/%d/fd/%s" % (pid, fd))) for fd in os.listdir("/proc/%d/fd" % pid))
    return fds, masks(pid), len(os.listdir("/proc/%d/task" % pid))


def masks(pid):
    """Of its signals, and who traces it."""
    status = [line.split() for line in open("/proc/%d/status" % pid)]
    return [words for words in status if words[0] in ("SigBlk:", "SigIgn:", "SigCgt:", "ShdPnd:", "TracerPid:")]


def states():
    for way in (["read"], ["epoll"], ["condition"], ["compute"], ["allocate", "8"]):
        target = Target(*way)
        before = outward(target.pid), code_and_slots(target.pid)
        attach(way[0], target.pid)
        check("%s: code has changed" % way[0], code_and_slots(target.pid) != before[1])
        equal("%s: descriptors and signals" % way[0], outward(target.pid), before[0])
        detach(way[0], target.pid)
        equal("%s: as it was, without" % way[0], (outward(target.pid), code_and_slots(target.pid)), before)
        attach(way[0] + " again", target.pid)
        if way[0] in ("read", "epoll"): # its end is seen, too
            detach(way[0] + " again", target.pid)
        equal("%s: the program" % way[0], target.end(), "right")
    target = Target("sleep")
    attach("sleep", target.pid)
    detach("sleep", target.pid)
    equal("sleep: the program, and its time", target.end(), "right")


def send_ignored(programs, over):
    """Signals that do nothing to a program, but that a tracer gets to see."""
    while not over.wait(0.02):
        for program in programs:
            os.kill(program.pid, signal.SIGWINCH) # who has ended stays a zombie until the end


def attach_and_detach(program):
    for what in ("attach", "detach"):
        status, _, error = lorg(what, str(program.pid), limit=60)
        if status:
            return error
    return ""


def waits_alone(way):
    program = subprocess.Popen([fixture("waiting"), "16", way], stdout=subprocess.PIPE, start_new_session=True)
    program.stdout.readline()
    return attach_and_detach(program) or program.communicate(timeout=50)[0].decode().strip()


def waits():
    """No call gives back anything else because of an attach or a detach, nor earlier than it would have."""
    ways = subprocess.run([fixture("waiting"), "0", "list"], stdout=subprocess.PIPE, check=True).stdout.decode().split()
    # One thread that is in these looks as if it waited for a lock, or read a library.
    for way in ("futex", "open"):
        ways.remove(way)
    ways.append("all")
    programs = []
    for way in ways:
        programs.append(subprocess.Popen([fixture("waiting"), "16", way], stdout=subprocess.PIPE, start_new_session=True))
        programs[-1].stdout.readline()
    over = threading.Event()
    rain = threading.Thread(target=send_ignored, args=(programs, over))
    rain.start()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for way, error in zip(ways, pool.map(attach_and_detach, programs)):
            check("waits: %s: attach, detach" % way, not error, error)
    over.set()
    rain.join()
    for way, program in zip(ways, programs):
        try:
            said = program.communicate(timeout=50)[0].decode().strip()
        except subprocess.TimeoutExpired:
            program.kill()
            said = "hung"
        if "gives -4" in said:  # a signal of the rain came at that very moment (doc/SESSIONS.md, 6): without one it may not
            said = waits_alone(way)
        equal("waits: %s" % way, said, "right")


def refused(name, pid, word):
    status, said, error = lorg("attach", str(pid), limit=60)
    check("refused: %s" % name, status == 1 and not said and error.startswith("lorg: ") and error.count("\n") == 1 and word in error,
          (status, error))


def refusals():
    for way, word in ((["handler"], "signal handlers"), (["coroutine"], "stacks of their own"), (["filter"], "seccomp"),
                      (["alternate"], "alternate signal stacks"), (["vfork"], "cannot be"), (["memory"], "memory"),
                      (["descriptors"], "RLIMIT_NOFILE")):
        target = Target(*way)
        refused(way[0], target.pid, word)
        equal("refused: %s goes on" % way[0], target.end(), "right")
    target = Target("read")
    attach("twice", target.pid)
    refused("twice", target.pid, "is attached")
    detach("twice", target.pid)
    status, _, error = lorg("detach", str(target.pid))
    check("detach twice", status == 1 and "is not attached" in error, (status, error))
    target.end()
    refused("ended", target.pid, "no such program")
    source = scratch("static.c")
    with open(source, "w") as file:
        file.write("#include <unistd.h>\nint main(void) { char byte; return (int)read(0, &byte, 1) - 1; }\n")
    if subprocess.run(["gcc", "-static", "-o", source + ".out", source], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        program = subprocess.Popen([source + ".out"], stdin=subprocess.PIPE)
        time.sleep(0.05)
        refused("static", program.pid, "statically linked")
        program.communicate(b"x")
        equal("refused: static goes on", program.returncode, 0)
    zombie = subprocess.Popen(["true"])
    time.sleep(0.2)
    refused("zombie", zombie.pid, "it has ended")
    zombie.wait()
    if shutil.which("musl-gcc") and subprocess.run(["musl-gcc", "-o", source + ".musl", source], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        program = subprocess.Popen([source + ".musl"], stdin=subprocess.PIPE)
        time.sleep(0.05)
        refused("musl", program.pid, "not the GNU one")
        program.communicate(b"x")
        equal("refused: musl goes on", program.returncode, 0)
    if shutil.which("strace"):
        target = Target("read")
        tracer = subprocess.Popen(["strace", "-p", str(target.pid)], stderr=subprocess.PIPE)
        tracer.stderr.readline()
        refused("another tracer", target.pid, "another tracer")
        tracer.terminate()
        tracer.communicate()
        equal("refused: traced goes on", target.end(), "right")
    for arguments in ([], ["x"], ["0"], ["-5"]):
        status, _, error = lorg("attach", *arguments)
        check("usage: %s" % arguments, status == 2 and error.startswith("lorg: "), (status, error))
    status, said, _ = lorg("attach", "--help")
    check("help tells of EINTR", status == 0 and b"epoll_wait" in said and b"EINTR" in said, said)


def elsewhere():
    """Programs of other namespaces, and of other users."""
    if os.geteuid() or not shutil.which("unshare") or not shutil.which("setpriv"):
        skip("elsewhere", "not root")
        return
    target = Target("read")
    before = outward(target.pid), code_and_slots(target.pid)
    done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", LORG, "detach", str(target.pid)],
                          stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if b"Permission" in done.stderr and b"may not" not in done.stderr:
        skip("elsewhere: another user", "it may not execute lorg here")
    else:
        check("elsewhere: another user", done.returncode == 1 and b"another user's" in done.stderr, done.stderr)
    equal("elsewhere: another user: as it was", (outward(target.pid), code_and_slots(target.pid)), before)
    equal("elsewhere: another user: the program", target.end(), "right")
    for name, options in (("pid namespace", ["-p", "-f", "--kill-child"]), ("mount namespace", ["-m"]), ("user namespace", ["-U", "-r"]),
                          ("network and ipc", ["-n", "-i"])):
        launcher = subprocess.Popen(["unshare", *options, fixture("attached"), "read"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL)
        if launcher.stdout.readline() != b"ready\n":
            skip("elsewhere: %s" % name, "it cannot be made here")
            launcher.wait()
            continue
        with open("/proc/%d/task/%d/children" % (launcher.pid, launcher.pid), encoding="utf-8") as file:
            pid = int((file.read().split() or [launcher.pid])[0])
        before = outward(pid), code_and_slots(pid)
        if attach("elsewhere: %s" % name, pid):
            detach("elsewhere: %s" % name, pid)
        equal("elsewhere: %s: as it was" % name, (outward(pid), code_and_slots(pid)), before)
        said = launcher.communicate(b"x", timeout=20)[0]
        equal("elsewhere: %s: the program" % name, (said, launcher.returncode), (b"right\n", 0))
    hidden = "mount -t tmpfs none %s && exec %s read" % (os.path.dirname(LIBRARY), fixture("attached"))
    program = subprocess.Popen(["unshare", "-m", "sh", "-c", hidden], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if program.stdout.readline() == b"ready\n":
        refused("a container without liblorg.so", program.pid, "file system")
    else:
        skip("elsewhere: a container without liblorg.so", "nothing may be mounted")
    program.communicate(b"x")


LATER = """
import sys, os
sys.stdin.readline()
import socket, subprocess
a, b = socket.socketpair()
a.send(b"by what came later")
b.recv(100)
subprocess.run(["/bin/echo", "from a child"])
sys.stdin.readline()
"""


def seen():
    """An attached program is seen as any other: threads that were there, modules that come later, children."""
    recording = scratch("recording")
    equal("session", says("session", "create", "seen", "--persist", "-o", recording).split(",")[0], "{seen")
    program = subprocess.Popen([sys.executable, "-c", LATER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    time.sleep(0.3)
    attach("seen", program.pid)
    says("process", "seen", "all", "on", "procs,send,receive,set_on_spawn")
    program.stdin.write(b"\n")
    program.stdin.flush()
    time.sleep(1)
    detach("seen", program.pid)
    said = program.communicate(b"\n", timeout=20)[0]
    equal("seen: what it prints", (program.returncode, said), (0, b"from a child\n"))
    says("delivered", "seen", "all")
    says("session", "destroy", "seen")
    text = lorg("log", recording)[1].decode(errors="replace")
    own = [line for line in text.splitlines() if "<%d." % program.pid in line]
    check("seen: by modules that came later", any("by what came later" in line for line in own), text[-2000:])
    check("seen: children", "from a child" in text, text[-2000:])


def functions():
    """Functions of its own are hooked in an attached program, and are not when it is detached."""
    target = Target("compute")
    before = code_and_slots(target.pid)
    attach("functions", target.pid)
    says("session", "create", "functions", "--persist")
    says("process", "functions", str(target.pid), "on", "call")
    attached = code_and_slots(target.pid)
    equal("functions: found", says("function", "functions", "attached:c*", "--local").splitlines()[0].isdigit(), True)
    until(lambda: code_and_slots(target.pid) != attached)
    check("functions: their code has changed", code_and_slots(target.pid) != attached)
    detach("functions", target.pid)
    until(lambda: code_and_slots(target.pid) == before)
    equal("functions: as it was", code_and_slots(target.pid), before)
    attach("functions again", target.pid)
    until(lambda: code_and_slots(target.pid) != attached)
    says("session", "destroy", "functions")
    until(lambda: code_and_slots(target.pid) == attached)
    equal("functions: without the session", code_and_slots(target.pid), attached)
    detach("functions again", target.pid)
    equal("functions: the program", target.end(), "right")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def under_load():
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        skip("redis", "it is not installed")
        return
    port = str(free_port())
    folder = scratch("redis")
    os.mkdir(folder)
    server = subprocess.Popen(["redis-server", "--port", port, "--save", "", "--appendonly", "no", "--dir", folder], stdout=subprocess.DEVNULL)
    time.sleep(1)
    before = masks(server.pid)
    load = subprocess.Popen(["redis-benchmark", "-p", port, "-n", "10000000", "-c", "10", "-t", "get", "-q"], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT)
    end, rounds = time.monotonic() + 10, 0
    while time.monotonic() < end and rounds < 50:
        good = attach("redis", server.pid) and detach("redis", server.pid)
        rounds += 1
        if not good:
            break
    check("redis: serves", load.poll() is None and server.poll() is None, (load.poll(), server.poll()))
    load.terminate()
    said = load.communicate()[0].decode(errors="replace")
    check("redis: no request has failed", "rror" not in said and "refused" not in said, said)
    equal("redis: signals", masks(server.pid), before)
    server.terminate()
    equal("redis: its end", server.wait(timeout=20), 0)
    check("redis: %d rounds" % rounds, rounds >= 5, rounds)


def started_with_lorg():
    program = subprocess.Popen([fixture("attached"), "read"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               env=dict(os.environ, LD_PRELOAD=os.environ["TEST_LIBRARY"]))
    program.stdout.readline()
    refused("started with lorg", program.pid, "started with lorg")
    detach("started with lorg", program.pid)
    attach("started with lorg, again", program.pid)
    said = program.communicate(b"x", timeout=20)[0]
    equal("started with lorg: the program", said, b"right\n")


def no_daemon():
    saved, os.environ["LORG_RUNTIME_DIRECTORY"] = os.environ["LORG_RUNTIME_DIRECTORY"], scratch("nowhere")
    status, _, error = lorg("attach", str(os.getpid()))
    check("no lorgd", status == 1 and "lorgd" in error, (status, error))
    os.environ["LORG_RUNTIME_DIRECTORY"] = saved


PARTS = (no_daemon, states, waits, refusals, elsewhere, seen, functions, started_with_lorg, under_load)


def main():
    """attach.py [PART...]: those parts alone."""
    if not os.access("/proc/self/mem", os.W_OK):
        skip("attach", "memory of programs cannot be written to")
        finish()
    os.environ["TEST_LIBRARY"] = os.environ["LORG_LIBRARY"] = LIBRARY
    daemon = Daemon()
    for part in PARTS:
        if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
            part()
    equal("lorgd", daemon.end(), 0)
    finish()


main()
