# SPDX-License-Identifier: GPL-2.0-or-later
"""
Machines forked from one that runs, and writes with fsync to six disks: each
finds in its disks what its RAM says, and its file systems are sound.
"""

# Takes: 60 s
# Long: a guest that writes meets more, the more often it is forked

import contextlib
import os
import time
from pathlib import Path

import pytest

from lib.effort import rounds
from lib.forking import INCOMING, JOB, Fork, Forker
from lib.forks import check_all
from lib.guests import Linux
from lib.incoming import mappings
from lib.io.guest import BOOTED, WrongContent, boot, copy_disks
from lib.io.ledger import Ledger
from lib.machine import DISK, MIB, MachineError
from lib.patience import Limit

FORKS = int(os.environ.get('RAM_RESET_FORKS') or rounds(4, 2))
CROWD = 3


@pytest.fixture(scope='module')
def booted(tmp_path_factory) -> Path:
    return boot(Ledger, tmp_path_factory)


@pytest.fixture
def parent(tmp_path, booted):
    folder = tmp_path / 'parent'
    folder.mkdir()
    copy_disks(booted, folder)
    with Ledger(folder, strategy='auto', options=',rewind=on',
                loadvm=BOOTED) as guest:
        yield guest


@pytest.fixture
def forker(tmp_path, parent) -> Forker:
    folder = tmp_path / 'parent'
    return Forker(parent, tmp_path / 'forks', {
        DISK: parent.disk,
        **{name: folder / f'{name}.qcow2' for name in Ledger.disks}})


@contextlib.contextmanager
def child(fork: Fork, folder: Path, **kwargs):
    fork.make_disks(folder)
    with Ledger(folder, strategy='auto', boot_timeout=0, args=INCOMING,
                **kwargs) as guest:
        fork.enter(guest)
        assert mappings(guest, fork.state)
        yield guest
    check_all(folder)


def test_forks_of_a_writing_machine(tmp_path, parent, forker):
    for n in range(FORKS):
        fork = forker.fork()
        with child(fork, tmp_path / f'child{n}') as guest:
            guest.compare_disks()
            guest.check_file_systems()
        parent.compare_disks()
        parent.until('sleep 0.2')
    parent.check_file_systems()


def test_many_of_one_fork(tmp_path, parent, forker):
    """They run at once, write, save and load; none sees another's writes."""
    fork = forker.fork()
    frozen = {base: base.read_bytes() for base in fork.bases.values()}
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(child(fork, tmp_path / f'child{n}',
                                            options=',rewind=on'))
                  for n in range(CROWD)]
        for n, guest in enumerate(guests):
            guest.run(f'echo {n} >/run/number')
            nodes = list(guest.disks)
            guest.snapshot_job('snapshot-save', 's', nodes[0], nodes)
        for n, guest in enumerate(guests):
            guest.compare_disks()
            guest.run('echo other >/run/number')
            guest.snapshot_job('snapshot-load', 's', nodes[0], nodes)
            assert guest.last_load()['rewound']
            assert guest.run('cat /run/number') == str(n)
            guest.compare_disks()
            guest.check_file_systems()
    parent.compare_disks()
    assert all(base.read_bytes() == content
               for base, content in frozen.items())


def test_fork_of_a_fork(tmp_path, parent, forker):
    fork = forker.fork()
    folder = tmp_path / 'child'
    with child(fork, folder) as guest:
        guest.run('echo child >/run/number')
        again = Forker(guest, tmp_path / 'again', {
            DISK: guest.disk,
            **{name: folder / f'{name}.qcow2' for name in Ledger.disks}})
        with child(again.fork(), tmp_path / 'grandchild') as second:
            assert second.run('cat /run/number') == 'child'
            second.compare_disks()
            second.check_file_systems()
        guest.compare_disks()
        guest.check_file_systems()


def test_disk_of_another_instant(tmp_path, parent, forker):
    """The guest finds it: the tests above can fail."""
    fork = forker.fork()
    parent.compare_disks()
    later = forker.fork()
    fork.bases['blk_raw'] = later.bases['blk_raw']
    with pytest.raises(WrongContent, match='blk_raw'), \
            child(fork, tmp_path / 'child') as guest:
        guest.compare_disks()


def test_cancelled(tmp_path, parent, forker, rng):
    """At any instant: the machine goes on, and can be forked later."""
    cancelled = 0
    for _ in range(rounds(10, 4)):
        fork = forker.begin()
        time.sleep(rng.random() * 0.3)
        with contextlib.suppress(MachineError):     # it may be over
            parent.qmp('job-cancel', id=JOB)
        try:
            forker.end()
        except MachineError as error:
            assert 'cannot be forked' in str(error)
            assert not fork.state.exists()
            cancelled += 1
        assert parent.qmp('query-status')['running']
        parent.compare_disks()
    assert cancelled
    with child(forker.fork(), tmp_path / 'child') as guest:
        guest.compare_disks()
        guest.check_file_systems()
    parent.check_file_systems()


def test_identity(tmp_path, each_linux_accel):
    """Each child has another ID, and its kernel has been told."""
    args = ('-cpu', 'qemu64,+rdrand', '-device', 'vmgenid',
            '-device', f'virtio-blk-pci,drive={DISK}')
    folder = tmp_path / 'parent'
    folder.mkdir()
    told = "dmesg | grep -c 'due to virtual machine fork'; true"
    with Linux(folder, accel=each_linux_accel, ram=128 * MIB, args=args
               ) as guest:
        fork = Forker(guest, tmp_path / 'forks', {DISK: guest.disk}).fork()
        assert guest.run(told) == '0'
        ids = {guest.qmp('query-vm-generation-id')['guid']}
    for n in range(2):
        folder = tmp_path / f'child{n}'
        fork.make_disks(folder)
        with Linux(folder, accel=each_linux_accel, ram=128 * MIB,
                   strategy='auto', args=(*args, *INCOMING), boot_timeout=0
                   ) as guest:
            fork.enter(guest)
            limit = Limit(60)
            while guest.run(told) != '1':
                assert not limit.over()
            ids.add(guest.qmp('query-vm-generation-id')['guid'])
    assert len(ids) == 3
