#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fails when libc exports a function that is neither in hooks.table nor in exclusions.txt.

    check_exports.py TABLE EXCLUSIONS LIBC [STAMP]
"""
import fnmatch
import re
import sys

import elf
import hooks


def read_exclusions(path):
    """Pairs of a pattern and its reason."""
    reason, pairs = None, []
    for line in open(path, encoding='ascii'):
        line = line.rstrip()
        if not line or line.startswith('#'):
            continue
        if line[0] == '\t':
            pairs += [(word, reason) for word in line.split()]
        else:
            reason = line
    return pairs


def libc_version(libc):
    """The newest version that the library defines, as numbers."""
    found = [[int(n) for n in s.version.split('_')[1].split('.')] for s in libc.symbols()
             if re.fullmatch(r'GLIBC_[\d.]+', s.version)]
    return max(found, default=[2, 0])


def unversioned(rows, libc):
    """Names whose versions are different functions, where a row without a version would lead to the wrong one."""
    places = {}
    for symbol in libc.symbols():
        if symbol.defined() and symbol.is_function():
            places.setdefault(symbol.name, {})[symbol.version] = symbol.value
    for row in rows:
        found = places.get(row.name, {})
        known = {r.version for r in rows if r.name == row.name}
        if len(set(found.values())) > 1 and row.exported() and not set(found) <= known:
            yield row.name, sorted(set(found) - known)


def main():
    table, exclusions, path = sys.argv[1:4]
    libc = elf.ElfFile(path)
    rows = hooks.read_table(table)
    hooked = {r.name for r in rows}
    excluded = read_exclusions(exclusions)
    matcher = re.compile('|'.join(fnmatch.translate(p) for p, _ in excluded))
    functions = {s.name for s in libc.symbols() if s.defined() and s.is_function()}
    public = {s.name for s in libc.symbols() if s.defined() and s.is_function() and s.version != 'GLIBC_PRIVATE'}
    missing = sorted(n for n in public - hooked if not matcher.match(n))
    both = sorted(p for p, _ in excluded if p in hooked)
    newest = libc_version(libc)
    apart = list(unversioned(rows, libc))
    gone = sorted(r.name for r in rows if r.column['library'] == 'libc.so.6' and r.name not in functions and r.exported() and
                  [int(n) for n in r.column['since'].split('.')] <= newest)
    for name in missing:
        print('%s: %s is exported, and is neither in hooks.table nor, with a reason, in exclusions.txt' % (path, name))
    for name in both:
        print('%s: %s is in hooks.table' % (exclusions, name))
    for name in gone:
        print('%s: %s: %s does not export it' % (table, name, path))
    for name, versions in apart:
        print('%s: %s: %s has implementations of its own for %s: a row for each is needed' %
              (table, name, path, ', '.join(versions)))
    if missing or both or gone or apart:
        return 1
    if len(sys.argv) > 4:
        open(sys.argv[4], 'w').close()
    return 0


if __name__ == '__main__':
    sys.exit(main())
