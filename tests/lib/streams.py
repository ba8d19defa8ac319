# SPDX-License-Identifier: GPL-2.0-or-later
"""Byte streams that are too long for memory, such as a dump of guest RAM."""

from collections.abc import Iterator

CHUNK = 4 << 20


def full_chunks(f) -> Iterator[bytes]:
    chunk = bytearray(CHUNK)
    filled = 0
    while True:
        n = f.readinto(memoryview(chunk)[filled:])
        filled += n or 0
        if filled == CHUNK or not n:
            yield bytes(memoryview(chunk)[:filled])
            filled = 0
            if not n:
                return


class Finder:
    """Counts byte strings in a stream that comes in pieces."""

    def __init__(self, **needles: bytes):
        self._needles = needles
        self._tails = dict.fromkeys(needles, b'')
        self.counts = dict.fromkeys(needles, 0)

    def __call__(self, chunk: bytes) -> None:
        for name, needle in self._needles.items():
            keep = len(needle) - 1
            border = self._tails[name] + chunk[:keep]
            self.counts[name] += chunk.count(needle) + border.count(needle)
            self._tails[name] = border[-keep:] if len(chunk) < keep \
                else chunk[-keep:]
