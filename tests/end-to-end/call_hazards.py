#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs that look at their own frames, leave them in unusual ways or unload their code, with all their calls hooked: they
print what they print as they are, with the same status, and each call is told once, with its arguments and its end."""

import collections
import os
import shutil
import subprocess

from lorgtest import SCRATCH, Run, check, equal, finish, log, lost, report, scratch, skip

KEEP = "#define KEEP __attribute__((noinline, noclone, used))\n"
SPIN = KEEP + r"""
#include <time.h>
static inline __attribute__((always_inline)) void spin(int ms)
{
	struct timespec a, b;
	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
}
"""


def build(name, source, *flags, link=()):
    path = os.path.join(SCRATCH, name)
    with open(path, "w", encoding="ascii") as out:
        out.write(source)
    program = os.path.splitext(path)[0] + (".so" if "-shared" in flags else "")
    subprocess.run(["g++" if name.endswith(".cc") else "gcc", "-O1", "-g", "-pthread", *flags, path, "-o", program, *link], check=True,
                   cwd=SCRATCH)
    return program


def as_ever(name, command, *options, stderr=False):
    """Runs it as it is and recorded; what it prints must be the same."""
    plain = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=SCRATCH, check=False)
    status = plain.returncode if plain.returncode >= 0 else 128 - plain.returncode
    done = Run(command, options=options, directory=scratch("trace"), cwd=SCRATCH)
    good = (done.status, done.stdout) == (status, plain.stdout)
    check(name + ": it prints what it prints as it is", good, (done.why(), done.stdout[-200:], plain.stdout[-200:]))
    if stderr:
        equal(name + ": lorg says nothing", done.stderr, "")
    return done


def plain(name):
    return name.split("(")[0]


def counted(done, tag="call"):
    return collections.Counter(plain(event["function"]) for event in log(done.directory) if event["tag"] == tag and "function" in event)


# ---- the unwinder looks at its own return address ------------------------------

throwing = build("throwing.cc", KEEP + r"""
#include <cstdio>
KEEP void thrower(long n) { if (n > 0) throw n; puts("not thrown"); }
KEEP void middle(long n)
{
	register long r12 __asm__("r12") = n + 1, r13 __asm__("r13") = n + 2, r14 __asm__("r14") = n + 3, r15 __asm__("r15") = n + 4;
	__asm__ volatile("" : "+r"(r12), "+r"(r13), "+r"(r14), "+r"(r15));
	thrower(n);
	__asm__ volatile("" : : "r"(r12), "r"(r13), "r"(r14), "r"(r15));
}
int main(int count, char **)
{
	long a = count * 100 + 1, b = count * 100 + 2, c = count * 100 + 3, d = count * 100 + 4, e = count * 100 + 5;
	for (int i = 0; i < 3; i++) {
		__asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e));
		try { middle(i + 1); } catch (long x) { printf("%ld %ld %ld %ld %ld %ld\n", x, a, b, c, d, e); }
	}
	return 3;
}
""", "-O2")
for options in (("--call", "libgcc_s.so.1:*"), ("--call", "libgcc_s.so.1:*", "--call", "throwing:*", "--no-values"),
                ("--call", "libgcc_s.so.1:*", "--call", "libstdc++.so.6:__*", "--return-to"), ("--time", "libgcc_s.so.1:*")):
    done = as_ever("throws, %s" % " ".join(options), [throwing], *options)
    if options[0] == "--call":
        check("throws, %s: the unwinder's calls are told" % " ".join(options), counted(done).get("_Unwind_RaiseException", 0) >= 3, counted(done))

# ---- programs that look at their own return address ----------------------------

SELF = KEEP + r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
KEEP void show(void *address)
{
	Dl_info about = {0};
	dladdr(address, &about);
	printf("%s in %s\n", about.dli_sname ? about.dli_sname : "?", strrchr(about.dli_fname, '/') ? strrchr(about.dli_fname, '/') + 1 : about.dli_fname);
}
KEEP void simple(void) { show(__builtin_return_address(0)); }
KEEP long with_a_frame(long a) { volatile long room[40]; room[a] = a; show(__builtin_return_address(0)); return room[a]; }
KEEP void of_varied_size(int n) { char room[n]; memset(room, 1, (size_t)n); __asm__ volatile("" : : "r"(room) : "memory"); show(__builtin_return_address(0)); }
KEEP void pushed(void *a, void *b, void *c, void *d, void *e, void *f, void *address) { (void)a, (void)b, (void)c, (void)d, (void)e, (void)f; show(address); }
KEEP void passes_it(void) { pushed(0, 0, 0, 0, 0, 0, __builtin_return_address(0)); __asm__ volatile(""); }
KEEP void from_here(void) { simple(); with_a_frame(3); of_varied_size(100); passes_it(); __asm__ volatile(""); }
KEEP void from_there(void) { simple(); passes_it(); __asm__ volatile(""); }
int main(void) { from_here(); from_there(); return 0; }
"""
for level in ("-O0", "-O1", "-O2", "-O3"):
    looking = build("looking.c", SELF, level, "-rdynamic", "-no-pie")
    for way in (("--call", "looking:*"), ("--call", "looking:*", "--no-values"), ("--time", "looking:*")):
        done = as_ever("return addresses, %s, %s" % (level, " ".join(way)), [looking], *way, stderr=True)
        if way == ("--call", "looking:*"):
            seen = {name: counted(done)[name] for name in ("simple", "with_a_frame", "of_varied_size", "passes_it", "show")}
            equal("return addresses, %s: each call is told" % level, seen,
                  {"simple": 2, "with_a_frame": 1, "of_varied_size": 1, "passes_it": 2, "show": 6})

# ---- libraries that come and go in threads --------------------------------------

for number in (1, 2, 3):
    build("unloaded%d.c" % number, r"""
static __thread int times;
__attribute__((noinline, noclone)) int inner_%d(int x) { times++; return x + %d; }
int outer_%d(int x) { return inner_%d(x) + 1; }
""" % ((number,) * 4), "-shared", "-fPIC")
unloading = build("unloading.c", r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *loop(void *argument)
{
	for (long i = 0, k = (long)argument; i < 60; i++) {
		int number = 1 + (int)((i + k) % 3);
		char name[32];
		snprintf(name, sizeof name, "./unloaded%d.so", number);
		void *library = dlopen(name, i & 1 ? RTLD_NOW : RTLD_LAZY);
		snprintf(name, sizeof name, "outer_%d", number);
		int (*function)(int) = library ? (int (*)(int))dlsym(library, name) : 0;
		if (!function)
			abort();
		for (int j = 0; j < 5; j++)
			if (function(j) != j + number + 1)
				abort();
		dlclose(library);
	}
	return 0;
}
int main(void)
{
	pthread_t threads[3];
	for (long i = 0; i < 3; i++)
		pthread_create(&threads[i], 0, loop, (void *)i);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	puts("done");
	return 0;
}
""", link=("-ldl",))
for options in (("--count", "_:_/_"), ("--call-global", "_:_/_"), ("--call", "unloaded?.so:*")):
    for _ in range(2):
        done = as_ever("unloaded, %s" % " ".join(options), [unloading], *options)

# ---- handlers that leave the stub by a jump -------------------------------------

# Each run of middle() is left by a jump one instruction later than the one before; ten that nothing disturbs follow.
stepped = build("stepped.c", KEEP + r"""
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
static sigjmp_buf place;
static volatile long steps, last, entered;
KEEP int leaf(int x) { __asm__ volatile("nop; nop; nop; nop; nop"); entered++; return x * 3 + 1; }
static void handler(int number)
{
	(void)number;
	if (++steps == last)
		siglongjmp(place, 1);
}
int main(int count, char **words)
{
	stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
	int alternate = words[1][0] == 'a', stride = atoi(words[2]);
	if (alternate)
		sigaltstack(&stack, 0);
	struct sigaction action = {.sa_handler = handler, .sa_flags = alternate ? SA_ONSTACK : 0};
	sigaction(SIGTRAP, &action, 0);
	for (last = 1; ; last += stride) {
		volatile long after = 0;
		steps = 0;
		if (!sigsetjmp(place, 1)) {
			__asm__ volatile("pushfq; orq $0x100, (%rsp); popfq");
			leaf(1);
			__asm__ volatile("pushfq; andq $~0x100, (%rsp); popfq");
			after = 1;
		}
		for (int i = 0; i < 10; i++)
			leaf(2);
		if (after)
			break;
	}
	fprintf(stderr, "%ld %ld\n", entered, 1 + (last - 1) / stride);
	return count - 3;
}
""", "-mno-red-zone")
for stack in ("own", "alternate"):
    for options, stride in ((("--no-values",), "1"), ((), "211")):
        name = "left in the stub, on its %s stack%s" % (stack, " " + options[0] if options else "")
        done = as_ever(name, [stepped, stack, stride], "--call", "stepped:leaf", *options)
        entered, rounds = (int(word) for word in done.stderr.split()[:2])
        seen = counted(done)["leaf"] + lost(done.directory)
        # A call that was left behind its record and before its first instruction is told; none that came so far is missing.
        check(name + ": no call is lost", rounds > 20 and entered <= seen <= entered + rounds, (seen, entered, rounds))

# ---- what ends by a jump or a throw out of the signal stack ----------------------

JUMPS = SPIN + r"""
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
static sigjmp_buf place;
KEEP void leaves(void) { siglongjmp(place, 1); }
static void handler(int number) { (void)number; leaves(); }
KEEP int raises(int n) { raise(SIGUSR1); return n; }
KEEP void burns(void) { spin(50); }
KEEP void loops(void) { for (volatile int i = 0; i < 5; i++) if (!sigsetjmp(place, 1)) raises(i); else spin(40); }
int main(int count, char **words)
{
	stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
	sigaltstack(&stack, 0);
	struct sigaction action = {.sa_handler = handler, .sa_flags = words[1][0] == 'a' ? SA_ONSTACK : 0};
	sigaction(SIGUSR1, &action, 0);
	loops();
	burns();
	return count - 2;
}
"""
THROWS = SPIN + r"""
#include <csignal>
#include <cstdlib>
static void unblock(int number) { sigset_t set; sigemptyset(&set); sigaddset(&set, number); sigprocmask(SIG_UNBLOCK, &set, 0); }
KEEP void leaves(int number) { unblock(number); throw number; }
static void handler(int number) { leaves(number); }
static volatile long nothing;
KEEP int raises(int n) { __asm__ volatile("nop; nop; nop; nop; nop; nop; nop"); return n + *(volatile int *)nothing; }
KEEP void burns() { spin(50); }
KEEP void loops() { for (volatile int i = 0; i < 5; i++) try { raises(i); } catch (int) { spin(40); } }
int main(int count, char **words)
{
	stack_t stack = {};
	stack.ss_sp = malloc(65536);
	stack.ss_size = 65536;
	sigaltstack(&stack, 0);
	struct sigaction action = {};
	action.sa_handler = handler;
	action.sa_flags = words[1][0] == 'a' ? SA_ONSTACK : 0;
	sigaction(SIGSEGV, &action, 0);
	loops();
	burns();
	return count - 2;
}
"""
for name, source, flags in (("jumping.c", JUMPS, ()), ("handled.cc", THROWS, ("-fnon-call-exceptions",))):
    program = build(name, source, *flags)
    module = os.path.basename(program)
    for stack in ("own", "alternate"):
        title = "%s from its %s stack" % (module, stack)
        done = as_ever(title, [program, stack], "--call", module + ":raises", "--call", module + ":burns", "--call", module + ":leaves")
        equal(title + ": each call ends", (counted(done), counted(done, "exception_from")),
              ({"raises": 5, "burns": 1, "leaves": 5}, {"raises": 5, "leaves": 5}))
        done = as_ever(title + ", depth 1", [program, stack], "--call", module + ":raises", "--call", module + ":burns", "--depth", "1")
        equal(title + ": so none is too deep", counted(done), {"raises": 5, "burns": 1})
        done = as_ever(title + ", timed", [program, stack], "--time", module + ":*")
        times = {plain(row["function"]): row["time_ns"] / 1e6 for row in report(done.directory)["counted"] if "time_ns" in row}
        check(title + ": and the time is that of who goes on", times.get("raises", 99) < 20 and times.get("loops", 0) > 190 and
              45 < times.get("burns", 0) < 190, times)

# ---- functions that are cut in two -----------------------------------------------

split = build("split.cc", r"""
#include <cstdio>
#include <string>
__attribute__((noinline)) std::string join(const std::string &text, int count) { std::string r = text; while (count--) r += "x"; return r; }
int main(int count, char **) { puts(join("ab", count).c_str()); return 0; }
""", "-O2")
done = as_ever("functions in two pieces", [split], "--call", "split:join*")
events = [event for event in log(done.directory) if event["tag"] == "call" and "cold" not in event["function"]]
check("functions in two pieces: arguments", len(events) == 1 and events[0].get("args") == ["ab", 1], [event.get("args") for event in events])

# ---- libraries by a relative path --------------------------------------------------

build("beside.c", "volatile int times;\nint named(int x) { times += x; return x + 1; }\n", "-shared", "-fPIC")
relative = build("relative.c", r"""
#include <dlfcn.h>
#include <unistd.h>
int main(void)
{
	void *library = dlopen("./beside.so", RTLD_NOW);
	int (*function)(int) = (int (*)(int))dlsym(library, "named");
	return chdir("/") || function(1) != 2;
}
""", link=("-ldl",))
done = as_ever("a relative path", [relative], "--call", "beside.so:*", stderr=True)
equal("a relative path: calls", counted(done).get("named"), 1)
paths = {os.path.normpath(event["path"]) for event in log(done.directory, "--kind", "module") if event["path"].endswith("beside.so")}
equal("a relative path: is told from the root", paths, {os.path.join(SCRATCH, "beside.so")})

# ---- continuations that copy the stack ---------------------------------------------

CONTINUATIONS = (
    ("guile", "libguile*", ("-c", "(define kk #f)(define m 0)(display (sort (list 3 1 2) (lambda (a b) (call/cc (lambda (c) "
                                  "(if (not kk) (set! kk c)))) (< a b))))(set! m (+ m 1))(if (< m 3) (kk #t))")),
    ("ruby", "libruby*", ("-W0", "-e", "require 'continuation'; n=0; x=callcc{|c| $k=c; 0}; n+=1; $k.call(1) if n<3; puts n")),
)
for interpreter, module, words in CONTINUATIONS:
    if not shutil.which(interpreter):
        skip("continuations of " + interpreter, "it is not installed")
        continue
    as_ever("continuations of " + interpreter, [interpreter, *words], "--call", module + ":*", "--no-values")

finish()
