#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Where calls return to and how else they end: one return_to for each chain of tail calls, which names the function that goes
on; after an exception the catching one, after longjmp the one that called setjmp; and what exceptions are told as."""

import os
import subprocess

from lorgtest import SCRATCH, Run, check, equal, finish, log, lorg, scratch

SOURCE = r"""
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <stdexcept>
#include <unistd.h>
#define KEEP extern "C" __attribute__((noinline, noclone, used))
#define NOT_LAST __asm__ volatile("" : : : "memory")
volatile long sink;
static jmp_buf place;
KEEP long last(long a) { return a + sink; }
KEEP long middle(long a) { sink++; return last(a + 1); }
KEEP long first(long a) { sink++; return middle(a + 1); }
KEEP long goes_on(long a) { long r = first(a); NOT_LAST; r += last(r); NOT_LAST; return r; }
KEEP void throws(long kind) { if (kind == 0) throw std::runtime_error("no such thing"); if (kind == 1) throw 42; throw std::string("text"); }
KEEP void passes(long kind) { throws(kind); NOT_LAST; }
KEEP void catches(long kind) { try { passes(kind); } catch (const std::exception &) { sink++; } catch (...) { sink--; } NOT_LAST; }
KEEP void rethrows(long kind) { try { passes(kind); } catch (...) { NOT_LAST; throw; } }
KEEP void catches_again(long kind) { try { rethrows(kind); } catch (...) { sink++; } NOT_LAST; }
KEEP void jumps(void) { longjmp(place, 1); }
KEEP void jumped_over(void) { jumps(); NOT_LAST; }
KEEP void set_place(void) { if (!setjmp(place)) jumped_over(); sink++; NOT_LAST; }
KEEP void exits(void) { pthread_exit(0); }
KEEP void exits_inside(void) { exits(); NOT_LAST; }
KEEP void waits(void) { for (;;) pause(); }
KEEP void waits_inside(void) { waits(); NOT_LAST; }
static void *exiting(void *) { exits_inside(); return 0; }
static void *cancelled(void *) { waits_inside(); return 0; }
int main(int, char **argv)
{
	const char *what = argv[1];
	if (!strcmp(what, "tail")) for (long i = 0; i < 3; i++) sink += goes_on(i);
	if (!strcmp(what, "throw")) for (long i = 0; i < 3; i++) catches(i);
	if (!strcmp(what, "again")) catches_again(0);
	if (!strcmp(what, "jump")) for (long i = 0; i < 2; i++) set_place();
	if (!strcmp(what, "exit") || !strcmp(what, "cancel")) {
		pthread_t thread;
		pthread_create(&thread, 0, *what == 'e' ? exiting : cancelled, 0);
		if (*what == 'c') { usleep(100000); pthread_cancel(thread); }
		pthread_join(thread, 0);
	}
	return 0;
}
"""

program = os.path.join(SCRATCH, "returning")
with open(program + ".cc", "w", encoding="ascii") as out:
    out.write(SOURCE)
subprocess.run(["g++", "-O2", "-g", "-pthread", program + ".cc", "-o", program], check=True)


def run(what, *functions, options=("--return-to",)):
    done = Run([program, what], options=[*options, *[word for name in functions for word in ("--call", "returning:" + name)]],
               directory=scratch("trace"))
    check(what + ": it runs as ever", done.status == 0, done.why())
    return done


def shape(done):
    """What was told, in order: (tag, function) and for exceptions how."""
    result = []
    for event in log(done.directory):
        if event["tag"] == "exception_from":
            result.append((event["tag"], event["function"], event["class"], event["type"], event.get("what")))
        elif event["tag"] in ("call", "return_from", "return_to"):
            result.append((event["tag"], event.get("function")))
    return result


def returns(name):
    return [("call", name), ("return_from", name)]


for options in (("--return-to",), ("--return-to", "--no-values")):
    suffix = " " + options[-1]
    done = run("tail", "first", "middle", "last", options=options)
    equal("tail calls" + suffix, shape(done), 3 * [
        ("call", "first"), ("call", "middle"), ("call", "last"), ("return_from", "last"), ("return_from", "middle"),
        ("return_from", "first"), ("return_to", "goes_on"), ("call", "last"), ("return_from", "last"), ("return_to", "goes_on")])

    done = run("throw", "throws", "passes", "catches", options=options)
    want = []
    for kind, said in (("std::runtime_error", "no such thing"), ("int", None), ("std::string", None)):
        how = ("throw", kind, said)
        want += [("call", "catches"), ("call", "passes"), ("call", "throws"), ("exception_from", "throws", *how),
                 ("exception_from", "passes", *how), ("return_to", "catches"), ("return_from", "catches"), ("return_to", "main")]
    got = [tuple("std::string" if isinstance(part, str) and part.startswith("std::") and "basic_string" in part else part for part in row)
           for row in shape(done)]
    equal("exceptions" + suffix, got, want)

    done = run("again", "passes", "rethrows", "catches_again", options=options)
    how = ("throw", "std::runtime_error", "no such thing")
    equal("rethrown" + suffix, shape(done), [
        ("call", "catches_again"), ("call", "rethrows"), ("call", "passes"), ("exception_from", "passes", *how), ("return_to", "rethrows"),
        ("exception_from", "rethrows", *how), ("return_to", "catches_again"), ("return_from", "catches_again"), ("return_to", "main")])

    done = run("jump", "jumps", "jumped_over", "set_place", options=options)
    how = ("exit", "longjmp", None)
    equal("longjmp" + suffix, shape(done), 2 * [
        ("call", "set_place"), ("call", "jumped_over"), ("call", "jumps"), ("exception_from", "jumps", *how),
        ("exception_from", "jumped_over", *how), ("return_to", "set_place"), ("return_from", "set_place"), ("return_to", "main")])

    done = run("exit", "exits", "exits_inside", options=options)
    how = ("exit", "pthread_exit", None)
    equal("pthread_exit" + suffix, shape(done), [("call", "exits_inside"), ("call", "exits"), ("exception_from", "exits", *how),
                                                 ("exception_from", "exits_inside", *how)])

    done = run("cancel", "waits", "waits_inside", options=options)
    how = ("exit", "cancelled", None)
    equal("cancellation" + suffix, shape(done), [("call", "waits_inside"), ("call", "waits"), ("exception_from", "waits", *how),
                                                 ("exception_from", "waits_inside", *how)])

done = run("throw", "throws", options=())
equal("without --return-to", [row for row in shape(done) if row[0] == "return_to"], [])

# Erlang's own terms, as doc/SEMANTICS.md has them.
for what, functions, term in (("throw", ["throws"], "{throw,{'std::runtime_error',\"no such thing\"}}"), ("jump", ["jumps"], "{exit,longjmp}"),
                              ("exit", ["exits"], "{exit,pthread_exit}"), ("cancel", ["waits"], "{exit,cancelled}")):
    done = run(what, *functions)
    _, said, _ = lorg("log", "--format", "erlang", done.directory)
    line = [line for line in said.decode().splitlines() if ",exception_from," in line][:1]
    check("Erlang: %s" % term, line and term in line[0], line)
done = run("tail", "last")
_, said, _ = lorg("log", "--format", "erlang", done.directory)
check("Erlang: return_to", ",return_to,{returning,goes_on,1}}" in said.decode(), said.decode()[-600:])

finish()
