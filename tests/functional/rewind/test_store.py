# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset-store: a job puts a snapshot from memory into its image."""

# Takes: 40 s

import shutil
import time

import pytest

from lib import products
from lib.dma import QtestMachine
from lib.guests import Ring3
from lib.kills import Kills
from lib.machine import DISK, MIB, MachineError
from lib.rewinding import RAM_SIZE, START, Still, boot, full_disk
from lib.storing import (MEMORY, begin, check, finish, killed_while_storing,
                         kinds, make_image, snapshots, state, store)


@pytest.mark.parametrize('cluster', ('4k', '64k', '2M'))
def test_another_qemu_loads_it(tmp_path, cluster):
    """Also an unpatched one if there is one, byte for byte."""
    make_image(tmp_path, f'cluster_size={cluster}')
    with Still(tmp_path, ',verify=on' + MEMORY) as guest:
        guest.put(0, 1, 100)
        guest.save('a')
        guest.put(50, 2, 100)
        guest.save('b')
        image = guest.ram_image()
        guest.put(20, 3, 1000)
        guest.save('c')
        guest.put(30, 4, 10)
        store(guest, 'b')
        assert kinds(guest) == {'a': 'memory', 'b': 'image', 'c': 'memory'}
        assert guest.qtest.read(START + 35 * 4096, 1) == b'\4'
        for tag in 'b', 'a', 'c', 'b':
            guest.load(tag)
            assert guest.last_load()['rewound']
        assert guest.ram_image() == image
        disk = guest.disk
    sizes = snapshots(disk)
    assert sizes['b'] > 0 and sizes['a'] == sizes['c'] == 0
    check(disk)
    with Still(tmp_path, ',verify=on') as guest:
        guest.load('b')
        assert guest.ram_image() == image
        guest.load('b')
        assert guest.last_load()['rewound']
        guest.hmp('delvm a')
        guest.load('b')
        assert guest.ram_image() == image
    check(disk)
    with QtestMachine(tmp_path, ram=RAM_SIZE, strategy='stock',
                      memory='shared', qemu=products.stock(),
                      loadvm='b') as guest:
        assert guest.ram_image() == image
        guest.hmp('delvm b')
        guest.hmp('delvm c')
    check(disk)


def test_all_else_goes_on(tmp_path, rng):
    """Saves of both kinds, loads and deletions while a job writes."""
    with Still(tmp_path, ',verify=on' + MEMORY) as guest:
        for n in range(4):
            guest.put(100 * n, n + 1, 150)
            guest.save(f's{n}')
        guest.load('s2')
        image = guest.ram_image()
        guest.load('s0')
        begin(guest, 's2', speed=MIB)
        steps = 0
        while state(guest)['status'] != 'concluded':
            guest.put(rng.randrange(1000), rng.randrange(256), 50)
            kind = rng.choice(('memory', 'image'))
            guest.qmp('qom-set', path='/objects/rr0', property='save-kind',
                      value=kind)
            guest.save('other')
            guest.hmp(f'qemu-io {DISK} "write -P {steps % 250} 0 1M"')
            guest.load(rng.choice(('s0', 's1', 's2', 's3', 'other')))
            guest.hmp('delvm other')
            steps += 1
        assert steps > 3
        finish(guest)
        assert kinds(guest)['s2'] == 'image'
        for n in (3, 2, 1, 0):
            guest.load(f's{n}')
            assert guest.qtest.read(START + 100 * n * 4096, 1) == \
                bytes([n + 1])
        disk = guest.disk
    check(disk)
    with Still(tmp_path, ',verify=on', loadvm='s2') as guest:
        assert guest.ram_image() == image


def test_baseline_in_an_image(tmp_path):
    """Pages that QEMU has not read yet are read from another snapshot."""
    with Still(tmp_path) as guest:
        guest.put(0, 1, 600)
        guest.save('first')
    with Still(tmp_path, MEMORY, loadvm='first') as guest:
        guest.put(300, 2, 10)
        guest.save('s')
        image = guest.ram_image()
        guest.put(0, 3, 600)
        store(guest, 's')
        guest.load('s')
        assert guest.ram_image() == image
        disk = guest.disk
    check(disk)
    with Still(tmp_path, ',verify=on', loadvm='s') as guest:
        assert guest.ram_image() == image


def test_running_guest(tmp_path, fast_accel):
    with boot(tmp_path, fast_accel, options=MEMORY) as guest:
        guest.start_loop(START, 256, 16)
        guest.save('s')
        for n in range(3):
            guest.save(f's{n}')
            begin(guest, f's{n}')
            guest.load('s', 'qmp')
            guest.next_pass()
            finish(guest)
            guest.load(f's{n}', 'qmp')
            guest.next_pass()
        disk = guest.disk
    check(disk)
    with Ring3(tmp_path, accel=fast_accel, ram=RAM_SIZE, memory='shared',
               strategy='auto', loadvm='s1') as guest:
        guest.next_pass()


def test_cancel(tmp_path):
    """Nothing leaks, and a second job may follow."""
    with Still(tmp_path, MEMORY) as guest:
        guest.put(0, 1, 1000)
        guest.save('s')
        begin(guest, 's', speed=MIB)
        with pytest.raises(MachineError, match='stores snapshot'):
            guest.qmp('ram-reset-store', **{'job-id': 'second', 'tag': 's'})
        while not state(guest)['current-progress']:
            time.sleep(0.01)
        guest.qmp('job-cancel', id='store')
        with pytest.raises(MachineError, match='cancel'):
            finish(guest)
        assert kinds(guest) == {'s': 'memory'}
        guest.load('s')
        check_open(guest)
        store(guest, 's')
        with pytest.raises(MachineError, match='in memory only'):
            guest.qmp('ram-reset-store', **{'job-id': 'store', 'tag': 's'})
        disk = guest.disk
    assert snapshots(disk)['s']
    check(disk)


def check_open(guest) -> None:
    """The image of a QEMU that runs, as of its last flush."""
    guest.hmp(f'qemu-io {DISK} flush')
    copy = guest.workdir / 'copy'
    shutil.copy(guest.disk, copy)
    check(copy)


def test_deleted_meanwhile(tmp_path):
    with Still(tmp_path, MEMORY) as guest:
        guest.put(0, 1, 1000)
        guest.save('s')
        begin(guest, 's', speed=MIB)
        guest.hmp('delvm s')
        with pytest.raises(MachineError, match='deleted'):
            finish(guest)
        disk = guest.disk
        check_open(guest)
    assert not snapshots(disk)
    check(disk)


def test_quit_meanwhile(tmp_path):
    with Still(tmp_path, MEMORY) as guest:
        guest.put(0, 1, 1000)
        guest.save('s')
        begin(guest, 's', speed=MIB)
        disk = guest.disk
    assert snapshots(disk) == {'s': 0}
    check(disk)


def test_full_disk(tmp_path):
    with Still(tmp_path, MEMORY) as guest:
        guest.put(0, 1, 1000)
        guest.save('s')
        with full_disk(guest):
            with pytest.raises(MachineError, match='in memory as before'):
                store(guest, 's')
        assert kinds(guest) == {'s': 'memory'}
        guest.put(0, 2, 10)
        guest.load('s')
        assert guest.qtest.read(START, 1) == b'\1'
        store(guest, 's')
        disk = guest.disk
    check(disk)


def test_kill_at_every_write(tmp_path, monkeypatch):
    """The snapshot has its VM state as a whole, or not at all."""
    kills = Kills(tmp_path, monkeypatch)
    whole = {False: 0, True: 0}
    for nth in range(1, 10000):
        folder = tmp_path / str(nth)
        folder.mkdir()
        guest = Still(folder, MEMORY)
        guest.put(0, 7, 300)
        guest.save('s')
        image = guest.ram_image()
        disk = guest.disk
        ended, stored = killed_while_storing(guest, 's', kills, nth)
        whole[stored] += 1
        with Still(folder, ',verify=on') as other:
            if stored:
                other.load('s')
                assert other.ram_image() == image
            else:
                with pytest.raises(MachineError, match='disk-only'):
                    other.load('s')
        check(disk)
        shutil.rmtree(folder)
        if not ended:
            break
    assert whole[True] and whole[False] > 5
