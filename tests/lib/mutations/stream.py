# SPDX-License-Identifier: GPL-2.0-or-later
"""
Damage to a snapshot, made up from a seed and a number.

An image with the snapshot to be damaged is given as bytes, and given back so.
Nothing here knows a QEMU.
"""

import io
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from lib.machine import PAGE
from lib.vmstate import (CONTINUE, END_OF_SECTION, SECTION_FULL, SECTION_START,
                         SIZES, STORED, VMState)

SECTION_PART, SECTION_END, SUBSECTION = 2, 3, 5
DESCRIPTION, COMMAND, FOOTER = 6, 8, 0x7e


@dataclass(frozen=True)
class Place:
    """Something of @size bytes at @at that may get another value."""

    at: int
    size: int
    name: str


@dataclass(frozen=True)
class Section:
    start: int
    end: int
    name: str

    @property
    def size(self) -> int:
        return self.end - self.start


def put(data: bytes, at: int, size: int, value: int) -> bytes:
    return data[:at] + value.to_bytes(size, 'big') + data[at + size:]


def number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at:at + size], 'big')


class Stream:
    """The places of a VM state that its reader goes by."""

    def __init__(self, data: bytes):
        self.data = data
        self.lengths: list[Place] = []
        self.records: list[Section] = []     # a page each
        self.sections: list[Section] = []
        self.description = data.rindex(bytes((0, DESCRIPTION)))
        self._configuration()
        while self._at < self.description:
            self._section()
        assert self._at == self.description
        self._place(self._at + 2, 4, 'length of the description')
        self.head = self.sections[0].start
        self.devices = next(s.start for s in self.sections
                            if s.name.endswith('timer'))

    def place(self, name: str) -> Place:
        return next(place for place in self.lengths if place.name == name)

    def state_of(self, device: str) -> int:
        """The place where the device's own section begins."""
        section, = (s for s in self.sections if s.name.endswith(device))
        return section.start + 14 + self.data[section.start + 5]

    def _place(self, at: int, size: int, name: str) -> int:
        self.lengths.append(Place(at, size, name))
        return number(self.data, at, size)

    def _subsections(self, start: int, end: int) -> None:
        for found in re.finditer(rb'\x05([\x05-\x60])([ -~]{5,})',
                                 self.data[start:end]):
            name = found.group(2)[:found.group(1)[0]]
            if len(name) == found.group(1)[0] and b'/' in name:
                at = start + found.start()
                self._place(at, 1, f'mark of {name.decode()}')
                self._place(at + 1, 1, f'length of {name.decode()}')
                self._place(at + 2 + len(name), 4,
                            f'version of {name.decode()}')

    def _configuration(self) -> None:
        size = self._place(9, 4, 'length of the machine type')
        self._at = 13 + size
        if self.data[self._at] == SUBSECTION:
            self._at = self.data.index(b'\x01\0\0\0\x01\x03ram', self._at)
            self._subsections(13, self._at)

    def _section(self) -> None:
        start, kind = self._at, self.data[self._at]
        self._place(start, 1, 'kind of a section')
        if kind == COMMAND:
            self._place(start + 1, 2, 'a command')
            self._at += 5 + self._place(start + 3, 2, 'length of a command')
            self.sections.append(Section(start, self._at, 'command'))
            return
        section = self._place(start + 1, 4, 'id of a section')
        name, body = 'ram', start + 5
        if kind in (SECTION_START, SECTION_FULL):
            size = self._place(start + 5, 1, 'length of a name')
            name = self.data[start + 6:start + 6 + size].decode()
            self._place(start + 6 + size, 4, f'instance of {name}')
            self._place(start + 10 + size, 4, f'version of {name}')
            body = start + 14 + size
        if name == 'ram':
            self._at = self._ram(body)
        else:
            self._at = self._end(body, section)
            self._subsections(body, self._at)
        assert number(self.data, self._at, 5) == FOOTER << 32 | section
        self._place(self._at, 1, f'mark of the end of {name}')
        self._place(self._at + 1, 4, f'id at the end of {name}')
        self._at += 5
        self.sections.append(Section(start, self._at, f'{kind} {name}'))

    def _end(self, at: int, section: int) -> int:
        """A device's own code alone knows; but then another section comes."""
        footer = bytes((FOOTER,)) + section.to_bytes(4, 'big')
        while True:
            at = self.data.index(footer, at)
            if at + 5 == self.description or self._is_section(at + 5):
                return at
            at += 1

    def _is_section(self, at: int) -> bool:
        name = self.data[at + 6:at + 6 + self.data[at + 5]]
        return (self.data[at] == SECTION_FULL and len(name) > 2 and
                name.isascii() and name.decode().isprintable())

    def _ram(self, at: int) -> int:
        while True:
            start, head = at, number(self.data, at, 8)
            flags = head % PAGE
            at += 8
            if flags & END_OF_SECTION:
                self._place(start, 8, 'the end of RAM')
                return at
            if flags & SIZES:
                at = self._block_sizes(at, head - flags)
                continue
            if not flags & CONTINUE:
                at += 1 + self._place(at, 1, "length of a block's name")
            at += PAGE if flags & STORED else 1
            self.records.append(Section(start, at, f'{flags:#x}'))

    def _block_sizes(self, at: int, left: int) -> int:
        self._place(at - 8, 8, 'size of all RAM')
        while left:
            size = self._place(at, 1, "length of a RAM block's name")
            name = self.data[at + 1:at + 1 + size].decode()
            at += 1 + size
            left -= self._place(at, 8, f'size of RAM block {name}')
            at += 8
        return at


def any_value(rng: random.Random, old: int, size: int) -> int:
    """Another value for a number of @size bytes, rather one that hurts."""
    most = (1 << 8 * size) - 1
    near = (old + 1, old - 1, old * 2, old // 2, old + PAGE, old - PAGE,
            old ^ 1 << rng.randrange(8 * size), old ^ 0x80)
    far = (0, 1, most, most - 1, most >> 1, (most >> 1) + 1, 1 << 31, 1 << 32,
           most ^ 0xff, -PAGE, rng.getrandbits(8 * size))
    return rng.choice(near + far) & most


class Mutator:
    """Each kind returns a VM state, and a word about what was done to it."""

    def __init__(self, stream: Stream):
        self._s = stream
        self._data = stream.data

    def _somewhere(self, rng: random.Random) -> int:
        """Most of a VM state is RAM, but devices are where things happen."""
        start, end = rng.choice(((0, self._s.devices),
                                 (0, self._s.records[50].start),
                                 (self._s.devices, self._s.description),
                                 (self._s.devices, self._s.description),
                                 (self._s.devices, len(self._data))))
        return rng.randrange(start, end)

    def bytes(self, rng: random.Random) -> tuple[bytes, str]:
        """Change bytes of any meaning, in one to three places."""
        data, words = self._data, []
        for _ in range(rng.choice((1, 1, 2, 3))):
            at = self._somewhere(rng)
            size = rng.choice((1, 1, 2, 4, 8, 64, 600))
            piece = {
                'one bit': lambda: bytes((data[at] ^ 1 << rng.randrange(8),)),
                'ones': lambda: b'\xff' * size,
                'zeroes': lambda: bytes(size),
                'noise': lambda: rng.randbytes(size),
            }
            how = rng.choice(tuple(piece))
            new = piece[how]()
            data = (data[:at] + new + data[at + len(new):])[:len(data)]
            words.append(f'{len(new)} bytes at {at}: {how}')
        return data, ', '.join(words)

    def lengths(self, rng: random.Random) -> tuple[bytes, str]:
        place = rng.choice(self._s.lengths)
        old = number(self._data, place.at, place.size)
        new = any_value(rng, old, place.size)
        return (put(self._data, place.at, place.size, new),
                f'{place.name} at {place.at}: {old:#x} is {new:#x}')

    def records(self, rng: random.Random) -> tuple[bytes, str]:
        """Pages of RAM."""
        how = rng.choice((self._head, self._flags, self._twice, self._without,
                          self._swapped_records, self._moved))
        return how(rng, rng.choice(self._s.records))

    def _head(self, rng: random.Random, record: Section) -> tuple[bytes, str]:
        old = number(self._data, record.start, 8)
        new = any_value(rng, old, 8)
        return (put(self._data, record.start, 8, new),
                f'head of the record at {record.start}: {old:#x} is {new:#x}')

    def _moved(self, rng: random.Random, record: Section) -> tuple[bytes, str]:
        old = number(self._data, record.start, 8)
        new = rng.randrange(6000) * PAGE | old % PAGE
        return (put(self._data, record.start, 8, new),
                f'page {old:#x} of the record at {record.start} is {new:#x}')

    def _flags(self, rng: random.Random, record: Section) -> tuple[bytes, str]:
        old = number(self._data, record.start, 8)
        new = old ^ 1 << rng.randrange(12)
        return (put(self._data, record.start, 8, new),
                f'flags of the record at {record.start}: {old:#x} is {new:#x}')

    def _twice(self, rng: random.Random, record: Section) -> tuple[bytes, str]:
        piece = self._data[record.start:record.end]
        at = rng.choice(self._s.records).start
        return (self._data[:at] + piece + self._data[at:],
                f'record {record.name} at {record.start} once more at {at}')

    def _without(self, rng: random.Random, record: Section
                 ) -> tuple[bytes, str]:
        first = self._s.records.index(record)
        last = min(first + rng.choice((0, 0, 1, 30, 1000)),
                   len(self._s.records) - 1)
        end = self._s.records[last].end
        return (self._data[:record.start] + self._data[end:],
                f'without {last - first + 1} records at {record.start}')

    def _swapped_records(self, rng: random.Random, record: Section
                         ) -> tuple[bytes, str]:
        return self._swap(record, rng.choice(self._s.records))

    def _swap(self, a: Section, b: Section) -> tuple[bytes, str]:
        if a.start > b.start:
            a, b = b, a
        data = self._data
        if a == b:
            return data, 'nothing'
        return (data[:a.start] + data[b.start:b.end] + data[a.end:b.start] +
                data[a.start:a.end] + data[b.end:],
                f'{a.name} at {a.start} and {b.name} at {b.start} swapped')

    def sections(self, rng: random.Random) -> tuple[bytes, str]:
        """Their order, how many there are of each."""
        sections = self._s.sections
        section = rng.choice(rng.choice((sections, sections[:3])))
        other = rng.choice(sections)
        data, piece = self._data, self._data[section.start:section.end]
        what = f'{section.name} at {section.start}'
        how = rng.choice(('swap', 'swap', 'without', 'twice', 'move', 'end'))
        if how == 'swap':
            return self._swap(section, other)
        if how == 'without':
            return data[:section.start] + data[section.end:], f'without {what}'
        if how == 'twice':
            return (data[:other.start] + piece + data[other.start:],
                    f'{what} once more at {other.start}')
        if how == 'move':
            rest = data[:section.start] + data[section.end:]
            at = rng.choice((self._s.head, self._s.description - len(piece)))
            return rest[:at] + piece + rest[at:], f'{what} moved to {at}'
        return put(data, other.start, 1, 0), f'the end at {other.start}'

    def truncation(self, rng: random.Random) -> tuple[bytes, str]:
        """Behind it are zeroes, as where a write has never come."""
        at = rng.choice((self._somewhere(rng),
                         rng.choice(self._s.sections).start,
                         rng.choice(self._s.sections).end,
                         rng.choice(self._s.records).start))
        return self._data[:at], f'nothing from {at} on'


class Image:
    """The parts of a qcow2 image that can be damaged."""

    HEADER = ((4, 4, 'version'), (8, 8, 'backing file'), (16, 4, 'its length'),
              (20, 4, 'cluster bits'), (24, 8, 'size'), (32, 4, 'encryption'),
              (36, 4, 'L1 size'), (40, 8, 'L1 table'),
              (48, 8, 'refcount table'), (56, 4, 'clusters of it'),
              (60, 4, 'number of snapshots'), (64, 8, 'snapshots'),
              (72, 8, 'incompatible'), (80, 8, 'compatible'),
              (88, 8, 'autoclear'), (96, 4, 'refcount order'),
              (100, 4, 'header length'), (104, 4, 'extension'),
              (108, 4, 'its length'))
    ENTRY = ((0, 8, 'L1 table'), (8, 4, 'L1 size'), (12, 2, 'length of the id'),
             (14, 2, 'length of the name'), (16, 4, 'date'),
             (20, 4, 'nanoseconds'), (24, 8, 'clock'), (32, 4, 'old size'),
             (36, 4, 'size of what follows'), (40, 8, 'VM state size'),
             (48, 8, 'disk size'), (56, 8, 'icount'), (64, 1, 'id'),
             (65, 1, 'name'))
    VM_STATE_SIZE = Place(40, 8, 'VM state size')

    def __init__(self, data: bytes, tag: str):
        self.data = data
        self.tag = tag
        with VMState(io.BytesIO(data), tag) as state:
            self.stream = Stream(state.stream)
            self.entry = state.entry
            self._l1 = state.l1_table, state.l1_size
            self._l2 = state.l2_tables
            self._l2_used = len(state.clusters)
        self._cluster = 1 << number(data, 20, 4)
        self.mutator = Mutator(self.stream)

    def with_stream(self, stream: bytes, data: bytes) -> bytes:
        file = io.BytesIO(data)
        state = VMState(file, self.tag)
        state.replace(stream)
        return file.getvalue()

    def with_date(self, nanoseconds: int) -> bytes:
        """A snapshot that differs from all others in when it was taken."""
        return put(self.data, self.entry + 20, 4, nanoseconds)

    def with_size(self, size: int) -> bytes:
        return put(self.data, self.entry + 40, 8, size)

    def _places(self) -> dict[str, list[Place]]:
        data = self.data
        table = number(data, 64, 8)
        refcounts = number(data, 48, 8)
        block = number(data, refcounts, 8)
        l1 = number(data, 40, 8)
        return {
            'header': [Place(*place) for place in self.HEADER],
            'snapshot': [Place(self.entry + at, size, name)
                         for at, size, name in self.ENTRY],
            'other snapshot': [Place(table + at, size, name)
                               for at, size, name in self.ENTRY],
            "snapshot's L1": [Place(self._l1[0] + 8 * i, 8, f'entry {i}')
                              for i in range(self._l1[1])],
            'L2': [Place(l2 + 8 * i, 8, f'entry {i}') for l2 in self._l2
                   for i in range(min(self._l2_used + 1, self._cluster // 8))],
            'active L1': [Place(l1 + 8 * i, 8, f'entry {i}') for i in range(2)],
            'refcounts': [Place(refcounts, 8, 'table')] + [
                Place(block + 2 * i, 2, f'of cluster {i}')
                for i in range(len(data) // self._cluster + 2)],
        }

    def _pointer(self, rng: random.Random, old: int) -> int:
        """To something else in the file, or behind it."""
        nr = rng.randrange(len(self.data) // self._cluster + 4)
        return (nr * self._cluster | old & 0xff << 56 |
                rng.choice((0, 0, 512, 1)))

    def qcow2(self, rng: random.Random, data: bytes) -> tuple[bytes, str]:
        """Its tables, in one or two places; or less of the file."""
        if rng.random() < 0.06:
            at = rng.randrange(len(data))
            return data[:at], f'the image ends at {at}'
        words = []
        for _ in range(rng.choice((1, 1, 1, 2))):
            table, places = rng.choice(tuple(self._places().items()))
            place = rng.choice(places)
            old = number(data, place.at, place.size)
            new = self._pointer(rng, old) if place.size == 8 and \
                rng.random() < 0.6 else any_value(rng, old, place.size)
            data = put(data, place.at, place.size, new)
            words.append(f'{table}, {place.name}: {old:#x} is {new:#x}')
        return data, ', '.join(words)


STREAM_KINDS: dict[str, Callable] = {
    kind: getattr(Mutator, kind)
    for kind in ('bytes', 'lengths', 'records', 'sections', 'truncation')}
