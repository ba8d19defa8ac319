# SPDX-License-Identifier: GPL-2.0-or-later
"""
The ring of inputs and results that snapctl-feed shares with the guest; and the
guest's console.
"""

import mmap
import os
import re
import stat
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from program import Failure

# see contrib/snapctl/ring.h
MAGIC = int.from_bytes(b'SNAPRING', 'little')
VERSION = 1
ALIGN = 64
HEADER = 0x100
MAX_ENTRIES = 64
HEAD, TAIL, BEGUN = 0x40 // 8, 0x80 // 8, 0x88 // 8     # of 8 bytes each
STATE = 0x90 // 4
ENTRY = struct.Struct('<QIIIIQQQ')
STATES = ('not there', 'ready', 'busy', 'done', 'failed')
READY, FAILED = 1, 4
EXITED, SIGNAL, TIMEOUT, ERROR, HANG, CRASH, PANIC = range(1, 8)

LONGEST = 1 << 20       # the stored part of a console's text
# Linux's message; only the part that a terminal can show
PANICS = re.compile(rb'Kernel panic - not syncing[ -~]{,200}')
FAULTS = re.compile(rb'(?:BUG: |kernel BUG at |Oops: )[ -~]{,200}')


@dataclass(frozen=True)
class Result:
    kind: int
    code: int = 0
    output: bytes = b''
    total: int = 0
    run_ns: int = 0
    generation: int = 0

    def status(self) -> str:
        words = {EXITED: f'exit {self.code}', SIGNAL: f'signal {self.code}',
                 TIMEOUT: 'timeout', HANG: 'hang', CRASH: 'crash',
                 PANIC: 'panic'}
        if self.kind == ERROR:
            return f'error ({os.strerror(self.code)})'
        return words.get(self.kind, f'unknown ({self.kind})')


class Console:
    """The file to which QEMU writes the guest's console."""

    def __init__(self, path: Path):
        try:
            self._file = path.open('rb')
        except OSError as e:
            raise Failure(f'{path} cannot be read ({e.strerror}); start QEMU '
                          "first, with this file as logfile= of the serial "
                          "port's -chardev")
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            self._file.close()
            raise Failure(f'{path} is not a file; give the logfile= of the '
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


def complaint(text: bytes) -> tuple[bool, str]:
    """(the kernel's last message or fault message, whether it is the last)"""
    panic = PANICS.search(text)
    found = panic or FAULTS.search(text)
    return bool(panic), found[0].decode() if found else ''


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


class Ring:
    """
    The host's side.  It uses aligned accesses through a memoryview, which are
    atomic.  It takes a lock where their order matters: that is a barrier.
    """

    def __init__(self, path: Path, input_size: int, output_size: int,
                 entries: int = 0):
        try:
            with path.open('r+b') as f:
                size = os.fstat(f.fileno()).st_size
                if size < HEADER:
                    raise Failure(f'{path} has {size} bytes only; give the '
                                  'file of the device\'s memory backend')
                self._map = mmap.mmap(f.fileno(), size)
        except (OSError, ValueError) as e:
            raise Failure(f'{path} cannot be mapped '
                          f'({getattr(e, "strerror", None) or e}); start QEMU '
                          'first, with this file as mem-path= and share=on')
        self.input_size = input_size
        self.output_size = output_size
        self._stride = ENTRY_SIZE + aligned(input_size) + aligned(output_size)
        fitting = (size - HEADER) // self._stride
        self.entries = min(entries or MAX_ENTRIES, fitting)
        if fitting < max(1, entries):
            raise Failure(
                f'{path} has room for {fitting} inputs of {input_size} bytes '
                f'with {output_size} bytes of output; make it larger, or give '
                'lower --entries or --output-size')
        self._words = memoryview(self._map).cast('Q')
        self._halves = memoryview(self._map).cast('I')
        self._lock = threading.Lock()
        self._format()

    def _barrier(self) -> None:
        with self._lock:
            pass

    def _format(self) -> None:
        self._words[0] = 0
        self._barrier()
        # another place each time, see ring.h
        base = time.time_ns()
        self._halves[2:6] = memoryview(struct.pack(
            '<4I', VERSION, self.entries, self.input_size,
            self.output_size)).cast('I')
        for word in (HEAD, TAIL, BEGUN):
            self._words[word] = base
        self._halves[STATE] = 0
        self.head = self.done = base
        self._barrier()
        self._words[0] = MAGIC

    def close(self) -> None:
        self._words.release()
        self._halves.release()
        self._map.close()

    @property
    def tail(self) -> int:
        tail = self._words[TAIL]
        if not 0 <= tail - self.done <= self.head - self.done:
            raise Failure('the guest has damaged the ring; start its '
                          'snapctl-harness again, then this program')
        return tail

    @property
    def begun(self) -> int:
        return self._words[BEGUN]

    @property
    def state(self) -> int:
        return self._halves[STATE]

    def has_room(self) -> bool:
        return self.head - self.done < self.entries

    def _at(self, number: int) -> int:
        return HEADER + number % self.entries * self._stride

    def put(self, data: bytes) -> None:
        at = self._at(self.head)
        ENTRY.pack_into(self._map, at, self.head, len(data), *(0,) * 6)
        self._map[at + ENTRY_SIZE:at + ENTRY_SIZE + len(data)] = data
        self._barrier()
        self.head += 1
        self._words[HEAD] = self.head

    def take(self) -> Result:
        """The result of the first input without one."""
        self._barrier()
        at = self._at(self.done)
        _, _, kind, code, length, total, ns, generation = ENTRY.unpack_from(
            self._map, at)
        at += ENTRY_SIZE + aligned(self.input_size)
        output = self._map[at:at + min(length, self.output_size)]
        self.done += 1
        return Result(kind, code, output, total, ns, generation)

    def complete(self, kind: int) -> None:
        """Complete in the place of the guest, which must be stopped."""
        number = self.tail
        at = self._at(number)
        _, length, *_ = ENTRY.unpack_from(self._map, at)
        ENTRY.pack_into(self._map, at, number, length, kind, *(0,) * 5)
        self._barrier()
        self._words[TAIL] = number + 1


ENTRY_SIZE = aligned(ENTRY.size)
