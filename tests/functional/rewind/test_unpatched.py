# SPDX-License-Identifier: GPL-2.0-or-later
"""
Debian's own QEMU loads the snapshots that ours saves and stores, byte for byte,
and refuses those that are in memory only.
"""

# Takes: 35 s

from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.guests import Linux, Ring3
from lib.kills import disk_io
from lib.machine import DISK, MIB, Machine, MachineError, run_quietly
from lib.rewinding import RAM_SIZE, START, Still, boot
from lib.storing import check, make_image, set_kind, snapshots, store
from lib.unpatched import debian

STOCK = {'ram': RAM_SIZE, 'strategy': 'stock', 'memory': 'shared'}
# Debian's has no qtest
STOPPED = STOCK | {'accel': 'tcg', 'args': ('-S',)}
# In this order, each in the image in the end but the last
KINDS = {'first': 'image', 'stored': 'memory', 'second': 'image',
         'stored2': 'memory', 'gone': 'memory'}


@pytest.fixture(scope='module')
def unpatched() -> Path:
    """It knows nothing of ours."""
    program = debian()
    types = run_quietly(program, '-object', 'help')
    assert 'memory-backend-memfd' in types and 'ram-reset' not in types
    return program


class Saved:
    """Snapshots of both kinds, and what RAM and the disk had."""

    def __init__(self, guest: Still):
        self.images: dict[str, bytes] = {}
        for number, (tag, kind) in enumerate(KINDS.items(), 1):
            set_kind(guest, kind)
            guest.put(40 * number, number, 60)
            assert disk_io(guest, DISK, f'write -P {number} 0 256k')
            guest.save(tag)
            self.images[tag] = guest.ram_image()
            # the next one descends from it, or from the first
            guest.put(0, 0x77, 30)
            guest.load(tag if number % 2 else 'first')
            assert guest.last_load()['rewound']
        for tag in 'stored', 'stored2':
            store(guest, tag)

    def check(self, guest: Machine, tag: str) -> None:
        assert_same_ram(guest.ram_image(), self.images[tag])
        number = [*KINDS].index(tag) + 1
        assert disk_io(guest, DISK, f'read -P {number} 0 256k')


@pytest.mark.any_value
@pytest.mark.parametrize('cluster', ('4k', '64k', '2M'))
def test_loads_all_that_are_whole(tmp_path, unpatched, cluster):
    make_image(tmp_path, f'cluster_size={cluster}')
    with Still(tmp_path, ',verify=on') as guest:
        saved = Saved(guest)
        disk = guest.disk
    assert {tag for tag, size in snapshots(disk).items() if not size} == \
        {'gone'}
    with Machine(tmp_path, qemu=unpatched, loadvm='stored', **STOPPED
                 ) as other:
        saved.check(other, 'stored')
        for n, tag in enumerate(('second', 'stored2', 'first', 'stored') * 2):
            other.load(tag, ('hmp', 'qmp')[n % 2])
            saved.check(other, tag)
        with pytest.raises(MachineError, match='disk-only'):
            other.load('gone')
        saved.check(other, 'stored')
        other.save('theirs')
        for tag in 'stored2', 'gone', 'first':
            other.hmp(f'delvm {tag}')
    check(disk)
    with Still(tmp_path, ',verify=on', loadvm='stored') as guest:
        saved.check(guest, 'stored')
        for n, tag in enumerate(('theirs', 'second', 'stored', 'theirs',
                                 'second')):
            guest.put(0, 0x66, 100)
            guest.load(tag)
            saved.check(guest, 'stored' if tag == 'theirs' else tag)
            assert guest.last_load()['rewound'] == (n > 1)
    check(disk)


def test_refuses_what_is_in_memory_when_it_starts(tmp_path, unpatched):
    with Still(tmp_path, ',save-kind=memory') as guest:
        guest.save('gone')
    with pytest.raises(MachineError, match='disk-only'):
        Machine(tmp_path, qemu=unpatched, loadvm='gone', **STOPPED)


@pytest.mark.parametrize('kind', ('image', 'memory'))
def test_guest_runs_on(tmp_path, unpatched, fast_accel, kind):
    """vCPUs and devices of a guest that was saved while it ran."""
    with boot(tmp_path, fast_accel, options=f',save-kind={kind}') as guest:
        guest.start_loop(START, 256, 16)
        for tag in 's0', 's1':
            guest.save(tag)
            guest.next_pass()
            guest.load('s0')
            assert guest.last_load()['rewound']
            guest.next_pass()
        if kind == 'memory':
            store(guest, 's1')
        disk = guest.disk
    check(disk)
    with Ring3(tmp_path, accel=fast_accel, qemu=unpatched, loadvm='s1', **STOCK
               ) as other:
        other.next_pass()
        other.load('s1')
        other.next_pass()
    check(disk)


@pytest.mark.long('test_guest_runs_on has a small guest')
def test_linux_runs_on(tmp_path, unpatched, each_linux_accel):
    """With devices that have a state of their own."""
    machine = {'accel': each_linux_accel, 'ram': 192 * MIB, 'memory': 'shared',
               'args': ('-device', 'VGA', '-device', 'virtio-balloon-pci',
                        '-device', 'virtio-rng-pci', '-device', 'virtio-serial',
                        '-device', 'qemu-xhci', '-device', 'usb-tablet',
                        '-device', f'virtio-blk-pci,drive={DISK}')}
    with Linux(tmp_path, strategy='auto', options=',rewind=on,verify=on',
               **machine) as guest:
        for driver in 'virtio_blk', 'virtio_balloon':
            guest.run(f'insmod /lib/{driver}.ko')
        guest.prepare_state(4)
        guest.run('dd if=/run/state of=/dev/vda bs=1M oflag=direct '
                  '2>/dev/null')
        states = {}
        for tag, kind in ('image', 'image'), ('stored', 'memory'):
            guest.run(f'echo {tag} >/run/{tag}')
            set_kind(guest, kind)
            guest.save(tag)
            states[tag] = guest.state()
            guest.load(tag)
            assert guest.last_load()['rewound']
        store(guest, 'stored')
        disk = guest.disk
    check(disk)
    with Linux(tmp_path, qemu=unpatched, loadvm='stored', **machine) as other:
        for tag in 'stored', 'image':
            assert other.state() == states[tag]
            # what it reads comes from the device
            disk_sum = other.run('dd if=/dev/vda bs=1M count=4 iflag=direct '
                                 '2>/dev/null | sha256sum | cut -c1-64')
            assert disk_sum == states[tag].checksum
            other.load('image')
