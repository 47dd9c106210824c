#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tracers of sessions that are no client: a trace directory, a file, a socket, a plug-in; and the limits of a session."""

import os
import re
import signal
import socket
import subprocess
import time

from livehost import Host, build
from lorgctl import BUILD, Refused, Session, library, start_daemon
from lorgtest import LORG, ROOT, check, equal, finish, scratch


def wait_for(what, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def talk(host, index, ports, text):
    """Writes and reads a message on a pipe."""
    host.execute(index, "write", ports >> 32, 0, text)
    host.execute(index, "read", ports & 0xffffffff)


def pipe(host, index):
    """(write end) << 32 | read end: as `socketpair` and `pipe` of the host give them, the other way round."""
    ends = host.execute(index, "pipe")
    return (ends & 0xffffffff) << 32 | ends >> 32


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def directory(lib, host):
    place = scratch("trace")
    session = Session(lib, tracer='{directory,"%s"}' % place, name="kept")
    pid, ends = host.pid(0), pipe(host, 0)
    equal("directory: process", session.call("process", pid, 1, "[send,'receive',running]"), 1)
    for i in range(50):
        talk(host, 0, ends, "message %d" % i)
    session.call("process", pid, 0, "[all]")
    talk(host, 0, ends, "unseen")
    session.free()
    check("directory: its end is there", wait_for(lambda: b"session ended" in open(os.path.join(place, "stream-0"), "rb").read()))
    said = subprocess.run([LORG, "log", "--no-pager", "--format", "erlang", place], capture_output=True, text=True)
    equal("directory: read without complaint", (said.returncode, said.stderr), (0, ""))
    lines = said.stdout.splitlines()
    sent = [line for line in lines if ",send,<<\"message " in line]
    got = [line for line in lines if ",'receive',<<\"message " in line]
    equal("directory: what was sent", len(sent), 50)
    equal("directory: what was received", len(got), 50)
    check("directory: not what came after", "unseen" not in said.stdout)
    check("directory: in and out", sum(",in,{'libc.so.6',read" in line for line in lines) == 50, said.stdout[:300])
    check("directory: nothing is shown that was not asked for",
          not any(re.search(r",(spawn|open|link|exit|getting_linked),", line) for line in lines), said.stdout[:400])
    json = subprocess.run([LORG, "log", "--no-pager", "--format", "json", place], capture_output=True, text=True)
    check("directory: the session has its name", '"session":"kept"' in json.stdout.replace(" ", ""), json.stdout[:300])
    if subprocess.run(["which", "babeltrace2"], capture_output=True).returncode == 0:
        read_by_others = subprocess.run(["babeltrace2", place], capture_output=True, text=True)
        equal("directory: babeltrace2 reads it", read_by_others.returncode, 0)
        check("directory: babeltrace2 finds the events", read_by_others.stdout.count("received:") >= 50 or "receive" in read_by_others.stdout)


def terms(text):
    return [line for line in text.splitlines() if line]


def file(lib, host):
    place = scratch("terms")
    session = Session(lib, tracer='{file,"%s"}' % place, name="file")
    ends = pipe(host, 0)
    session.call("process", host.pid(0), 1, "[send,monotonic_timestamp]")
    for i in range(20):
        talk(host, 0, ends, "line %d" % i)
    check("file: comes while the session is there", wait_for(lambda: len(terms(read(place))) == 20), read(place)[-300:])
    for i, line in enumerate(terms(read(place))):
        if not re.fullmatch(r'\{trace_ts,<[\d.]+>,send,<<"line %d">>,#Port<[\d.]+>,\d+\}' % i, line):
            check("file: line %d" % i, False, line)
    talk(host, 0, ends, "the last")
    session.free()
    check("file: the last of it arrives", wait_for(lambda: "the last" in read(place)))
    refused = None
    try:
        Session(lib, tracer='{file,"/nowhere/at/all"}', name="none")
    except Refused as error:
        refused = error.args[0]
    equal("file: one that cannot be opened", refused, "badarg")


def unix_socket(lib, host):
    place = scratch("listening")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen(1)
    session = Session(lib, tracer='{socket,"%s"}' % place, name="socket")
    connection, _ = listener.accept()
    connection.settimeout(10)
    ends = pipe(host, 0)
    session.call("process", host.pid(0), 1, "['receive']")
    talk(host, 0, ends, "over there")
    said = b""
    while b"\n" not in said:
        said += connection.recv(4096)
    check("socket: the message", re.match(rb"\{trace,<[\d.]+>,'receive',<<\"over there\">>\}\n", said), said)
    connection.close()
    listener.close()
    for i in range(5):
        talk(host, 0, ends, "to nobody %d" % i)
        time.sleep(0.03)
    check("socket: nobody reads: the session ends", wait_for(lambda: gone(session)))
    session.free()


def gone(session):
    try:
        session.call("process", "all", 0, "[all]")
        return False
    except Refused:
        return True


def plugin(lib, host):
    module = scratch("plugin.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-I", os.path.join(ROOT, "include"), "-o", module,
                    os.path.join(ROOT, "tests", "fixtures", "tracer_plugin.c")], check=True)
    session = Session(lib, tracer='{module,"%s",{my,state}}' % module, name="plugin")
    pid, ends = host.pid(0), pipe(host, 0)
    session.call("process", pid, 1, "[send,'receive',running]")
    talk(host, 0, ends, "through")
    texts = []
    wait_for(lambda: texts.extend(text_of(session.receive(50000000))) or len(texts) >= 2)
    check("module: a message goes through", any(re.fullmatch(r'\{trace,<[\d.]+>,send,<<"through">>,#Port<[\d.]+>\}', one) for one in texts), texts)
    check("module: a message is changed", ("{changed,{my,state},%s}" % pid) in texts, texts)
    check("module: in and out are not wanted", not any(",in," in one or ",out," in one for one in texts), texts)
    talk(host, 0, ends, "stop")
    check("module: remove takes the flags", wait_for(lambda: session.call("info", pid, "flags") == "{flags,[]}"), session.call("info", pid, "flags"))
    session.call("process", pid, 1, "[send]")
    talk(host, 0, ends, "die")
    check("module: its death ends the session", wait_for(lambda: gone(session)))
    check("module: and the flags are gone", flags_of(lib, pid) == "{flags,[]}")
    session.free()
    refused = Session(lib, tracer='{module,"%s",refuse}' % module, name="refused")
    check("module: one that wants no state", wait_for(lambda: gone(refused)))
    refused.free()


def text_of(message):
    """Its text in a list, copied: it is the library's until the next call."""
    return [message.text.decode(errors="replace")] if message and message.text else []


def flags_of(lib, pid):
    session = Session(lib, name="looks")
    said = session.call("info", pid, "flags")
    session.free()
    return said


def main():
    folder, runtime = scratch("programs"), scratch("runtime")
    os.makedirs(folder)
    os.makedirs(runtime, mode=0o700)
    build(folder)
    daemon = start_daemon(runtime)
    lib = library()
    host = Host(folder, runtime)
    try:
        for test in (directory, file, unix_socket, plugin):
            try:
                test(lib, host)
            except Refused as refused:
                check("%s: goes through" % test.__name__, False, refused.args)
        equal("the program ends as ever", host.end(), 0)
    finally:
        if host.process.poll() is None:
            host.process.kill()
        daemon.terminate()
        equal("lorgd ends when told", daemon.wait(10), 0)
    finish()


main()
