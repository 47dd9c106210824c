#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A C++ runtime that is linked into a program or library throws and catches past every symbol: the recording says so."""

import os
import subprocess

from lorgtest import Run, check, equal, finish, log, scratch

PROGRAM = """
#include <cstdio>
int main() {
	try { throw 3; } catch (int n) { std::printf("caught %d\\n", n); }
	return 0;
}
"""
PLAIN = "int plugged(void); int main(void) { return plugged(); }"
LIBRARY = 'extern "C" int plugged() { try { throw "x"; } catch (const char *) { return 0; } }'
STATIC = ["-static-libstdc++", "-static-libgcc"]

folder = scratch("runtime")
os.mkdir(folder)


def build(name, text, *options, strip=False):
    suffix = ".c" if text == PLAIN else ".cc"
    source, path = os.path.join(folder, name + suffix), os.path.join(folder, name)
    with open(source, "w") as file:
        file.write(text)
    compiler = "gcc" if text == PLAIN else "g++"
    done = subprocess.run([compiler, "-O1", "-o", path, source, *options], check=False)
    if done.returncode == 0 and strip:
        subprocess.run(["strip", path], check=True)
    return path


def expect(name, command, hidden, caught):
    run = Run(command)
    if not check(name, run.status == 0, run.why()):
        return
    events = log(run.directory)
    equal(name + "-gaps", sorted(e["what"] for e in events if e["tag"] == "gap"), sorted("exceptions in " + path for path in hidden))
    equal(name + "-catches", sum(e["tag"] == "catch" for e in events), caught)


shared = build("shared", PROGRAM)
own = build("own", PROGRAM, *STATIC)
stripped = build("stripped", PROGRAM, *STATIC, strip=True)
exported = build("exported", PROGRAM, *STATIC, "-rdynamic")
library = build("library.so", LIBRARY, "-shared", "-fPIC")
own_library = build("own-library.so", LIBRARY, "-shared", "-fPIC", *STATIC, "-Wl,--exclude-libs,ALL")
own_stripped = build("own-stripped.so", LIBRARY, "-shared", "-fPIC", *STATIC, "-Wl,--exclude-libs,ALL", strip=True)

expect("runtime-shared", [shared], [], 1)
expect("runtime-own", [own], [own], 0)
expect("runtime-stripped", [stripped], [stripped], 0)
expect("runtime-exported", [exported], [exported], 0)
expect("runtime-told-once", ["sh", "-c", "%s; %s; %s" % (own, own, own)], [own], 0)
expect("runtime-library", [build("with-library", PLAIN, library)], [], 1)
expect("runtime-own-library", [build("with-own", PLAIN, own_library)], [own_library], 0)
expect("runtime-stripped-library", [build("with-stripped", PLAIN, own_stripped)], [own_stripped], 0)
finish()
