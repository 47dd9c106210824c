#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorgd and the programs it looks into on a bad day: neither may hurt the other, nor a third one."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

from lorgctl import BUILD, ROOT
from lorgtest import LORG, SCRATCH, check, equal, finish, fixture, skip
from daemon import Client, Daemon, attached, place, program

PERSIST = "{session_create,%s,%s,[persist]}"


def started(name, **more):
    """A lorgd in a directory of its own."""
    daemon = Daemon(place(name), **more)
    check("%s: lorgd starts" % name, daemon.ready, daemon.process.poll())
    return daemon


def lives(name, daemon, limit=5):
    begin = time.monotonic()
    client = Client(daemon.directory)
    answer = client.ask("{session_info,all}")
    client.close()
    return check("%s: lorgd answers" % name, daemon.process.poll() is None and answer and time.monotonic() - begin < limit,
                 (daemon.process.poll(), answer, time.monotonic() - begin))


def ended(process, limit=20):
    """(status, what it printed, what it complained of); "hung" for the status."""
    try:
        said, error = process.communicate(timeout=limit)
        return process.returncode, said.decode(errors="replace"), error.decode(errors="replace")
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "hung", "", ""


def start_takes(directory, *command):
    """Seconds that a program takes which does nothing; "hung"."""
    begin = time.monotonic()
    process = program(directory, [*command, "/bin/true"])
    return "hung" if ended(process)[0] == "hung" else time.monotonic() - begin


class Asker(threading.Thread):
    """Makes and destroys sessions on all functions of the programs, until it is told to stop."""

    def __init__(self, directory, number):
        super().__init__(daemon=True)
        self.directory, self.number, self.stop, self.rounds, self.matched, self.error = directory, number, False, 0, 0, None
        self.start()

    def round(self):
        client = Client(self.directory)
        session = "{s%d," % self.number + re.search(r",(\d+)\}\}$", client.ask("{session_create,s%d,client,[]}" % self.number)).group(1) + "}"
        client.ask("{process,%s,all,true,[call,send,'receive',procs]}" % session)
        for match, kind in (("[{'_',[],[{return_trace}]}]", "local"), ("true", "call_count"), ("true", "call_time")):
            answer = client.ask("{function,%s,{hazards,'_','_'},%s,[%s]}" % (session, match, kind))
            self.matched = max(self.matched, int((re.match(r"\{(\d+),", answer) or [0, 0])[1]))
        if self.rounds % 2:
            client.ask("{session_destroy,%s}" % session)
        client.close()
        self.rounds += 1

    def run(self):
        while not self.stop:
            try:
                self.round()
            except (OSError, AttributeError, TypeError) as error:
                self.error = error
                return

    def end(self):
        self.stop = True
        self.join(30)
        return self.error


def with_askers(name, daemon, work):
    askers = [Asker(daemon.directory, number) for number in range(2)]
    result = work()
    errors = [asker.end() for asker in askers]
    equal("%s: all requests are answered" % name, errors, [None, None])
    return result, max(asker.matched for asker in askers)


def scribblers():
    """A program overwrites what it shares with lorgd: its own affair, and of no one else."""
    daemon = started("scribble")
    matched = 0
    for kind in range(6):
        name = "scribble %d" % kind
        run = lambda: ended(program(daemon.directory, [fixture("hazards"), "scribble", str(kind + 1), str(kind)]))
        result, found = with_askers(name, daemon, run)
        matched = max(matched, found)
        equal("%s: the program goes on" % name, result, (7, "done\n", ""))
        if not lives(name, daemon):
            return
        client = Client(daemon.directory)
        other = program(daemon.directory, ["sleep", "60"])
        check("%s: the next program attaches" % name, attached(client, other.pid), client.ask("{programs}"))
        other.kill()
        other.communicate()
        client.close()
    check("scribble: functions were traced", matched > 0, matched)
    equal("scribble: lorgd ends", daemon.end(), (0, ""))


def executions():
    """A thread executes another program while all are held: who is held must not hold that up."""
    daemon = started("execute")
    run = lambda: [ended(program(daemon.directory, [fixture("hazards"), "execute", "15"])) for _ in range(2)]
    results, _ = with_askers("execute", daemon, run)
    equal("execute: the program goes on", results, [(7, "done\n", "")] * 2)
    lives("execute", daemon)
    equal("execute: lorgd ends", daemon.end(), (0, ""))


def standing_still():
    """lorgd does not run: stopped, or starved."""
    daemon = started("still")
    client = Client(daemon.directory)
    before = program(daemon.directory, ["sleep", "60"])
    check("still: a program attaches", attached(client, before.pid))
    daemon.process.send_signal(signal.SIGSTOP)
    taken = [start_takes(daemon.directory) for _ in range(15)]
    check("still: programs start", "hung" not in taken and max(taken) < 2 and sum(taken) < 10, taken)
    if os.geteuid() == 0 and shutil.which("unshare"):
        taken = start_takes(daemon.directory, "unshare", "--pid", "--fork", "--mount-proc")
        check("still: programs of other namespaces start", taken != "hung" and taken < 4, taken)
    else:
        skip("still: programs of other namespaces start", "needs root")
    daemon.process.send_signal(signal.SIGCONT)
    lives("still", daemon)
    after = program(daemon.directory, ["sleep", "60"])
    check("still: later programs attach again", attached(client, after.pid))
    for process in (before, after):
        process.kill()
        process.communicate()
    equal("still: lorgd ends", daemon.end(), (0, ""))


def keeper_of(daemon):
    """The pid of its keeper: of those of that name, the one that listens in its directory."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as sockets:
        inodes = ["socket:[%s]" % line.split()[6] for line in sockets if line.rstrip().endswith(daemon.directory + "/keeper")]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/comm" % pid, encoding="ascii", errors="replace") as comm:
                if comm.read() != "lorgd-keeper\n":
                    continue
            if any(os.readlink("/proc/%s/fd/%s" % (pid, fd)) in inodes for fd in os.listdir("/proc/%s/fd" % pid)):
                return int(pid)
        except OSError:
            pass
    return None


def keeper():
    """The process that keeps memory for the next lorgd stands still: this one goes on."""
    daemon = started("keeper")
    kept = keeper_of(daemon)
    if not check("keeper: it is there", kept, daemon.directory):
        return
    os.kill(kept, signal.SIGSTOP)
    begin = time.monotonic()
    taken = [start_takes(daemon.directory) for _ in range(150)]
    check("keeper: programs start while it stands still", "hung" not in taken and time.monotonic() - begin < 20 and max(taken) < 3,
          (time.monotonic() - begin, max(map(str, taken))))
    lives("keeper", daemon)
    try:
        os.kill(kept, signal.SIGKILL)
    except ProcessLookupError:
        pass
    client = Client(daemon.directory)
    other = program(daemon.directory, ["sleep", "60"])
    check("keeper: programs attach when it was killed", attached(client, other.pid))
    other.kill()
    other.communicate()
    status, error = daemon.end()
    check("keeper: lorgd ends, and has said it once", status == 0 and error.count("\n") == 1 and "keeper" in error, (status, error))


HANGING_PLUGIN = """
#include <lorg/tracer.h>
#include <unistd.h>
static enum lorg_tracer_answer trace(void *context, const struct lorg_tracer_message *message, const char **changed)
{
	for (;;)
		pause();
}
const struct lorg_tracer *lorg_tracer(void)
{
	static const struct lorg_tracer tracer = {.abi = LORG_TRACER_ABI, .trace = trace};
	return &tracer;
}
"""


def slow_tracer():
    """What a tracer has not taken when its session ends is fed to it by a process that holds nothing else of lorgd's."""
    daemon = started("slow")
    plugin = os.path.join(SCRATCH, "hangs.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-I", os.path.join(ROOT, "include"), "-x", "c", "-", "-o", plugin],
                   input=HANGING_PLUGIN.encode(), check=True)
    counted = program(daemon.directory, [fixture("counted")])
    counted.stdout.readline()
    counted.stdin.write(b"spin\n")
    counted.stdin.flush()
    client, other = Client(daemon.directory), Client(daemon.directory)
    check("slow: session", client.ask(PERSIST % ("slow", '{module,"%s",[]}' % plugin)).startswith("{ok,"))
    client.ask("{process,slow,all,true,[call]}")
    equal("slow: function", client.ask("{function,slow,{counted,work,1},true,[local]}"), "{1,[]}")
    time.sleep(1)
    lives("slow", daemon, 1)
    equal("slow: it is destroyed", client.ask("{session_destroy,slow}"), "true")
    daemon.process.kill()
    daemon.process.wait()
    other.socket.settimeout(3)
    try:
        end = other.frame(3)
    except socket.timeout:
        end = "nothing"
    equal("slow: clients see lorgd's end", end, None)
    again = Daemon(daemon.directory)
    check("slow: the next lorgd starts", again.ready, again.process.poll())
    counted.kill()
    counted.communicate()
    again.end()


def directory_lost():
    """What stands in the runtime directory is removed, or another lorgd's by now."""
    daemon = started("lost")
    os.unlink(os.path.join(daemon.directory, "control"))
    daemon.process.send_signal(signal.SIGHUP)
    good = False
    until = time.monotonic() + 5
    while not good and time.monotonic() < until:
        good = os.path.exists(os.path.join(daemon.directory, "control"))
        time.sleep(0.05)
    if check("lost: the socket comes back", good, os.listdir(daemon.directory)):
        lives("lost", daemon)
    os.rename(daemon.directory, daemon.directory + ".old")
    other = Daemon(daemon.directory)
    check("lost: another lorgd starts", other.ready, other.process.poll())
    daemon.end()
    lives("lost: the other", other)
    check("lost: programs find the other", other.wait_until_ready(1), os.listdir(daemon.directory))
    shutil.rmtree(daemon.directory + ".old")
    equal("lost: the other ends", other.end(), (0, ""))


def few_descriptors():
    """Programs take all descriptors that there are but those for clients."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
    daemon = started("few", preexec_fn=limit)
    crowd = [program(daemon.directory, ["sleep", "60"]) for _ in range(90)]
    time.sleep(1)
    try:
        client = Client(daemon.directory)
        check("few: a client is served", client.hello.startswith("{ok,"), client.hello)
        listed = client.ask("{programs}")
        check("few: programs attach", listed.count("sleep") >= 20, listed.count("sleep"))
    except (OSError, AttributeError) as error:
        check("few: a client is served", False, error)
    for process in crowd:
        process.kill()
        process.communicate()
    equal("few: lorgd ends", daemon.end(), (0, ""))


def no_files():
    """No file may grow: an error, not an end by a signal."""
    path = place("nofiles")
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    done = subprocess.run([os.path.join(BUILD, "collector", "daemon", "lorgd"), "--directory", path], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=20, check=False, preexec_fn=limit)
    check("no files: lorgd says why", done.returncode == 1 and done.stderr.startswith("lorg: ") and done.stderr.count("\n") == 1,
          (done.returncode, done.stderr))


def deaf_daemon():
    """A command to a lorgd that does not answer ends with a sentence."""
    path = place("deaf")
    os.mkdir(path, 0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(path, "control"))
    listener.listen(5)
    command = subprocess.Popen([LORG, "ps"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=dict(os.environ, LORG_RUNTIME_DIRECTORY=path))
    status, _, error = ended(command, 25)
    check("deaf: lorg ps says that it does not answer", status == 1 and error.startswith("lorg: "), (status, error))
    listener.close()


def main():
    deaf = threading.Thread(target=deaf_daemon) # it waits, the others work
    deaf.start()
    for part in (scribblers, executions, standing_still, keeper, slow_tracer, directory_lost, few_descriptors, no_files):
        try:
            part()
        except Exception as error: # the other parts are told all the same
            check(part.__name__, False, repr(error))
    deaf.join()
    finish()


if __name__ == "__main__":
    main()
