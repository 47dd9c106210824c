#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calls, arguments and results that are known beforehand, in programs made here by each compiler with each kind of option.

A program is made of functions whose parameters have types drawn at random and whose arguments and results are drawn
at random as well, so that this script knows every value. What lorg says must be exactly that; a value may be told as
not known (null) where the compiler may have changed the function, never as a wrong one.

LORG_TEST_SEED: another draw.
"""

import os
import random
import re
import shutil
import subprocess
import sys

import lorgtest as t

SEED = int(os.environ.get("LORG_TEST_SEED", "1"))
FUNCTIONS = 40
CALLS = 3


class Type:
    """C text of the type, and a way to draw a value: (C expression, what JSON shows)."""

    def __init__(self, text, draw, before=""):
        self.text, self.draw, self.before = text, draw, before


def integer(bits, signed):
    def draw(rng):
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        value = rng.choice([low, high, 0, 1, rng.randint(low, high)])
        text = "(%d - 1)" % (value + 1) if value < 0 else "%d" % value
        if bits == 64:
            text = "(-%dLL - 1)" % -(value + 1) if value < 0 else "%d%s" % (value, "LL" if signed else "ULL")
        return text, value
    return draw


def floating(suffix):
    def draw(rng):
        value = rng.randint(-1 << 20, 1 << 20) / 8
        return "%r%s" % (value, suffix), value
    return draw


def text_value(rng):
    value = "".join(rng.choice("abc xyz_09") for _ in range(rng.randint(0, 20)))
    return '"%s"' % value, value


def members(*fields):
    """A struct value: C initialiser list and the JSON of its members."""
    def draw(rng):
        parts = [(name, *kind.draw(rng)) for name, kind in fields]
        return "{" + ", ".join(part[1] for part in parts) + "}", {part[0]: part[2] for part in parts}
    return draw


def types(cplusplus):
    basic = {
        "char": Type("char", lambda rng: (lambda c: ("'%s'" % c, ord(c)))(rng.choice("azAZ09"))),
        "schar": Type("signed char", integer(8, True)),
        "uchar": Type("unsigned char", integer(8, False)),
        "short": Type("short", integer(16, True)),
        "ushort": Type("unsigned short", integer(16, False)),
        "int": Type("int", integer(32, True)),
        "uint": Type("unsigned", integer(32, False)),
        "long": Type("long", integer(64, True)),
        "ulong": Type("unsigned long", integer(64, False)),
        "bool": Type("bool" if cplusplus else "_Bool", lambda rng: rng.choice([("1", True), ("0", False)])),
        "float": Type("float", floating("f")),
        "double": Type("double", floating("")),
        "ldouble": Type("long double", floating("L")),
        "text": Type("const char *", text_value),
        "enum": Type("enum colour", lambda rng: rng.choice([("RED", "RED"), ("GREEN", "GREEN"), ("(enum colour)7", 7)])),
    }
    structs = {
        "pair": [("x", "int"), ("y", "int")],
        "mixed": [("d", "double"), ("l", "long")],
        "floats": [("a", "float"), ("b", "float"), ("c", "float")],
        "large": [("a", "long"), ("b", "double"), ("c", "int")],
        "small": [("c", "schar"), ("s", "short"), ("b", "bool")],
    }
    result = dict(basic)
    for name, fields in structs.items():
        kinds = [(field, basic[kind]) for field, kind in fields]
        body = " ".join("%s %s;" % (kind.text, field) for field, kind in kinds)
        draw = members(*kinds)

        def by_value(rng, draw=draw, name=name):
            text, shown = draw(rng)
            return "(struct %s)%s" % (name, text), dict({"struct": name}, **shown)

        def by_pointer(rng, draw=draw, name=name):
            text, shown = draw(rng)
            return "&(struct %s)%s" % (name, text), {"to": dict({"struct": name}, **shown)}

        result[name] = Type("struct %s" % name, by_value, "struct %s { %s };" % (name, body))
        if not cplusplus:
            result[name + "*"] = Type("struct %s *" % name, by_pointer)
    return result


def make_program(rng, cplusplus, static):
    """(source, [(function, arguments, result)...] in the order of the calls)."""
    known = types(cplusplus)
    # Values are kept in globals, so that no compiler can know what a call is given or returns.
    lines = ["#include <stddef.h>", "enum colour { RED, GREEN = 5 };"]
    lines += [kind.before for kind in known.values() if kind.before]
    main, expected = [], []
    for number in range(FUNCTIONS):
        kinds = [known[rng.choice(list(known))] for _ in range(rng.randint(0, 10))]
        returns = known[rng.choice([name for name in known if not name.endswith("*")])] if number % 5 else None
        name = "f%d" % number
        parameters = ", ".join("%s p%d" % (kind.text, i) for i, kind in enumerate(kinds)) or "void"
        uses = " ".join('__asm__ volatile("" : : "r"(&p%d) : "memory");' % i for i in range(len(kinds)))
        head = "%s__attribute__((noinline)) %s %s(%s)" % ("static " if static else "", returns.text if returns else "void", name, parameters)
        if returns:
            lines.append("static %s result%d;" % (returns.text, number))
        if not static:
            lines.append(("extern \"C\" " if cplusplus else "") + head.replace("__attribute__((noinline)) ", "") + ";")
        lines.append("%s { %s __asm__ volatile(\"\"); %s }" % (head, uses, "return result%d;" % number if returns else ""))
        for _ in range(CALLS):
            arguments = [kind.draw(rng) for kind in kinds]
            shown = None
            if returns:
                text, shown = returns.draw(rng)
                main.append("result%d = %s;" % (number, text))
            main.append("%s(%s);" % (name, ", ".join(text for text, _ in arguments)))
            expected.append((name, [value for _, value in arguments], shown))
    lines.append("int main(void) {\n\t%s\n\treturn 0;\n}" % "\n\t".join(main))
    return "\n".join(lines) + "\n", expected


def same(got, want, may_be_unknown):
    if got is None and may_be_unknown:
        return True
    if isinstance(want, dict) and isinstance(got, dict):
        return all(key in got and same(got[key], value, may_be_unknown) for key, value in want.items())
    if isinstance(want, float):
        return isinstance(got, (int, float)) and float(got) == want
    return got == want and isinstance(got, bool) == isinstance(want, bool)


def check_program(name, compiler, options, cplusplus=False, static=False, changed=False):
    rng = random.Random("%d %s" % (SEED, name))
    source, expected = make_program(rng, cplusplus, static)
    path = t.scratch("matrix") + (".cc" if cplusplus else ".c")
    program = t.scratch("matrix.out")
    with open(path, "w", encoding="ascii") as file:
        file.write(source)
    built = subprocess.run([*compiler, "-g", "-w", *options, path, "-o", program], stderr=subprocess.PIPE, check=False)
    if built.returncode != 0:
        t.check(name, False, "compiler: " + built.stderr.decode(errors="replace"))
        return
    run = t.Run([program], options=["--call", os.path.basename(program) + ":f*"], cwd=t.SCRATCH)  # gprof writes there
    if not t.check(name + ": runs as without", run.status == 0 and run.stdout == b"", run.why()):
        return
    compare(name, t.log(run.directory), expected, static or changed)


def plain(function):
    """Without the suffix of a clone and the file of a static function; as C++ has it without its parameters."""
    return re.split("[.@(]", function)[0]


def compare(name, events, expected, may_be_unknown):
    def made_here(tag):  # not frame_dummy and its like
        return [event for event in events if event["tag"] == tag and re.fullmatch(r"f\d+", plain(event["function"]))]

    calls, returns = made_here("call"), made_here("return_from")
    refused = {plain(event["what"].split(":")[-1]) for event in events if event["tag"] == "gap"}
    wanted = [item for item in expected if item[0] not in refused]
    got = [plain(call["function"]) for call in calls]
    missing = sorted({item[0] for item in wanted} - set(got))
    if not t.check(name + ": calls", got == [item[0] for item in wanted], "%d, not %d; missing %s" % (len(got), len(wanted), missing)):
        return
    wrong = []
    for call, back, (function, arguments, result) in zip(calls, returns, wanted):
        got = call.get("args", [])
        if len(got) != len(arguments) and not (may_be_unknown and not got):
            wrong.append("%s: %d arguments, not %d" % (function, len(got), len(arguments)))
        for number, (one, want) in enumerate(zip(got, arguments)):
            if not same(one, want, may_be_unknown):
                wrong.append("%s argument %d: %r, not %r" % (function, number, one, want))
        if result is not None and not same(back.get("value"), result, may_be_unknown):
            wrong.append("%s result: %r, not %r" % (function, back.get("value"), result))
    t.check(name + ": values", not wrong, "; ".join(wrong[:5]))
    t.equal(name + ": returns", len(returns), len(wanted))


def main():
    gcc, gxx, clang = ["gcc"], ["g++"], ["clang"]
    matrix = [
        ("gcc -O0", gcc, ["-O0"]), ("gcc -O2", gcc, ["-O2"]), ("gcc -O3", gcc, ["-O3"]), ("gcc -Os", gcc, ["-Os"]),
        ("gcc non-PIE", gcc, ["-O2", "-no-pie", "-fno-pie"]), ("gcc CET", gcc, ["-O2", "-fcf-protection=full"]),
        ("gcc LTO", gcc, ["-O2", "-flto"]), ("gcc patchable", gcc, ["-O2", "-fpatchable-function-entry=5"]),
        ("gcc fentry", gcc, ["-O2", "-pg", "-mfentry"]),
        ("gcc fentry NOPs", gcc, ["-O2", "-pg", "-mfentry", "-mnop-mcount", "-fno-pie", "-no-pie"]), ("gcc frame pointer", gcc, ["-O1", "-fno-omit-frame-pointer"]),
    ]
    for name, compiler, options in matrix:
        check_program(name, compiler, options, changed="-flto" in options)
    check_program("gcc static functions", gcc, ["-O2"], static=True)
    check_program("g++ -O2", gxx, ["-O2"], cplusplus=True)
    check_program("g++ -O0", gxx, ["-O0"], cplusplus=True)
    if shutil.which("clang"):
        check_program("clang -O2", clang, ["-O2"])
        check_program("clang -O0", clang, ["-O0"])
        check_program("clang static functions", clang, ["-O2"], static=True)
    else:
        t.skip("clang", "not installed")
    t.finish()


if __name__ == "__main__":
    sys.exit(main())
