# SPDX-License-Identifier: GPL-2.0-or-later
"""
The machine state inside a qcow2 snapshot, to be damaged on purpose.

qcow2 keeps it behind the disk's own data, in the snapshot's L1 table.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

QCOW_MAGIC = b'QFI\xfb'
OFFSET_MASK = 0x00fffffffffffe00
COMPRESSED = 1 << 62
EXTENDED_L2 = 1 << 4            # in the last byte of incompatible features

VM_FILE_MAGIC = b'QEVM'
SECTION_START = 1
SECTION_FULL = 4
# In the header of a record of RAM, see RAM_SAVE_FLAG_* in migration/ram.c
ZERO, SIZES, STORED = 0x02, 0x04, 0x08
END_OF_SECTION, CONTINUE, XBZRLE = 0x10, 0x20, 0x40


class VMState:
    """A context that reads and writes the stream of one snapshot in place."""

    def __init__(self, image: Path | BinaryIO, tag: str):
        self._file = open(image, 'r+b') if isinstance(image, Path) else image
        header = self._read(0, 104)
        assert header[:4] == QCOW_MAGIC
        cluster_bits, = struct.unpack_from('>I', header, 20)
        disk_size, = struct.unpack_from('>Q', header, 24)
        count, = struct.unpack_from('>I', header, 60)
        table, = struct.unpack_from('>Q', header, 64)
        self._cluster = 1 << cluster_bits
        self._refcounts, = struct.unpack_from('>Q', header, 48)
        if header[7] < 3:               # it ends before the features
            header = header[:72] + bytes(27) + b'\4' + bytes(4)
        assert struct.unpack_from('>I', header, 96) == (4,)     # 16 bits each
        extended = header[79] & EXTENDED_L2
        self._entry = struct.Struct('>Q8x' if extended else '>Q')
        self._per_l2 = self._cluster // self._entry.size
        reach = self._cluster * self._per_l2
        self.l1_table, self.l1_size, self.size = self._find(table, count, tag)
        first = -(-disk_size // reach)
        self.l2_tables: list[int] = []
        self.clusters = self._map(self.l1_table + first * 8,
                                   self.l1_size - first)
        self.stream = b''.join(self._read(offset, self._cluster)
                               for offset in self.clusters)[:self.size]
        assert self.stream.startswith(VM_FILE_MAGIC)

    def __enter__(self) -> 'VMState':
        return self

    def __exit__(self, *unused) -> None:
        self._file.close()

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        data = self._file.read(size)
        return data + b'\0' * (size - len(data))

    def _find(self, at: int, count: int, tag: str) -> tuple[int, int, int]:
        for _ in range(count):
            (l1_table, l1_size, id_len, name_len, _, _, _, size,
             extra) = struct.unpack('>QIHHIIQII', self._read(at, 40))
            rest = self._read(at + 40, extra + id_len + name_len)
            if extra >= 8:
                size, = struct.unpack_from('>Q', rest)
            if rest[extra + id_len:].decode() == tag:
                self.entry = at         # in the table of snapshots
                return l1_table, l1_size, size
            at += -(-(40 + len(rest)) // 8) * 8
        raise KeyError(tag)

    def _map(self, l1: int, entries: int) -> list[int]:
        clusters = []
        for l2, in struct.iter_unpack('>Q', self._read(l1, entries * 8)):
            self.l2_tables.append(l2 & OFFSET_MASK)
            table = self._read(l2 & OFFSET_MASK, self._cluster)
            for entry, in self._entry.iter_unpack(table):
                if len(clusters) * self._cluster >= self.size:
                    return clusters
                assert entry & OFFSET_MASK and not entry & COMPRESSED
                clusters.append(entry & OFFSET_MASK)
        return clusters

    def place(self, offset: int) -> int:
        """The place in the image of a byte of the stream."""
        cluster, within = divmod(offset, self._cluster)
        return self.clusters[cluster] + within

    def write(self, offset: int, data: bytes) -> None:
        assert offset + len(data) <= self.size
        for i, byte in enumerate(data, offset):
            self._file.seek(self.place(i))
            self._file.write(bytes((byte,)))

    def _add_cluster(self) -> None:
        """Add a cluster, referenced once, behind all that the file has."""
        nr = -(-self._file.seek(0, 2) // self._cluster)
        block, within = divmod(nr, self._cluster // 2)
        table, = struct.unpack('>Q', self._read(self._refcounts + block * 8, 8))
        entry = len(self.clusters) % self._per_l2
        assert table and entry
        for at, data in ((table + within * 2, struct.pack('>H', 1)),
                         (self.l2_tables[-1] + entry * 8,
                          struct.pack('>Q', nr * self._cluster | 1 << 63)),
                         (nr * self._cluster, b'\0' * self._cluster)):
            self._file.seek(at)
            self._file.write(data)
        self.clusters.append(nr * self._cluster)

    def replace(self, stream: bytes) -> None:
        """@stream in its place, whatever its length; zeroes follow it."""
        while len(stream) > len(self.clusters) * self._cluster:
            self._add_cluster()
        for i, offset in enumerate(self.clusters):
            data = stream[i * self._cluster:(i + 1) * self._cluster]
            self._file.seek(offset)
            self._file.write(data.ljust(self._cluster, b'\0'))

    def resize(self, stream: bytes) -> None:
        """The same, and the snapshot says how long it is."""
        self.replace(stream)
        self._file.seek(self.entry + 40)
        self._file.write(struct.pack('>Q', len(stream)))

    def truncate(self, offset: int) -> None:
        """All that follows reads as zeroes, as where a write never came."""
        for cluster in range(offset // self._cluster, len(self.clusters)):
            start = max(offset - cluster * self._cluster, 0)
            self._file.seek(self.clusters[cluster] + start)
            self._file.write(b'\0' * (self._cluster - start))

    def section(self, kind: int, name: str) -> int:
        """The place where the section with this name starts."""
        idstr = bytes((len(name),)) + name.encode()
        at = 0
        while True:
            at = self.stream.index(idstr, at + 1)
            if self.stream[at - 5] == kind:
                return at - 5


def rename_snapshot(image: Path, old: str, new: str) -> None:
    """In place; QEMU has no command for it, and makes no two of a name."""
    assert len(old) == len(new)
    _edit_snapshot(image, old, lambda f, place, id_len: (f.seek(place),
                                                         f.write(new.encode())))


def set_snapshot_id(image: Path, name: str, id_: str) -> None:
    """In place; QEMU makes no two of an ID."""
    def edit(f, place, id_len):
        assert id_len == len(id_)
        f.seek(place - id_len)
        f.write(id_.encode())

    _edit_snapshot(image, name, edit)


def _edit_snapshot(image: Path, name: str, edit) -> None:
    """@edit gets the file, where the name is, and the length of the ID."""
    with open(image, 'r+b') as f:
        f.seek(60)
        count, at = struct.unpack('>IQ', f.read(12))
        for _ in range(count):
            f.seek(at)
            head = struct.unpack('>QIHHIIQII', f.read(40))
            id_len, name_len, extra = head[2], head[3], head[8]
            place = at + 40 + extra + id_len
            f.seek(place)
            if f.read(name_len) == name.encode():
                edit(f, place, id_len)
                return
            at = -(-(place + name_len) // 8) * 8
    raise KeyError(name)


def device_sections(stream: bytes
                    ) -> Iterator[tuple[tuple[str, int], bytes]]:
    """Name and number of each, and what it has."""
    at = next(i for i in range(len(stream))
              if stream[i] == SECTION_FULL and is_section(stream, i))
    while stream[at] == SECTION_FULL:
        number = stream[at + 1:at + 5]
        length = stream[at + 5]
        name = stream[at + 6:at + 6 + length].decode()
        instance, = struct.unpack_from('>I', stream, at + 6 + length)
        start = end = at + 14 + length
        while True:
            end = stream.index(b'\x7e' + number, end)
            if stream[end + 5] == 0 or is_section(stream, end + 5):
                break
            end += 1
        yield (name, instance), stream[start:end]
        at = end + 5


def is_section(stream: bytes, at: int) -> bool:
    """Whether one begins there, of a device."""
    name = stream[at + 6:at + 6 + stream[at + 5]]
    return stream[at] == SECTION_FULL and stream[at + 1:at + 4] == bytes(3) \
        and len(name) > 1 and name.isascii() and name.decode().isprintable()
