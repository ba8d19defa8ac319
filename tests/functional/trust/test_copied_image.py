# SPDX-License-Identifier: GPL-2.0-or-later
"""
Copies of an image while QEMU runs: which are wrong, and which are right.

The guest, which is the test here, fills its disk from the beginning to the
end, with a flush, and with one number. So a disk with two numbers, of which the
later one is at its end only, is one that there never was.
"""

# Takes: 15 s
# Long: of QEMU, not of a ram-reset object

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import products
from lib.faults import Driven, memset
from lib.kills import disk_io
from lib.machine import DISK, MIB, MachineError, run_quietly
from lib.patience import Limit

DEVICE = '-d hd0'               # for qemu-io
SIZE, STEP = 48, 8              # MiB of the disk that are used, and of a write
A, B, NOW, LATER = 1, 2, 3, 4
RAM_AREA = 4 * MIB, 64 * 1024
COPY_RATE = SIZE * MIB // 3     # bytes in a second, to be in time to stop it
BACKUP_RATE = MIB               # the job ends long after the test's writes
PATIENCE = 60.0


class Guest(Driven):
    """Its disk is written to as by the device that has it."""

    def __init__(self, workdir: Path, **kwargs):
        super().__init__(workdir, args=(
            '-device', f'ide-hd,drive={DISK},id=hd0'), **kwargs)

    def write(self, number: int) -> None:
        memset(self, *RAM_AREA, number)
        for at in range(0, SIZE, STEP):
            disk_io(self, DEVICE, f'write -P {number} {at}M {STEP}M')
        self.hmp(f'qemu-io {DEVICE} flush')
        self.qtest.ask('clock_step 1000000')

    def number(self) -> int:
        """RAM's, which has to be that of the whole disk."""
        start, size = RAM_AREA
        found = set(self.ram_image()[start:start + size])
        assert len(found) == 1
        number, = found
        assert disk_io(self, DEVICE, f'read -P {number} 0 {SIZE}M')
        return number


def boot(workdir: Path, **kwargs) -> Guest:
    return Guest(workdir, strategy='auto', options=',rewind=on', **kwargs)


@pytest.fixture
def guest(tmp_path):
    with boot(tmp_path) as guest:
        guest.write(NOW)
        yield guest


@pytest.fixture
def guest_with_snapshots(tmp_path):
    with boot(tmp_path) as guest:
        for tag, number in (('a', A), ('b', B)):
            guest.write(number)
            guest.save(tag)
        guest.write(NOW)
        yield guest


def numbers(image: Path, *options: str) -> list[int]:
    """The numbers that are on a disk, in order."""
    raw = image.with_suffix('.raw')
    run_quietly(products.QEMU_IMG, 'convert', '-O', 'raw', *options, image, raw)
    data = raw.read_bytes()[:SIZE * MIB]
    raw.unlink()
    return [n for i, n in enumerate(data[::4096])
            if not i or n != data[(i - 1) * 4096]]


def copied_in_two(guest: Guest, work: Callable[[], None]) -> Path:
    """As cp does it, with @work when it has come half way."""
    copy = guest.workdir / 'copy.qcow2'
    with open(guest.disk, 'rb') as disk, open(copy, 'wb') as f:
        f.write(disk.read(guest.disk.stat().st_size // 2))
        work()
        f.write(disk.read())
    return copy


def converted(guest: Guest, work: Callable[[], None], *options: str) -> Path:
    """By qemu-img, which reads 16 MiB ahead, with @work when it has begun."""
    copy = guest.workdir / 'copy.qcow2'
    with subprocess.Popen([products.QEMU_IMG, 'convert', '-U', '-O', 'qcow2',
                           '-r', str(COPY_RATE), *options, guest.disk,
                           copy]) as program:
        limit = Limit(PATIENCE)
        while not copy.exists() or copy.stat().st_size < MIB:
            assert program.poll() is None and not limit.over()
            time.sleep(0.01)
        program.send_signal(signal.SIGSTOP)
        work()
        program.send_signal(signal.SIGCONT)
        assert program.wait() == 0
    return copy


def replace(guest, tag: str) -> None:
    """Snapshot "c" may get the clusters of @tag."""
    guest.hmp(f'delvm {tag}')
    guest.write(LATER)
    guest.save('c')
    guest.write(NOW)


# Wrong copies

def test_copy_of_the_file(guest):
    """The end is of later than the beginning, and nothing complains."""
    copy = copied_in_two(guest, lambda: guest.write(LATER))
    run_quietly(products.QEMU_IMG, 'check', '-q', copy)
    assert numbers(copy) == [NOW, LATER]


def test_copy_of_a_file_with_snapshots(guest_with_snapshots):
    """It is damaged, or a snapshot in it is none that there was."""
    guest = guest_with_snapshots
    copy = copied_in_two(guest, lambda: replace(guest, 'a'))
    complaint = ''
    try:
        run_quietly(products.QEMU_IMG, 'check', '-q', copy)
    except MachineError as e:
        complaint = str(e)
    snapshots = run_quietly(products.QEMU_IMG, 'snapshot', '-l', copy)
    print(complaint[:300], snapshots)
    assert complaint


def test_convert_of_the_active_layer(guest):
    copy = converted(guest, lambda: guest.write(LATER))
    assert numbers(copy) == [NOW, LATER]


def test_convert_of_a_snapshot_that_is_deleted(guest_with_snapshots):
    guest = guest_with_snapshots
    copy = converted(guest, lambda: replace(guest, 'b'), '-l',
                     'snapshot.name=b')
    assert numbers(copy) != [B]


# Right copies

def test_convert_of_a_snapshot(guest_with_snapshots):
    """Whatever is done to others."""
    guest = guest_with_snapshots

    def work() -> None:
        guest.write(LATER)
        guest.load('a')
        guest.hmp('delvm a')
        guest.write(LATER)
        guest.save('c')

    copy = converted(guest, work, '-l', 'snapshot.name=b')
    run_quietly(products.QEMU_IMG, 'check', '-q', copy)
    assert numbers(copy) == [B]


def test_backup(guest_with_snapshots):
    """The disk of when the job was begun."""
    guest = guest_with_snapshots
    copy = guest.workdir / 'copy.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', copy, '64M')
    guest.qmp('blockdev-add', **{
        'driver': 'qcow2', 'node-name': 'copy',
        'file': {'driver': 'file', 'filename': str(copy)}})
    guest.qmp('blockdev-backup', **{
        'job-id': 'backup', 'device': DISK, 'target': 'copy', 'sync': 'full',
        'speed': BACKUP_RATE})
    guest.write(LATER)
    with pytest.raises(MachineError, match='does not support snapshots'):
        guest.load('a')
    guest.qmp('block-job-set-speed', device='backup', speed=0)
    guest.event('BLOCK_JOB_COMPLETED')
    guest.qmp('blockdev-del', **{'node-name': 'copy'})
    run_quietly(products.QEMU_IMG, 'check', '-q', copy)
    assert numbers(copy) == [NOW]
    guest.load('a')
    assert guest.number() == A


def test_copy_of_a_stopped_machine(guest_with_snapshots):
    """With all snapshots, which QEMU loads from the copy."""
    guest = guest_with_snapshots
    guest.stop()
    copy = copied_in_two(guest, lambda: None)
    guest.cont()
    guest.load('a')
    guest.write(LATER)
    run_quietly(products.QEMU_IMG, 'check', '-q', copy)
    assert numbers(copy) == [NOW]
    folder = guest.workdir / 'other'
    folder.mkdir()
    copy.rename(folder / guest.disk.name)
    with boot(folder) as other:
        for tag, number in (('b', B), ('a', A), ('b', B)):
            other.load(tag)
            assert other.number() == number
