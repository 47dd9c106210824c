#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lorg matchspec test --batch against what Erlang/OTP answered (tests/conformance/matchspec).

  tests/conformance/run.py            all files, a line for each, and the command on what is no test
  tests/conformance/run.py -v NAME    one file, and every case that differs

TEST_LORG names the lorg to test.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LORG = os.environ.get("TEST_LORG") or os.path.join(ROOT, "build", "collector", "lorg")
SPECIAL = {"bif_values": "values", "later_releases": "later"}

# Functions of later releases with the arities that they have there, as calls in a specification look. is_function/2 and
# current_stacktrace in guards and tables stay refused.
LATER = re.compile(r"\{(?:is_boolean|is_bitstring|floor|ceil|tuple_size),[^,{}]*(?:\{\{a\}\})?\}|\{(?:max|min),[^,{}]*,[^,{}]*\}")
REFUSED = re.compile(r"\{is_function,[^,]*,|\{(?:floor|ceil|is_boolean)\}|\{(?:floor|ceil),[^,{}]*,|\{current_stacktrace")


def cases(path):
    """The columns of each case."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            line = line.rstrip("\n")
            if line and not line.startswith("#"):
                yield line.split("\t")


def batch(lines):
    """What lorg says of each case: id -> [outcome, result, flags]."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
        file.flush()
        done = subprocess.run([LORG, "matchspec", "test", "--batch", file.name], capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(f"ended with {done.returncode}: {done.stderr[:300]}")
    return {line.split("\t")[0]: line.split("\t")[1:] for line in done.stdout.splitlines()}


def expect_columns(path):
    """Specifications with outcome, result and flags."""
    for columns in cases(path):
        yield "\t".join(columns[:4]), columns[0], columns[4:7]


def arguments_of(text):
    """The elements of a list, as text, cut at commas that stand in no bracket."""
    parts, depth, quoted, start = [], 0, False, 1
    for i, c in enumerate(text[:-1]):
        if c == "'":
            quoted = not quoted
        elif not quoted and c in "[{(":
            depth += 1
        elif not quoted and c in "]})":
            depth -= 1
        elif not quoted and text[i:i + 2] == "<<":
            depth += 1
        elif not quoted and text[i - 1:i + 1] == ">>" and text[i - 2:i] != "=>":
            depth -= 1
        elif not quoted and c == "," and depth == 1:
            parts.append(text[start:i])
            start = i + 1
    return parts + [text[start:-1]]


def expect_values(path):
    """Functions with their arguments and value, which a table's body returns."""
    for number, function, arguments, value in cases(path):
        constants = ",".join("{const,%s}" % argument for argument in arguments_of(arguments))
        yield f"{number}\ttable\tx\t[{{'_',[],[{{{function},{constants}}}]}}]", number, ["ok", value, "[]"]


def expect_later(path):
    """What later releases have is accepted where it has the right form; of the rest the outcome stays."""
    for columns in cases(path):
        accepted = LATER.search(columns[3]) and not REFUSED.search(columns[3])
        body = re.search(r"\[\{current_stacktrace(,\d+)?\}\]\}\]$", columns[3]) and columns[1] == "trace" and "[],[{" in columns[3]
        yield "\t".join(columns[:4]), columns[0], ["ok"] if accepted or body else ["badarg"]


def check(path, verbose):
    """True if every case of a file is right."""
    name = os.path.splitext(os.path.basename(path))[0]
    expected = list({"values": expect_values, "later": expect_later}.get(SPECIAL.get(name), expect_columns)(path))
    try:
        got = batch(line for line, _, _ in expected)
    except RuntimeError as error:
        print(f"FAIL conformance {name}: {error}")
        return False
    wrong = [(line, want, got.get(number)) for line, number, want in expected if (got.get(number) or [])[:len(want)] != want]
    for line, want, have in wrong[:None if verbose else 3]:
        print(f"     {line}\n       wants {want}\n       has   {have}")
    if wrong or not expected:
        print(f"FAIL conformance {name}: {len(wrong)} of {len(expected)} cases differ")
        return False
    print(f"ok   conformance {name} ({len(expected)} cases)")
    return True


LINE = "1\ttrace\t[x]\t[{'_',[],[]}]"
GOOD = "1\tok\ttrue\t[]\n"

# What is in the file, what comes out, how many errors are said.
BATCHES = [
    ("", "", 0),
    ("# heading\n\n" + LINE + "\n", GOOD, 0),
    (LINE, GOOD, 0),
    (LINE + "\r\n", GOOD, 0),
    (LINE + "\tmore\tcolumns\n", GOOD, 0),
    ("1\ttrace\t\t\n", "1\tbadarg\t-\t-\n", 0),
    ("1\ttrace\t[x]\t" + "[" * 1000000 + "\n" + LINE, "1\tbadarg\t-\t-\n" + GOOD, 0),
    ("1\ttrace\t[x]\n" + LINE, GOOD, 1),
    ("1\tother\t[x]\t[]\n" + LINE + "\nno test\n" + LINE, GOOD + GOOD, 2),
    ("1\ttrace\t[\0]\t[]\n" + LINE, GOOD, 1),
    ("no test\n" * 1000 + LINE, "", 20),
]

ALL = "[{'_',[],[]}]"
PRODUCT = "(" + "*".join(["(1 bsl 100000)"] * 300) + ")"

# Arguments and the exit status. One error is said where it is not 0, and none takes long.
COMMANDS = [
    ([], 2), (["[x]"], 2), (["[x]", ALL, "more"], 2), (["[x]", ALL, "--if", "true"], 2), (["--table", "x", "--if", "true"], 2),
    (["--batch", "file", "[x]"], 2), (["--unknown"], 2), (["--batch", "/nonexistent"], 1), (["--batch", "/"], 1),
    (["--help"], 0), (["--table", "--", "-5", "[{'$1',[],['$1']}]"], 0), (["x", ALL], 1),
    (["[" * 100000, ALL], 1), (["{" * 100000, ALL], 1), (["(" * 100000, ALL], 1), (["<<" * 60000, ALL], 1), (["#{a=>" * 20000, ALL], 1),
    (["[x]", "[" * 100000], 1), (["[x]", "--if", "(" * 100000], 1), (["[x]", "--if", "[" * 100000], 1), (["[x]", "--if", "not " * 30000], 1),
    (["[x]", "--if", "-" * 100000 + "1"], 1), (["[x]", "--if", "hd(" * 30000], 1), (["[1]", "--if", "true" + " andalso true" * 8000], 0),
    (["[" + "9" * 120000 + "]", ALL], 0), (["[36#" + "z" * 120000 + "]", ALL], 0), (["[" + "0" * 100000 + "16#ff]", ALL], 0),
    (["[<<0:4294967295>>]", ALL], 1), (["[<<0:4294967295/unit:256>>]", ALL], 1), (["[1]", "--if", PRODUCT + " > 1"], 0),
    (["[1]", "--if", "1 bsl 100000000 > 1"], 0), ([b"[\xff]", ALL], 1), (["[x]", b"[{[\xc0\x80],[],[]}]"], 1), (["[x]", "--if", b"arg0 == \xe2\x82"], 1),
]


def finished(arguments):
    """Status, output and errors, bytes that are no text replaced."""
    try:
        done = subprocess.run([LORG, "matchspec", "test"] + arguments, capture_output=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return None, "", "takes too long"
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def is_errors(text, count):
    """So many lines, each in the one form."""
    lines = text.splitlines()
    return len(lines) == count and all(line.startswith("lorg: ") for line in lines)


def batch_is_right(content, wanted, errors):
    """Every line that is a test is answered, every other one named; too many of them end it."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8", newline="") as file:
        file.write(content)
        file.flush()
        status, said, complaints = finished(["--batch", file.name])
    return status == (1 if errors else 0) and said == wanted and is_errors(complaints, errors)


def command_is_right(arguments, wanted):
    """The status, and one error that has a place where a text is at fault."""
    status, said, complaints = finished(arguments)
    return status == wanted and (is_errors(complaints, 1) and not said if wanted else bool(said))


def check_command():
    """Files that are not as they should be, and texts that want to do harm."""
    wrong = [case[0][:60] for case in BATCHES if not batch_is_right(*case)]
    wrong += [[argument[:60] for argument in case[0]] for case in COMMANDS if not command_is_right(*case)]
    for case in wrong:
        print(f"     {case!r}")
    print("FAIL conformance command" if wrong else f"ok   conformance command ({len(BATCHES) + len(COMMANDS)} cases)")
    return not wrong


def main(arguments):
    """Exit status 1 if anything differs."""
    verbose = arguments[:1] == ["-v"]
    names = arguments[1:] if verbose else arguments
    paths = sorted(glob.glob(os.path.join(HERE, "matchspec", "*.tsv")))
    if names:
        paths = [path for path in paths if os.path.splitext(os.path.basename(path))[0] in names]
    if not paths:
        print("FAIL conformance: there are no cases")
        return 1
    results = [check(path, verbose) for path in paths]
    if not names:
        results.append(check_command())
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
