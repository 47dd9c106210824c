#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when liblorg.so is not what it may be loaded into every program as.

    check_preload.py TABLE LIBRARY [STAMP]
"""
import sys

import elf
import hooks

# What the loader may have to find for us; all weak, so that its absence breaks nothing: its list of objects, the
# program's environment, whether the program has threads, and how to be called at exit.
UNDEFINED = {'_r_debug', 'environ', '__libc_single_threaded', 'on_exit'}
TLS_LIMIT = 1024  # bytes; it is taken from the static TLS of every thread


def check(library, rows):
    segments = library.segments
    if any(s[0] == elf.PT_LOAD and s[1] & elf.PF_W and s[1] & elf.PF_X for s in segments):
        yield 'a segment is writable and executable'
    if any(s[0] == elf.PT_GNU_STACK and s[1] & elf.PF_X for s in segments):
        yield 'it asks for an executable stack'
    types = list(library.relocation_types())
    if elf.R_X86_64_JUMP_SLOT in types:
        yield 'it calls through the procedure linkage table'
    if elf.R_X86_64_IRELATIVE in types:
        yield 'it has functions that are chosen at load time'
    if elf.DT_TEXTREL in library.tag:
        yield 'its code needs relocations'
    for name in library.needed():
        yield 'it needs %s' % name
    for size in (s[6] for s in segments if s[0] == elf.PT_TLS):
        if size > TLS_LIMIT:
            yield 'it takes %d bytes of thread-local storage, more than %d' % (size, TLS_LIMIT)
    symbols = list(library.symbols())
    for symbol in symbols:
        if not symbol.defined() and symbol.name not in UNDEFINED:
            yield '%s is left undefined' % symbol.name
    exported = {(s.name, s.version) for s in symbols if s.defined() and not s.name.startswith('GLIBC_')}
    wanted = {(r.name, r.version or '') for r in rows if r.exported()}
    for name, version in sorted(exported - wanted):
        yield '%s%s is exported and is not in the table' % (name, '@' + version if version else '')
    for name, version in sorted(wanted - exported):
        yield '%s%s is in the table and is not exported' % (name, '@' + version if version else '')


def main():
    table, path = sys.argv[1:3]
    found = list(check(elf.ElfFile(path), hooks.read_table(table)))
    for sentence in found:
        print('%s: %s' % (path, sentence))
    if found:
        return 1
    if len(sys.argv) > 3:
        open(sys.argv[3], 'w').close()
    return 0


if __name__ == '__main__':
    sys.exit(main())
