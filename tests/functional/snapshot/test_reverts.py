# SPDX-License-Identifier: GPL-2.0-or-later
"""Reverts of disks with many tables, and of disks that have been resized."""

# Takes: 30 s

import shutil
import signal

import pytest

from lib import products
from lib.effort import rounds
from lib.faults import Driven
from lib.kills import Kills, check_disks, copy_disks, disk_io
from lib.machine import MIB, MachineError, disk_file, run_quietly
from lib.patience import patience
from lib.shm import in_memory

NODE = 'disk1'
# QEMU caches a table of such a disk in slices of 4 KiB
LARGE = '300G'
SMALL, GROWN = 64 * MIB, 2 << 30
STEP = rounds(2, 5)


class Guest(Driven):
    """With a second disk."""

    def __init__(self, workdir, size, **kwargs):
        path = workdir / f'{NODE}.qcow2'
        if not path.exists():
            run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', path,
                        str(size))
        super().__init__(workdir, strategy='auto', options=',rewind=on',
                         args=('-blockdev', f'driver=qcow2,node-name={NODE},'
                               + disk_file(path, '')), **kwargs)

    def io(self, command: str) -> bool:
        return disk_io(self, NODE, command)

    def resize(self, size: int) -> None:
        self.qmp('block_resize', **{'node-name': NODE, 'size': size})


@pytest.fixture
def folder():
    with in_memory('reverts') as path:
        yield path


@pytest.mark.parametrize('then', ('snapshot', 'resize'))
def test_freed_tables_are_not_written(tmp_path, then):
    """
    The revert frees the table of what was written, of which more than the first
    slice had changed; its cluster is given to a table of L1 entries.
    """
    with Guest(tmp_path, LARGE) as guest:
        guest.save('a')
        for offset in '33M', '65M', '129M':
            guest.io(f'write -P 1 {offset} 64k')
        guest.hmp(f'qemu-io {NODE} flush')
        guest.load('a')
        if then == 'snapshot':
            guest.qmp('blockdev-snapshot-internal-sync', device=NODE, name='b')
        else:
            guest.resize(310 << 30)
        guest.io('write -P 2 97M 64k')
        guest.io('write -P 2 200G 64k')
        guest.hmp(f'qemu-io {NODE} flush')
        assert guest.io('read -P 2 97M 64k') and guest.io('read -P 0 33M 64k')
    run_quietly(products.QEMU_IMG, 'check', '-q', tmp_path / f'{NODE}.qcow2')


def prepare(workdir) -> None:
    """At snapshot b, which is larger than a and has two tables behind its end."""
    workdir.mkdir()
    with Guest(workdir, SMALL) as guest:
        guest.save('a')
        guest.resize(GROWN)
        for offset in '100M', '700M':
            guest.io(f'write -P 3 {offset} 64k')
        guest.save('b')
        guest.load('a')
        guest.load('b')


def test_kill_in_a_revert_that_shrinks(folder, monkeypatch):
    """The counts of clusters behind the new end are not lower than they are."""
    kills = Kills(folder, monkeypatch)
    prepare(folder / 'before')
    for nth in range(1, 200, STEP):
        workdir = copy_disks(folder / 'before', folder / 'killed')
        with Guest(workdir, SMALL) as guest:
            guest.load('b')
            kills.arm(nth)
            try:
                guest.load('a')
                killed = False
            except MachineError:
                killed = True
                assert guest.process.wait(patience(20)) == -signal.SIGKILL
            kills.disarm()
        check_disks(workdir)
        with Guest(workdir, SMALL) as guest:
            guest.load('b')
            for offset in '100M', '700M':
                assert guest.io(f'read -P 3 {offset} 64k')
            guest.load('a')
        check_disks(workdir)
        shutil.rmtree(workdir)
        if not killed:
            break
    assert not killed and nth > 1
