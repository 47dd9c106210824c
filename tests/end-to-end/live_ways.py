#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What programs do with processes and ports, told as strace would show it, of programs that start while a session waits for new
ones: pipelines of a shell, children that execute other programs, workers that share a listener, plug-ins that fork."""

import collections
import os
import re
import signal
import subprocess

from lorgctl import BUILD, Session, library, start_daemon
from lorgtest import FIXTURES, check, equal, finish, scratch

PLUGIN = """
#include <sys/wait.h>
#include <unistd.h>
void makes(void)
{
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	waitpid(child, 0, 0);
	child = vfork();
	if (child == 0)
		_exit(0);
	waitpid(child, 0, 0);
}
"""


def traced(lib, command, process="[]", port="[]"):
    """What a program wrote, and the messages of it and all that it starts."""
    session = Session(lib, name="ways")
    if process != "[]":
        session.call("process", "new", 1, process)
    if port != "[]":
        session.call("port", "all", 1, port)
    environment = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "preload", "liblorg.so"))
    ran = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60)
    said = session.received()
    session.free()
    return ran.stdout, said


def tagged(said, tag):
    return [text for text in said if ",%s," % tag in text]


def ports_of_new_programs(lib):
    """Their messages are told where nothing but messages is asked for, of inherited descriptors too, and over exec."""
    out, said = traced(lib, ["sh", "-c", "echo one | grep o | cat"], port="[send,'receive']")
    equal("ports: the program does what it does", out, b"one\n")
    ports = [re.sub(r"<[\d.]+>", "P", re.sub(r"#Port<[\d.]+>", "Port", text)) for text in said]
    # echo, grep and cat each write it, grep and cat read it; each of the two comes to its end.
    equal("ports: each message of a pipeline, and its end", collections.Counter(ports), collections.Counter({
        "{trace,Port,'receive',<<\"one\\n\">>}": 3, "{trace,Port,send,<<\"one\\n\">>,P}": 2, "{trace,Port,send,eof,P}": 2}))
    _, opened = traced(lib, ["sh", "-c", "echo one | cat"], port="[ports]")
    opens, closes = tagged(opened, "open"), tagged(opened, "closed")
    check("ports: opened ones are closed", opens and len(closes) >= len(opens), (len(opens), len(closes)))


def exec_is_no_end(lib):
    """A thread that executes another program goes on as that: whatever was closed by the exec, it has one exit."""
    _, said = traced(lib, [os.path.join(FIXTURES, "live_ways"), "exec"], process="[procs,exiting]")
    child = re.search(r"spawn,(<[\d.]+>)", " ".join(said))[1]
    tags = [match[1] for match in (re.search(r"\{trace,%s,(\w+)" % child, text) for text in said) if match]
    equal("exec: the child's messages", [tag for tag in tags if tag in ("spawned", "exec", "exit", "out_exited")],
          ["spawned", "exec", "exit", "out_exited"])
    made = [text.split(",")[3] for text in said if text.startswith("{trace,%s,link,#Port" % child)]
    gone = [text.split(",")[3] for text in said if text.startswith("{trace,%s,getting_unlinked,#Port" % child)]
    check("exec: it closes two ports", len(made) == 2 and gone[:2] == made, (made, gone))
    equal("exec: the reason is the other program's", [text for text in said if "{trace,%s,exit," % child in text],
          ["{trace,%s,exit,normal}" % child])


def terms_of(said, tag):
    """{M,F,Args} of each spawn, or spawned, by the child."""
    found = {}
    for text in said:
        match = re.fullmatch(r"\{trace,(<[\d.]+>),%s,(<[\d.]+>),(.*)\}" % tag, text)
        if match:
            found[match[2] if tag == "spawn" else match[1]] = match[3]
    return found


def spawn_and_spawned(lib, work):
    """What a child says of its making is what its maker says, whoever is faster, and names the object that made it."""
    source, plugin = os.path.join(work, "plugin.c"), os.path.join(work, "late.so")
    with open(source, "w") as file:
        file.write(PLUGIN)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", plugin, source], check=True)
    for way, path, terms in (("plugin", plugin, ["{'late.so',fork,[]}", "{'late.so',vfork,[]}"]),
                             ("clone", "", ["{live_ways,start,[3]}", "{live_ways,start,[4]}"])):
        for _ in range(3):
            _, said = traced(lib, [os.path.join(FIXTURES, "live_ways"), way, path], process="[procs]")
            made = terms_of(said, "spawn")
            equal("spawn: %s, as its maker has it" % way, sorted(made.values()), terms)
            equal("spawn: %s, as the child has it" % way, terms_of(said, "spawned"), made)


def names_of_ports(lib, work):
    path = os.path.join(work, "socket")
    _, said = traced(lib, [os.path.join(FIXTURES, "live_ways"), "worker", path], port="[ports,running_ports]")
    names = [re.sub(r"#Port<[\d.]+>", "Port", text) for text in said if "register," in text]
    equal("names: bound once, gone once, by its name", names, ["{trace,Port,register,'%s'}" % path, "{trace,Port,unregister,'%s'}" % path])
    bound = re.search(r"#Port<(\d+)\.(\d+)\.(\d+)>,register", " ".join(said))
    theirs = [text for text in said if re.search(r"#Port<(?!%s)\d+\.%s\.%s>" % (bound[1], bound[2], bound[3]), text)]
    equal("ports: a worker's calls on what it inherits", [re.sub(r"#Port<[\d.]+>", "Port", text) for text in theirs],
          ["{trace,Port,in,link}", "{trace,Port,out,link}", "{trace,Port,in,close}", "{trace,Port,closed,normal}"])


def main():
    work = scratch("live_ways")
    runtime = os.path.join(work, "runtime")
    os.makedirs(runtime, 0o700)
    daemon = start_daemon(runtime)
    lib = library()
    try:
        ports_of_new_programs(lib)
        exec_is_no_end(lib)
        spawn_and_spawned(lib, work)
        names_of_ports(lib, work)
        daemon.send_signal(signal.SIGTERM)
        equal("lorgd ends", daemon.wait(timeout=20), 0)
    finally:
        if daemon.poll() is None:
            daemon.kill()
    finish()


main()
