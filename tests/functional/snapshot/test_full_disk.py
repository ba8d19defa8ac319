# SPDX-License-Identifier: GPL-2.0-or-later
"""A save for which the file system has no room gives back what it has taken."""

# Takes: 20 s

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import products
from lib.content import START
from lib.kills import disk_io
from lib.machine import DISK, MIB, MachineError, run_quietly
from lib.snapctl_guest import FAILED, SAVE, SAVED, A, SnapctlGuest

ROOM, MORE = 32 * MIB, 256 * MIB
# what RAM has: of the old snapshot, for which there is room, and the new one
SMALL, BIG = (START, 2 * MIB), (START, 40 * MIB)
OLD, NEW = 1, 2
# what is written of the disk, at two places
WRITE = 4 * MIB
# tables that the save has made may stay
BOUND = MIB
HOWS = 'hmp', 'qmp', 'guest'


class Filesystem:
    """A tmpfs of @size bytes at @place."""

    def __init__(self, place: Path, size: int):
        self.place = place
        place.mkdir()
        self._mount('-t', 'tmpfs', '-o', f'size={size}', 'tmpfs')

    def _mount(self, *words: str) -> None:
        run = subprocess.run(['mount', *words, str(self.place)], text=True,
                             capture_output=True, check=False)
        if run.returncode:
            pytest.skip(f'no tmpfs can be mounted: {run.stderr.strip()}')

    def resize(self, size: int) -> None:
        self._mount('-o', f'remount,size={size}')

    def free(self) -> int:
        found = os.statvfs(self.place)
        return found.f_bavail * found.f_bsize

    def unmount(self) -> None:
        run_quietly('umount', self.place)


@pytest.fixture
def small(tmp_path) -> Iterator[Filesystem]:
    """With the disk of a guest whose other files are in @tmp_path."""
    if os.geteuid():
        pytest.skip('only root can mount a file system')
    filesystem = Filesystem(tmp_path / 'small', ROOM)
    image = filesystem.place / 'image.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', image, '64M')
    (tmp_path / 'disk.qcow2').symlink_to(image)
    yield filesystem
    filesystem.unmount()


def save(guest: SnapctlGuest, how: str) -> None:
    if how == 'hmp':
        guest.save('a')
    elif how == 'qmp':
        guest.snapshot_job('snapshot-save', 'a')
    else:
        status, error, _ = guest.snap(A, SAVE)
        assert status == SAVED or status == FAILED and error
        if status == FAILED:
            raise MachineError(guest.info()['last']['error'])


def is_new(guest: SnapctlGuest) -> None:
    guest.sync()
    guest.ask('check-fill', *BIG, NEW)
    assert disk_io(guest, DISK, f'read -P {NEW} 0 {WRITE}')


def loads_old(guest: SnapctlGuest) -> None:
    guest.load('a')
    guest.sync()
    guest.ask('check-fill', *SMALL, OLD)
    assert disk_io(guest, DISK, f'read -P {OLD} 0 {WRITE}')


# snapshot-save does not overwrite
@pytest.mark.parametrize('over,how', [
    *((False, how) for how in HOWS), (True, 'hmp'), (True, 'guest')])
def test_room_comes_back(tmp_path, small, fast_accel, served, over, how):
    """Then the guest's next writes find it."""
    with SnapctlGuest(tmp_path, accel=fast_accel, strategy=served) as guest:
        guest.ask('fill', *SMALL, OLD)
        assert disk_io(guest, DISK, f'write -P {OLD} 0 {WRITE}')
        if over:
            save(guest, how)
        guest.ask('fill', *BIG, NEW)
        assert disk_io(guest, DISK, f'write -P {NEW} 0 {WRITE}')
        free = small.free()
        for _ in range(3):
            with pytest.raises(MachineError, match='writing (the )?VM state'):
                save(guest, how)
            assert guest.status() == 'running'
            assert small.free() > free - BOUND
            is_new(guest)
        assert disk_io(guest, DISK, f'write -P {NEW} {WRITE} {WRITE}')
        run_quietly(products.QEMU_IMG, 'check', '-q', '-U', guest.disk)
        if over:
            loads_old(guest)
            guest.ask('fill', *BIG, NEW)
            assert disk_io(guest, DISK, f'write -P {NEW} 0 {WRITE}')
        small.resize(MORE)
        save(guest, how)
        guest.ask('set', *BIG, 0)
        guest.load('a')
        is_new(guest)
    run_quietly(products.QEMU_IMG, 'check', '-q', guest.disk)
