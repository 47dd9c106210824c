#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""malloc_trim is a major collection, told with the sizes of the heap where somebody asks for collections."""

from lorgtest import Run, check, equal, finish, fixture, log, lorg

KEYS = ("bin_old_vheap_block_size bin_old_vheap_size bin_vheap_block_size bin_vheap_size heap_block_size heap_size mbuf_size "
        "old_heap_block_size old_heap_size recent_size stack_size wordsize").split()

for options, wanted in ((["--kinds", "garbage_collection"], 2), (["--all"], 2), ([], 0)):
    name = "collections " + " ".join(options)
    run = Run([fixture("collections")], options=options)
    if not check(name, run.status == 0 and run.stdout == b"collected twice\n", run.why()):
        continue
    told = [e for e in log(run.directory) if e["tag"].startswith("gc_")]
    equal(name + ": told", [e["tag"] for e in told], ["gc_major_start", "gc_major_end"] * wanted)
    if not wanted:
        continue
    for at in (0, 2):
        start, end = told[at], told[at + 1]
        check(name + ": reclaimed", 1 << 20 < end["wordsize"] == start["heap_block_size"] - end["heap_block_size"], (start, end))
        check(name + ": stack", 0 < end["stack_size"] < 1 << 17, end)
    equal(name + ": recent", (told[0]["recent_size"], told[2]["recent_size"]), (0, told[1]["heap_size"]))
    terms = [line for line in lorg("log", "--format", "erlang", run.directory)[1].decode().splitlines() if ",gc_major_" in line]
    equal(name + ": keys", [part.split(",")[0] for part in terms[0].split("{")[2:]], KEYS)
finish()
