#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorg functions: which functions there are and how they can be hooked, in programs made here by each compiler with each kind
of option, in stripped ones, and in Debian's own; and what is said where a pattern names nothing.

Prints the share of functions refused in each of Debian's.
"""

import json
import os
import shutil
import subprocess

from lorgtest import LORG, SCRATCH, check, equal, finish, skip

SHARE_LIMIT = 2.0  # per cent

# Functions of all shapes; the names of those that must be hooked by their code are listed below.
SOURCE = r"""
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP __attribute__((noinline, noclone, used))
jmp_buf place;
volatile int sink;
KEEP int plain(int a, int b) { return a * 3 + b; }
KEEP static int hidden(const char *text) { return (int)strlen(text) + sink; }
KEEP void nothing(void) {}
KEEP int many(int a, int b, int c, int d, int e, int f, int g, int h) { return a + b + c + d + e + f + g + h + sink; }
KEEP double real(double x, float y) { return x * y; }
KEEP int recursive(int n) { return n < 2 ? 1 : n * recursive(n - 1); }
KEEP int tail(int n) { return plain(n, 7); }
KEEP int choose(int n)
{
	switch (n) {
	case 0: return 17;
	case 1: return (int)strlen("x") + sink;
	case 2: return plain(n, 2) * 3;
	case 3: sink = 5; return 4;
	case 4: return tail(n);
	case 5: return recursive(n);
	case 6: puts("six"); return 6;
	default: return -1;
	}
}
KEEP int jumps(int n) { if (setjmp(place)) return n; if (n > 1000) longjmp(place, 1); return n + 1; }
typedef int callback(int, int);
callback *volatile through = plain;
int main(int argc, char **argv)
{
	int sum = hidden(argv[0]) * 0;
	for (int i = 0; i < 8; i++)
		sum += choose(i) + jumps(i) + through(i, 1) + many(1, 2, 3, 4, 5, 6, 7, i) + (int)real(i, 2);
	nothing();
	printf("%d\n", sum);
	return 0;
}
"""
NAMES = {"plain", "hidden", "nothing", "many", "real", "recursive", "tail", "choose", "jumps", "main"}
ARITIES = {"plain": 2, "hidden": 1, "nothing": 0, "many": 8, "real": 2, "recursive": 1, "tail": 1, "choose": 1, "jumps": 1, "main": 2}

# Code that must be refused, each for its own reason.
ASSEMBLY = r"""
	.text
.macro function name
	.balign 16
	.globl \name
	.type \name, @function
\name:
	.cfi_startproc
.endm
.macro end_function name
	.cfi_endproc
	.size \name, . - \name
.endm
	function jumped_into
	push %rbx
.Linto:	mov %rdi, %rbx
	lea 1(%rbx), %rax
	pop %rbx
	ret
	end_function jumped_into
	function jumps
	push %rbx
	jmp .Linto
	end_function jumps
	function loops
	dec %edi
	add $2, %eax
	nop
	test %edi, %edi
	jne loops
	ret
	end_function loops
	function by_table
	mov %rdi, %rax
.Lcase:	lea 1(%rax), %rax
	lea .Ltable(%rip), %rdx
	movslq (%rdx,%rdi,4), %rcx
	add %rdx, %rcx
	jmp *%rcx
	end_function by_table
	function short_one
	xor %eax, %eax
	ret
	end_function short_one
	.globl next_to_it
	.type next_to_it, @function
next_to_it:
	.cfi_startproc
	lea 5(%rdi), %rax
	nop
	nop
	ret
	.cfi_endproc
	.size next_to_it, . - next_to_it
	function far_away
	mov $1, %eax
	ret
	end_function far_away
	function jumps_past
	mov .Lword(%rip), %eax
	jmp far_away
	end_function jumps_past
	.balign 8
.Lword:	.quad far_away - .
	.section .rodata
	.balign 4
.Ltable: .long .Lcase - .Ltable
	.long .Lcase - .Ltable
	.section .note.GNU-stack, "", @progbits
"""
REFUSALS = {"jumped_into": "a jump leads into its first bytes", "loops": "a loop leads back to its start",
            "by_table": "a jump table", "short_one": "it is shorter"}
TAKEN = {"jumps", "next_to_it", "far_away", "jumps_past"}

CXX = r"""
#include <stdexcept>
#include <string>
namespace space {
struct Base { virtual ~Base() {} virtual int method(int a) { return a + 1; } };
struct Class : Base { int method(int a) override; static int fixed(const std::string &text); };
int Class::method(int a) { if (a > 5) throw std::runtime_error("more"); return a; }
int Class::fixed(const std::string &text) { return (int)text.size(); }
template <typename T> __attribute__((noinline)) T twice(T a) { return a + a; }
}
int main()
{
	space::Class object;
	space::Base *base = &object;
	try { base->method(7); } catch (const std::exception &) {}
	return space::Class::fixed("abc") + space::twice(3) + (int)space::twice(2.0) - 3 - 6 - 4;
}
"""

DEBIAN = ["git", "bash", "redis-server", "nginx", "sqlite3", "python3", "libc.so.6", "libstdc++.so.6"]


def functions(*arguments):
    """Rows and the summaries of lorg functions --format json."""
    done = subprocess.run([LORG, "functions", "--format", "json", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return ([row for row in rows if "function" in row], [row for row in rows if "summary" in row], done.returncode,
            done.stderr.decode(errors="replace"))


def build(compiler, options, source, name, suffix=".c"):
    path = os.path.join(SCRATCH, name)
    with open(path + suffix, "w", encoding="ascii") as out:
        out.write(source)
    done = subprocess.run([compiler, *options, path + suffix, "-o", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        skip(name, done.stderr.decode(errors="replace")[:200])
        return None
    return path


def by_name(rows):
    return {row["function"].split("@")[0]: row for row in rows}


def compilers():
    variants = [("gcc", [level]) for level in ("-O0", "-O1", "-O2", "-O3", "-Os")]
    variants += [("clang", [level]) for level in ("-O0", "-O2", "-O3")]
    more = [["-fcf-protection=full"], ["-flto"], ["-fpatchable-function-entry=5"], ["-fpatchable-function-entry=8,3"], ["-pg"],
            ["-pg", "-mfentry"], ["-no-pie", "-fno-pie"], ["-fno-plt"], ["-fno-asynchronous-unwind-tables"], ["-fomit-frame-pointer"],
            ["-Wl,-z,now", "-Wl,-z,relro"]]
    variants += [(compiler, ["-O2", *options]) for compiler in ("gcc", "clang") for options in more]
    for compiler, options in variants:
        if not shutil.which(compiler):
            continue
        label = compiler + " " + " ".join(options)
        path = build(compiler, [*options, "-g"], SOURCE, (compiler + "".join(options)).replace("/", "").replace(",", "_"))
        if not path:
            continue
        found = by_name(functions(path)[0])
        missing = NAMES - set(found)
        check(label + ": all functions are found", not missing, missing)
        # One byte, and the next function right behind it, where nothing is aligned.
        bad = {name: found[name].get("why") for name in NAMES & set(found) if found[name]["tier"] != "code"
               and not (name == "nothing" and found[name]["size"] < 5)}
        check(label + ": all can be hooked by their code", not bad, bad)
        wrong = {name: found[name]["arity"] for name in ARITIES if name in found and found[name]["arity"] not in (ARITIES[name], None)}
        check(label + ": numbers of arguments are never wrong", not wrong, wrong)
        if "-O0" in options:
            equal(label + ": and known", {name: found[name]["arity"] for name in ARITIES if name in found}, ARITIES)
        stripped = path + ".stripped"
        subprocess.run(["strip", "-o", stripped, path], check=True)
        if "-fno-asynchronous-unwind-tables" in options:
            continue
        places = {row["offset"] for row in functions(stripped)[0] if row["tier"] == "code"}
        lost = {name for name in NAMES & set(found) - set(bad) if found[name]["offset"] not in places and found[name]["tier"] == "code"}
        check(label + ": stripped, the same places are found", not lost, lost)


def refusals():
    for options in (["-shared"], ["-shared", "-Wl,-z,now"]):
        path = build("gcc", ["-nostdlib", *options], ASSEMBLY, "refusals.so", ".s")
        if not path:
            continue
        rows = by_name(functions(path)[0])
        for name, why in REFUSALS.items():
            row = rows.get(name, {})
            check("refused: " + name, row.get("tier") == "slots" and why in row.get("why", ""), row)
        for name in sorted(TAKEN):
            equal("hooked: " + name, rows.get(name, {}).get("tier"), "code")


def names():
    path = build("g++", ["-O1", "-g"], CXX, "cxx", ".cc")
    if path:
        for pattern in ("cxx:space::Class::method/2", "cxx:space::Class::*", "cxx:space::twice", "cxx:space::twice<int>", "cxx:_ZN5space5Class6methodEi"):
            rows = functions(path, pattern)[0]
            check("C++ by " + pattern, rows and all("space::" in row["function"] for row in rows), rows)
        equal("this counts as an argument", [row["arity"] for row in functions(path, "cxx:space::Class::method")[0]], [2])
    path = build("gcc", ["-O0", "-g"], SOURCE, "statics")
    equal("a static function by its file", [row["function"] for row in functions(path, "statics:hidden@statics.c")[0]], ["hidden@statics.c"])
    equal("and not by another's", functions(path, "statics:hidden@other.c")[0], [])
    # A separate debug file by .gnu_debuglink.
    debug = path + ".debug"
    subprocess.run(["objcopy", "--only-keep-debug", path, debug], check=True)
    subprocess.run(["strip", path], check=True)
    subprocess.run(["objcopy", "--add-gnu-debuglink=" + debug, path], check=True)
    found = by_name(functions(path)[0])
    check("names from a separate debug file", NAMES <= set(found), NAMES - set(found))
    equal("and numbers of arguments", {name: found[name]["arity"] for name in ARITIES if name in found}, ARITIES)
    os.unlink(debug)
    # MiniDebugInfo: the symbols in a compressed ELF file in a section.
    if shutil.which("xz"):
        whole = build("gcc", ["-O0"], SOURCE, "mini")
        subprocess.run(["objcopy", "--only-keep-debug", whole, whole + ".symbols"], check=True)
        subprocess.run(["objcopy", "-S", "--remove-section", ".comment", "--keep-symbol=plain", "--keep-symbol=hidden", whole + ".symbols",
                        whole + ".few"], check=True)
        subprocess.run(["xz", "-f", whole + ".few"], check=True)
        subprocess.run(["strip", whole], check=True)
        subprocess.run(["objcopy", "--add-section", ".gnu_debugdata=" + whole + ".few.xz", whole], check=True)
        found = by_name(functions(whole)[0])
        check("names from MiniDebugInfo", {"plain", "hidden"} <= set(found), sorted(found)[:20])


def refused_politely():
    for arguments, words in ((["no-such-program"], ["no such program"]), ([os.path.join(SCRATCH, "statics.c")], ["ELF"]),
                             (["git", "git:_/3"], ["at byte 6", "_/_"]), (["git", "git:no_such_function"], ["no function of that name"]),
                             (["git", "no-such-library:f"], ["neither the program nor a library"]), (["git", ":f"], ["no module"])):
        rows, _, status, said = functions(*arguments)
        lines = said.splitlines()
        check("functions %s" % " ".join(arguments[-1:]), status != 0 and not rows and len(lines) == 1 and lines[0].startswith("lorg: ") and
              all(word in said for word in words), said)


def debian():
    compiler = subprocess.run(["gcc", "-print-prog-name=cc1"], stdout=subprocess.PIPE, check=False).stdout.decode().strip()
    for name in [*DEBIAN, compiler]:
        if not os.path.exists(name) and not name.startswith("lib") and not shutil.which(name):
            skip(name, "not installed")
            continue
        done = functions("--summary", name)
        if not check("%s is read" % name, done[1], done[3]):
            continue
        summary = done[1][0]
        refused = 100 * (summary["functions"] - summary["code"]) / summary["functions"]
        check("%s: %d functions, %.2f %% refused" % (summary["summary"], summary["functions"], refused), refused < SHARE_LIMIT, refused)


compilers()
refusals()
names()
refused_politely()
debian()
finish()
