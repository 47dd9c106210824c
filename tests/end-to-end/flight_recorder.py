#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""--overwrite keeps the newest events, counts the others, and forgets no name of what it keeps."""

import collections

from lorgtest import Run, check, equal, finish, fixture, lorg, lost, report

EVENTS = 60000000


def main():
    run = Run([fixture("overwritten"), str(EVENTS)], options=["--overflow", "overwrite"], limit=300)
    if not check("flight-recorder", run.status == 0, run.why()):
        return
    made, gone = int(run.stdout), lost(run.directory)
    seen = report(run.directory)["functions"]
    total = sum(f["entries"] for f in seen)
    check("flight-recorder-overwrote", gone > made / 10, "%d of %d" % (gone, made))
    names = collections.Counter(f["function"] for f in seen)
    equal("flight-recorder-names", sorted(names), sorted("named_%02d" % n for n in range(100)))
    check("flight-recorder-newest", total >= 100, seen)
    # All that was made is there or was lost; entries and exits, and what else the recording tells.
    tail = lorg("log", "--kind", "enter", "--from", "0", run.directory)[1].splitlines()[-101:-1]
    check("flight-recorder-last", all(b"named_%02d" % n in line for n, line in enumerate(tail)), tail[:3])
    whole = [line for line in lorg("log", "--kind", "all,-enter,-exit_function,-hook", run.directory)[1].decode().splitlines()]
    check("flight-recorder-image", sum(" image " in line for line in whole) == 1, whole[:10])
    check("flight-recorder-modules", sum(" module " in line for line in whole) >= 2, whole[:10])


main()
finish()
