# SPDX-License-Identifier: GPL-2.0-or-later
"""
A QEMU whose system calls fail one after the other, see faultlib.c, and what
becomes of its RAM, descriptors and mappings.
"""

import errno
import mmap
import os
import re
import struct
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lib import products
from lib.dma import Qtest
from lib.hugefile import HugeFile
from lib.machine import MIB, RAM, Machine, MachineError
from lib.patience import Limit

LIBRARY = products.BUILD / 'faultlib.so'
RAM_SIZE = 16 * MIB

ONCE, FROM_THEN_ON, LIE = range(3)
SHORT = -1

# Errors with which a call may plausibly fail
ENOMEM, EIO, EINTR, EPERM, EAGAIN, ENOSPC, EMFILE = (
    errno.ENOMEM, errno.EIO, errno.EINTR, errno.EPERM, errno.EAGAIN,
    errno.ENOSPC, errno.EMFILE)
ERRORS = {
    'close': (EIO, EINTR),
    'dup3': (EINTR, EMFILE, EPERM),
    'faccessat': (EIO, ENOMEM, EPERM),
    'fallocate': (ENOSPC, EIO, EINTR, EPERM, ENOMEM),
    'fcntl': (EAGAIN, EPERM, ENOMEM),
    'fdopendir': (ENOMEM,),
    'flock': (EAGAIN, EINTR),
    'fstat': (EIO, ENOMEM),
    'fstatat': (EIO, ENOMEM, EPERM),
    'fstatfs': (EIO, EINTR, ENOMEM),
    'fstatvfs': (EIO, EINTR, ENOMEM),
    'fsync': (EIO, ENOSPC, EINTR),
    'ftruncate': (EIO, EINTR, EPERM, ENOSPC),
    'futimens': (EPERM, EIO),
    'getrlimit': (EPERM,),
    'inotify': (EMFILE, ENOMEM),
    'ioctl': (errno.ENOTTY, ENOMEM, EINTR, EPERM),
    'lseek': (errno.EINVAL, EIO, EINTR),
    'madvise': (ENOMEM, EAGAIN, EPERM, EIO),
    'memfd_create': (EMFILE, ENOMEM, EPERM),
    'mincore': (EAGAIN, ENOMEM, EPERM),
    'mkdir': (ENOSPC, EPERM),
    'mmap': (ENOMEM, EAGAIN, EPERM),
    'mremap': (ENOMEM, EAGAIN, EPERM),
    'munmap': (ENOMEM,),
    'open': (EMFILE, ENOMEM, EPERM, EINTR, EIO),
    'pread': (EIO, EINTR, ENOMEM, SHORT),
    'pwrite': (ENOSPC, EIO, EINTR, EAGAIN, SHORT),
    'read': (EIO, EINTR, ENOMEM),
    'readdir': (EIO,),
    'readlink': (EIO, ENOMEM, EPERM),
    'renameat': (ENOSPC, EIO, EPERM),
    'numa': (errno.ENOSYS, EPERM, ENOMEM),
    'thread': (EAGAIN,),
    'unlink': (EIO, EPERM),
    'userfaultfd': (EPERM, EMFILE, ENOMEM),
    'write': (ENOSPC, EIO, EINTR),
    'disk_read': (EIO, ENOMEM),
    'disk_write': (EIO, ENOSPC),
    'disk_flush': (EIO, ENOSPC),
    'disk_other': (EIO, EPERM),
}

# Calls that are not swept, and why
EXCLUDED = {
    'ioctl, other than PAGEMAP_SCAN':
        "KVM's: QEMU aborts, or takes no dirty log for an empty one",
    'mmap of stacks': 'QEMU aborts when it cannot have a coroutine',
    'read and write of sockets, pipes and eventfds':
        'QEMU waits for what never comes',
    'calls of libraries': 'glib aborts when it has no memory',
    'disk_flush': 'QEMU takes a disk whose flush has failed for damaged until '
                  'it is opened again, see test_failed_save.py',
}

HEAD = struct.Struct('<IIIIiIQQQ')
MAX_KINDS = 64
NAME = 16
SIZE = HEAD.size + MAX_KINDS * (4 + NAME)


class Faults:
    """The memory by which the library and the test tell each other things."""

    def __init__(self, workdir: Path, monkeypatch):
        products.require(LIBRARY)
        path = workdir / 'faults'
        path.write_bytes(bytes(SIZE))
        with open(path, 'r+b') as f:
            self._map = mmap.mmap(f.fileno(), SIZE)
        self._disk = 0, 0
        monkeypatch.setenv('RAM_RESET_FAULTS', str(path))
        monkeypatch.setenv('LD_PRELOAD', str(LIBRARY))
        # so that what malloc() has mapped does not come and go
        monkeypatch.setenv('MALLOC_ARENA_MAX', '1')

    def kinds(self) -> dict[str, int]:
        at = HEAD.size + MAX_KINDS * 4
        names = (self._map[i:i + NAME].rstrip(b'\0').decode()
                 for i in range(at, SIZE, NAME))
        found = {name: i for i, name in enumerate(names) if name}
        assert set(found) == set(ERRORS), 'faultlib.c has other kinds'
        return found

    def watch_disk(self, disk: Path) -> None:
        stat = disk.stat()
        self._disk = stat.st_dev, stat.st_ino

    def arm(self, kind: str | None = None, nth: int = 0, err: int = 0,
            mode: int = ONCE) -> None:
        number = self.kinds()[kind] if kind else 0
        self._map[HEAD.size:HEAD.size + MAX_KINDS * 4] = bytes(MAX_KINDS * 4)
        self._map[:HEAD.size] = HEAD.pack(0, number, nth, mode, err, 0, 0,
                                          *self._disk)
        self._map[:4] = struct.pack('<I', 1)

    def disarm(self) -> tuple[int, int]:
        """How many calls have failed, and where in QEMU the last one was."""
        self._map[:4] = bytes(4)
        _, _, _, _, _, fired, caller, _, _ = HEAD.unpack(
            self._map[:HEAD.size])
        return fired, caller

    def calls(self) -> Counter:
        counts = struct.unpack_from(f'<{MAX_KINDS}I', self._map, HEAD.size)
        return Counter({name: counts[i] for name, i in self.kinds().items()
                        if counts[i]})


@dataclass
class Row:
    calls: int = 0
    injected: int = 0
    outcomes: Counter = field(default_factory=Counter)


class Table:
    """Calls by kind, failures injected, outcomes."""

    def __init__(self, title: str):
        self.title = title
        self.rows: dict[str, Row] = {}

    def add(self, kind: str, outcome: str) -> None:
        row = self.rows[kind]
        row.injected += 1
        row.outcomes[outcome] += 1

    def injected(self) -> int:
        return sum(row.injected for row in self.rows.values())

    def __str__(self) -> str:
        lines = [self.title]
        for kind, row in self.rows.items():
            outcomes = ', '.join(f'{n} {what}'
                                 for what, n in sorted(row.outcomes.items()))
            lines.append(f'  {kind:14} {row.calls:4} calls '
                         f'{row.injected:5} failed: {outcomes}')
        return '\n'.join(lines)


class Wrong(AssertionError):
    """A result that must not happen, after a fault that is named."""


@dataclass(frozen=True)
class Held:
    """A process's resources of the host, to be compared."""

    files: tuple[str, ...]      # without templates
    open_templates: int
    shared: int         # bytes mapped from files, but for programs'
    templates: int      # and from templates
    private: int        # and others, without stacks

    @staticmethod
    def of(pid: int) -> 'Held':
        files = sorted(os.readlink(f) for f in
                       Path(f'/proc/{pid}/fd').iterdir())
        # which number a socket has is no matter
        opened = sum('.template' in name for name in files)
        files = tuple(re.sub(r'\d+', 'N', name) for name in files
                      if '.template' not in name)
        shared = templates = private = 0
        for line in Path(f'/proc/{pid}/maps').read_text().splitlines():
            start, end = (int(n, 16) for n in line.split()[0].split('-'))
            inode = line.split()[4]
            size = end - start
            if '.template' in line:
                templates += size
            elif inode != '0' and '/usr/' not in line and '/lib' not in line:
                shared += size
            elif inode != '0':
                continue
            elif size not in (MIB, 8 * MIB) and '[' not in line:
                private += size
        return Held(files, opened, shared, templates, private)

    def check(self, before: 'Held') -> None:
        more = Counter(self.files) - Counter(before.files)
        less = Counter(before.files) - Counter(self.files)
        if more or less:
            raise Wrong(f'descriptors: more {dict(more)}, less {dict(less)}')
        if self.shared != before.shared:
            raise Wrong(f'{self.shared - before.shared} bytes of files are '
                        'mapped more')
        # mapped, copied, kept or all of it: by two descriptors at most
        if self.open_templates > 2:
            raise Wrong(f'{self.open_templates} templates are open')
        if self.templates > 3 * RAM_SIZE:
            raise Wrong(f'{self.templates} bytes of templates are mapped')
        # malloc() has some, QEMU's RAM is more
        if self.private - before.private > RAM_SIZE // 4:
            raise Wrong(f'{self.private - before.private} bytes are mapped '
                        'more')


class Driven(Machine):
    """Without a vCPU; RAM is written from outside, as a device does it."""

    def __init__(self, workdir: Path, *, args: tuple = (), ram: int = RAM_SIZE,
                 **kwargs):
        self.qtest = Qtest(workdir)
        super().__init__(workdir, accel='qtest', ram=ram,
                         args=(*self.qtest.args, *args), **kwargs)
        self.qtest.connect()
        found = re.search(rf'^\s*{RAM}\s.*?(0x\w+)\s+\w+\s*$',
                          self.hmp('info ramblock'), re.MULTILINE)
        self._host = int(found[1], 16)

    def ram_image(self) -> bytes:
        """All of it, also what devices hide from the guest."""
        if self.memory != 'private':
            return super().ram_image()
        with open(f'/proc/{self.process.pid}/mem', 'rb') as f:
            f.seek(self._host)
            return f.read(self.ram)

    def close(self) -> None:
        if hasattr(self.qtest, '_socket'):
            self.qtest.close()
        super().close()


class DrivenHuge(HugeFile, Driven):
    """The same with RAM on hugetlbfs."""


def memset(guest: Driven, start: int, size: int, byte: int) -> None:
    guest.qtest.ask(f'memset {start:#x} {size:#x} {byte:#x}')


def write_state(guest: Driven) -> None:
    memset(guest, 2 * MIB, MIB, 0x11)
    for page in range(64):
        memset(guest, 6 * MIB + page * 0x3000, 0x1000, page + 1)


def dirty(guest: Driven, seed: int) -> None:
    """Stored pages get other bytes and zeros, zero pages get bytes."""
    byte = seed % 200 + 50
    memset(guest, 2 * MIB + 0x8000, 0x80000, byte)
    memset(guest, 6 * MIB, 0x9000, 0)
    memset(guest, 6 * MIB + 0x12000, 0x3000, byte)
    memset(guest, 9 * MIB, MIB + 0x1000, byte)
    for page in range(0, 128, 8):
        memset(guest, 12 * MIB + page * 0x4000, 0x1000, byte)


class Sweep:
    """
    An operation of @guest is done with call after call failing.  @operate: does
    it, or has a MachineError raised; @prepare: makes all ready, and is given a
    number that changes; @check: what must hold when it was done, raises Wrong
    otherwise; @refused: and when it was not; @after: cleans up.  The same
    operation must succeed after a failure, which is tried unless @check does.
    """

    def __init__(self, title: str, faults: Faults, guest: Machine,
                 prepare: Callable[[int], None], operate: Callable[[], None],
                 check: Callable[[], None],
                 outcome: Callable[[], str] = lambda: 'done',
                 after: Callable[[], None] = lambda: None,
                 refused: Callable[[], None] = lambda: None,
                 again: bool = True):
        self.table = Table(title)
        self.faults = faults
        self.guest = guest
        self.prepare = prepare
        self.operate = operate
        self.check = check
        self.outcome = outcome
        self.after = after
        self.refused = refused
        self.again = again
        self._turn = 0
        for _ in range(3):
            self._clean()
        self.held = Held.of(guest.process.pid)

    def _clean(self) -> None:
        """Without a fault."""
        self._turn += 1
        self.prepare(self._turn)
        self.operate()
        self.check()
        self.after()

    def _count(self) -> Counter:
        self._turn += 1
        self.prepare(self._turn)
        self.faults.arm()
        self.operate()
        self.faults.disarm()
        self.check()
        self.after()
        return self.faults.calls()

    def inject(self, kind: str, nth: int, err: int, mode: int) -> bool:
        """False if there was no such call any more."""
        self._turn += 1
        self.prepare(self._turn)
        self.faults.arm(kind, nth, err, mode)
        try:
            self.operate()
            outcome = None
        except MachineError as e:
            outcome = f'refused: {e}'
        fired, caller = self.faults.disarm()
        what = 'short' if err == SHORT else errno.errorcode.get(err, 'a lie')
        where = (f'{kind}, call {nth} at {caller:#x}: {what}, '
                 f'{("once", "from then on", "not done")[mode]}')
        try:
            if self.guest.process.poll() is not None:
                raise Wrong(f'QEMU has ended: {self.guest.process.poll()}, '
                            f'{self.guest.log()[-500:]}')
            if outcome is None:
                outcome = self.outcome()
                self.check()
                self.after()
            elif not fired:
                raise Wrong(f'fails without a fault, {outcome}')
            else:
                outcome = 'refused'
                self.refused()
            if fired and self.again:
                self._clean()
            if fired:
                self._check_held()
        except (Wrong, MachineError) as e:
            raise Wrong(f'{self.table.title}: {where}: {e}') from e
        if fired:
            self.table.add(kind, outcome)
        return fired > 0

    def _check_held(self) -> None:
        """Timers of QEMU's may have something for a moment."""
        limit = Limit(1)
        while True:
            try:
                Held.of(self.guest.process.pid).check(self.held)
                return
            except (Wrong, FileNotFoundError):
                if limit.over():
                    raise
                time.sleep(0.02)

    def run(self, long: bool) -> Table:
        """Not @long: the 1st, 4th, 16th ... call with one error."""
        counted = self._count()
        for kind in counted:
            if kind in EXCLUDED:
                continue
            self.table.rows[kind] = Row(counted[kind])
            errors = ERRORS[kind] if long else ERRORS[kind][:1]
            for err in errors:
                nth = 1
                while self.inject(kind, nth, err, ONCE):
                    nth = nth + 1 if long else nth * 4
                # a signal does not come for ever, nor is all read by bits
                if err not in (EINTR, SHORT):
                    self.inject(kind, 1, err, FROM_THEN_ON)
        print(self.table)
        return self.table
