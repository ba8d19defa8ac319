# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset-pin: how a pin begins and ends, and what it cannot keep."""

# Takes: 10 s

from pathlib import Path

import pytest

from lib.damage import damage_device, damage_template
from lib.guests import PAGE
from lib.machine import MIB, MachineError
from lib.rewinding import START, Still, plug_device
from lib.shm import in_memory
from lib.storing import store
from lib.vmstate import VMState


def damage_head(disk: Path, page: bytes) -> None:
    """That of the record of the page with this content."""
    with disk.open('r+b') as image:
        image.seek(image.read().find(page) - 8)
        image.write(bytes(8))


@pytest.mark.parametrize('kind', ('image', 'memory'))
def test_pin_ends_with_the_snapshot(tmp_path, kind):
    """Another snapshot of the name is not pinned by the user."""
    with Still(tmp_path, f',save-kind={kind}') as guest:
        guest.save('root')
        for end in ('delvm s', 'savevm s'):
            guest.put(0, 1)
            guest.save('s')
            guest.pin('s')
            assert guest.pins()['s'] == 'user'
            guest.put(0, 2)
            guest.hmp(end)
            guest.save('s')
            assert guest.pins().get('s') == \
                (None if kind == 'image' else 'memory')
            guest.put(0, 3)
            guest.load('s')
            assert guest.block()['dirty-pages'] == 1
            assert guest.rewind()['lost-pins'] == []


def test_deleted_by_another_command(tmp_path):
    with Still(tmp_path) as guest:
        guest.save('root')
        guest.put(0, 1, 10)
        guest.save('s')
        guest.pin('s')
        guest.load('root')
        guest.qmp('blockdev-snapshot-delete-internal-sync', device='disk0',
                  name='s')
        for pinned in True, False:
            with pytest.raises(MachineError, match="'s' does not exist"):
                guest.pin('s', pinned)
        guest.save('other')
        assert set(guest.known()) == {'root', 'other'}
        assert guest.rewind()['pages'] == 0


def test_memory_is_pinned_already(tmp_path):
    with Still(tmp_path, ',save-kind=memory') as guest:
        guest.save('m')
        assert guest.pins() == {'m': 'memory'}
        for _ in range(2):
            with pytest.raises(MachineError, match="'m' is in memory only, and "
                               "stays pinned"):
                guest.pin('m', False)
            guest.pin('m')
            assert guest.pins() == {'m': 'user'}
            guest.pin('m', False)
            assert guest.pins() == {'m': 'memory'}


@pytest.mark.parametrize('pinned', (True, False))
def test_stored_in_its_image(tmp_path, pinned):
    """Then only the user's pin is left."""
    with Still(tmp_path, ',save-kind=memory') as guest:
        guest.put(0, 1)
        guest.save('m')
        if pinned:
            guest.pin('m')
        store(guest, 'm')
        assert guest.known()['m']['kind'] == 'image'
        assert guest.pins() == ({'m': 'user'} if pinned else {})
        plug_device(guest)
        guest.put(0, 2)
        guest.load_whole('m', 'device-plugged')
        assert guest.qtest.read(START, 1) == b'\1'
        guest.pin('m', not pinned)
        assert guest.pins() == ({} if pinned else {'m': 'user'})


def test_failed_load(tmp_path):
    """RAM is not known any more, but the pinned copy is."""
    with Still(tmp_path) as guest:
        guest.save('broken')
    with VMState(tmp_path / 'disk.qcow2', 'broken') as state:
        damage_device(state)
    with Still(tmp_path, ',verify=on') as guest:
        guest.put(0, 1, 10)
        guest.save('s')
        guest.pin('s')
        for _ in range(2):
            with pytest.raises(MachineError):
                guest.load('broken')
            assert guest.blocker() == 'load-failed'
            assert guest.pins() == {'s': 'user'}
            guest.load_whole('s', 'load-failed')
            guest.put(5, 2, 10)
            guest.load('s')
            assert guest.block()['dirty-pages'] == 10


def test_wrong_copy_is_dropped(tmp_path):
    """A pin keeps no copy that verify=on has found to be wrong."""
    with in_memory('templates') as folder:
        options = f',template-dir={folder}'
        kwargs = {'strategy': 'memset', 'memory': 'private'}
        with Still(tmp_path, options, **kwargs) as guest:
            guest.put(0, 1, 100)
            guest.save('s')
            file, = (f for f in folder.iterdir() if f.stat().st_size > MIB // 4)
        damage_template(file, b'\1' * PAGE)
        with Still(tmp_path, options, **kwargs) as guest:
            guest.load('s')
            guest.pin('s')
            guest.qmp('qom-set', path='/objects/rr0', property='verify',
                      value=True)
            with pytest.raises(MachineError, match='RAM is not what'):
                guest.load('s')
            assert not guest.known()
            assert guest.rewind()['lost-pins'] == ['s']
            guest.load('s')
            assert guest.qtest.read(START, 100 * PAGE) == b'\1' * 100 * PAGE
            assert guest.pins() == {'s': 'user'}


def test_baseline_cannot_be_read(tmp_path):
    """The pinned copy needs it, so a pin is no reason to have no other."""
    page = b'unreadable'.ljust(PAGE)
    with Still(tmp_path) as guest:
        guest.put(0, 1, 10)
        guest.qtest.write(START + 5 * PAGE, page)
        guest.save('root')
        guest.put(5, 2)
        guest.save('other')
    with Still(tmp_path, ',verify=on') as guest:
        guest.load('root')
        guest.put(0, 3)
        guest.save('s')
        guest.pin('s')
        damage_head(guest.disk, page)
        guest.load_whole('other', 'unknown-snapshot')
        assert guest.rewind()['lost-pins'] == ['s']
        for _ in range(2):
            assert guest.qtest.read(START, 10 * PAGE) == \
                b'\1' * 5 * PAGE + b'\2' * PAGE + b'\1' * 4 * PAGE
            guest.put(0, 4)
            guest.load('other')
            assert guest.block()['dirty-pages'] == 1


def test_baseline_cannot_be_read_for_a_pinned_one(tmp_path):
    """Its next load is whole, and all others are rewinds."""
    page = b'unreadable'.ljust(PAGE)
    with Still(tmp_path) as guest:
        guest.put(0, 1, 10)
        guest.qtest.write(START + 5 * PAGE, page)
        guest.save('root')
    with Still(tmp_path) as guest:
        guest.load('root')
        guest.put(20, 7, 3)
        guest.save('s')
        guest.pin('s')
        damage_head(guest.disk, page)
        guest.put(5, 3)
        with pytest.raises(MachineError, match='other data there'):
            guest.load('s')
        guest.load_whole('s', 'load-failed')
        for _ in range(3):
            guest.put(5, 3)
            guest.load('s')
            assert guest.block()['dirty-pages'] == 1
            assert guest.qtest.read(START + 5 * PAGE, PAGE) == page
        assert guest.known()['s']['pinned'] == 'user'


@pytest.mark.parametrize('how', ('memory', 'rewind'))
def test_lost_pins(tmp_path, how):
    """All copies were dropped; the next load has a pinned one again."""
    with Still(tmp_path, args=('-m', 'slots=1,maxmem=1G')) as guest:
        guest.save('root')
        guest.put(0, 1, 10)
        guest.save('s')
        guest.pin('s')
        guest.pin('root')
        if how == 'memory':
            guest.qmp('object-add', **{'qom-type': 'memory-backend-ram',
                                       'id': 'more', 'size': 2 * MIB})
            guest.qmp('device_add', driver='pc-dimm', id='dimm', memdev='more')
            with pytest.raises(MachineError):
                guest.load('s')
        else:
            for value in False, True:
                guest.qmp('qom-set', path='/objects/rr0', property='rewind',
                          value=value)
        assert not guest.known()
        assert guest.rewind()['lost-pins'] == ['s', 'root']
        assert 'Lost pin        root\n' in \
            guest.hmp('info ram-reset').replace('\r', '')
        with pytest.raises(MachineError, match="no copy of the RAM of snapshot "
                           "'s': load the snapshot first"):
            guest.pin('s')
        guest.pin('root', False)
        assert guest.rewind()['lost-pins'] == ['s']
        if how == 'rewind':
            guest.load('s')
            assert guest.pins() == {'s': 'user'}
            assert guest.rewind()['lost-pins'] == []
            guest.load_whole('root', 'unknown-snapshot')
            assert guest.pins() == {'s': 'user'}
            guest.load('s')
            assert guest.block()['dirty-pages'] == 10


def test_errors(tmp_path):
    with Still(tmp_path) as guest:
        guest.save('s')
        for pinned in True, False:
            with pytest.raises(MachineError, match="'none' does not exist: "
                               "save it first"):
                guest.pin('none', pinned)
        for _ in range(2):
            guest.pin('s', False)      # it is not pinned, and stays so
            assert not guest.pins()
    with Still(tmp_path) as guest:
        with pytest.raises(MachineError, match="'s': load the snapshot first"):
            guest.pin('s')
        guest.load('s')
        guest.pin('s')
    with Still(tmp_path, ',rewind=off') as guest:
        with pytest.raises(MachineError, match="'s' cannot be pinned: no object "
                           "has rewind=on"):
            guest.pin('s')


def test_hmp(tmp_path):
    with Still(tmp_path) as guest:
        guest.save('s')

        def shown() -> bool:
            line, = (line for line in guest.hmp('info ram-reset').splitlines()
                     if line.startswith('  s '))
            return line.rstrip().endswith(' current  pinned')

        assert not shown()
        guest.hmp('ram_reset_pin s on')
        assert guest.pins() == {'s': 'user'} and shown()
        guest.hmp('ram_reset_pin s off')
        assert not guest.pins() and not shown()
        with pytest.raises(MachineError, match="'t' does not exist"):
            guest.hmp('ram_reset_pin t on')
