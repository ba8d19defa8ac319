# SPDX-License-Identifier: GPL-2.0-or-later
"""
The ring of inputs and results that the host shares with snapctl-harness in the
guest, in the persistent region of the device snapctl.
"""

import mmap
import os
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from ram_reset.errors import GuestError, UsageError

# see contrib/snapctl/ring.h
MAGIC = int.from_bytes(b'SNAPRING', 'little')
VERSION = 1
ALIGN = 64
HEADER = 0x100
MAX_ENTRIES = 64
LARGEST = 1 << 30       # bytes of an input or an output
HEAD, TAIL, BEGUN = 0x40 // 8, 0x80 // 8, 0x88 // 8     # of 8 bytes each
STATE = 0x90 // 4
ENTRY = struct.Struct('<QIIIIQQQ')
READY, FAILED = 1, 4
EXITED, SIGNAL, TIMEOUT, ERROR, HANG, CRASH, PANIC = range(1, 8)


@dataclass(frozen=True)
class Answer:
    """
    The result of one input.

    :ivar kind: EXITED, SIGNAL, TIMEOUT, ERROR, HANG, CRASH or PANIC
    :ivar code: the exit status, the signal, or an errno
    :ivar output: of the program, as far as the ring has room for it
    :ivar total: bytes of its whole output
    :ivar run_ns: its run time, by the guest's clock
    :ivar generation: of the guest: the number of loads
    """

    kind: int
    code: int = 0
    output: bytes = b''
    total: int = 0
    run_ns: int = 0
    generation: int = 0

    def status(self) -> str:
        """The kind and the code in words."""
        words = {EXITED: f'exit {self.code}', SIGNAL: f'signal {self.code}',
                 TIMEOUT: 'timeout', HANG: 'hang', CRASH: 'crash',
                 PANIC: 'panic'}
        if self.kind == ERROR:
            return f'error ({os.strerror(self.code)})'
        return words.get(self.kind, f'unknown ({self.kind})')


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


ENTRY_SIZE = aligned(ENTRY.size)


class Ring:
    """
    The host's side.  It uses aligned accesses through a memoryview, which are
    atomic.  It takes a lock where their order matters: that is a barrier.
    """

    def __init__(self, path: Path, input_size: int, output_size: int,
                 entries: int = 0):
        """:param entries: 0 for as many as fit, up to MAX_ENTRIES"""
        size = self._map_file(path)
        self.input_size = input_size
        self.output_size = output_size
        self._stride = ENTRY_SIZE + aligned(input_size) + aligned(output_size)
        fitting = (size - HEADER) // self._stride
        self.entries = min(entries or MAX_ENTRIES, fitting)
        if fitting < max(1, entries):
            raise UsageError(
                f'{path} has room for {fitting} inputs of {input_size} bytes '
                f'with {output_size} bytes of output; make it larger, or give '
                'lower --entries or --output-size')
        self._words = memoryview(self._map).cast('Q')
        self._halves = memoryview(self._map).cast('I')
        self._lock = threading.Lock()
        self.format()

    def _map_file(self, path: Path) -> int:
        try:
            with path.open('r+b') as f:
                size = os.fstat(f.fileno()).st_size
                if size < HEADER:
                    raise UsageError(f'{path} has {size} bytes only; give the '
                                     "file of the device's memory backend")
                self._map = mmap.mmap(f.fileno(), size)
        except OSError as e:
            raise UsageError(f'{path} cannot be mapped ({e.strerror}); start '
                             'QEMU first, with this file as mem-path= and '
                             'share=on') from e
        return size

    def _barrier(self) -> None:
        with self._lock:
            pass

    def format(self) -> None:
        """Forget all inputs and results."""
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
        """The number of the first input without a result."""
        tail = self._words[TAIL]
        if not 0 <= tail - self.done <= self.head - self.done:
            raise GuestError('the guest has damaged the ring; start its '
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
        """Add an input.  There must be room."""
        at = self._at(self.head)
        ENTRY.pack_into(self._map, at, self.head, len(data), *(0,) * 6)
        self._map[at + ENTRY_SIZE:at + ENTRY_SIZE + len(data)] = data
        self._barrier()
        self.head += 1
        self._words[HEAD] = self.head

    def take(self) -> Answer:
        """The first result that was not taken.  There must be one."""
        self._barrier()
        at = self._at(self.done)
        _, _, kind, code, length, total, ns, generation = ENTRY.unpack_from(
            self._map, at)
        at += ENTRY_SIZE + aligned(self.input_size)
        output = self._map[at:at + min(length, self.output_size)]
        self.done += 1
        return Answer(kind, code, output, total, ns, generation)

    def complete(self, kind: int) -> None:
        """Complete in the place of the guest, which must be stopped."""
        number = self.tail
        at = self._at(number)
        _, length, *_ = ENTRY.unpack_from(self._map, at)
        ENTRY.pack_into(self._map, at, number, length, kind, *(0,) * 5)
        self._barrier()
        self._words[TAIL] = number + 1
