# SPDX-License-Identifier: GPL-2.0-or-later
"""
A device that cannot be migrated makes each load fail: before disks, RAM and
devices have changed, with a ram-reset object and without.
"""

import pytest

from lib.content import check_state, dirty, write_state
from lib.guests import Ring3
from lib.machine import DISK, MIB, MachineError

# nvme can since 11.1
DEVICE = 'ufs'
OBJECTS = {'none': {'strategy': 'stock'},
           'auto': {'strategy': 'auto', 'options': ',verify=on'},
           'rewind': {'strategy': 'auto', 'options': ',rewind=on,verify=on'}}


@pytest.fixture(params=OBJECTS)
def guest(tmp_path, fast_accel, request):
    """It has a snapshot, and has changed since."""
    with Ring3(tmp_path, accel=fast_accel, ram=64 * MIB,
               **OBJECTS[request.param]) as guest:
        write_state(guest)
        disk(guest, 'write', 1)
        guest.save('s')
        dirty(guest, 2)
        disk(guest, 'write', 2)
        yield guest
    # what such commands say comes out at the end
    assert 'verification failed' not in guest.log()


def disk(guest: Ring3, what: str, pattern: int) -> None:
    guest.hmp(f'qemu-io {DISK} "{what} -P {pattern} 0 64k"')


def plug(guest: Ring3) -> None:
    guest.qmp('device_add', driver=DEVICE, id='dev0', serial='1')


@pytest.mark.parametrize('how', ('hmp', 'job'))
def test_load_is_refused_before_anything_changes(guest, how):
    plug(guest)
    ram = guest.FIRST_FREE, guest.ram - guest.FIRST_FREE
    before = guest.checksum(*ram)
    for _ in range(2):
        with pytest.raises(MachineError, match=f'non-migratable.*{DEVICE}'):
            guest.load('s', how)
        disk(guest, 'read', 2)
        guest.cont()
        guest.sync()
        assert guest.checksum(*ram) == before


def test_load_is_refused_while_another_device_goes(guest):
    """Its removal is no help."""
    plug(guest)
    guest.qmp('device_add', driver='virtio-rng-pci', id='dev1')
    guest.qmp('device_del', id='dev1')
    with pytest.raises(MachineError, match=f'non-migratable.*{DEVICE}'):
        guest.load('s')
    disk(guest, 'read', 2)
    guest.cont()
    guest.sync()


def test_load_works_if_the_device_goes_with_the_system_reset(guest):
    """It is unplugged, and the guest has not yet agreed to that."""
    plug(guest)
    guest.qmp('device_del', id='dev0')
    assert 'dev0' in guest.hmp('info qtree')
    guest.load('s')
    guest.sync()
    assert 'dev0' not in guest.hmp('info qtree')
    check_state(guest)
    disk(guest, 'read', 1)
