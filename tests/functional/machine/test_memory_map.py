# SPDX-License-Identifier: GPL-2.0-or-later
"""A load leaves the memory map alone that it would only bring back."""

# Takes: 14 s

import re
from pathlib import Path

import pytest

from lib.damage import damage_device
from lib.dma import SCRATCH, Disk, Qtest
from lib.guests import Ring3
from lib.machine import DISK, MIB, MachineError, kvm_usable
from lib.rewinding import RAM_SIZE, assert_rewound
from lib.vmstate import VMState

# Once firmware has seen them, each has memory and ports that a reset takes away
DEVICES = ('virtio-net-pci', 'virtio-rng-pci', 'VGA', 'qemu-xhci')


class Bridged(Ring3):
    """q35 with the firmware that most use, and ports as libvirt adds them."""

    def __init__(self, workdir: Path, ports: int, rewind: str = 'on',
                 options: str = '', strategy: str = 'auto',
                 more: tuple[str, ...] = ()):
        self._trace = workdir / 'trace'
        args = ['-bios', 'bios-256k.bin', '-D', self._trace,
                '-trace', 'flatview_new', '-trace', 'ram_reset_freeze_map']
        for i in range(ports):
            args += ['-device', f'pcie-root-port,id=p{i},chassis={i}']
        args += ['-nic', 'none']
        for i, device in enumerate(DEVICES):
            args += ['-device', f'{device},bus=p{i}' if i < ports
                     and 'virtio' in device else device]
        super().__init__(workdir, accel='tcg', ram=RAM_SIZE, machine='q35',
                         strategy=strategy, options=f',rewind={rewind}{options}',
                         args=(*args, *more))

    def map(self) -> list[str]:
        """In an order of its own: QEMU's goes by addresses in its memory."""
        views = re.split(r'^FlatView #\d+', self.hmp('info mtree -f'),
                         flags=re.MULTILINE)
        return sorted('\n'.join(sorted(view.splitlines())) for view in views)

    def traced(self, event: str) -> list[str]:
        lines = self._trace.read_text().splitlines()
        return [line for line in lines if event in line]

    def views_of_load(self) -> int:
        """How many address spaces QEMU has built for the load of a tag."""
        before = len(self.traced('flatview_new'))
        self.load('s')
        return len(self.traced('flatview_new')) - before


def views_of_load(workdir: Path, ports: int, **kwargs) -> int:
    workdir.mkdir()
    with Bridged(workdir, ports, **kwargs) as guest:
        guest.save('s')
        guest.load('s')
        return guest.views_of_load()


def test_ports_and_devices_do_not_multiply_the_work(tmp_path):
    few = views_of_load(tmp_path / 'few', 2, rewind='off')
    many = views_of_load(tmp_path / 'many', 14, rewind='off')
    rewound = views_of_load(tmp_path / 'rewound', 14)
    # whose ROM is mapped anew whenever it is loaded
    no_vapic = views_of_load(tmp_path / 'no_vapic', 14,
                             more=('-global', 'apic-common.vapic=off'))
    without = views_of_load(tmp_path / 'without', 14, strategy='stock')
    assert many <= 2 * few
    assert rewound <= few
    # devices are as they were, and not even reset
    assert not no_vapic
    # what it is about: each of them once per device and bridge
    assert without > 10 * many


@pytest.fixture
def guest(tmp_path):
    with Bridged(tmp_path, 4, options=',verify=on') as guest:
        guest.save('s')
        yield guest


def is_held(guest: Bridged) -> bool:
    return 'frozen: 1' in guest.traced('ram_reset_freeze_map')[-1]


def test_map_comes_back_after_a_reset_has_changed_it(guest):
    guest.stop()
    saved = guest.map()
    for reset in (False, True, False):
        if reset:
            guest.qmp('system_reset')
            guest.event('RESET')
            assert guest.map() != saved
        guest.load('s')
        assert_rewound(guest)
        assert is_held(guest) != reset
        assert guest.map() == saved
    guest.cont()
    guest.sync()


def test_load_that_fails_lets_the_map_go(guest):
    guest.stop()
    saved = guest.map()
    with VMState(guest.disk, 's') as state:
        damage_device(state)
    with pytest.raises(MachineError):
        guest.load('s')
    assert is_held(guest)
    # it follows the devices again
    guest.qmp('system_reset')
    guest.event('RESET')
    assert guest.map() != saved


@pytest.mark.parametrize('rewind', ('on', 'off'))
def test_eventfd_is_taken_from_kvm_before_it_is_closed(tmp_path, rewind):
    """The eventfd of a device that was used while the VM was stopped."""
    if not kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    disk, qtest = Disk(tmp_path, MIB, RAM_SIZE - SCRATCH), Qtest(tmp_path)
    trace = tmp_path / 'trace'
    args = ('-device', f'virtio-blk-pci,drive={DISK}', *disk.args,
            *qtest.args, '-D', trace, '-trace', 'ram_reset_freeze_map')
    with Ring3(tmp_path, accel='kvm', ram=RAM_SIZE, args=args,
               strategy='auto', options=f',rewind={rewind}') as guest:
        qtest.connect()
        disk.read(qtest, 0, 1, Ring3.FIRST_FREE)
        guest.save('s')
        guest.stop()
        for used in (True, False, True):
            if used:
                disk.read(qtest, 0, 1, Ring3.FIRST_FREE)
            guest.load('s')
            held = trace.read_text().splitlines()[-1].endswith('frozen: 1')
            assert held != used
        guest.cont()
        guest.sync()
        disk.read(qtest, 0, 1, Ring3.FIRST_FREE)
        qtest.close()
