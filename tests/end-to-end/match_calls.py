#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Match specifications on calls: what each guard and action does to the calls of a program whose every call is known."""

import os
import shutil
import subprocess

import lorgtest as t

PROGRAM = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone, used))
#define TOUCH(...) __asm__ volatile("" : : __VA_ARGS__ : "memory")

enum colour { RED = 1, GREEN = 2 };
struct inner { short low; const char *label; };
struct request {
	int length;
	unsigned narrow : 3, wide : 11;
	int negative : 5;
	const char *name;
	struct request *next;
	struct inner part;
	char tag[8];
	double weight;
	long list[3];
};

KEPT int numbers(int a, long b) { TOUCH("r"(a), "r"(b)); return a + (int)b + 1; }
KEPT int text(const char *name, int count) { TOUCH("r"(name), "r"(count)); return count + 7; }
KEPT double real(double x, float y) { TOUCH("x"(x), "x"(y)); return x + y + 0.5; }
KEPT int kinds(enum colour c, _Bool yes, unsigned long large, void *pointer) { TOUCH("r"(c), "r"(yes), "r"(large), "r"(pointer)); return c + yes; }
KEPT int follow(struct request *request, struct request *list) { TOUCH("r"(request), "r"(list)); return request != list; }
KEPT int eight(int a, int b, int c, int d, int e, int f, int g, int h) { TOUCH("r"(a)); return a + b + c + d + e + f + g + h; }
KEPT int leaf(int a) { TOUCH("r"(a)); for (int i = 0; i < 3; i++) TOUCH("r"(i)); return a + 1; }
KEPT int one(int a) { int r = leaf(a) + 1; TOUCH("r"(r)); return r; }
KEPT int other(int a) { int r = leaf(a) + 2; TOUCH("r"(r)); return r; }
KEPT int deep(int n) { int r = n ? deep(n - 1) + 1 : 0; TOUCH("r"(r)); return r; }
KEPT int tick(int n) { TOUCH("r"(n)); for (int i = 0; i < 2; i++) TOUCH("r"(i)); return n + 1; }
static sigjmp_buf back;
KEPT int leaves(int n) { TOUCH("r"(n)); if (n) siglongjmp(back, 1); return n; }

static volatile sig_atomic_t ticks;
static void on_alarm(int signal) { (void)signal; ticks++; tick(-1); }
static volatile int left_count;
static void on_alarm_jump(int signal) { (void)signal; tick(-2); if (++left_count % 3 == 0) siglongjmp(back, 1); }

static void *thread(void *argument) { long from = (long)argument; for (int i = 0; i < 500; i++) numbers((int)from, i); return NULL; }

static void interrupted(void (*handler)(int), int seconds_10)
{
	struct sigaction action = {.sa_handler = handler};
	struct itimerval every = {{0, 200}, {0, 200}}, none = {{0, 0}, {0, 0}};
	struct timeval begin, now;
	sigaction(SIGALRM, &action, NULL);
	gettimeofday(&begin, NULL);
	sigsetjmp(back, 1);
	setitimer(ITIMER_REAL, &every, NULL);
	do {
		for (int i = 0; i < (handler == on_alarm ? 1000 : 50); i++)
			if (tick(i) != i + 1) abort();
		gettimeofday(&now, NULL);
	} while ((now.tv_sec - begin.tv_sec) * 10 + (now.tv_usec - begin.tv_usec) / 100000 < seconds_10);
	setitimer(ITIMER_REAL, &none, NULL);
}

int main(int argc, char **argv)
{
	struct request last = {5, 1, 100, -3, "last", NULL, {-2, "inner"}, "tail", 0.5, {10, 20, 30}};
	struct request first = {7, 3, 2000, 7, "first", &last, {4, NULL}, "headhead", 2.5, {1, 2, 3}};
	char big[6000];
	int sum = 0;
	if (argc > 1 && !strcmp(argv[1], "handlers")) { interrupted(on_alarm, 5); return 0; }
	if (argc > 1 && !strcmp(argv[1], "jumps")) { interrupted(on_alarm_jump, 5); for (int i = 0; i < 5; i++) leaf(i); return 0; }
	memset(big, 'x', sizeof big - 1);
	big[sizeof big - 1] = 0;
	for (int i = 0; i < 20; i++)
		sum += numbers(i, 10 * i);
	sum += numbers(-1, -(1L << 62));
	sum += text("x", 1) + text("hello", 2) + text(NULL, 3) + text((char *)8, 4) + text(big, 5) + text("", 6);
	sum += (int)real(1.5, 2.5f) + (int)real(-3.0, 0);
	sum += kinds(RED, 1, 1ul << 63, big) + kinds(GREEN, 0, 5, NULL);
	sum += follow(&first, &last) + follow(&last, &first) + follow((struct request *)16, &last) + follow(NULL, &last);
	sum += eight(1, 2, 3, 4, 5, 6, 7, 8);
	sum += one(1) + other(2) + deep(5);
	if (!sigsetjmp(back, 1))
		leaves(0), leaves(1);
	pthread_t threads[4];
	for (long i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, thread, (void *)(100 + i));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	int child = fork();
	if (!child) { leaf(77); _exit(0); }
	waitpid(child, NULL, 0);
	int fd = open("/dev/null", O_RDONLY);
	printf("%d %d\n", sum, fd >= 0);
	return 0;
}
"""

BUILT = os.path.join(t.SCRATCH, "calls")
with open(BUILT + ".c", "w") as source:
    source.write(PROGRAM)
COMPILER = shutil.which("cc") or shutil.which("gcc")
subprocess.run([COMPILER, "-g", "-O1", "-fno-optimize-sibling-calls", "-falign-functions=32", "-pthread", "-o", BUILT, BUILT + ".c"], check=True)
PLAIN = subprocess.run([BUILT], stdout=subprocess.PIPE, check=True).stdout


def record(name, *options, arguments=()):
    run = t.Run([BUILT, *arguments], options=["--kinds", "procs", *options])
    if not t.check(name + ": the program runs as ever", run.status == 0 and (arguments or run.stdout == PLAIN), run.why()):
        return run, []
    return run, t.log(run.directory)


def of(events, tag, function=None):
    return [e for e in events if e["tag"] == tag and (function is None or e.get("function") == function)]


def arguments(events, function):
    return [e["args"] for e in of(events, "call", function)]


def erlang(run, tag):
    status, said, error = t.lorg("log", "--format", "erlang", run.directory)
    return [line for line in said.decode().splitlines() if ("," + tag + ",") in line]


# ---- guards ------------------------------------------------------------------

def shown(value):
    if isinstance(value, str) and value.startswith("0x"):
        return "pointer"
    return "unreadable" if isinstance(value, dict) and "unreadable" in value else value


def guard(name, function, specification, want, option="--match"):
    run, events = record(name, "--call", "calls:" + function, option, specification)
    got = [tuple(shown(a) for a in args) for args in arguments(events, function)]
    t.equal(name, got, want)
    return events


MAIN_ONLY = "{'<','$1',50}"
guard("two integers", "numbers", "[{['$1','$2'],[{'>','$1',10},{'<','$2',150},%s],[]}]" % MAIN_ONLY, [(i, 10 * i) for i in range(11, 15)])
guard("a large integer", "numbers", "[{['_',-4611686018427387904],[],[]}]", [(-1, -(1 << 62))])
guard("the same variable twice", "numbers", "[{['$1','$1'],[%s],[]}]" % MAIN_ONLY, [(0, 0)])
guard("another number of arguments", "numbers", "[{['$1'],[],[]}]", [])
guard("strings", "text", "[{[\"hello\",'_'],[],[]},{['$1','_'],[{'is_list','$1'},{'==',{'length','$1'},0}],[]}]", [("hello", 2), ("", 6)])
guard("a null pointer is 0", "text", "[{[0,'$1'],[],[]}]", [("pointer", 3)])
guard("what cannot be read is a number", "text", "[{[8,'$1'],[],[]}]", [("unreadable", 4)])
guard("floats", "real", "[{['$1','$2'],[{'>',{'+','$1','$2'},3.9}],[]}]", [(1.5, 2.5)])
guard("enumerators, booleans, large numbers, pointers", "kinds",
      "[{['RED',true,9223372036854775808,'$1'],[{'is_integer','$1'},{'/=','$1',0}],[]}]", [("RED", True, 1 << 63, "pointer")])
guard("numbers on the stack", "eight", "[{['_','_','_','_','_','_',7,8],[],[]}]", [tuple(range(1, 9))])
guard("arithmetic beyond 64 bits", "numbers", "[{['$1','$2'],[{'==',{'*','$2','$2'},21267647932558653966460912964485513216}],[]}]", [(-1, -(1 << 62))])

# ---- conditions ----------------------------------------------------------------

condition = lambda name, function, text, want: guard(name, function, text, want, "--if")
condition("if: a string and a number", "text", "arg0 =:= \"hello\" andalso arg1 > 1", [("hello", 2)])
condition("if: parameters by name", "text", "name =:= \"x\" andalso count == 1", [("x", 1)])


def followed(name, text, want):
    run, events = record(name, "--call", "calls:follow", "--if", text)
    got = [e["args"][0]["to"]["name"] if isinstance(e["args"][0], dict) and "to" in e["args"][0] else e["args"][0] for e in of(events, "call", "follow")]
    t.equal(name, got, want)
    t.equal(name + ": returns are told too", len(of(events, "return_from", "follow")), len(want))


followed("if: a member", "request->length > 6", ["first"])
followed("if: a member's member", "request->next->name == \"last\"", ["first"])
followed("if: an inner struct", "arg0->part.low == -2 andalso arg0->part.label == \"inner\"", ["last"])
followed("if: bit fields", "arg0->narrow == 3 andalso arg0->wide == 2000 andalso arg0->negative == 7", ["first"])
followed("if: a negative bit field", "arg0->negative == -3", ["last"])
followed("if: an array of characters", "arg0->tag == \"headhead\"", ["first"])
followed("if: a short text in one", "arg0->tag == \"tail\"", ["last"])
followed("if: a float", "arg0->weight < 1.0", ["last"])
followed("if: an element", "arg0->list[1] == 20 orelse arg0->list[2] == 3", ["first", "last"])
followed("if: an index that is computed", "arg0->list[arg0->narrow - 1] == 3", ["first"])
followed("if: [0] of a pointer", "arg1[0].length == 7", ["last"])
followed("if: null in the middle fails", "arg0->next->length == 5 orelse true", ["first"])
followed("if: what would fault fails", "arg0->length >= 0 orelse true", ["first", "last"])
condition("if: the caller", "leaf", "caller() == {calls, one, 1}", [(1,)])
condition("if: another caller", "leaf", "caller() /= {calls, one, 1} andalso arg0 < 50", [(2,)])

# ---- actions ------------------------------------------------------------------

run, events = record("message", "--call", "calls:numbers", "--match",
                     "[{[3,'_'],[],[{message,false}]},{[4,'_'],[],[{message,{{got,'$_',\"x\",<<1,2>>,1.5}}}]},{[5,'_'],[],[{message,true}]}]")
t.equal("message: which calls are told", arguments(events, "numbers"), [[4, 40], [5, 50]])
t.equal("message: what is added", [e.get("message") for e in of(events, "call")], [["got", [4, 40], [120], "\x01\x02", 1.5], None])
t.check("message: the last element in Erlang's form", any("{got,[4,40],[120],<<1,2>>,1.5}}" in line for line in erlang(run, "call")),
        erlang(run, "call"))
t.equal("match: no returns unless asked for", len(of(events, "return_from")), 0)

run, events = record("return_trace", "--call", "calls:numbers", "--match",
                     "[{[3,'_'],[],[{return_trace}]},{[4,'_'],[],[{return_trace},{message,false}]},{[5,'_'],[],[]}]")
t.equal("return_trace: calls", arguments(events, "numbers"), [[3, 30], [5, 50]])
t.equal("return_trace: returns, also of a call that was not told", [e["value"] for e in of(events, "return_from")], [34, 45])

for action, left in (("return_trace", 0), ("exception_trace", 1)):
    run, events = record(action + " of what is left", "--call", "calls:leaves", "--match", "[{'_',[],[{%s}]}]" % action)
    t.equal(action + ": return_from", len(of(events, "return_from", "leaves")), 1)
    t.equal(action + ": exception_from", len(of(events, "exception_from", "leaves")), left)

run, events = record("silent", "--call", "calls:leaf", "--call", "calls:numbers", "--match",
                     "[{[3,'_'],[],[{silent,true},{return_trace}]},{[6,'_'],[],[{silent,false},{return_trace}]},{[2,'_'],[],[{return_trace}]},"
                     "{['$1','_'],[%s],[]}]" % MAIN_ONLY)
t.equal("silent: which are told", [a[0] for a in arguments(events, "numbers") if a[0] >= 0 and a[0] < 9], [0, 1, 2, 6, 7, 8])
t.equal("silent: returns of calls made in silence are not", [e["value"] for e in of(events, "return_from", "numbers")], [23, 67])

run, events = record("surroundings", "--call", "calls:numbers", "--match",
                     "[{[0,'_'],[],[{message,[{self},{node},{get_tcw},{get_seq_token},{is_seq_trace}]}]},"
                     "{[1,'_'],[],[{set_tcw,4294967295},{set_seq_token,label,17},{set_seq_token,send,true},{set_seq_token,serial,{{3,4}}},"
                     "{message,[{get_tcw},{get_seq_token},{is_seq_trace}]}]},"
                     "{[2,'_'],[{'==',{get_tcw},4294967295},{is_seq_trace}],[{message,{set_tcw,1}}]}]")
said = [e["message"] for e in of(events, "call", "numbers")]
self = of(events, "call")[0]["process"] if said else ""
t.check("surroundings: at first", len(said) == 3 and said[0][2:] == [0, [], False] and said[0][1].startswith("lorg-") and said[0][0][:-3] in self, said)
t.check("surroundings: changed", len(said) == 3 and said[1][0] == 4294967295 and said[1][1][:3] == [1, 17, 4] and said[1][1][4] == 3 and said[1][2] is True, said)
t.equal("surroundings: guards see it", said[2:], [4294967295])

run, events = record("caller", "--call", "calls:leaf", "--match", "[{[1],[],[{message,{caller}}]},{[2],[],[{message,{caller_line}}]},{[77],[],[]}]")
t.check("caller: its name", any("{calls,one,1}}" in line for line in erlang(run, "call")), erlang(run, "call"))
t.check("caller_line: file and line", any("{calls,other,1,{" in line and "calls.c\"," in line for line in erlang(run, "call")), erlang(run, "call"))
t.equal("a fork child goes on under the same specification", len([e for e in of(events, "call") if e["args"] == [77] and e["process"] != self]), 1)

run, events = record("current_stacktrace", "--call", "calls:deep", "--match", "[{[0],[],[{message,{current_stacktrace}},{return_trace}]},{'_',[],[{return_trace}]}]")
stack = [e["message"] for e in of(events, "call", "deep") if "message" in e]
t.check("current_stacktrace: the open calls, the caller first", len(stack) == 1 and [f["function"] for f in stack[0]][:6] == ["deep"] * 5 + ["main"], stack)
run, events = record("current_stacktrace/1", "--call", "calls:deep", "--match", "[{[0],[],[{message,{current_stacktrace,2}},{return_trace}]},{'_',[],[{return_trace}]}]")
t.equal("current_stacktrace: a depth", [len(e["message"]) for e in of(events, "call") if "message" in e], [2])

run, events = record("display and process_dump", "--call", "calls:text", "--match",
                     "[{[\"hello\",'$1'],[],[{display,{{shown,'$_'}}},{message,{process_dump}}]}]")
t.equal("display: an event, not output", [e["term"] for e in of(events, "display")], [["shown", [[104, 101, 108, 108, 111], 2]]])
dump = of(events, "call")[0].get("message", "") if of(events, "call") else ""
t.check("process_dump: who, where, registers, stack", all(word in dump for word in ("=proc:<", "State: Running", "Current function: 0x", "rdi 0x", "Stack:\n0x")), dump)

run = t.Run([BUILT], options=["--kinds", "procs", "--call", "calls:numbers", "--call", "calls:leaf", "--return-to", "--match",
                              "[{[0],[],[{return_trace}]},{[1],[],[{disable_trace,return_to},{return_trace}]},{[2],[],[{enable_trace,return_to},{return_trace}]},"
                              "{[77],[],[{enable_trace,arity},{disable_trace,call},{return_trace}]}]"])
events = t.log(run.directory)
t.equal("flags: arity of that very call, call taken away lets it pass", [e["args"] for e in of(events, "call", "leaf")], [[1], [2], None])
t.equal("flags: no return_from without call", [e["value"] for e in of(events, "return_from", "leaf")], [2, 3])
t.equal("flags: return_to when it happens", [e["function"] for e in of(events, "return_to") if e["function"] in ("one", "other")], ["other"])
flags = [e for e in t.log(run.directory, "--kind", "flags") if e["tag"] == "flags"]
t.check("flags: changes are told", len(flags) >= 3, flags)

run, events = record("trace of another", "--call", "calls:numbers", "--match", "[{[0,'_'],[],[{message,[{trace,{self},[],[arity]}]}]},{[1,'_'],[],[{message,[{trace,{self},[arity],[]}]}]},"
                     "{[2,'_'],[],[{message,[{trace,nobody,[],[arity]}]}]},{[3,'_'],[],[{message,[{trace,[arity],[]}]}]},"
                     "{[4,'_'],[],[{message,[{enable_trace,nonsense}]}]}]")
t.equal("trace/3: itself by pid; nobody fails; nothing changed", [e["message"] for e in of(events, "call", "numbers")], [[True], [True], ["EXIT"], [False], ["EXIT"]])

# ---- where it applies ------------------------------------------------------------

run, events = record("before any --call: all", "--if", "arg0 == 2", "--call", "calls:numbers", "--call", "calls:leaf", "--if", "arg0 == 1")
t.equal("before any --call: all that have none of their own", (arguments(events, "numbers"), arguments(events, "leaf")), ([[2, 20]], [[1]]))
run, events = record("the last rule decides", "--call", "calls:*", "--if", "false", "--call", "calls:leaf")
t.equal("the last rule that names a function decides", (len(arguments(events, "numbers")), len(arguments(events, "leaf"))), (0, 3))
run, events = record("without values", "--no-values", "--call", "calls:numbers", "--match", "[{[3,'_'],[],[]},{[4,'_'],[],[{message,x}]}]")
t.equal("without values arguments are looked at all the same", (len(of(events, "call_entry")) + len(of(events, "call")),
                                                              [e.get("message") for e in of(events, "call") if e.get("message")]), (2, ["x"]))
run, events = record("with --longer-than", "--longer-than", "1ns", "--call", "calls:numbers", "--match", "[{[3,'_'],[],[{message,kept}]}]")
t.equal("with --longer-than", [(e["args"], e.get("message")) for e in of(events, "call")], [([3, 30], "kept")])
run, events = record("with --limit", "--limit", "3", "--call", "calls:numbers", "--if", "arg0 >= 5 andalso arg0 < 50")
t.equal("only what passes counts against a limit", [a[0] for a in arguments(events, "numbers")], [5, 6] if len(of(events, "return_from")) == 1 else [5])

run = t.Run([BUILT], options=["--call", "libc.so.6:open/_", "--match", "[{['$1','_'],[],[{return_trace}]}]"])
events = t.log(run.directory)
opened = [e for e in of(events, "call", "open") if e["args"][0] == "/dev/null"]
t.check("libc's open: the call and its return", len(opened) == 1 and len(of(events, "return_from", "open")) >= 1, of(events, "call"))

# ---- threads and handlers ----------------------------------------------------------

run, events = record("threads", "--call", "calls:numbers", "--match", "[{['$1','$2'],[{'>=','$1',100},{'==',{'rem','$2',7},0}],[{message,{{'$1'}}}]}]")
t.equal("threads: each call that passes, with its own", sorted((e["args"][0], e["args"][1], e["message"][0]) for e in of(events, "call")),
        sorted((100 + k, i, 100 + k) for k in range(4) for i in range(0, 500, 7)))

SLOW = ("[{['$1'],[{'<','$1',0}],[{message,{{handler,{length,\"%s\"}}}}]},"
        "{['$1'],[{'==',{length,\"%s\"},300},{'==','$1',999}],[{message,{{'$1',\"%s\"}}}]}]" % ("h" * 200, "a" * 300, "b" * 40))
run, events = record("handlers", "--call", "calls:tick", "--match", SLOW, arguments=["handlers"])
wrong = [e for e in of(events, "call") if (e["args"][0] == -1) != (e["message"] == ["handler", 200]) or
         (e["args"][0] != -1 and e["message"] != [999, [98] * 40])]
t.check("handlers in the middle of evaluations: each result is its own", events and not wrong, wrong[:2])
t.check("handlers: they are told too", len([e for e in of(events, "call") if e["args"][0] == -1]) > 20, len(of(events, "call")))

JUMPS = SLOW.replace("{'==','$1',999}", "{'<','$1',9999},{'==',{'rem','$1',500},4}")
run, events = record("jumps", "--match", JUMPS, "--call", "calls:tick", "--call", "calls:leaf", arguments=["jumps"])
t.check("handlers that jump out of evaluations: the memory is had again", [e["args"] for e in of(events, "call", "leaf")] == [[4]],
        [e["args"] for e in of(events, "call", "leaf")])
gaps = [e for e in t.log(run.directory) if e["tag"] == "gap" and "match" in e["what"]]
t.check("jumps: no evaluation was left out", not gaps, gaps)

# ---- limits ---------------------------------------------------------------------------

run, events = record("a string beyond the scratch memory", "--call", "calls:text", "--if", "length(arg0) > 5000")
gaps = [e for e in t.log(run.directory) if e["tag"] == "gap" and "match" in e["what"]]
t.check("limits: the call fails, and it is counted", not of(events, "call") and len(gaps) == 1 and gaps[0]["count"] == 1, (of(events, "call"), gaps))
run, events = record("what would take long", "--call", "calls:numbers", "--match",
                     "[{['$1','_'],[{'==','$1',3},{'>',{'bsl',1,{'*','$1',1000000}},0}],[]},{[3,'_'],[],[{message,second}]}]")
t.equal("limits: the guard does not hold, the next clause is tried", [e["message"] for e in of(events, "call")], ["second"])

# ---- what is refused -------------------------------------------------------------------


def refused(name, options, *words):
    marker = os.path.join(t.SCRATCH, "ran")
    run = t.Run(["touch", marker], options=list(options))
    lines = run.stderr.strip().splitlines()
    t.check(name, run.status == 2 and len(lines) == 1 and lines[0].startswith("lorg: ") and all(word in lines[0] for word in words) and
            not os.path.exists(marker), run.why())


refused("refused: unbound", ["--call", "a:b", "--match", "[{['$1'],[{'>','$2',1}],[]}]"], "match specification: 1:", "'$2'")
refused("refused: no term", ["--call", "a:b", "--match", "[{['$1',[],["], "match specification: 1:")
refused("refused: an action in a guard", ["--call", "a:b", "--match", "[{'_',[{return_trace}],[]}]"], "1:", "return_trace")
refused("refused: a caller taken apart", ["--call", "a:b", "--match", "[{'_',[],[{message,{element,1,{caller}}}]}]"], "1:", "caller")
refused("refused: a condition that ends early", ["--call", "a:b", "--if", "arg0 =:= "], "condition: 1:")
refused("refused: a member without a name", ["--call", "a:b", "--if", "arg0->"], "condition: 1:7")
refused("refused: nested too deep", ["--call", "a:b", "--match", "[" * 3000 + "]" * 3000], "1:")
refused("refused: hostile bytes", ["--call", "a:b", "--match", "[{'_',[\x01\xff]}]"], "1:")
refused("refused: two of them", ["--call", "a:b", "--if", "arg0 == 1", "--if", "arg0 == 2"], "--if")
refused("refused: without --call", ["--if", "arg0 == 1"], "--if")
run, events = record("a member that is not there", "--call", "calls:follow", "--if", "arg0->nothing == 1")
t.check("a member that is not there: said when it is known, and nothing is traced", "no member 'nothing'" in run.stderr and not of(events, "call"), run.stderr)
run, events = record("a condition that fits some", "--call", "calls:*", "--if", "request->length == 7")
t.equal("a condition that fits some functions is applied to those", sorted({e["function"] for e in of(events, "call")}), ["follow"])

t.finish()
