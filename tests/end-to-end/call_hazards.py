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
    done = Run(command, options=options, directory=scratch("trace"), cwd=SCRATCH)
    good = (done.status, done.stdout) == (plain.returncode, plain.stdout)
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
	for (last = 1; last < atoi(words[3]); last += stride) {
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
	return count - 4;
}
""", "-mno-red-zone")
for stack in ("own", "alternate"):
    # Receipts of signals are left out: an event between two instructions of the short way makes it the long one.
    for options, stride, end in ((("--no-values",), "1", "120"), ((), "61", "100000")):
        name = "left in the stub, on its %s stack%s" % (stack, " " + options[0] if options else "")
        done = as_ever(name, [stepped, stack, stride, end], "--call", "stepped:leaf", "--kinds", "ports", *options)
        entered, rounds = (int(word) for word in done.stderr.split()[:2])
        seen = counted(done)["leaf"] + lost(done.directory)
        # A call that was left behind its record and before its first instruction is told; none that came so far is missing.
        # Left in the middle of an event of several words, the rest of that chunk cannot be read: then that is said.
        said = not options and any(event["tag"] == "gap" for event in log(done.directory))
        check(name + ": no call is lost unsaid", rounds > 20 and (entered <= seen or said) and seen <= entered + rounds,
              (seen, entered, rounds))

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

# ---- what looks at frames, and at the place of a fault -----------------------------

frames = build("frames.c", KEEP + r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <stdio.h>
#include <string.h>
#include <unwind.h>
static const char *own_name(void *address)
{
	Dl_info about = {0};
	return dladdr(address, &about) && about.dli_sname ? about.dli_sname : "?";
}
static _Unwind_Reason_Code one(struct _Unwind_Context *context, void *count)
{
	int before;
	printf("%s ", own_name((void *)_Unwind_GetIPInfo(context, &before)));
	return ++*(int *)count == 40 ? _URC_NORMAL_STOP : _URC_NO_REASON;
}
KEEP int walk(int depth)
{
	int count = 0;
	if (depth)
		return walk(depth - 1) + 0 * printf("%d ", depth);
	int code = _Unwind_Backtrace(one, &count);
	_Unwind_Reason_Code (*looked_up)(_Unwind_Trace_Fn, void *) = (_Unwind_Reason_Code (*)(_Unwind_Trace_Fn, void *))dlsym(RTLD_DEFAULT, "_Unwind_Backtrace");
	code += 10 * looked_up(one, &count);
	void *addresses[64];
	printf("%d %d %d\n", code, count, backtrace(addresses, 64));
	return count;
}
int main(void) { walk(5); return 0; }
""", "-rdynamic", link=("-ldl",))
for options in (("--call", "frames:walk"), ("--call", "frames:*", "--no-values"), ("--time", "frames:walk"), ("--call", "frames:*", "--call", "libgcc_s.so.1:*")):
    as_ever("frames, %s" % " ".join(options), [frames], *options)

FAULTS = KEEP + r"""
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#define CODE(name, text) __asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ",@function\n" #name ":\n.cfi_startproc\n" text "\n.cfi_endproc\n.size " #name ",.-" #name "\n"); long name(long *, long *)
CODE(at_once, "mov (%rdi), %rax; add $1, %rax; nop; nop; ret");
CODE(at_second, "mov (%rsi), %rax; add (%rdi), %rax; nop; ret");
CODE(behind_jump, "test %rdi, %rdi; jz 1f; mov (%rdi), %rax; ret; 1: xor %eax, %eax; ret");
CODE(behind_nop, "nop; add (%rdi), %eax; lea 1(%rax), %rax; ret");
CODE(behind_data, "lea fixed(%rip), %rax; mov (%rdi), %rax; ret");
CODE(pushes, "push %rbx; .cfi_adjust_cfa_offset 8; mov (%rdi), %rbx; mov %rbx, %rax; pop %rbx; .cfi_adjust_cfa_offset -8; ret");
long fixed = 5;
static sigjmp_buf place;
static int leaves;
static long *page, other;
static long (*under_test)(long *, long *);
static long offset, stack;
static void handler(int number, siginfo_t *information, void *context)
{
	ucontext_t *at = context;
	offset = at->uc_mcontext.gregs[REG_RIP] - (long)under_test;
	stack = at->uc_mcontext.gregs[REG_RSP] & 15;
	if (leaves)
		siglongjmp(place, number);
	(void)information;
	mprotect(page, 4096, PROT_READ);
}
static volatile long depth;
KEEP long deep(long n) { volatile char room[200]; depth++; room[n % 200] = (char)n; return deep(n + 1) + room[n % 100]; }
static void overflown(int number, siginfo_t *information, void *context)
{
	long at = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] - (long)deep;
	siglongjmp(place, information->si_signo == number && (!leaves || (at >= 0 && at < 100)) ? 1 : 2);
}
int main(int count, char **words)
{
	static long (*const all[])(long *, long *) = {at_once, at_second, behind_jump, behind_nop, behind_data, pushes};
	stack_t alternate = {.ss_sp = malloc(65536), .ss_size = 65536};
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaltstack(&alternate, 0);
	sigaction(SIGSEGV, &action, 0);
	page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		for (leaves = 0; leaves < 2; leaves++) {
			long result = -1;
			mprotect(page, 4096, PROT_NONE);
			under_test = all[i];
			offset = stack = -1;
			if (!sigsetjmp(place, 1))
				result = under_test(page, &other);
			printf("%u %d: %ld %ld %ld\n", i, leaves, leaves ? 0 : result & 1, offset, stack);
		}
	action.sa_sigaction = overflown;
	sigaction(SIGSEGV, &action, 0);
	leaves = words[1][0] == 'n';
	for (int i = 0; i < 3; i++) {
		int how = sigsetjmp(place, 1);
		if (!how)
			deep(0);
		printf("overflow %d %d\n", how, depth > 1000);
	}
	return count - 2;
}
"""
faults = build("faults.c", FAULTS)
for options, strict in ((("--no-values",), "no"), ((), "values"), (("--no-values", "--no-returns"), "no"), (("--return-to",), "values")):
    name = "faults " + " ".join(options)
    wanted = [word for one in ("at_once", "at_second", "behind_jump", "behind_nop", "behind_data", "pushes", "deep")
              for word in ("--call", "faults:" + one)]
    as_ever(name, [faults, strict], *wanted, *options)

thrown_at = build("thrown_at.cc", KEEP + r"""
#include <csignal>
#include <cstdio>
static void handler(int number) { sigset_t set; sigemptyset(&set); sigaddset(&set, number); sigprocmask(SIG_UNBLOCK, &set, 0); throw number; }
KEEP int first(volatile int *p) { int v = *p; __asm__ volatile("nop; nop; nop; nop"); return v; }
static int *volatile bad = (int *)8;
int main()
{
	long kept[4] = {1, 2, 3, 4};
	__asm__ volatile("" : "+r"(kept[0]), "+r"(kept[1]), "+r"(kept[2]), "+r"(kept[3]));
	signal(SIGSEGV, handler);
	for (int i = 0; i < 3; i++)
		try { first(bad); } catch (int number) { printf("caught %d %ld %ld %ld %ld\n", number, kept[0], kept[1], kept[2], kept[3]); }
	return 0;
}
""", "-fnon-call-exceptions")
for options in (("--call", "thrown_at:*"), ("--call", "thrown_at:*", "--no-values"), ("--time", "thrown_at:*")):
    as_ever("thrown at a fault, %s" % " ".join(options), [thrown_at], *options)

if shutil.which("ocamlopt"):
    with open(os.path.join(SCRATCH, "overflow.ml"), "w", encoding="ascii") as out:
        out.write('let rec f n = 1 + f (n + 1)\nlet () = (try Printf.printf "%d\\n" (f 0) with Stack_overflow -> print_endline "caught"); exit 3\n')
    subprocess.run(["ocamlopt", "overflow.ml", "-o", "overflow"], check=True, cwd=SCRATCH, stderr=subprocess.DEVNULL)
    as_ever("Stack_overflow of OCaml", [os.path.join(SCRATCH, "overflow")], "--call", "overflow:*", "--no-values")
else:
    skip("Stack_overflow of OCaml", "it is not installed")

# ---- another calling convention -----------------------------------------------------

for level in ("-O0", "-O2"):
    called = build("called.c", KEEP + r"""
#include <stdio.h>
__attribute__((ms_abi)) KEEP long many(long a, long b, long c, long d, long e) { return a * 10000 + b * 1000 + c * 100 + d * 10 + e; }
__attribute__((ms_abi)) KEEP double mixed(double a, int b, double c) { return a + b * c; }
KEEP long usual(long a, double b, long c, long d, long e, long f, long g, long h) { return a + (long)b + c + d + e + f + g + h; }
int main(void) { printf("%ld %g %ld\n", many(1, 2, 3, 4, 5), mixed(1.5, 2, 3.5), usual(1, 2, 3, 4, 5, 6, 7, 8)); return 0; }
""", level)
    done = as_ever("ms_abi, " + level, [called], "--call", "called:many", "--call", "called:mixed", "--call", "called:usual")
    events = {event["function"]: event.get("args") for event in log(done.directory) if event["tag"] == "call"}
    for function, right in (("many", [1, 2, 3, 4, 5]), ("mixed", [1.5, 2, 3.5])):
        known = events.get(function) or []
        check("ms_abi, %s: what is told of %s is right or unknown" % (level, function),
              len(known) == len(right) and all(told in (value, None) for told, value in zip(known, right)), known)
    equal("ms_abi, %s: others are told as ever" % level, events.get("usual"), [1, 2.0, 3, 4, 5, 6, 7, 8])

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

build("beside.c", "volatile int sum_of_named;\nint named(int x) { sum_of_named += x; return x + 1; }\n", "-shared", "-fPIC")
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
