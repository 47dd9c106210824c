# SPDX-License-Identifier: MIT
"""liblorgctl for tests, and a lorgd of one's own. TEST_BUILD names the build folder."""

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TEST_BUILD") or os.path.join(ROOT, "build")
FAILURES = {0: "no reason", 1: "badarg", 2: "system_limit", 3: "no daemon", 4: "refused", 5: "input or output", 6: "memory"}


class Failure(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("error", ctypes.c_int), ("text", ctypes.c_char * 512)]


class Message(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("session", ctypes.c_char_p), ("text", ctypes.c_char_p), ("json", ctypes.c_char_p),
                ("time", ctypes.c_uint64), ("count", ctypes.c_uint64)]


def library():
    name = os.path.join(BUILD, "collector", "client", "liblorgctl.so.1")
    lib = ctypes.CDLL(name)
    pointer, text, count = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
    for function, result, arguments in (
            ("lorg_connect", pointer, [text]), ("lorg_session_create", pointer, [pointer, text, text, text]),
            ("lorg_session_destroy", ctypes.c_int, [pointer]), ("lorg_session_info", pointer, [pointer, text]),
            ("lorg_process", count, [pointer, text, ctypes.c_int, text]), ("lorg_port", count, [pointer, text, ctypes.c_int, text]),
            ("lorg_function", count, [pointer, text, text, text]), ("lorg_send", count, [pointer, text, text]),
            ("lorg_recv", count, [pointer, text, text]), ("lorg_system", ctypes.c_int, [pointer, text, text]),
            ("lorg_info", pointer, [pointer, text, text]), ("lorg_delivered", pointer, [pointer, text]),
            ("lorg_receive", ctypes.c_int, [pointer, ctypes.c_int64, ctypes.POINTER(Message)])):
        entry = getattr(lib, function)
        entry.restype, entry.argtypes = result, arguments + [ctypes.POINTER(Failure)]
    lib.lorg_session_free.argtypes = lib.lorg_disconnect.argtypes = [pointer]
    lib.lorg_session_handle.restype, lib.lorg_session_handle.argtypes = text, [pointer]
    return lib


class Refused(Exception):
    """A call that failed: its kind, and the sentence."""


class Session:
    def __init__(self, lib, tracer="client", name="scenario"):
        self.lib, self.failure = lib, Failure()
        self.connection = self.must(lib.lorg_connect(None, self.failure))
        self.handle = self.must(lib.lorg_session_create(self.connection, name.encode(), tracer.encode(), b"[]", self.failure))

    def must(self, result):
        if result is None or result == -1:
            raise Refused(FAILURES.get(self.failure.kind), self.failure.text.decode(errors="replace"))
        return result

    def text(self, result):
        said = ctypes.string_at(self.must(result)).decode()
        ctypes.CDLL(None).free(ctypes.c_void_p(result))
        return said

    def call(self, name, *arguments):
        given = [one.encode() if isinstance(one, str) else one for one in arguments]
        result = getattr(self.lib, "lorg_" + name)(self.handle, *given, self.failure)
        return self.text(result) if name in ("info", "delivered") else self.must(result)

    def receive(self, timeout_ns):
        message = Message()
        return message if self.lib.lorg_receive(self.connection, timeout_ns, message, self.failure) > 0 else None

    def received(self):
        """Everything that was to come before now."""
        reference, said = self.call("delivered", "all"), []
        end = time.monotonic() + 10
        while time.monotonic() < end:
            message = self.receive(100000000)
            if not message:
                continue
            end = time.monotonic() + 10  # as long as something comes
            text = message.text.decode(errors="replace")
            if message.kind == 2:
                if reference in text:
                    return said
                continue
            words = {3: "lost %d", 5: "perhaps lost %d"}
            said.append(words[message.kind] % message.count if message.kind in words else text)
        raise Refused("late", "nothing was said to be delivered: " + "; ".join(said))

    def free(self):
        self.lib.lorg_session_free(self.handle)
        self.lib.lorg_disconnect(self.connection)


def reached(directory):
    """The pid of the lorgd that programs find there."""
    try:
        with open(os.path.join(directory, "programs"), encoding="ascii") as programs:
            return int(programs.read().split(":")[1])
    except (OSError, IndexError, ValueError):
        return None


def end_daemon(daemon):
    """With all that it holds. For tests that end in the middle: they would leave it behind."""
    if daemon.poll() is None:
        daemon.send_signal(signal.SIGINT)
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            daemon.kill()


def start_daemon(directory, keep="0", through=()):
    """keep: seconds that its keeper waits for the next one, where it is killed. through: a command that executes it."""
    os.environ["LORG_RUNTIME_DIRECTORY"] = directory
    places = [os.path.join(BUILD, "collector", *place, "lorgd") for place in (["daemon"], [])]
    program = next((place for place in places if os.path.exists(place)), places[0])
    daemon = subprocess.Popen([*through, program, "--directory", directory, "--keep", keep], stdin=subprocess.DEVNULL)
    atexit.register(end_daemon, daemon)
    end = time.monotonic() + 10
    while reached(directory) != daemon.pid:
        if time.monotonic() > end or daemon.poll() is not None:
            print("FAIL live: lorgd does not start")
            sys.exit(1)
        time.sleep(0.01)
    return daemon
