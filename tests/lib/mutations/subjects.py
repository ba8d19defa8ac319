# SPDX-License-Identifier: GPL-2.0-or-later
"""
QEMUs that load one damaged snapshot after the other.

They have no vCPU that runs (-accel qtest): a load takes milliseconds, and RAM
is what was loaded until somebody asks for it.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lib import products
from lib.dma import Qtest
from lib.hugefile import HUGE, HugeFile
from lib.machine import (DISK, MIB, PAGE, RAM, Machine, MachineError,
                         run_quietly)
from lib.patience import patience

RAM_SIZE = 8 * HUGE
GOOD, BAD = 'good', 'bad'
# Messages of a load when RAM and devices are not the old ones any more
BEGUN = re.compile('while loading VM state|RAM is not what the snapshot has|'
                   'RAM cannot be verified|has no end of RAM')
# Ours refuses to run such a VM
PART = f"a partial load of snapshot '{BAD}'"
# Half of all devices' state would be the table of this, and if a bit in there
# is for a bus that is not, QEMU's reset never ends: it is found too often
NO_HOTPLUG = ('-global', 'PIIX4_PM.acpi-root-pci-hotplug=off',
              '-global', 'PIIX4_PM.acpi-pci-hotplug-with-bridge-support=off')
# Bytes of RAM, where and which, for each of the two snapshots
CONTENT = {
    GOOD: ((MIB, 20 * PAGE, 0x11), (5 * MIB, PAGE, 0x12), (8 * MIB, PAGE, 0x13),
           (RAM_SIZE - PAGE, PAGE, 0x14), (0x1000, PAGE, 0x15)),
    BAD: ((MIB + 9 * PAGE, 20 * PAGE, 0x21), (6 * MIB, PAGE, 0x22),
          (8 * MIB, 3 * PAGE, 0x23), (11 * MIB, 9, 0x24), (0x3000, 99, 0x25)),
}


@dataclass
class Job:
    """
    A load to try.  @image: the damaged file; @before: if it is to be loaded
    once before it is damaged, what it was; @stale: bytes that the guest has
    written, as in CONTENT; @stopped: the guest is; @by: 'hmp' or 'qmp';
    @same_image: the good snapshot is to be loaded from there as well.
    """

    number: int
    image: bytes
    stale: tuple
    before: bytes = b''
    stopped: bool = False
    by: str = 'qmp'
    same_image: bool = False
    elsewhere: Callable | None = None   # do damage when it has been loaded


@dataclass
class Outcome:
    """The result of a load.  @ram: of each block, if something was loaded."""

    # not opened, refused, failed, loaded, crash, hang
    how: str
    message: str = ''
    ram: dict[str, bytes] | None = None
    findings: list[str] = field(default_factory=list)
    from_copy: bool = False     # RAM, by a template or by rewinding


def content(tag: str) -> bytes:
    """All of RAM, as the snapshot has it."""
    return filled(bytes(RAM_SIZE), CONTENT[tag])


def filled(ram: bytes, pieces: tuple) -> bytes:
    new = bytearray(ram)
    for start, size, byte in pieces:
        new[start:start + size] = bytes((byte,)) * size
    return bytes(new)


def with_stale(good: dict[str, bytes], job: Job) -> dict[str, bytes]:
    """RAM before the load of what is damaged."""
    return good | {RAM: filled(good[RAM], job.stale)}


class Subject(Machine):
    """A QEMU, ours or stock, with the good snapshot in a disk of its own."""

    timeout = 8.0

    def __init__(self, workdir: Path, *, good: Path | None = None,
                 accel: str = 'qtest', ram: int = RAM_SIZE, args: tuple = (),
                 strategy: str = 'stock', hotplug: bool = False, **kwargs):
        workdir.mkdir(exist_ok=True)
        self.strategy = strategy
        if good:
            shutil.copy(good, workdir / 'disk.qcow2')
        self._qtest = Qtest(workdir)
        # of its own, so that others can be asked meanwhile
        asyncio.set_event_loop(asyncio.new_event_loop())
        super().__init__(workdir, accel=accel, ram=ram, strategy=strategy,
                         args=(*self._qtest.args, *args,
                               *(() if hotplug else NO_HOTPLUG)), **kwargs)
        self._qtest.connect()
        self._mem = open(f'/proc/{self.process.pid}/mem', 'rb', buffering=0)
        self._blocks = self._find_blocks()

    def close(self) -> None:
        with contextlib.suppress(AttributeError):
            self._mem.close()
            self._qtest.close()
        super().close()

    def _find_blocks(self) -> dict[str, tuple[int, int]]:
        """Address and size of each."""
        blocks = {}
        for line in self.hmp('info ramblock').splitlines()[1:]:
            name, _, _, _, used, _, address, _ = line.split()
            blocks[name] = int(address, 16), int(used, 16)
        assert blocks[RAM][1] == self.ram
        return blocks

    def all_ram(self) -> dict[str, bytes]:
        """Unlike the monitor's ways, this runs no code of QEMU's."""
        content = {}
        for name, (address, size) in self._blocks.items():
            content[name] = os.pread(self._mem.fileno(), size, address)
            assert len(content[name]) == size
        return content

    def fill(self, pieces) -> None:
        for start, size, byte in pieces:
            self._qtest.ask(f'memset {start:#x} {size:#x} {byte:#x}')

    def _add(self, node: str, image: Path) -> None:
        self.qmp('blockdev-add', **{
            'driver': 'qcow2', 'node-name': node,
            'cache': {'no-flush': True},
            'file': {'driver': 'file', 'filename': str(image)}})

    # One load

    def _begin(self, job: Job) -> None:
        """The good snapshot, and over it what shall not be seen again."""
        self.fill(job.stale)
        self.cont()
        if job.stopped:
            self.stop()

    def _load_bad(self, job: Job, node: str, image: Path) -> None:
        """Maybe again, after it has been damaged under QEMU's eyes."""
        if job.elsewhere:
            self.load(BAD, job.by, node)
            self.load(GOOD, 'qmp')
            self._begin(job)
            job.elsewhere()
        if job.before:
            for _ in range(2):
                self.load(BAD, job.by, node)
            self._begin(job)
            with open(image, 'r+b') as f:
                f.write(job.image)
                f.truncate(len(job.image))
        self.load(BAD, job.by, node)

    def play(self, job: Job, good: dict[str, bytes]) -> Outcome:
        """
        Try to load a damaged snapshot, then load the good one, whose RAM is
        @good.
        """
        image = self.workdir / 'bad.qcow2'
        image.write_bytes(job.before or job.image)
        outcome = Outcome('not opened')
        try:
            self._begin(job)
            with self._only(job):
                self._try(job, image, outcome, good)
            self.load(GOOD, 'qmp')
            self._check_good(good, outcome)
        except (MachineError, OSError) as e:
            outcome.message = str(e)
            self._find_cause(outcome)
        finally:
            image.unlink()
        return outcome

    @contextlib.contextmanager
    def _only(self, job: Job) -> Iterator[None]:
        """For the monitor's loadvm no other node may have snapshots."""
        if job.by == 'qmp':
            yield
            return
        self.qmp('blockdev-del', **{'node-name': DISK})
        yield
        self._add(DISK, self.disk)

    def _try(self, job: Job, image: Path, outcome: Outcome,
             good: dict[str, bytes]) -> None:
        node = f'bad{job.number}'
        try:
            self._add(node, image)
        except MachineError as e:
            if self.process.poll() is not None:
                raise
            outcome.message = str(e)
            return
        failed = self.failed_loads()
        try:
            self._load_bad(job, node, image)
        except MachineError as e:
            if self.process.poll() is not None or 'no answer' in str(e):
                raise
            outcome.message = str(e)
            outcome.how = 'failed' if BEGUN.search(str(e)) else 'refused'
            self._check_stopped(job, outcome, good)
        else:
            outcome.how = 'loaded'
            outcome.ram = self.all_ram()
        self._check_counts(outcome, failed)
        if job.same_image:
            self.load(GOOD, job.by, node)
            self._check_good(good, outcome)
        self.qmp('blockdev-del', **{'node-name': node})

    def _check_stopped(self, job: Job, outcome: Outcome,
                       good: dict[str, bytes]) -> None:
        if self.status() == 'running':
            outcome.findings.append(f'runs after a load that {outcome.how}')
        if self._has_part():
            outcome.how = 'failed'
            return
        if self.strategy == 'stock':
            return
        if outcome.how == 'failed':
            outcome.findings.append('half a snapshot runs')
        elif not job.before and self.all_ram() != with_stale(good, job):
            outcome.findings.append('RAM was changed, and the load says '
                                    'nothing of it')

    def _has_part(self) -> bool:
        """Whether QEMU says so and does not run; otherwise it has done that."""
        try:
            self.cont()
        except MachineError as e:
            if PART not in str(e):
                raise
            return True
        self.stop()
        return False

    def failed_loads(self) -> int:
        if self.strategy == 'stock':
            return 0
        return self.qmp('query-ram-reset')['failed-loads']

    def _check_counts(self, outcome: Outcome, failed: int) -> None:
        """The object must report of the load what has happened."""
        if self.strategy == 'stock':
            return
        info = self.qmp('query-ram-reset')
        if outcome.how == 'loaded':
            last = info['last-load']
            outcome.from_copy = last['rewound'] or 'template' in last
            if not last['success']:
                outcome.findings.append('has failed, and says nothing')
        if outcome.how == 'failed' and info['failed-loads'] != failed + 1:
            outcome.findings.append('a failed load is not counted')

    def _check_good(self, good: dict[str, bytes], outcome: Outcome) -> None:
        if self.all_ram() != good:
            outcome.findings.append('then, the good snapshot is not as it was')
        self.cont()
        if self.status() != 'running':
            outcome.findings.append('then, the good snapshot does not run')

    def _find_cause(self, outcome: Outcome) -> None:
        """Decide about an error that nothing explains."""
        if 'no answer' in outcome.message:
            outcome.how = 'hang'
        elif self._is_alive():
            outcome.findings.append(f'then: {outcome.message}')
        else:
            outcome.how = 'crash'
            status = self.process.wait(patience(20))
            name = signal.Signals(-status).name if status < 0 else status
            outcome.message = f'{name}: {self.log()[-400:]}'
        self.process.kill()
        self.process.wait()

    def _is_alive(self) -> bool:
        try:
            return bool(self.status())
        except MachineError as e:
            return 'no answer' in str(e)


class HugeSubject(HugeFile, Subject):
    """A machine with its RAM in a file on hugetlbfs."""


def make_base(workdir: Path, cluster_size: str = '64k') -> bytes:
    """An image with the good snapshot and the bad one, not damaged yet."""
    disk = workdir / 'disk.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', '-o',
                f'cluster_size={cluster_size}', disk, '1M')
    with Subject(workdir, qemu=products.stock()) as guest:
        for tag, pieces in CONTENT.items():
            guest.fill(((0, 0xa0000, 0), (MIB, RAM_SIZE - MIB, 0)))
            guest.fill(pieces)
            guest.save(tag)
    image = disk.read_bytes()
    disk.unlink()
    return image
