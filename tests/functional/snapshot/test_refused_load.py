# SPDX-License-Identifier: GPL-2.0-or-later
"""A load that fails before it has changed anything: the guest goes on."""

# Takes: 30 s

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from lib import products
from lib.content import START
from lib.kills import disk_io
from lib.machine import DISK, MIB, MachineError, disk_file, run_quietly
from lib.patience import Limit
from lib.shm import in_memory
from lib.snapctl_guest import FAILED, LOAD, REFUSED, A, SnapctlGuest
from lib.vmstate import VMState

AREA = START, 2 * MIB
OLD, NEW = 1, 2
SECOND = 'disk1'
NODES = DISK, SECOND
SIZE = 8 * MIB
SECTOR = 512
# slower than any test
SPEED = 1
REFUSALS = ('nothing has been changed|Failed to load snapshot|does not exist|'
            'not support snapshots|disk-only snapshot')
HOWS = 'hmp', 'qmp', 'guest'


def second_disk(folder: Path) -> tuple:
    """With a base, so that it can be streamed."""
    base, disk = folder / 'base.raw', folder / f'{SECOND}.qcow2'
    if not disk.exists():
        base.write_bytes(b'\x55' * SIZE)
        run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', '-F',
                    'raw', '-b', base.name, disk)
    return ('-blockdev', f'driver=qcow2,node-name={SECOND},'
                         + disk_file(disk, ''))


def start(folder: Path, accel: str, strategy: str, blkdebug: str = ''
          ) -> SnapctlGuest:
    """Start a guest whose disks have devices, so that filters get between."""
    devices = (word for node in NODES for word in (
        '-device', f'virtio-blk-pci,drive={node},share-rw=on'))
    return SnapctlGuest(folder, accel=accel, strategy=strategy,
                        blkdebug=blkdebug, args=(*second_disk(folder), *devices))


@pytest.fixture(scope='module')
def saved():
    """Disks with snapshot "a"."""
    with in_memory('refused') as folder:
        with start(folder, 'tcg', 'stock') as guest:
            guest.ask('fill', *AREA, OLD)
            for node in NODES:
                disk_io(guest, node, f'write -P {OLD} 0 64k')
            guest.save('a')
        yield folder


class Obstacle:
    """An obstacle to a load."""

    def damage(self, folder: Path) -> str:
        """Damage images before QEMU starts; returns blkdebug's rules."""
        return ''

    def begin(self, guest: SnapctlGuest, folder: Path) -> None:
        """Put the obstacle into a guest that runs."""

    def end(self, guest: SnapctlGuest) -> None:
        """Remove the obstacle, so that a save is possible."""


@dataclass
class Bitmap(Obstacle):
    """A bitmap: the first disk might be reverted before the second is."""

    node: str = DISK

    def begin(self, guest, folder):
        guest.qmp('block-dirty-bitmap-add', node=self.node, name='b0')

    def end(self, guest):
        guest.qmp('block-dirty-bitmap-remove', node=self.node, name='b0')


@dataclass
class Job(Obstacle):
    """A job that does not end."""

    command: str
    node: str = DISK

    def begin(self, guest, folder):
        arguments = {'sync': 'full', 'target': 'target'}
        if self.command == 'block-stream':
            arguments = {}
        else:
            target = folder / 'target.qcow2'
            shutil.copy(guest.disk if self.node == DISK
                        else folder / f'{SECOND}.qcow2', target)
            guest.qmp('blockdev-add', **{
                'driver': 'qcow2', 'node-name': 'target', 'backing': None,
                'file': {'driver': 'file', 'filename': str(target)}})
        guest.qmp(self.command, **{'device': self.node, 'job-id': 'slow',
                                   'speed': SPEED, **arguments})

    def end(self, guest):
        guest.qmp('block-job-cancel', device='slow', force=True)
        limit = Limit(guest.timeout)
        while guest.qmp('query-block-jobs'):
            assert not limit.over(), 'the job does not end'
            time.sleep(0.01)
        if self.command != 'block-stream':
            guest.qmp('blockdev-del', **{'node-name': 'target'})


class Missing(Obstacle):
    """The second disk's snapshot."""

    def begin(self, guest, folder):
        guest.qmp('blockdev-snapshot-delete-internal-sync', device=SECOND,
                  name='a')


class Unknown(Obstacle):
    """No disk has it."""

    def begin(self, guest, folder):
        guest.hmp('delvm a')


class BadL1Table(Obstacle):
    """The snapshot's cannot be read."""

    def damage(self, folder):
        with VMState(folder / 'disk.qcow2', 'a') as state:
            sector = state.l1_table // SECTOR
        return ('inject-error.0.event=none,inject-error.0.iotype=read,'
                f'inject-error.0.sector={sector}')


class Resized(Obstacle):
    """The snapshot has another size, and a client relies on this one."""

    def damage(self, folder):
        run_quietly(products.QEMU_IMG, 'resize', '-q', folder / 'disk.qcow2',
                    '+1M')
        return ''

    def begin(self, guest, folder):
        guest.qmp('nbd-server-start', addr={
            'type': 'unix', 'data': {'path': str(folder / 'nbd')}})
        guest.qmp('block-export-add', **{
            'type': 'nbd', 'id': 'export', 'node-name': DISK})

    def end(self, guest):
        guest.qmp('block-export-del', id='export')
        guest.event('BLOCK_EXPORT_DELETED')
        guest.qmp('nbd-server-stop')


class NoSnapshots(Obstacle):
    """A disk that cannot have any."""

    def begin(self, guest, folder):
        guest.qmp('blockdev-add', **{'driver': 'null-co', 'node-name': 'null0',
                                     'size': SIZE})

    def end(self, guest):
        guest.qmp('blockdev-del', **{'node-name': 'null0'})


OBSTACLES = {
    'bitmap': Bitmap(),
    'second-bitmap': Bitmap(node=SECOND),
    'backup': Job('blockdev-backup'),
    'second-backup': Job('blockdev-backup', node=SECOND),
    'mirror': Job('blockdev-mirror'),
    'second-mirror': Job('blockdev-mirror', node=SECOND),
    'second-stream': Job('block-stream', node=SECOND),
    'missing': Missing(),
    'unknown': Unknown(),
    'l1-table': BadL1Table(),
    'resized': Resized(),
    'no-snapshots': NoSnapshots(),
}


def refused(guest: SnapctlGuest, how: str, obstacle: Obstacle) -> None:
    if how == 'guest':
        status, error, _ = guest.snap(A, LOAD)
        assert status in (REFUSED, FAILED) and error
        return
    nodes = [*NODES]
    if isinstance(obstacle, NoSnapshots):
        nodes.append('null0')
    with pytest.raises(MachineError, match=REFUSALS):
        if how == 'hmp':
            guest.load('a')
        else:
            guest.snapshot_job('snapshot-load', 'a', devices=nodes)


def migrate(guest: SnapctlGuest) -> None:
    """Migrate to nowhere, and go on here."""
    guest.qmp('migrate', uri='exec:cat >/dev/null')
    limit = Limit(guest.timeout)
    while (status := guest.qmp('query-migrate')['status']) != 'completed':
        assert status != 'failed' and not limit.over(), status
        time.sleep(0.01)
    guest.cont()


def is_new(guest: SnapctlGuest) -> None:
    guest.sync()
    guest.ask('check-fill', *AREA, NEW)
    for node in NODES:
        assert disk_io(guest, node, f'read -P {NEW} 0 64k'), node


@pytest.mark.parametrize('how', HOWS)
@pytest.mark.parametrize('obstacle', OBSTACLES.values(), ids=OBSTACLES)
@pytest.mark.each_value
def test_guest_goes_on(saved, fast_accel, served, how, obstacle):
    """Its RAM and disks are what they were; it can be saved and migrated."""
    with in_memory('refused-case') as folder:
        for file in saved.iterdir():
            shutil.copy(file, folder)
        blkdebug = obstacle.damage(folder)
        with start(folder, fast_accel, served, blkdebug) as guest:
            guest.ask('fill', *AREA, NEW)
            for node in NODES:
                disk_io(guest, node, f'write -P {NEW} 0 64k')
            obstacle.begin(guest, folder)
            for _ in range(2):
                refused(guest, how, obstacle)
                guest.cont()
                is_new(guest)
            obstacle.end(guest)
            guest.save('b')
            migrate(guest)
            is_new(guest)
            guest.ask('set', *AREA, 0)
            guest.load('b')
            is_new(guest)
