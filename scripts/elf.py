# SPDX-License-Identifier: MIT
"""Reads what the build checks need of an ELF64 file: segments, dynamic symbols with versions, dynamic relocations."""
import struct

PT_LOAD, PT_DYNAMIC, PT_TLS, PT_GNU_STACK = 1, 2, 7, 0x6474e551
PF_X, PF_W = 1, 2
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_JMPREL, DT_PLTRELSZ, DT_TEXTREL = 1, 4, 5, 6, 7, 8, 23, 2, 22
DT_VERSYM, DT_VERDEF, DT_VERDEFNUM, DT_GNU_HASH = 0x6ffffff0, 0x6ffffffc, 0x6ffffffd, 0x6ffffef5
STT_FUNC, STT_TLS, STT_GNU_IFUNC = 2, 6, 10
R_X86_64_JUMP_SLOT, R_X86_64_IRELATIVE = 7, 37


class Symbol:
    def __init__(self, name, kind, section, value, version, hidden):
        self.name, self.kind, self.section, self.value = name, kind, section, value
        self.version, self.hidden = version, hidden

    def defined(self):
        return self.section != 0

    def is_function(self):
        return self.kind in (STT_FUNC, STT_GNU_IFUNC)


class ElfFile:
    def __init__(self, path):
        with open(path, 'rb') as file:
            self.data = file.read()
        if self.data[:5] != b'\x7fELF\x02':
            raise ValueError('%s: not an ELF64 file' % path)
        offset, = struct.unpack_from('<Q', self.data, 32)
        size, count = struct.unpack_from('<HH', self.data, 54)
        # type flags offset vaddr paddr filesz memsz align
        self.segments = [struct.unpack_from('<IIQQQQQQ', self.data, offset + i * size) for i in range(count)]
        self.dynamic = list(self._dynamic())
        self.tag = dict(self.dynamic)

    def _dynamic(self):
        for kind, _, offset, _, _, size, _, _ in self.segments:
            if kind == PT_DYNAMIC:
                for at in range(offset, offset + size, 16):
                    entry = struct.unpack_from('<qQ', self.data, at)
                    if entry[0] == 0:
                        return
                    yield entry

    def _place(self, address):
        """Offset in the file of an address in memory."""
        for kind, _, offset, start, _, size, _, _ in self.segments:
            if kind == PT_LOAD and start <= address < start + size:
                return address - start + offset
        raise ValueError('address %#x is in no segment' % address)

    def _string(self, offset):
        start = self._place(self.tag[DT_STRTAB]) + offset
        return self.data[start:self.data.index(b'\0', start)].decode('utf-8', 'replace')

    def needed(self):
        return [self._string(value) for tag, value in self.dynamic if tag == DT_NEEDED]

    def _symbol_count(self):
        if DT_HASH in self.tag:
            return struct.unpack_from('<I', self.data, self._place(self.tag[DT_HASH]) + 4)[0]
        at = self._place(self.tag[DT_GNU_HASH])
        buckets, first, bloom, _ = struct.unpack_from('<4I', self.data, at)
        table = struct.unpack_from('<%dI' % buckets, self.data, at + 16 + bloom * 8)
        index = max(table, default=0)
        if index < first:
            return first
        chain = at + 16 + bloom * 8 + buckets * 4
        while not struct.unpack_from('<I', self.data, chain + (index - first) * 4)[0] & 1:
            index += 1
        return index + 1

    def _version_names(self):
        names = {}
        if DT_VERDEF in self.tag:
            at = self._place(self.tag[DT_VERDEF])
            for _ in range(self.tag[DT_VERDEFNUM]):
                _, flags, index, _, _, auxiliary, following = struct.unpack_from('<HHHHIII', self.data, at)
                if not flags & 1:
                    names[index] = self._string(struct.unpack_from('<I', self.data, at + auxiliary)[0])
                at += following
        return names

    def symbols(self):
        versions = self._version_names()
        start = self._place(self.tag[DT_SYMTAB])
        for i in range(1, self._symbol_count()):
            name, info, _, section, value, _ = struct.unpack_from('<IBBHQQ', self.data, start + i * 24)
            word = 1
            if DT_VERSYM in self.tag:
                word, = struct.unpack_from('<H', self.data, self._place(self.tag[DT_VERSYM]) + i * 2)
            yield Symbol(self._string(name), info & 15, section, value, versions.get(word & 0x7fff, ''), bool(word & 0x8000))

    def relocation_types(self):
        for table, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
            if table in self.tag:
                at = self._place(self.tag[table])
                for i in range(self.tag[size] // 24):
                    yield struct.unpack_from('<Q', self.data, at + i * 24 + 8)[0] & 0xffffffff
