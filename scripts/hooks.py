#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the hook ids, rows, wrappers, version script, collector's names and documentation from hooks.table.

    hooks.py TABLE --out DIR              hook_ids.h hook_table.c hook_wrappers.c liblorg.map hook_names.h hook_names.c
    hooks.py TABLE --doc FILE             the table for people
    hooks.py TABLE --same-doc FILE        fails when that file is not what --doc would write
    hooks.py TABLE --names                exported names, one a line, with their versions
"""
import argparse
import os
import re
import sys

ROLES = ('fd fd2 buffer length iovec iovec_count msghdr mmsghdr count flags timeout_ms timeout_timespec '
         'timeout_timeval address address_length pid object routine path argv size signal offset pair').split()
COLUMNS = ('family role error blocking command gate charge waits releases effect flags inner tiers code test '
           'since library export reaches').split()
FLAGS = {'cancellation': 'HOOK_CANCELLATION_POINT', 'returns_twice': 'HOOK_RETURNS_TWICE', 'no_return': 'HOOK_NO_RETURN',
         'signal_safe': 'HOOK_SIGNAL_SAFE', 'fortified': 'HOOK_FORTIFIED', 'peeks': 'HOOK_PEEKS',
         'absolute': 'HOOK_TIMEOUT_ABSOLUTE', 'clock_given': 'HOOK_CLOCK_GIVEN'}
GATES = {'message': 'LORG_GATE_MESSAGE', 'port': 'LORG_GATE_PORT', 'process': 'LORG_GATE_PROCESS',
         'running': 'LORG_GATE_RUNNING', 'call': 'LORG_GATE_CALL', 'allocation': 'LORG_GATE_ALLOCATION',
         'count': 'LORG_GATE_COUNT', 'all': 'LORG_GATE_ALL', 'collection': 'LORG_MASK_COLLECTION',
         'life': 'LORG_MASK_LIFE'}
ERRORS = ('none', 'minus_one', 'null', 'returned', 'sigwait')
BLOCKING = ('never', 'always', 'descriptor', 'contended')
DEFAULTS = {'error': 'none', 'blocking': 'never', 'command': 'none', 'gate': 'any', 'charge': 'work', 'waits': '',
            'releases': '', 'effect': '', 'flags': '', 'inner': '', 'tiers': '1 2 3', 'code': 'generated', 'test': '',
            'since': '2.2.5', 'library': 'libc.so.6', 'export': 'yes', 'reaches': ''}
HEADERS = ('aio.h fcntl.h mqueue.h netdb.h poll.h pthread.h semaphore.h signal.h spawn.h stddef.h stdint.h stdio.h '
           'sys/epoll.h sys/eventfd.h sys/ioctl.h sys/mman.h sys/msg.h sys/resource.h sys/select.h sys/sem.h '
           'sys/socket.h sys/stat.h sys/time.h sys/types.h sys/uio.h sys/wait.h termios.h threads.h time.h unistd.h').split()
NOTICE = '/* SPDX-License-Identifier: MIT */\n/* %s Made by scripts/hooks.py from hooks.table; do not edit. */\n'


class TableError(Exception):
    pass


class Parameter:
    """One parameter of a prototype: its declaration and, by its name, its role."""

    def __init__(self, text):
        self.text = text.strip()
        inner = re.search(r'\(\s*\*\s*(\w+)\s*\)', self.text)
        self.name = inner.group(1) if inner else re.search(r'(\w+)\s*$', self.text).group(1)

    def value(self):
        """The expression that puts it into an argument word."""
        if self.text.startswith('FILE *'):
            return '(uintptr_t)stream_descriptor(%s)' % self.name
        if 'union sigval' in self.text:
            return '(uintptr_t)%s.sival_ptr' % self.name
        return '(uintptr_t)%s' % self.name


class Row:
    """One hook: an exported name with one version."""

    def __init__(self, stanza, name, version, shown, inner):
        self.stanza, self.name, self.version, self.shown, self.inner = stanza, name, version, shown, inner
        self.column = stanza.column
        self.parameters, self.variadic, self.result = stanza.parameters, stanza.variadic, stanza.result
        self.default = version is None or version == stanza.versions[0]
        suffix = '' if self.default else version.replace('GLIBC', '').replace('.', '_')
        self.id = name + suffix

    def exported(self):
        return self.column['export'] == 'yes'

    def own(self):
        return self.column['code'] == 'own'

    def symbol(self):
        """The C identifier of the wrapper."""
        return 'hook_' + self.id

    def declare(self, name):
        text = ', '.join(p.text for p in self.parameters) or 'void'
        if self.variadic:
            text += ', ...'
        return '%s%s%s(%s)' % (self.result, '' if self.result.endswith('*') else ' ', name, text)


class Stanza:
    """A prototype with its columns, before aliases and versions are spread into rows."""

    def __init__(self, line, number):
        match = re.match(r'(.*?)(\w+)\((.*)\)$', line)
        if not match:
            raise TableError('line %d: not a prototype: %s' % (number, line))
        self.number = number
        self.result, self.name = match.group(1).strip(), match.group(2)
        pieces = split_parameters(match.group(3))
        self.variadic = bool(pieces) and pieces[-1] == '...'
        if self.variadic:
            pieces.pop()
        self.parameters = [Parameter(p) for p in pieces if p != 'void']
        self.given, self.column = {}, {}

    @property
    def versions(self):
        return self.given.get('versions', '').split()

    def rows(self, shown):
        inner = self.given.get('inner', '')
        names = [self.name] + self.given.get('alias', '').split()
        for name in names:
            for version in self.versions or [None]:
                yield Row(self, name, version, shown, inner if name == self.name else '')


def split_parameters(text):
    pieces, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += {'(': 1, ')': -1}.get(letter, 0)
        if letter == ',' and depth == 0:
            pieces.append(text[start:at].strip())
            start = at + 1
    pieces.append(text[start:].strip())
    return [p for p in pieces if p]


def read_table(path):
    """The rows of the table, in order."""
    defaults, stanzas, current, place = {}, {}, None, path
    for number, line in enumerate(open(path, encoding='ascii'), 1):
        line = line.rstrip()
        if not line or line.startswith('#'):
            continue
        if line[0] == '\t':
            if current is None or ':' not in line:
                raise TableError('%s:%d: a column outside a stanza' % (place, number))
            key, value = line.strip().split(':', 1)
            current[key.strip()] = value.strip()
        elif line.startswith('role '):
            family, role = line.split()[1:]
            current = defaults.setdefault((family, role), {})
        else:
            stanza = Stanza(line, number)
            if stanza.name in stanzas:
                raise TableError('%s:%d: %s stands here twice' % (place, number, stanza.name))
            stanzas[stanza.name], current = stanza, stanza.given
    rows = []
    for stanza in stanzas.values():
        complete(stanza, stanzas, defaults, place)
        rows.extend(stanza.rows(shown_as(stanza, stanzas)))
    check(rows, place)
    return rows


def shown_as(stanza, stanzas):
    return shown_as(stanzas[stanza.given['variant']], stanzas) if 'variant' in stanza.given else stanza.name


def complete(stanza, stanzas, defaults, place):
    """Fills the columns: the stanza's own, else those of the one it is like, else its role's, else the general ones."""
    if stanza.column:
        return
    model = stanza.given.get('variant') or stanza.given.get('like')
    column = dict(DEFAULTS)
    if model:
        if model not in stanzas:
            raise TableError('%s:%d: %s is like %s, which is not here' % (place, stanza.number, stanza.name, model))
        complete(stanzas[model], stanzas, defaults, place)
        column.update(stanzas[model].column, inner='')
    if 'is' in stanza.given:
        family, role = stanza.given['is'].split()
        if (family, role) not in defaults:
            raise TableError('%s:%d: no such family and role: %s %s' % (place, stanza.number, family, role))
        column.update(defaults[family, role])
        column.update(family=family, role=role)
        if model:
            column.update({k: stanzas[model].column[k] for k in ('waits', 'releases') if stanzas[model].column[k]})
    if 'family' not in column:
        raise TableError('%s:%d: %s has no family' % (place, stanza.number, stanza.name))
    for key, value in stanza.given.items():
        if key not in COLUMNS + ['is', 'like', 'variant', 'alias', 'versions']:
            raise TableError('%s:%d: unknown column %s' % (place, stanza.number, key))
        if key in COLUMNS:
            column[key] = value
    stanza.column = column


def check(rows, place):
    seen = set()
    for row in rows:
        where = '%s:%d: %s' % (place, row.stanza.number, row.name)
        if row.id in seen:
            raise TableError('%s: defined twice' % where)
        seen.add(row.id)
        c = row.column
        for key, allowed in (('error', ERRORS), ('blocking', BLOCKING), ('charge', ('work', 'wait')),
                             ('code', ('own', 'generated')), ('export', ('yes', 'no'))):
            if c[key] not in allowed:
                raise TableError('%s: %s: %s is none of %s' % (where, key, c[key], ', '.join(allowed)))
        for word in c['flags'].split():
            if word not in FLAGS:
                raise TableError('%s: unknown flag %s' % (where, word))
        for word in c['gate'].split():
            if word != 'any' and word not in GATES:
                raise TableError('%s: unknown gate %s' % (where, word))
        if row.variadic and not row.own():
            raise TableError('%s: a variadic wrapper must be written by hand' % where)
        if len(row.parameters) > 8:
            raise TableError('%s: more than 8 parameters' % where)
    if len(rows) > 1000:
        raise TableError('%s: more hooks than the gate table of the ABI has room for' % place)


def gate_mask(row):
    words = row.column['gate'].split()
    return ' | '.join('255' if w == 'any' else GATES[w] for w in words)


def flag_mask(row):
    words = [FLAGS[w] for w in row.column['flags'].split()]
    if row.own():
        words.append('HOOK_OWN_CODE')
    if row.inner:
        words.append('HOOK_INNER')
    return ' | '.join(words) or '0'


def arguments(row):
    """Index of the argument with each role, -1 for none."""
    names = [p.name for p in row.parameters]
    return ', '.join('.%s = %d' % (r, names.index(r) if r in names else -1) for r in ROLES)


def make_ids(rows):
    out = [NOTICE % 'Ids, types and prototypes of the hooks.', '#ifndef LORG_HOOK_IDS_H', '#define LORG_HOOK_IDS_H', '']
    out += ['#include <%s>' % h for h in HEADERS]
    out += ['', 'enum hook_id {'] + ['\tHOOK_%s,' % r.id for r in rows] + ['\tHOOK_COUNT', '};', '', '/* Rows with an inner entry point. */',
                                                             'enum { HOOK_INNER_COUNT = %d };' % sum(bool(r.inner) for r in rows), '']
    out += ['/* The type of each real function, for REAL(name). */']
    out += ['typedef %s;' % r.declare('(*hook_type_%s)' % r.id) for r in rows]
    out += ['', '/*', ' * The wrappers. One with symbol versions or an inner entry point is reached through a stub in hook_wrappers.c; every',
            ' * other bears the exported name itself.', ' */']
    for r in rows:
        if r.version or r.inner or not r.exported():
            out.append('__attribute__((visibility("hidden"))) %s;' % r.declare(r.symbol()))
        else:
            out.append('__attribute__((visibility("default"))) %s __asm__("%s");' % (r.declare(r.symbol()), r.name))
    return '\n'.join(out + ['', '#endif', ''])


def make_table(rows):
    out = [NOTICE % 'The rows of the hook table.', '#include "preload/hook.h"', '#include "preload/resolve/code_hook.h"', '#include "preload/resolve/resolve.h"', '']
    out.append('const struct hook hook_table[HOOK_COUNT] = {')
    for r in rows:
        c = r.column
        out += ['\t[HOOK_%s] = {' % r.id,
                '\t\t.name = "%s", .version = %s, .library = %s, .id = HOOK_%s, .shown_as = HOOK_%s,' %
                (r.name, '"%s"' % r.version if r.version else '0',
                 '0' if c['library'] == 'any' else '"%s"' % c['library'], r.id, r.shown),
                '\t\t.family = FAMILY_%s, .role = ROLE_%s, .error = ERROR_%s, .blocking = BLOCKING_%s,' %
                (c['family'], c['role'], c['error'], c['blocking']),
                '\t\t.port_command = COMMAND_%s, .charge = %d, .arity = %d, .gate_mask = %s, .flags = %s,' %
                (c['command'], c['charge'] == 'wait', len(r.parameters), gate_mask(r), flag_mask(r)),
                '\t\t.argument = {%s},' % arguments(r), '\t},']
    out += ['};', '']
    # Names without a pointer among them: they are needed before this object is relocated.
    text = sorted({''} | {inner_symbol(r) for r in rows} | {r.version or '' for r in rows})
    place = {w: sum(len(v) + 1 for v in text[:i]) for i, w in enumerate(text)}
    out.append('const char hook_symbol_text[] =')
    out += ['\t"%s\\0"' % w for w in text]
    out[-1] += ';'
    out += ['', 'const struct symbol_wanted hook_symbols[HOOK_COUNT] = {']
    out += ['\t[HOOK_%s] = {%d, %d, %du},' %
            (r.id, place[inner_symbol(r)], place[r.version or ''], gnu_hash(inner_symbol(r))) for r in rows]
    out += ['};', '', 'const struct code_hook_wanted code_hooks_wanted[HOOK_INNER_COUNT] = {']
    out += ['\t{HOOK_%s, (void *)hook_%s},' % (r.id, r.id) for r in rows if r.inner]
    out += ['};', '', 'const uint8_t hook_absent[HOOK_COUNT] = {']
    out += ['\t[HOOK_%s] = HOOK_ABSENT_%s,' % (r.id, absent(r)) for r in rows]
    out += ['};', '', '/* The row whose inner entry point a real function goes through, plus 1; 0: none. */',
            'const uint16_t hook_reaches[HOOK_COUNT] = {']
    out += ['\t[HOOK_%s] = HOOK_%s + 1,' % (r.id, r.column['reaches']) for r in rows if r.column['reaches']]
    return '\n'.join(out + ['};', ''])


def absent(row):
    """What to do when there is no real function and the program calls it all the same."""
    if 'no_return' in row.column['flags']:
        return 'EXIT'
    return {'minus_one': 'MINUS_ONE', 'null': 'NULL', 'returned': 'ERRNO', 'sigwait': 'ERRNO', 'none': 'NOTHING'}[row.column['error']]


def inner_symbol(row):
    """The name to look for: a hook of an inner entry point alone has no exported name of its own."""
    return row.inner or row.name


def gnu_hash(name):
    value = 5381
    for letter in name.encode('ascii'):
        value = (value * 33 + letter) & 0xffffffff
    return value


def make_wrapper(r):
    """The exported entry, which costs a load and a branch, and behind it the traced call."""
    names = ', '.join(p.name for p in r.parameters)
    give = '' if r.result == 'void' else 'return '
    off = ['\t\t%sREAL(%s)(%s);' % (give, r.id, names)]
    if r.result == 'void':
        off = ['\t{'] + off + ['\t\treturn;', '\t}']
    out = ['static __attribute__((noinline)) ' + r.declare('traced_' + r.id), '{', '\tstruct hook_call call;'] + told_all(r)[0] + [
           '\tif (!hook_begin(&call, HOOK_%s))' % r.id] + off + traced_call(r, names) + ['}', '']
    out += [r.declare(r.symbol()), '{', '\thook_type_%s real = HOOK_READY(%s);' % (r.id, r.id),
            '\tif (__builtin_expect(real && !hook_gate(HOOK_%s), 1))' % r.id]
    out += [line.replace('REAL(%s)' % r.id, 'real') for line in off]
    out += ['\t%straced_%s(%s);' % (give, r.id, names), '}', '']
    return '\n'.join(out)


def told_all(r):
    """Where a parent does not ask how its child ended we do: nobody can tell afterwards."""
    if r.column['role'] != 'reap':
        return [], []
    asked = [p for p in r.parameters if p.text.startswith(('int *', 'siginfo_t *'))]
    return (['\t%s told_%s;' % (p.text.split(' *')[0], p.name) for p in asked],
            ['\t%s = %s ? %s : &told_%s;' % (p.name, p.name, p.name, p.name) for p in asked])


def traced_call(r, names):
    c = r.column
    call = 'REAL(%s)(%s);' % (r.id, names)
    out = ['\tcall.caller = (uintptr_t)__builtin_return_address(0);'] + told_all(r)[1]
    out += ['\tcall.argument[%d] = %s;' % (i, p.value()) for i, p in enumerate(r.parameters)]
    out += ['\tcall.saved_errno = *hook_errno();', '\tmonitored_begin(&call);', '\t%s_enter(&call);' % c['family'], '\t*hook_errno() = call.saved_errno;']
    if r.result == 'void':
        return out + ['\t' + call, '\tcall.saved_errno = *hook_errno();', '\t%s_leave(&call, 0);' % c['family'], '\tmonitored_end(&call);',
                      '\t*hook_errno() = call.saved_errno;']
    out += ['\t%s%sresult = %s' % (r.result, '' if r.result.endswith('*') else ' ', call),
            '\tcall.saved_errno = *hook_errno();']
    if c['error'] in ('returned', 'sigwait'):
        out += ['\tcall.error = (int)result;']
    elif c['error'] != 'none':
        out += ['\tif (%s)' % {'minus_one': 'result == -1', 'null': '!result'}[c['error']],
                '\t\tcall.error = call.saved_errno;']
    return out + ['\t%s_leave(&call, (intptr_t)result);' % c['family'], '\tmonitored_end(&call);', '\t*hook_errno() = call.saved_errno;',
                  '\treturn result;']


def make_versioned(r):
    """The exported stub of one version; a tail call, so that the wrapper sees the caller's return address."""
    stub = 'hook_version_%s' % r.id
    names = ', '.join(p.name for p in r.parameters)
    sign = '@@@' if r.default else '@'
    body = '%s(%s);' % (r.symbol(), names)
    return '\n'.join(['__attribute__((visibility("default"))) %s;' % r.declare(stub), r.declare(stub), '{',
                      '\t' + (body if r.result == 'void' else 'return ' + body), '}',
                      '__asm__(".symver %s, %s%s%s");' % (stub, r.name, sign, r.version), ''])


def make_passing(r):
    """The exported name of a row with an inner entry point: where another library stands before libc, that one is called."""
    names = ', '.join(p.name for p in r.parameters)
    stub = 'hook_export_%s' % r.id
    give = '' if r.result == 'void' else 'return '
    return '\n'.join(['__attribute__((visibility("default"))) %s __asm__("%s");' % (r.declare(stub), r.name),
                      r.declare(stub), '{',
                      '\thook_type_%s next = (hook_type_%s)__atomic_load_n(&hook_passed_on[HOOK_%s], __ATOMIC_RELAXED);' %
                      (r.id, r.id, r.id),
                      '\tif (__builtin_expect(next != 0, 0)) {', '\t\t%snext(%s);' % (give, names)] +
                     (['\t\treturn;'] if r.result == 'void' else []) +
                     ['\t}', '\t%s%s(%s);' % (give, r.symbol(), names), '}', ''])


def make_wrappers(rows):
    out = [NOTICE % 'The wrappers that need no code of their own.', '#include "preload/hook.h"', '']
    out += [make_wrapper(r) for r in rows if not r.own()]
    out += [make_versioned(r) for r in rows if r.version]
    out += [make_passing(r) for r in rows if r.inner and r.exported() and not r.version]
    return '\n'.join(out)


def version_key(name):
    return [int(n) for n in re.findall(r'\d+', name)]


def make_map(rows):
    """Only names with several implementations get a version; all others are exported without one, which matches any."""
    out = ['# Made by scripts/hooks.py from hooks.table; do not edit.']
    versions = sorted({r.version for r in rows if r.version}, key=version_key)
    for version in versions:
        names = sorted(r.name for r in rows if r.version == version)
        out += ['%s {' % version, '\tglobal:'] + ['\t\t%s;' % n for n in names]
        if version == versions[0]: # the stubs of other than default versions keep a name of their own
            out += ['\tlocal:', '\t\thook_version_*;']
        out += ['};', '']
    return '\n'.join(out)


def make_names_header(rows):
    return NOTICE % 'Names of the hooks, for the collector.' + '''#ifndef LORG_HOOK_NAMES_H
#define LORG_HOOK_NAMES_H

#include <stdint.h>

/* One hook. id is its index here and in the gate table of the arena. */
struct hook_name {
	const char *name, *library;
	uint16_t id, arity;
	uint16_t family; /* enum hook_family of the preload; text in hook_family_names */
	uint16_t flags;	 /* enum hook_flag of the preload */
	uint16_t shown_as; /* id of the name it is shown under */
	uint32_t gate_mask; /* enum lorg_gate bits that make it worth entering */
};

extern const struct hook_name hook_names[];
extern const uint32_t hook_name_count;
extern const char *const hook_family_names[];
extern const uint32_t hook_family_count;

#endif
'''


FAMILIES = 'message port wait lock spawn exec exit signal allocator function settings'.split()
FLAG_BITS = {'HOOK_CANCELLATION_POINT': 1, 'HOOK_RETURNS_TWICE': 2, 'HOOK_NO_RETURN': 4, 'HOOK_SIGNAL_SAFE': 8,
             'HOOK_FORTIFIED': 16, 'HOOK_OWN_CODE': 32, 'HOOK_PEEKS': 64, 'HOOK_TIMEOUT_ABSOLUTE': 128, 'HOOK_INNER': 256,
             'HOOK_CLOCK_GIVEN': 512}


def make_names(rows):
    index = {r.id: i for i, r in enumerate(rows)}
    out = [NOTICE % 'Names of the hooks, for the collector.', '#include <lorg/abi.h>', '#include "hook_names.h"', '',
           'const struct hook_name hook_names[] = {']
    for i, r in enumerate(rows):
        c = r.column
        flags = 0 if flag_mask(r) == '0' else sum(FLAG_BITS[w] for w in flag_mask(r).split(' | '))
        out.append('\t{"%s", "%s", %d, %d, %d, %d, %d, %s}, /* %s */' %
                   (r.name, '' if c['library'] == 'any' else c['library'], i, len(r.parameters), FAMILIES.index(c['family']),
                    flags, index[r.shown], gate_mask(r), c['family']))
    out += ['};', 'const uint32_t hook_name_count = %d;' % len(rows), '', 'const char *const hook_family_names[] = {']
    out += ['\t"%s",' % f for f in FAMILIES]
    return '\n'.join(out + ['};', 'const uint32_t hook_family_count = %d;' % len(FAMILIES), ''])


def make_document(rows):
    out = ['# Hooks', '', 'Every function that `liblorg.so` takes the place of. Made from `preload/hooks/hooks.table` by',
           '`scripts/hooks.py preload/hooks/hooks.table --doc doc/HOOKS.md`.', '']
    for family in FAMILIES:
        members = [r for r in rows if r.column['family'] == family]
        out += ['## %s' % family, '',
                '| function | shown as | role | arguments | error | blocks | port command | waits for | lets go on | '
                'descriptors | charge | flags | inner entry | tiers | library | since | wrapper | test |',
                '|' + '---|' * 18]
        for r in members:
            c = r.column
            cells = [r.name + ('@' + r.version if r.version else ''), '' if r.shown == r.name else r.shown, c['role'],
                     ', '.join(p.name for p in r.parameters) + (', ...' if r.variadic else ''), c['error'], c['blocking'],
                     c['command'], c['waits'], c['releases'], c['effect'], c['charge'], c['flags'], r.inner, c['tiers'],
                     c['library'], c['since'], c['code'], c['test']]
            out.append('| ' + ' | '.join('`%s`' % v if n in (0, 1) and v else v for n, v in enumerate(cells)) + ' |')
        out.append('')
    return '\n'.join(out)


def write(directory, name, text):
    path = os.path.join(directory, name)
    with open(path, 'w', encoding='ascii') as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('table')
    parser.add_argument('--out', metavar='DIR', help='write the generated sources here')
    parser.add_argument('--doc', metavar='FILE', help='write the table for people')
    parser.add_argument('--same-doc', metavar='FILE', help='fail when FILE is not up to date')
    parser.add_argument('--names', action='store_true', help='print the exported names')
    options = parser.parse_args()
    try:
        rows = read_table(options.table)
    except (TableError, OSError) as error:
        print('hooks.py: %s' % error, file=sys.stderr)
        return 1
    if options.out:
        for name, maker in (('hook_ids.h', make_ids), ('hook_table.c', make_table), ('hook_wrappers.c', make_wrappers),
                            ('liblorg.map', make_map), ('hook_names.c', make_names)):
            write(options.out, name, maker(rows))
        write(options.out, 'hook_names.h', make_names_header(rows))
    if options.doc:
        write(os.path.dirname(options.doc) or '.', os.path.basename(options.doc), make_document(rows))
    if options.same_doc and open(options.same_doc, encoding='ascii').read() != make_document(rows):
        print('hooks.py: %s is out of date: make it anew with --doc' % options.same_doc, file=sys.stderr)
        return 1
    if options.names:
        for row in filter(Row.exported, rows):
            print(row.name + ('@' + row.version if row.version else ''))
    return 0


if __name__ == '__main__':
    sys.exit(main())
