#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program that was to be traced and did not come to it: it runs as ever, and the recording says so, once."""

import os
import subprocess

from lorgtest import LORG, Run, check, equal, finish, fixture, log, lorg, scratch

PRELOAD = os.path.join(os.path.dirname(os.path.dirname(LORG)), "preload", "liblorg.so")


def gaps(directory):
    return [(e["what"], e["why"]) for e in log(directory) if e["tag"] == "gap"]


def no_address_space():
    """Room for the program and for liblorg.so, and none for the arena."""
    large = fixture("large")
    loaded = subprocess.run([large], stdout=subprocess.PIPE, env=dict(os.environ, LD_PRELOAD=PRELOAD), check=True)
    limit = int(loaded.stdout) + 5000
    run = Run(["bash", "-c", "(ulimit -v %d; exec %s)" % (limit, large)])
    equal("no-address-space", (run.status, run.stdout.count(b"\n")), (0, 1))
    told = gaps(run.directory)
    check("no-address-space-told", any("no address space" in why for what, why in told), told)
    equal("no-address-space-named", [what for what, why in told if "never reached" in why], [large])
    coverage = lorg("log", run.directory)[1].decode().splitlines()[-1]
    check("no-address-space-coverage", "not traced: %s" % large in coverage, coverage)


def never_started():
    """The kernel executes it and the loader refuses it."""
    folder = scratch("missing")
    os.mkdir(folder)
    for name, arguments in (("libgone.so", ["-shared", "-fPIC"]), ("program", [os.path.join(folder, "libgone.so")])):
        source = os.path.join(folder, name + ".c")
        with open(source, "w") as file:
            file.write("int gone(void) { return 3; }" if "gone" in name else "int gone(void); int main(void) { return gone(); }")
        subprocess.run(["gcc", "-o", os.path.join(folder, name), source, *arguments], check=True)
    os.unlink(os.path.join(folder, "libgone.so"))
    program = os.path.join(folder, "program")
    plain = subprocess.run(["sh", "-c", program + "; true"], stderr=subprocess.PIPE, check=False)
    run = Run(["sh", "-c", program + "; true"], options=["-q"])
    equal("never-started", (run.status, run.stderr), (plain.returncode, plain.stderr.decode()))
    equal("never-started-told", [what for what, why in gaps(run.directory) if "never reached" in why], [program])


def sanitizer(name, place, program, environment, starts):
    """Recorded by itself and as a child: with a sanitizer's library that the loader finds it is traced, without one it is
    not, and nothing is said that is not said anyway."""
    environment = dict(os.environ, **environment)
    plain = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=place, env=environment, check=False)
    equal(name + "-plain", plain.returncode == 0, starts)
    child = Run(["sh", "-c", program], options=["-q"], cwd=place, env=environment)
    equal(name + "-child", (child.status, child.stdout, child.stderr), (plain.returncode, plain.stdout, plain.stderr.decode()))
    equal(name + "-child-gap", [why for what, why in gaps(child.directory) if "sanitizer library" in why] != [], not starts)
    itself = Run([program], options=["-q"], cwd=place, env=environment)
    said = "".join(line + "\n" for line in itself.stderr.splitlines() if not line.startswith("lorg: "))
    equal(name + "-itself", (itself.status, itself.stdout, said), (plain.returncode, plain.stdout, plain.stderr.decode()))
    equal(name + "-itself-told", "sanitizer library" in itself.stderr, not starts)


def sanitizers():
    folder = scratch("sanitizer")
    os.makedirs(os.path.join(folder, "bin"))
    os.makedirs(os.path.join(folder, "lib"))
    library = os.path.join(folder, "lib", "libasan.so.99")
    with open(os.path.join(folder, "fake.c"), "w") as file:
        file.write("int fake(void) { return 0; }")
    with open(os.path.join(folder, "main.c"), "w") as file:
        file.write('#include <stdio.h>\nint fake(void);\nint main(void) { puts("started"); return fake(); }')
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wl,-soname,libasan.so.99", "-o", library, os.path.join(folder, "fake.c")],
                   check=True)

    def program(name, *arguments):
        path = os.path.join(folder, "bin", name)
        subprocess.run(["gcc", "-o", path, os.path.join(folder, "main.c"), library, *arguments], check=True)
        return path

    bare = program("bare")
    origin = program("origin", "-Wl,--enable-new-dtags,-rpath,/nowhere:$ORIGIN/../lib")
    old = program("old", "-Wl,--disable-new-dtags,-rpath,${ORIGIN}/../lib")
    sanitizer("sanitizer-missing", folder, bare, {}, False)
    sanitizer("sanitizer-elsewhere", folder, bare, {"LD_LIBRARY_PATH": "/nowhere:/usr/lib"}, False)
    sanitizer("sanitizer-by-variable", folder, bare, {"LD_LIBRARY_PATH": "/nowhere:" + os.path.join(folder, "lib")}, True)
    sanitizer("sanitizer-in-working-directory", os.path.join(folder, "lib"), bare, {"LD_LIBRARY_PATH": "/nowhere:"}, True)
    sanitizer("sanitizer-by-run-path", folder, origin, {}, True)
    sanitizer("sanitizer-by-old-path", folder, old, {}, True)


def all_arrive():
    """Programs that live for a moment are not missed."""
    run = Run(["bash", "-c", "for i in $(seq 200); do /bin/true; done; (exec /bin/true); exec /bin/true"])
    check("all-arrive", run.status == 0 and not gaps(run.directory), (run.why(), gaps(run.directory)[:3]))


no_address_space()
never_started()
sanitizers()
all_arrive()
finish()
