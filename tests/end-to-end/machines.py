#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Virtual machines and languages with stacks or frames of their own run as ever with all of their functions, and all of libc's,
hooked. Those that are not installed are left out."""

import os
import shutil
import subprocess

from lorgtest import SCRATCH, Run, check, scratch, skip, finish

JAVA = """public class J {
	static int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
	public static void main(String[] a) throws Exception {
		System.out.println(f(25));
		Thread t = new Thread(() -> System.out.println("thread"));
		t.start();
		t.join();
		try { throw new Exception("caught"); } catch (Exception e) { System.out.println(e.getMessage()); }
		byte[][] b = new byte[100][];
		for (int i = 0; i < 2000; i++) b[i % 100] = new byte[100000];
		System.gc();
		System.out.println(b.length);
	}
}
"""
GO = """package main
import "fmt"
func f(n int) int { if n == 0 { return 0 }; return f(n-1) + 1 }
func main() {
	c := make(chan int)
	for i := 0; i < 10; i++ { go func(i int) { c <- f(i * 1000) }(i) }
	s := 0
	for i := 0; i < 10; i++ { s += <-c }
	fmt.Println(s)
}
"""
SCRIPTS = {
    "node": ("node", ["node", "-e", "let s = 0; for (let i = 0; i < 200000; i++) s += ({a: i}).a % 7; console.log(s);"
                                    "try { null.x } catch (e) { console.log('caught') }"]),
    "perl": ("perl", ["perl", "-e", "my %h; $h{$_ % 7}++ for 1..2000; print join(',', map {\"$_=$h{$_}\"} sort keys %h), \"\\n\";"
                                    "eval { die \"caught\\n\" }; print $@; system('echo child');"]),
    "ruby": ("libruby*", ["ruby", "-e", "puts (1..50).sum; begin; raise 'x'; rescue => e; puts e; end; Thread.new { puts 1 }.join;"
                                        "f = Fiber.new { Fiber.yield 2; 3 }; puts f.resume, f.resume"]),
    "guile": ("libguile*", ["guile", "-c", "(display (apply + (iota 100))) (catch #t (lambda () (error \"x\"))"
                                           " (lambda a (display \"caught\")))"]),
    "lua5.4": ("lua5.4", ["lua5.4", "-e", "print(pcall(error, 'x')); local c = coroutine.wrap(function() coroutine.yield(1)"
                                          " return 2 end); print(c(), c())"]),
}


def same(name, command, module):
    plain = subprocess.run(command, cwd=SCRATCH, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    for hooked in ("libc.so.6:_/_", module + ":_/_"):
        trace = scratch("trace")
        done = Run(command, options=["--no-values", "--call", hooked], directory=trace)
        check("%s with %s" % (name, hooked), (done.status, done.stdout) == (plain.returncode, plain.stdout),
              "status %s, not %s: %s" % (done.status, plain.returncode, done.stdout[-300:]))
        shutil.rmtree(trace, ignore_errors=True)


os.chdir(SCRATCH)
os.environ.setdefault("GUILE_AUTO_COMPILE", "0")
for name, (module, command) in SCRIPTS.items():
    if shutil.which(name):
        same(name, command, module)
    else:
        skip(name, "not installed")
if shutil.which("javac"):
    with open("J.java", "w", encoding="ascii") as out:
        out.write(JAVA)
    subprocess.run(["javac", "J.java"], check=True)
    same("java", ["java", "-Xmx256m", "-cp", SCRATCH, "J"], "libjvm.so")
else:
    skip("java", "not installed")
if shutil.which("go"):
    with open("g.go", "w", encoding="ascii") as out:
        out.write(GO)
    built = subprocess.run(["go", "build", "-o", "gog", "g.go"], check=False, stderr=subprocess.DEVNULL,
                           env=dict(os.environ, GOCACHE=os.path.join(SCRATCH, "cache"), GO111MODULE="off")).returncode == 0
    if built:
        same("go", [os.path.join(SCRATCH, "gog")], "gog")
    else:
        skip("go", "does not build here")
else:
    skip("go", "not installed")
finish()
