# SPDX-License-Identifier: GPL-2.0-or-later
"""The structures of a source file, from the debugging information in its
object, as readelf prints it."""

import re

# Structures of the C library, which have no state of a guest
OPAQUE = re.compile(r'(__)?pthread_|sem_t$|jmp_buf$')
DIE = re.compile(r' <(\w+)><(\w+)>: Abbrev Number: \d+ \(DW_TAG_(\w+)\)')
ATTRIBUTE = re.compile(r'    <\w+> +DW_AT_(\w+) *: (?:\(.*?\): )?(.*)')


class Unknown(Exception):
    """Why a class cannot be compared, or is not as in the record."""


class Entry:
    """What the debugging information says of a type or a member."""

    def __init__(self, tag):
        self.tag, self.inside, self.attributes = tag, [], {}

    def number(self, name):
        return int(self.attributes[name], 0)


def read_entries(text):
    """{offset: Entry} of what readelf prints."""
    entries, path = {}, []
    for line in text.splitlines():
        if found := DIE.match(line):
            level = int(found[1], 16)
            entry = entries[int(found[2], 16)] = Entry(found[3])
            path[level:] = [entry]
            if level and level <= len(path) - 1:
                path[level - 1].inside.append(entry)
        elif path and (found := ATTRIBUTE.match(line)):
            path[-1].attributes[found[1]] = found[2].strip()
    return entries


def base_name(name):
    """The same for gcc, 'long unsigned int', and clang, 'unsigned long'."""
    words = name.split()
    if {'long', 'short'} & set(words):
        words = [w for w in words if w != 'int']
    return ' '.join(sorted(words, key=lambda w: w != 'unsigned'))


class Types:
    """The structures of one source file."""

    def __init__(self, text):
        self._entries = read_entries(text)
        self._named = {}
        for entry in self._entries.values():
            name = entry.attributes.get('name')
            if name and 'declaration' not in entry.attributes:
                self._named.setdefault((entry.tag, name), entry)

    def _type(self, entry):
        where = entry.attributes.get('type')
        return where and self._entries[int(where.strip('<>'), 16)]

    def _bare(self, entry):
        while entry and entry.tag in ('typedef', 'const_type', 'volatile_type',
                                      'atomic_type'):
            entry = self._type(entry)
        return entry

    def find(self, name):
        for tag in ('structure_type', 'typedef', 'union_type'):
            entry = self._bare(self._named.get((tag, name)))
            if entry and 'byte_size' in entry.attributes:
                return entry
        raise Unknown(f'there is no structure {name}')

    def _bounds(self, array):
        for entry in array.inside:
            for name, more in ('count', 0), ('upper_bound', 1):
                if re.match(r'\d', entry.attributes.get(name, '')):
                    yield entry.number(name) + more
                    break
            else:
                yield 0

    def size(self, entry):
        entry = self._bare(entry)
        if entry is None:
            return 0
        if entry.tag == 'array_type':
            size = self.size(self._type(entry))
            for bound in self._bounds(entry):
                size *= bound
            return size
        return (entry.number('byte_size') if 'byte_size' in entry.attributes
                else 8)

    def describe(self, entry):
        """The name of a type."""
        if entry is None:
            return 'void'
        if entry.tag == 'array_type':
            bounds = ''.join(f'[{n}]' for n in self._bounds(entry))
            return self.describe(self._type(entry)) + bounds
        if entry.tag == 'pointer_type':
            return self.describe(self._type(entry)) + '*'
        if entry.tag == 'subroutine_type':
            return 'function'
        if entry.tag in ('const_type', 'volatile_type', 'atomic_type'):
            return self.describe(self._type(entry))
        name = entry.attributes.get('name', entry.tag.removesuffix('_type'))
        return base_name(name) if entry.tag == 'base_type' else name

    def _parts(self, entry):
        """The structure of a member, perhaps of an array of them; or None."""
        name = self.describe(entry)
        entry = self._bare(entry)
        while entry and entry.tag == 'array_type':
            name = self.describe(self._type(entry))
            entry = self._bare(self._type(entry))
        if entry and entry.tag in ('structure_type', 'union_type') and \
                not OPAQUE.match(name):
            return name, entry
        return None, None

    def _place(self, member, start):
        """(offset, size) in bytes; of a bit field with that of bits."""
        where = member.attributes.get('data_member_location', '0').split()[0]
        at, bits = start + int(where, 0), member.attributes.get('bit_size')
        if bits:
            first = int(member.attributes.get('data_bit_offset', '0'), 0)
            return f'{at + first // 8}:{first % 8}', f'{bits}b'
        return str(at), str(self.size(self._type(member)))

    def members(self, entry, start=0, prefix=''):
        """(offset, size, name, type) of each, and {name: Entry} of structures
        that are to be described as well."""
        lines, more = [], {}
        for member in entry.inside:
            if member.tag != 'member':
                continue
            kind = self._type(member)
            at, size = self._place(member, start)
            name = prefix + member.attributes.get('name', '')
            lines.append((at, size, name or '-', self.describe(kind)))
            parts, inside = self._parts(kind)
            if inside and 'name' in inside.attributes or \
                    parts not in (None, 'structure', 'union'):
                more[inside.attributes.get('name', parts)] = inside
            elif inside:
                array = self._bare(kind).tag == 'array_type'
                deeper = self.members(inside, 0 if array else int(at),
                                      f'{name}[].' if array else
                                      f'{name}.' if name else prefix)
                lines += deeper[0]
                more |= deeper[1]
        return lines, more

    def closure(self, names):
        """{name: (size, members...)} of structures and all that are in them."""
        wait = {name: self.find(name) for name in names}
        done = {}
        while wait:
            name, entry = wait.popitem()
            lines, more = self.members(entry)
            done[name] = (str(self.size(entry)), *lines)
            wait |= {n: e for n, e in more.items() if n not in done}
        return done
