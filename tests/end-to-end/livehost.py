# SPDX-License-Identifier: MIT
"""The program of tests/conformance/live: threads that execute what a test asks, and nothing that a hook sees besides."""

import mmap
import os
import struct
import subprocess
import time

from lorgctl import BUILD, ROOT, Refused

SOURCES = os.path.join(ROOT, "tests", "conformance", "live")
SLOT = struct.Struct("<IIII32sqqq64s")
SLOTS, IDLE, ASKED, DONE = 64, 0, 1, 2
class Host:
    """The program whose threads are the processes."""

    def __init__(self, folder, directory, preloaded=True):
        self.path = os.path.join(directory, "board")
        with open(self.path, "wb") as file:
            file.truncate(8 + SLOTS * SLOT.size)
        self.file = open(self.path, "r+b")
        self.board = mmap.mmap(self.file.fileno(), 8 + SLOTS * SLOT.size)
        preload = {"LD_PRELOAD": os.path.join(BUILD, "preload", "liblorg.so")} if preloaded else {}
        environment = dict(os.environ, **preload)
        self.process = subprocess.Popen([os.path.join(folder, "host"), self.path, "4"], env=environment, stdin=subprocess.DEVNULL)
        self.wait(lambda: struct.unpack_from("<I", self.board, 0)[0] == 1)

    def wait(self, what, seconds=10):
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                raise Refused("late", "the program does not go on (status %s)" % self.process.poll())
            time.sleep(0.0005)

    def slot(self, index):
        return list(SLOT.unpack_from(self.board, 8 + index * SLOT.size))

    def pid(self, index):
        _, _, pid, tid = self.slot(index)[:4]
        return "<%d.%d.0>" % (pid, tid)

    def begin(self, index, name, a=0, b=0, text=""):
        at, slot = 8 + index * SLOT.size, self.slot(index)
        slot[4:9] = name.encode(), a, b, 0, text.encode()
        slot[0] = IDLE
        SLOT.pack_into(self.board, at, *slot)
        struct.pack_into("<I", self.board, at, ASKED)

    def execute(self, index, name, a=0, b=0, text=""):
        self.begin(index, name, a, b, text)
        self.wait(lambda: struct.unpack_from("<I", self.board, 8 + index * SLOT.size)[0] == DONE)
        return self.slot(index)[7]

    def end(self):
        struct.pack_into("<I", self.board, 4, 1)
        try:
            return self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "hung"


def build(folder):
    common = ["-g", "-O1", "-Wall", "-Wextra", "-fno-builtin", "-falign-functions=16"]
    run = lambda *command: subprocess.run(command, check=True, cwd=SOURCES)
    run("g++", *common, "-fPIC", "-shared", "-foptimize-sibling-calls", "-o", folder + "/tm.so", "tm.cc")
    run("g++", *common, "-pthread", "-o", folder + "/host", "host.cc", folder + "/tm.so", "-Wl,-rpath,$ORIGIN")
    run("gcc", *common, "-fPIC", "-shared", "-o", folder + "/late.so", "late.c")
