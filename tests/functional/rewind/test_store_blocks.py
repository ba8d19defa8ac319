# SPDX-License-Identifier: GPL-2.0-or-later
"""
ram-reset-store while the machine is not what it was at the save: memory has
been unplugged and plugged again, or another QEMU has the image.
"""

# Takes: 10 s

import time

import pytest

from lib.guests import PAGE
from lib.machine import MIB, MachineError
from lib.patience import Limit
from lib.rewinding import Still
from lib.sharing import Sharer
from lib.storing import (LEAKS, begin, check, finish, make_image, problems,
                         set_kind, state, store)
from lib.walking import DIMM_SIZE as SIZE
from lib.walking import DIMM, nr_blocks, plug_memory, unplug_memory

TIMEOUT = 30
ROOM = '-m', 'slots=4,maxmem=1G'


class Slots(Still):
    """Two DIMMs that can be plugged in any order."""

    def plug(self, slot: int) -> None:
        plug_memory(self, slot, slot=slot, addr=DIMM + slot * SIZE)

    def unplug(self, slot: int) -> None:
        before, limit = nr_blocks(self), Limit(TIMEOUT)
        unplug_memory(self, slot)
        while nr_blocks(self) == before:
            assert not limit.over()
            time.sleep(0.01)

    def set_page(self, slot: int, page: int, byte: int) -> None:
        self.qtest.ask(f'memset {DIMM + slot * SIZE + page * PAGE:#x} '
                       f'{PAGE:#x} {byte:#x}')

    def content(self) -> list[bytes]:
        return [self.qtest.read(DIMM + slot * SIZE, SIZE) for slot in (0, 1)]


@pytest.mark.parametrize('order', ('01', '10'))
@pytest.mark.parametrize('first_out', ('01', '10'))
def test_blocks_get_addresses_of_others(tmp_path, first_out, order):
    """A stored snapshot shares records of its own blocks, by their names."""
    make_image(tmp_path, 'cluster_size=4k')
    with Slots(tmp_path, args=ROOM) as guest:
        # so that the allocator has freed room of this size
        for _ in range(12):
            guest.plug(2)
            guest.unplug(2)
        for slot in 0, 1:
            guest.plug(slot)
            guest.set_page(slot, 0, 11 + slot)
        guest.put(0, 1, 500)
        guest.save('parent')
        set_kind(guest, 'memory')
        # zero pages before, so that they have second records
        for slot, page in (0, 100), (0, 101), (1, 300):
            guest.set_page(slot, page, 0x51)
        guest.save('m1')
        for slot, page in (1, 100), (0, 300):
            guest.set_page(slot, page, 0x52)
        expected = guest.content()
        guest.save('m2')
        for slot in first_out:
            guest.unplug(int(slot))
        for slot in order:
            guest.plug(int(slot))
        for tag in 'm1', 'm2':
            store(guest, tag)
        disk = guest.disk
    check(disk)
    with Slots(tmp_path, args=ROOM) as guest:
        guest.plug(0)
        guest.plug(1)
        guest.load('m2')
        assert guest.content() == expected


@pytest.mark.parametrize('cluster', ('512', '64k'))
@pytest.mark.parametrize('first', ('first', None))
def test_migration_ends_meanwhile(tmp_path, first, cluster):
    """The image belongs to another QEMU then, and is not written to."""
    make_image(tmp_path, f'cluster_size={cluster}')
    with Sharer(tmp_path, first=first) as guest:
        guest.put(0, 3, 3000)
        guest.remember('s')
        begin(guest, 's', speed=MIB)
        while not state(guest)['current-progress']:
            pass
        guest.qmp('migrate', uri='exec:cat >/dev/null')
        limit = Limit(TIMEOUT)
        while guest.qmp('query-migrate')['status'] != 'completed':
            assert not limit.over()
            time.sleep(0.01)
        with pytest.raises(MachineError, match="'s' could not be stored, and "
                           'is in memory as before: .* not permitted'):
            finish(guest)
        assert guest.qmp('query-status')['status'] == 'postmigrate'
        disk = guest.disk
    assert problems(disk).keys() == {LEAKS}
