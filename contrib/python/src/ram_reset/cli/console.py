# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest's console, as QEMU writes it to a file."""

import os
import re
import stat
from pathlib import Path
from typing import Tuple

from ram_reset.errors import UsageError

LONGEST = 1 << 20       # the stored part of a console's text
# Linux's message; only the part that a terminal can show
PANICS = re.compile(rb'Kernel panic - not syncing[ -~]{,200}')
FAULTS = re.compile(rb'(?:BUG: |kernel BUG at |Oops: )[ -~]{,200}')


class Console:
    """The file to which QEMU writes the guest's console."""

    def __init__(self, path: Path):
        try:
            self._file = path.open('rb')
        except OSError as e:
            raise UsageError(f'{path} cannot be read ({e.strerror}); start '
                             'QEMU first, with this file as logfile= of the '
                             "serial port's -chardev") from e
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            self._file.close()
            raise UsageError(f'{path} is not a file; give the logfile= of the '
                             "serial port's -chardev")
        self.begin()

    def close(self) -> None:
        self._file.close()

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def begin(self) -> None:
        """No input runs: the output of the next one begins here."""
        self._begin = self._before = self._now = self._size()

    def look(self) -> None:
        """Called before each check of the ring."""
        self._before, self._now = self._now, self._size()

    def next_input(self) -> None:
        """
        The ring has a new result, so that the next input has begun after the
        check before the last one.
        """
        self._begin = self._before

    def text(self) -> bytes:
        """The guest's output since then, and perhaps some from before."""
        size = self._size()
        # the file may have been emptied
        begin = self._begin if self._begin <= size else 0
        self._file.seek(max(begin, size - LONGEST))
        return self._file.read(LONGEST)


def complaint(text: bytes) -> Tuple[bool, str]:
    """(whether the kernel has panicked, its message, or that of a fault)"""
    panic = PANICS.search(text)
    found = panic or FAULTS.search(text)
    return bool(panic), found[0].decode() if found else ''
