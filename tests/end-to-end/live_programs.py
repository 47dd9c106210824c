#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Live sessions on programs that start and end all the time: what is counted is what they did, and they do what they always do."""

import functools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from lorgctl import reached, start_daemon
from livecommands import LIBRARY, says, until
from lorgtest import check, equal, finish, log, lorg, scratch, skip

FORKS, PROGRAMS = 40, 20
SHELL = """
n=0
for i in $(seq 1 %d); do x=$(echo $i); n=$((n + x)); done
for i in $(seq 1 %d); do /bin/echo $i; done
(exit 3); echo "status $?"
seq 100 | sort -n | uniq | wc -l
/bin/false || echo "total $n"
""" % (FORKS, PROGRAMS)


def attached(**more):
    return dict(os.environ, LD_PRELOAD=LIBRARY, LC_ALL="C", **more)


class Held:
    """A program that stays, and has mapped what sessions are to ask about."""

    def __init__(self, *command):
        self.process = subprocess.Popen(command, env=attached(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.is_attached = until(lambda: re.search(r"\b%d\b" % self.process.pid, says("ps")) is not None, 10)

    def end(self):
        self.process.stdin.close()
        self.process.wait(timeout=20)


def output(command, environment, **more):
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False, timeout=120, **more)
    return done.returncode, done.stdout


def number(text):
    found = re.search(r"call_count,(\d+)", text)
    return int(found.group(1)) if found else text


def session(name, flags, *patterns, options=()):
    says("session", "create", name, "--persist", *options)
    says("process", name, "all", "on", *flags)
    for pattern in patterns:
        says("function", name, *pattern)


def starts_and_ends():
    """Each program that starts while a session asks is asked, from its first call to its last."""
    held = Held("bash", "-c", "read x")
    check("live programs: a shell is attached", held.is_attached)
    session("each", ["call"], ["libc.so.6:*", "--call-count"])
    directory = scratch("each")
    session("ends", ["procs"], options=["-o", directory])
    want = output(["bash", "-c", SHELL], dict(os.environ, LC_ALL="C"))
    for _ in range(2):
        equal("live programs: a shell that forks does as ever", output(["bash", "-c", SHELL], attached()), want)
    says("delivered", "ends", "all")
    exits = number(says("info", "each", "libc.so.6:exit/1", "call_count"))
    says("session", "destroy", "ends")
    ended = [one for one in log(directory) if one["tag"] == "exit"]
    check("live programs: as many have ended as were started", len(ended) >= 2 * (FORKS + PROGRAMS), len(ended))
    equal("live programs: each call of exit is counted", exits, len(ended))
    check("live programs: the session ends", says("session", "destroy", "each") == "true")
    held.end()


def calls_are_made_once():
    """A program that is stopped at its start, to be asked, makes no system call twice: what it writes would be there twice."""
    if not shutil.which("as"):
        skip("live programs: calls are made once", "no as")
        return
    work = scratch("as")
    os.mkdir(work)
    with open(work + "/x.s", "w", encoding="ascii") as file:
        file.write("".join("\t.globl f%d\nf%d:\n\tmovl $%d, %%eax\n\tret\n" % (i, i, i) for i in range(200)))
    output(["as", "-o", "want.o", "x.s"], dict(os.environ), cwd=work)
    held = Held("bash", "-c", "read x")
    session("once", ["call"], ["libc.so.6:*fork", "--call-count"])
    with open(work + "/want.o", "rb") as file:
        want, wrong = file.read(), []
    for _ in range(40):
        said = output(["as", "-o", "x.o", "x.s"], attached(), cwd=work)
        with open(work + "/x.o", "rb") as file:
            if said != (0, b"") or file.read() != want:
                wrong.append(said)
    equal("live programs: what an assembler writes is as ever", wrong, [])
    says("session", "destroy", "once")
    held.end()


GIVES_UP_ROOT = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) int work(int x) { __asm__ volatile("" : "+r"(x)); return x * 3 + 1; }
static int works(int n) { int sum = 0; for (int i = 0; i < n; i++) sum += work(i); return sum; }
static void has_own_tmp(void)
{
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("none", "/tmp", "tmpfs", 0, NULL))
		fprintf(stderr, "no /tmp of its own\n");
}
int main(int argc, char **argv)
{
	int n, status, sum = 0;
	if (argc == 2)
		has_own_tmp();
	if (argc == 3 && (chroot(argv[2]) || chdir("/")))
		return 1;
	if (setgid(65534) || setuid(65534))
		return 1;
	for (printf("%d\n", getpid()); fflush(stdout) == 0 && scanf("%d", &n) == 1; printf("%d\n", status)) {
		pid_t child = fork();
		sum += works(n);
		if (child == 0)
			_exit(sum == 0);
		wait(&status);
	}
	return sum == 0;
}
"""


def workers_that_gave_up_root(*arguments):
    """
    A server's workers may not open what is root's any more: they are asked all the same, and their children. Also where they
    have a /tmp of their own, as services have.
    """
    if os.geteuid() != 0:
        skip("live programs: who gave up root", "not root")
        return
    program = scratch("gives_up_root")
    subprocess.run(["cc", "-O1", "-x", "c", "-", "-o", program], input=GIVES_UP_ROOT, text=True, check=True)
    server = subprocess.Popen([program, *arguments], env=attached(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    equal("live programs: who gave up root: it runs", server.stdout.readline(), "%d\n" % server.pid)
    check("live programs: who gave up root: attached", until(lambda: re.search(r"\b%d\b" % server.pid, says("ps")) is not None, 10))
    says("session", "create", "root", "--persist")
    says("process", "root", "all", "on", "call")
    if not arguments: # whose file a /tmp of its own hides
        equal("live programs: who gave up root: is asked", says("function", "root", "gives_up_root:work", "--call-count"), "1")
    equal("live programs: who gave up root: libc too", says("function", "root", "libc.so.6:fork", "--call-count"), "1")
    for n in (10, 100):
        server.stdin.write("%d\n" % n)
        server.stdin.flush()
        equal("live programs: who gave up root: it works", server.stdout.readline(), "0\n")
    counted = lambda: arguments or number(says("info", "root", "gives_up_root:work/1", "call_count"))
    check("live programs: who gave up root: each call is counted, its child's too", until(lambda: counted() in (220, arguments), 5), counted())
    equal("live programs: who gave up root: libc's too", number(says("info", "root", "libc.so.6:fork/0", "call_count")), 2)
    says("session", "destroy", "root")
    server.communicate(timeout=20)
    equal("live programs: who gave up root: it ends as ever", server.returncode, 0)


def workers_out_of_reach():
    """Who has neither /proc nor lorgd's socket is refused by name, and runs on."""
    if os.geteuid() != 0:
        skip("live programs: out of reach", "not root")
        return
    program, empty = scratch("out_of_reach"), scratch("empty")
    os.mkdir(empty)
    subprocess.run(["cc", "-O1", "-x", "c", "-", "-o", program], input=GIVES_UP_ROOT, text=True, check=True)
    server = subprocess.Popen([program, "chroot", empty], env=attached(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    server.stdout.readline()
    says("session", "create", "far", "--persist")
    refused = str(lorg("function", "far", "libc.so.6:fork", "--call-count", limit=30)[2])
    check("live programs: out of reach: refused, with the reason", "program %d: the plan cannot be opened" % server.pid in refused, refused)
    equal("live programs: out of reach: it ends as ever", (server.communicate("5\n", timeout=20)[0], server.returncode), ("0\n", 0))
    says("session", "destroy", "far")


MAKES_PROGRAMS = r"""
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void)
{
	char *const argv[] = {"x", NULL};
	while (printf("ready\n") > 0 && fflush(stdout) == 0 && getchar() != EOF) {
		for (int i = 0; i < 5; wait(NULL), i++)
			if (fork() == 0)
				_exit(3);
		for (int i = 0; i < 7; wait(NULL), i++)
			if (vfork() == 0) {
				execvp("/bin/true", argv);
				_exit(3);
			}
		for (int i = 0; i < 9; i++)
			execv("/nowhere/x", argv);
		for (int i = 0; i < 6; i++)
			execl("/nowhere/x", "x", (char *)NULL);
	}
	return 0;
}
"""
MADE = {"fork/0": 5, "vfork/0": 7, "execvp/2": 7, "execv/2": 9, "execl/2": 6}


def functions_that_wrappers_do():
    """liblorg.so's own vfork and exec functions never come to libc's entries: that of a program that runs, and one that starts."""
    program = scratch("makes_programs")
    subprocess.run(["cc", "-O1", "-x", "c", "-", "-o", program], input=MAKES_PROGRAMS, text=True, check=True)
    start = lambda: subprocess.Popen([program], env=attached(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    held, running = Held("cat"), start()
    running.stdout.readline()
    session("other", [], ["libc.so.6:malloc", "--call-count"]) # libc is planned, and placed
    says("session", "create", "wrapped", "--persist")
    for name in MADE:
        equal("live programs: wrapped: %s" % name, says("function", "wrapped", "libc.so.6:" + name.split("/")[0], "--call-count"), "1")
    count = lambda: {name: number(says("info", "wrapped", "libc.so.6:" + name, "call_count")) for name in MADE}
    running.stdin.write("x")
    equal("live programs: wrapped: the running one ends as ever", (running.communicate(timeout=20), running.returncode), (("ready\n", None), 0))
    equal("live programs: wrapped: of one that ran", count(), MADE)
    late = start()
    equal("live programs: wrapped: the late one ends as ever", (late.communicate("xx", timeout=20)[0].count("ready"), late.returncode), (3, 0))
    equal("live programs: wrapped: of one that starts", count(), {name: 3 * made for name, made in MADE.items()})
    says("session", "destroy", "other")
    says("session", "destroy", "wrapped")
    held.end()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def commands_of_redis():
    """As many calls as the program itself says."""
    if not shutil.which("redis-server") or not shutil.which("redis-benchmark"):
        skip("live programs: redis", "no redis-server")
        return
    port, work = str(free_port()), scratch("redis")
    os.mkdir(work)
    client = lambda *words: subprocess.run(["redis-cli", "-p", port, *words], capture_output=True, text=True, check=False).stdout
    server = subprocess.Popen(["redis-server", "--port", port, "--save", "", "--appendonly", "no", "--dir", work], env=attached(),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: client("ping") == "PONG\n", 10)
    says("session", "create", "redis", "--persist")
    says("process", "redis", str(server.pid), "on", "call")
    found = says("function", "redis", "redis-server:processCommand", "--call-count")
    if found != "1":
        skip("live programs: redis", "its functions have no names: %s" % found[:80])
    else:
        client("config", "resetstat")
        begin = number(says("info", "redis", "redis-server:processCommand/1", "call_count"))
        done = subprocess.run(["redis-benchmark", "-p", port, "-q", "-c", "5", "-t", "set,get,lpush", "-n", "3000"], capture_output=True,
                              text=True, check=False)
        equal("live programs: redis answers", done.returncode, 0)
        said = re.search(r"total_commands_processed:(\d+)", client("info", "stats"))
        # INFO counts the commands before itself, and so not itself.
        equal("live programs: redis counts its commands as lorg does",
              number(says("info", "redis", "redis-server:processCommand/1", "call_count")) - begin, int(said.group(1)))
    says("session", "destroy", "redis")
    server.send_signal(signal.SIGTERM)
    equal("live programs: redis ends as ever", server.wait(timeout=20), 0)


def children_of_git():
    """What git itself says of the programs that it starts."""
    if not shutil.which("git"):
        skip("live programs: git", "no git")
        return
    work, directory = scratch("git"), scratch("git-trace")
    os.mkdir(work)
    who = {"GIT_%s_%s" % (a, b): "x" for a in ("AUTHOR", "COMMITTER") for b in ("NAME", "EMAIL")}
    plain = dict(os.environ, LC_ALL="C", HOME=work, GIT_CONFIG_NOSYSTEM="1", **who)
    script = "git init -q . && for i in 1 2 3; do echo $i > f$i && git add . && git commit -qm $i || exit 1; done"
    output(["sh", "-c", script], plain, cwd=work)
    events = scratch("events.json")
    session("git", ["procs"], options=["-o", directory])
    status, said = output(["git", "gc", "-q"], dict(plain, LD_PRELOAD=LIBRARY, GIT_TRACE2_EVENT=events), cwd=work)
    equal("live programs: git does as ever", (status, said), (0, b""))
    says("delivered", "git", "all")
    says("session", "destroy", "git")
    with open(events, encoding="utf-8") as file:
        started = sum(json.loads(line)["event"] == "start" for line in file)
    executed = sum(one["tag"] == "exec" for one in log(directory))
    equal("live programs: git's own programs are those that were executed", executed + 1, started)
    equal("live programs: git's repository is whole", output(["git", "fsck", "--full"], plain, cwd=work)[0], 0)


def without_lorgd(runtime):
    """Programs that start and execute others while lorgd has just been killed."""
    want = output(["bash", "-c", SHELL], dict(os.environ, LC_ALL="C"))
    daemon = start_daemon(runtime)
    held = Held("bash", "-c", "read x")
    session("killed", ["call", "procs", "set_on_spawn"], ["libc.so.6:exit", "--call-count"])
    running = subprocess.Popen(["bash", "-c", SHELL], env=attached(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
    time.sleep(0.2)
    daemon.kill()
    daemon.wait()
    equal("live programs: a shell goes on when lorgd is killed", (running.wait(timeout=120), running.stdout.read()), want)
    equal("live programs: a shell that starts while lorgd is away does as ever", output(["bash", "-c", SHELL], attached()), want)
    held.end()


def not_waited_for(runtime):
    """A program that waits for its plan when lorgd stands still and is killed goes on at once."""
    daemon = start_daemon(runtime, "20")
    held = Held("bash", "-c", "read x")
    session("still", ["call"], ["libc.so.6:exit", "--call-count"])
    daemon.send_signal(signal.SIGSTOP)
    starting = subprocess.Popen(["/bin/true"], env=attached())
    time.sleep(0.1)
    begin = time.monotonic()
    daemon.kill()
    daemon.wait()
    equal("live programs: a program that waits for its plan does as ever", starting.wait(timeout=20), 0)
    took = time.monotonic() - begin
    check("live programs: and waits for no lorgd that was killed", took < 1, "%.2f s" % took)
    begin = time.monotonic()
    for _ in range(4):
        output(["/bin/true"], attached())
    check("live programs: nor do later ones", time.monotonic() - begin < 2, "%.2f s" % (time.monotonic() - begin))
    after = start_daemon(runtime)
    after.send_signal(signal.SIGINT)
    after.wait(timeout=20)
    held.end()


def timed(part):
    begin = time.monotonic()
    part()
    print("     live programs: %s in %.1f s" % (getattr(part, "__name__", "once more"), time.monotonic() - begin), flush=True)


def main():
    runtime = scratch("runtime")
    os.mkdir(runtime, 0o700)
    daemon = start_daemon(runtime)
    for part in (starts_and_ends, calls_are_made_once, workers_that_gave_up_root,
                 functools.partial(workers_that_gave_up_root, "own /tmp"), workers_out_of_reach,
                 functions_that_wrappers_do, commands_of_redis,
                 children_of_git):
        timed(part)
    equal("live programs: no session is left", says("session", "list").strip(), "")
    check("live programs: the same lorgd serves", daemon.poll() is None and reached(runtime) == daemon.pid)
    daemon.send_signal(signal.SIGTERM)
    equal("live programs: lorgd ends when told", daemon.wait(timeout=20), 0)
    timed(functools.partial(without_lorgd, runtime))
    timed(functools.partial(not_waited_for, runtime))
    finish()


main()
