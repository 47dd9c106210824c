#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorgd itself: its runtime directory, its protocol spoken raw, clients that are hostile or of another user, and its end."""

import atexit
import glob
import os
import re
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time

from lorgtest import LORG, check, equal, finish, skip

LORGD = os.environ.get("TEST_LORGD") or os.path.join(os.path.dirname(LORG), "daemon", "lorgd")
LIBRARY = os.path.join(os.path.dirname(os.path.dirname(LORG)), "preload", "liblorg.so")
REQUEST, ANSWER, PACKET, DELIVERED, LOST, ENDED = 1, 2, 3, 4, 5, 6
HEAD = struct.Struct("<IHHQ")

# Short, for a socket's address is.
BASE = tempfile.mkdtemp(prefix="lorgd-", dir="/tmp")
atexit.register(shutil.rmtree, BASE, ignore_errors=True)


class Client:
    """A raw client of the protocol."""

    def __init__(self, directory, greet=True):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(os.path.join(directory, "control"))
        self.number, self.pending, self.said = 0, b"", []
        if greet:
            self.hello = self.ask("{hello,1,0}")

    def send(self, text, number=None):
        self.number += 1
        text = text.encode()
        self.socket.sendall(HEAD.pack(len(text), REQUEST, 0, self.number if number is None else number) + text)
        return self.number

    def frame(self, limit=10):
        """(kind, number, bytes), or None at the end of the connection."""
        self.socket.settimeout(limit)
        while len(self.pending) < HEAD.size or len(self.pending) < HEAD.size + HEAD.unpack_from(self.pending)[0]:
            try:
                got = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not got:
                return None
            self.pending += got
        length, kind, _, number = HEAD.unpack_from(self.pending)
        body = self.pending[HEAD.size:HEAD.size + length]
        self.pending = self.pending[HEAD.size + length:]
        return kind, number, body

    def answer(self, number):
        """The answer to that request; other frames are kept in `said`."""
        while True:
            frame = self.frame()
            if frame is None:
                return None
            if frame[0] == ANSWER and frame[1] == number:
                return frame[2].decode()
            self.said.append(frame)

    def ask(self, text):
        return self.answer(self.send(text))

    def next(self, kind, limit=10):
        """Bytes of the next frame of a kind; None when the connection or the time ends."""
        for i, frame in enumerate(self.said):
            if frame[0] == kind:
                return self.said.pop(i)[2]
        until = time.monotonic() + limit
        while time.monotonic() < until:
            try:
                frame = self.frame(max(0.01, until - time.monotonic()))
            except socket.timeout:
                return None
            if frame is None or frame[0] == kind:
                return frame and frame[2]
            self.said.append(frame)
        return None

    def close(self):
        self.socket.close()


class Daemon:
    """keep: whether programs wait for the next lorgd when it is told to end."""

    def __init__(self, directory, *options, environment=None, keep=False, **more):
        self.directory = directory
        options = (*options, *([] if keep else ["--keep", "0"]))
        self.process = subprocess.Popen([LORGD, "--directory", directory, *options], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, **more)
        atexit.register(self.process.kill)
        self.ready = self.wait_until_ready()

    def wait_until_ready(self, limit=10):
        """Its programs file is there, and its own: one that was killed may have left another's."""
        until = time.monotonic() + limit
        while time.monotonic() < until and self.process.poll() is None:
            try:
                with open(os.path.join(self.directory, "programs"), encoding="ascii") as programs:
                    if programs.read().split(":")[1:2] == [str(self.process.pid)]:
                        return True
            except OSError:
                pass
            time.sleep(0.005)
        return False

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            error = self.process.communicate(timeout=20)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return None, "it hung"
        return self.process.returncode, error.decode(errors="replace")


def place(name):
    return os.path.join(BASE, name)


def handle_of(answer):
    """{Name,Number} of {ok,{Name,Number}}."""
    found = re.fullmatch(r"\{ok,(\{.*,\d+\})\}", answer or "")
    return found and found.group(1)


def is_error(answer, kind, word=""):
    return bool(answer) and answer.startswith("{error,%s," % kind) and word in answer


def program(directory, command, **more):
    """A program that attaches to the lorgd of that directory when it starts."""
    environment = dict(os.environ, LD_PRELOAD=LIBRARY, LORG_RUNTIME_DIRECTORY=directory)
    environment.pop("LORG", None)
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    atexit.register(process.kill)
    return process


def attached(client, pid, limit=5):
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if re.search(r"\{%d," % pid, client.ask("{programs}") or ""):
            return True
        time.sleep(0.01)
    return False


# ---- the runtime directory ----------------------------------------------------------


def runtime_directory():
    path = place("run")
    daemon = Daemon(path)
    check("daemon/starts", daemon.ready, daemon.process.poll())
    status = os.stat(path)
    equal("daemon/directory-is-the-users-own", (stat.S_IMODE(status.st_mode), status.st_uid), (0o700, os.geteuid()))
    control = os.stat(os.path.join(path, "control"))
    check("daemon/control-is-a-socket", stat.S_ISSOCK(control.st_mode) and stat.S_IMODE(control.st_mode) & 0o077 == 0,
          oct(control.st_mode))
    with open(os.path.join(path, "programs"), encoding="ascii") as programs:
        value = programs.read()
    check("daemon/programs-names-the-collector",
          re.fullmatch(r"\d+:%d:\d+:\d+:[0-9a-f]{32}:0{32}:.*" % daemon.process.pid, value), value)
    second = subprocess.run([LORGD, "--directory", path], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
    check("daemon/second-is-refused", second.returncode == 1 and second.stderr.count("\n") == 1 and
          "another lorgd serves it" in second.stderr, (second.returncode, second.stderr))
    client = Client(path)
    equal("daemon/second-does-no-harm", client.ask("{session_info,all}"), "[]")
    with open(os.path.join(path, "programs"), encoding="ascii") as programs:
        before = programs.read()
    os.unlink(os.path.join(path, "programs"))
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_until_ready()
    with open(os.path.join(path, "programs"), encoding="ascii") as programs:
        equal("daemon/reload-writes-programs-anew", programs.read(), before)
    status, error = daemon.end()
    equal("daemon/clean-end", (status, error, sorted(os.listdir(path))), (0, "", ["lock"]))
    equal("daemon/clean-end-closes-clients", client.frame(), None)
    doors = glob.glob("/tmp/lorg-*/door") + glob.glob("/run/lorg-*/door")
    left = [name for name in doors if os.stat(os.path.dirname(name)).st_ctime > control.st_ctime - 1]
    check("daemon/clean-end-leaves-no-door", value.rsplit(":", 1)[1] not in left, left)


def refused_directories():
    for name, make, why in (
            ("open-to-others", lambda path: os.mkdir(path) or os.chmod(path, 0o755), "others may reach"),
            ("a-file", lambda path: open(path, "w", encoding="ascii").close(), "is no directory"),
            ("a-link", lambda path: os.symlink(BASE, path), "is no directory"),
            ("anothers", lambda path: os.mkdir(path, 0o700) or os.chown(path, 65534, 65534), "another user")):
        path = place(name)
        try:
            make(path)
        except PermissionError:
            skip("daemon/directory-%s-is-refused" % name, "needs root")
            continue
        done = subprocess.run([LORGD, "--directory", path], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
        check("daemon/directory-%s-is-refused" % name, done.returncode == 1 and why in done.stderr and done.stderr.count("\n") == 1,
              (done.returncode, done.stderr))
    for name, arguments in (("no-such-option", ["--wrong"]), ("relative", ["--directory", "run"]), ("argument", ["x"]),
                            ("seconds", ["--idle-exit", "soon"])):
        done = subprocess.run([LORGD, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=False)
        check("daemon/usage-%s" % name, done.returncode == 2 and done.stderr.startswith("lorg: ") and done.stderr.count("\n") == 1,
              (done.returncode, done.stderr))


def after_a_kill():
    path = place("killed")
    daemon = Daemon(path)
    daemon.end(signal.SIGKILL)
    check("daemon/killed-leaves-things", os.path.exists(os.path.join(path, "control")))
    daemon = Daemon(path)
    check("daemon/starts-after-a-kill", daemon.ready and Client(path).ask("{programs}") == "[]")
    equal("daemon/ends-after-a-kill", daemon.end(), (0, ""))


def service_manager():
    path, said = place("managed"), place("notify")
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(said)
    notify.settimeout(10)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place("activated"))
    listener.listen(16)
    environment = dict(os.environ, NOTIFY_SOCKET=said)

    def hand_over():
        os.dup2(listener.fileno(), 3)
        os.environ["LISTEN_PID"] = str(os.getpid())
        os.environ["LISTEN_FDS"] = "1"
        os.environ["NOTIFY_SOCKET"] = said

    # env=None: what hand_over sets in the child counts.
    process = subprocess.Popen(["/bin/sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" --keep 0 --directory "$1"', LORGD, path],
                               pass_fds=(), preexec_fn=hand_over, close_fds=False, env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    atexit.register(process.kill)
    first = notify.recv(1000).decode()
    check("daemon/notifies-ready", first.startswith("READY=1"), first)
    client = Client.__new__(Client)
    client.socket, client.number, client.pending, client.said = socket.socket(socket.AF_UNIX), 0, b"", []
    client.socket.connect(place("activated"))
    check("daemon/socket-activation", client.ask("{hello,1,0}").startswith("{ok,{lorgd,%d," % process.pid))
    check("daemon/socket-activation-makes-no-socket", not os.path.exists(os.path.join(path, "control")))
    process.send_signal(signal.SIGHUP)
    check("daemon/notifies-reloading", re.match(r"RELOADING=1\nMONOTONIC_USEC=\d+", notify.recv(1000).decode()) and
          notify.recv(1000).decode().startswith("READY=1"))
    process.send_signal(signal.SIGTERM)
    equal("daemon/notifies-stopping", notify.recv(1000).decode(), "STOPPING=1")
    process.communicate(timeout=20)
    equal("daemon/activated-ends", process.returncode, 0)
    listener.close()


def idle_exit():
    path = place("idle")
    daemon = Daemon(path, "--idle-exit", "1")
    client = Client(path)
    time.sleep(2.5)
    check("daemon/idle-exit-waits-for-clients", daemon.process.poll() is None)
    client.close()
    try:
        daemon.process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        pass
    equal("daemon/idle-exit", daemon.end(), (0, ""))


# ---- the protocol ------------------------------------------------------------------------


def protocol(path):
    client = Client(path)
    check("protocol/hello", re.fullmatch(r"\{ok,\{lorgd,\d+,'?lorg@[^']*'?,\d+\}\}", client.hello), client.hello)
    late = Client(path, greet=False)
    check("protocol/hello-comes-first", is_error(late.ask("{programs}"), "not_allowed") and late.frame() is None)
    other = Client(path, greet=False)
    check("protocol/other-major-is-refused", is_error(other.ask("{hello,999,0}"), "not_allowed", "version") and other.frame() is None)
    first = client.ask("{session_create,hunt,client,[]}")
    handle = handle_of(first)
    check("session/create", handle and handle.startswith("{hunt,"), first)
    second = handle_of(client.ask("{session_create,hunt,client,[]}"))
    equal("session/info-all", client.ask("{session_info,all}"), "[%s,%s]" % (handle, second))
    check("session/name-of-several-is-badarg", is_error(client.ask("{process,hunt,new,true,[call]}"), "badarg", "several"))
    equal("session/destroy", (client.ask("{session_destroy,%s}" % second), client.ask("{session_destroy,%s}" % second)), ("true", "false"))
    equal("session/ended-is-told", client.next(ENDED), b"it was destroyed")
    equal("session/by-unique-name", client.ask("{process,hunt,new,true,[call]}"), "0")
    equal("session/by-number", client.ask("{process,%s,new,true,[call]}" % handle.split(",")[1].rstrip("}")), "0")
    # Requests that come in one piece are answered in their order.
    numbers = [client.send("{process,hunt,new,true,[send]}") for _ in range(100)]
    equal("protocol/answers-in-order", [client.answer(number) for number in numbers], ["0"] * 100)
    # Byte by byte.
    text = b"{session_info,new}"
    for byte in HEAD.pack(len(text), REQUEST, 0, 7777) + text:
        client.socket.send(bytes([byte]))
        time.sleep(0.001)
    equal("protocol/byte-by-byte", client.answer(7777), "[%s]" % handle)
    stranger = Client(path)
    equal("session/weak-handle", stranger.ask("{process,%s,new,true,[procs]}" % handle), "0")
    kept = handle_of(stranger.ask("{session_create,kept,client,[persist]}"))
    stranger.close()
    client.close()
    time.sleep(0.1)
    third = Client(path)
    equal("session/strong-handle-dies-with-its-connection", third.ask("{session_info,all}"), "[%s]" % kept)
    equal("session/adopt", third.ask("{adopt,%s}" % kept), "true")
    check("session/adopt-twice-is-badarg", is_error(third.ask("{adopt,%s}" % kept), "badarg"))
    equal("session/persist-is-destroyed", third.ask("{session_destroy,kept}"), "true")
    third.close()


BAD_FRAMES = [
    HEAD.pack(0xffffffff, REQUEST, 0, 1),
    HEAD.pack((1 << 20) + 1, REQUEST, 0, 1) + b"{",
    HEAD.pack(4, PACKET, 0, 1) + b"1234",
    HEAD.pack(4, 0xffff, 0, 1) + b"1234",
    HEAD.pack(4, REQUEST, 1, 1) + b"1234",
]
BAD_TERMS = ["", "{", "}", "[", "hello", "{}", "{nothing}", "{process}", "{process,1,2,3,4,5}", "{'',1}", "{process,[],[],[],[]}",
             "{session_create,1,client,[]}", "{session_create,x,y,[]}", "{session_create,x,client,[z]}", "{session_create,x,client,z}",
             "{session_create,x,{directory,\"relative\"},[]}", "{session_create,x,{file},[]}", "{session_create,x,{file,[]},[]}",
             "{session_destroy,{a,b}}", "{session_destroy,\"a\"}", "{session_info,{a}}", "{session_info,3.5}", "\x00", "\xff\xfe", "\"",
             "{process,nobody,new,true,[]}", "{hello,a,b}", "1.", "#Ref<0.1>", "<0>", "[" * 2000, "{info,1,2,3}", "{delivered,1,all}"]


def malformed(path):
    for number, frame in enumerate(BAD_FRAMES):
        client = Client(path)
        client.socket.sendall(frame)
        equal("protocol/bad-frame-%d-closes" % number, client.frame(), None)
    client = Client(path)
    answers = [client.ask(text) for text in BAD_TERMS]
    wrong = [(text, answer) for text, answer in zip(BAD_TERMS, answers)
             if not (is_error(answer, "badarg") or is_error(answer, "system_limit"))]
    equal("protocol/malformed-is-badarg", wrong, [])
    client.socket.sendall(HEAD.pack(3, REQUEST, 0, 5) + b"\xff\xfe\xfd")
    check("protocol/no-utf8-is-badarg", is_error(client.answer(5), "badarg"))
    big = "{session_create,x,client,[" + ",".join(["persist"] * 100000) + "x]}"
    check("protocol/large-request", is_error(client.ask(big), "badarg"))
    equal("protocol/survives", client.ask("{session_info,all}"), "[]")
    client.close()


def hostile(path, daemon):
    steady = Client(path)
    session = handle_of(steady.ask("{session_create,steady,client,[]}"))
    slowest, crowd = 0.0, []

    def others_are_served():
        nonlocal slowest
        begin = time.monotonic()
        good = steady.ask("{session_info,all}") == "[%s]" % session
        slowest = max(slowest, time.monotonic() - begin)
        return good

    # Many that only connect; many that announce much and send a little; many that send noise.
    good = True
    noise = os.urandom(4096)
    for i in range(10000):
        comer = socket.socket(socket.AF_UNIX)
        comer.settimeout(5)
        try:
            comer.connect(os.path.join(path, "control"))
            if i % 3 == 1:
                comer.send(HEAD.pack(200, REQUEST, 0, 1) + b"{" * 100)
            if i % 3 == 2:
                comer.send(noise[i % 4000:i % 4000 + 64])
        except OSError:
            pass
        crowd.append(comer)
        if len(crowd) > 900:
            crowd.pop(0).close()
        if i % 500 == 0:
            good = good and others_are_served()
    check("hostile/ten-thousand-connections", good and others_are_served(), slowest)
    begin = time.monotonic()
    newcomer = Client(path)
    check("hostile/newcomers-are-served", newcomer.ask("{programs}") is not None and time.monotonic() - begin < 2)
    for comer in crowd:
        comer.close()
    # Who says hello and then asks without reading the answers is not read on, and others are.
    deaf = Client(path)
    deaf.socket.setblocking(False)
    text = b"{session_info,all}"
    request, sent = (HEAD.pack(len(text), REQUEST, 0, 1) + text) * 1000, 0
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            sent += deaf.socket.send(request)
        except BlockingIOError:
            if not select.select([], [deaf.socket], [], 0.2)[1]:
                break
    check("hostile/deaf-client-is-held-back", time.monotonic() < until and others_are_served(), sent)
    with open("/proc/%d/status" % daemon.process.pid, encoding="ascii") as status:
        memory = int(re.search(r"RssAnon:\s+(\d+)", status.read()).group(1))
    check("hostile/memory-stays-bounded", memory < 200000, memory)
    check("hostile/nobody-waits-long", slowest < 1.0, slowest)
    deaf.close()
    newcomer.close()
    steady.close()


def other_users(path):
    if os.geteuid() != 0:
        skip("users/others-are-refused", "needs root")
        return
    # Past the directory's mode, as where the socket is handed over by a service manager: the peer's own word decides.
    os.chmod(path, 0o711)
    os.chmod(os.path.join(path, "control"), 0o666)
    os.chmod(BASE, 0o711)
    code = ("import socket,struct,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
            "s.sendall(struct.pack('<IHHQ',11,1,0,1)+b'{hello,1,0}')\nd=b''\n"
            "while True:\n    try:\n        g=s.recv(4096)\n    except ConnectionResetError:\n        break\n    if not g:\n        break\n    d+=g\n"
            "sys.stdout.buffer.write(d)\n")
    done = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", sys.executable, "-c", code,
                           os.path.join(path, "control")], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    os.chmod(path, 0o700)
    frame = done.stdout
    good = len(frame) > HEAD.size and HEAD.unpack_from(frame)[0] == len(frame) - HEAD.size
    check("users/others-are-refused", good and b"{error,not_allowed," in frame, (frame, done.stderr))
    user = subprocess.run(["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "cat", os.path.join(path, "programs")],
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
    check("users/others-cannot-read-programs", user.returncode != 0, user.stdout)


# ---- programs -------------------------------------------------------------------------------


def programs(path):
    client = Client(path)
    runners = [program(path, ["sleep", "60"]) for _ in range(3)]
    if not all(attached(client, runner.pid) for runner in runners):
        check("programs/attach", False, client.ask("{programs}"))
        for runner in runners:
            runner.kill()
        return
    listed = client.ask("{programs}")
    check("programs/attach", all('{%d,"%s' % (r.pid, "/") in listed for r in runners), listed)
    session = handle_of(client.ask("{session_create,look,client,[]}"))
    pid = runners[0].pid
    name = "<%d.%d.0>" % (pid, pid)
    equal("programs/existing-is-their-number", client.ask("{process,look,existing,true,[procs,send]}"), "3")
    equal("programs/pid-is-one", client.ask("{process,look,%s,true,[call]}" % name), "1")
    equal("programs/program-is-its-threads", client.ask("{process,look,%d,true,[arity]}" % pid), "1")
    flags = client.ask("{info,look,%s,flags}" % name)
    equal("info/flags", sorted(re.findall(r"[a-z_]+", flags)[1:]), ["arity", "call", "procs", "send"])
    check("info/tracer", re.fullmatch(r"\{tracer,<\d+\.\d+\.0>\}", client.ask("{info,look,%s,tracer}" % name)))
    equal("session/info-of-pid", client.ask("{session_info,%s}" % name), "[%s]" % session)
    check("programs/lists-sessions", '[%s]' % session in client.ask("{programs}"))
    equal("programs/clear", client.ask("{process,look,%s,false,[all]}" % name), "1")
    equal("info/flags-cleared", client.ask("{info,look,%s,flags}" % name), "{flags,[]}")
    equal("info/tracer-cleared", client.ask("{info,look,%s,tracer}" % name), "{tracer,[]}")
    equal("programs/all-or-nothing", (client.ask("{process,look,%s,true,[call,wrong]}" % name).startswith("{error,badarg,"),
                                      client.ask("{info,look,%s,flags}" % name)), (True, "{flags,[]}"))
    dead = "<%d.%d.0>" % (pid, 4194000)
    check("programs/dead-pid-is-badarg", is_error(client.ask("{process,look,%s,true,[call]}" % dead), "badarg"))
    equal("info/dead-pid", client.ask("{info,look,%s,flags}" % dead), "undefined")
    equal("session/info-dead-pid", client.ask("{session_info,%s}" % dead), "undefined")
    equal("programs/new-is-none", client.ask("{process,look,new,true,[procs]}"), "0")
    equal("info/new", client.ask("{info,look,new,flags}"), "{flags,[procs]}")
    equal("info/new-ports", client.ask("{info,look,new_ports,flags}"), "{flags,[]}")
    reading = os.path.join("/proc", str(pid), "fd", "0")
    if os.path.exists(reading):
        port = "#Port<%d.0.0>" % pid
        equal("ports/one", client.ask("{port,look,%s,true,[send]}" % port), "1")
        equal("ports/info", client.ask("{info,look,%s,flags}" % port), "{flags,[send]}")
        check("ports/dead-is-badarg", is_error(client.ask("{port,look,#Port<%d.999.0>,true,[send]}" % pid), "badarg"))
    ports = int(client.ask("{port,look,existing,true,['receive']}"))
    check("ports/existing", ports >= 9, ports)
    equal("ports/new", client.ask("{port,look,new,true,[ports]}"), "0")
    check("delivered/answers-and-tells", re.fullmatch(r"#Ref<[\d.]+>", client.ask("{delivered,look,all}")) and
          re.fullmatch(rb"\{trace_delivered,all,#Ref<[\d.]+>\}", client.next(DELIVERED) or b""))
    equal("session/destroy-with-programs", client.ask("{session_destroy,look}"), "true")
    equal("session/destroyed-is-off", client.ask("{session_info,%s}" % name), "[]")
    check("programs/still-run", all(r.poll() is None for r in runners))
    for runner in runners:
        runner.kill()
        runner.communicate()
    time.sleep(0.2)
    equal("programs/gone", client.ask("{programs}"), "[]")
    client.close()


def many(path):
    """More than 64 programs and 64 sessions at once."""
    client = Client(path)
    handles = [handle_of(client.ask("{session_create,s%d,client,[]}" % i)) for i in range(100)]
    equal("many/sessions", (all(handles), len(set(handles))), (True, 100))
    runners = [program(path, ["sleep", "60"]) for _ in range(80)]
    good = all(attached(client, runner.pid, 20) for runner in runners)
    check("many/programs", good, client.ask("{programs}").count("sleep"))
    equal("many/existing", [client.ask("{process,s%d,existing,true,[procs]}" % i) for i in (0, 50, 99)], ["80"] * 3)
    more = []
    for i in range(40):
        answer = client.ask("{session_create,m%d,client,[]}" % i)
        if not answer.startswith("{ok"):
            more.append(answer)
    check("many/sessions-have-a-limit", more and is_error(more[0], "system_limit"), more[:1])
    for runner in runners:
        runner.kill()
    for runner in runners:
        runner.communicate()
    client.close()
    other = Client(path)
    equal("many/all-sessions-end-with-their-client", other.ask("{session_info,all}"), "[]")
    other.close()


def main():
    if not os.path.exists(LORGD):
        skip("daemon", "lorgd is not built")
        finish()
    try:
        runtime_directory()
        refused_directories()
        after_a_kill()
        service_manager()
        idle_exit()
        path = place("d")
        daemon = Daemon(path)
        protocol(path)
        malformed(path)
        programs(path)
        many(path)
        hostile(path, daemon)
        other_users(path)
        equal("daemon/ends-well", daemon.end(), (0, ""))
    finally:
        shutil.rmtree(BASE, ignore_errors=True)
    finish()


if __name__ == "__main__":
    main()
