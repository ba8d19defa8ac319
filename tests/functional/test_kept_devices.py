# SPDX-License-Identifier: GPL-2.0-or-later
"""A load leaves devices alone that are as the snapshot has them, and no others.
"""

# Takes: 9 s

import re
import subprocess
from pathlib import Path

import pytest

from lib import products
from lib.effort import rounds
from lib.guests import Ring3
from lib.machine import MIB, MachineError
from lib.rewinding import RAM_SIZE, START, assert_rewound

ROUNDS = rounds(40, 8)
ADDRESS, DATA = 0xcf8, 0xcfc
# In the configuration space: what firmware has set, and what guests set
REGISTERS = (0x04, 0x0c, 0x10, 0x14, 0x18, 0x20, 0x24, 0x30, 0x3c)
PORT = ('-chardev', 'null,id=c0', '-device', 'virtserialport,chardev=c0')
MACHINES = {
    'q35': ('-device', 'pcie-root-port,id=p0,chassis=1',
            '-device', 'VGA,id=vga',
            '-device', 'virtio-net-pci,netdev=n0,bus=p0',
            '-device', 'virtio-blk-pci,drive=disk1',
            '-device', 'virtio-serial', *PORT,
            '-device', 'qemu-xhci', '-device', 'usb-tablet'),
    'pc': ('-device', 'VGA,id=vga', '-device', 'virtio-net-pci,netdev=n0',
           '-device', 'virtio-blk-pci,drive=disk1,id=blk',
           '-device', 'virtio-serial', *PORT)}
# All but the USB controller, which firmware has begun to use, and those whose
# state is that of others: kvmvapic, PIIX3, its disk controller, the SMBus of q35
KEPT = {'q35': 9, 'pc': 7}


class Poked(Ring3):
    """Whose devices the test writes to, as a guest's kernel could."""

    def __init__(self, workdir: Path, machine: str, **kwargs):
        disk = workdir / 'disk1.qcow2'
        subprocess.run([products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', disk,
                        '1M'], check=True)
        super().__init__(
            workdir, accel='tcg', ram=RAM_SIZE, strategy='auto',
            options=',rewind=on,verify=on', machine=machine, args=(
                '-bios', 'bios-256k.bin', '-netdev', 'hubport,id=n0,hubid=0',
                '-drive', f'if=none,id=disk1,file={disk}', *MACHINES[machine]),
            **kwargs)
        self.functions = self._find()

    def _find(self) -> dict[tuple[int, int, int], list[range]]:
        """Where each function is, and its ports."""
        found: dict[tuple[int, int, int], list[range]] = {}
        for text in re.split(r'^  Bus +', self.hmp('info pci'),
                             flags=re.MULTILINE)[1:]:
            bus, device, function = map(int, re.match(
                r'(\d+), device +(\d+), function (\d+)', text).groups())
            found[bus, device, function] = [
                range(int(first, 16), int(last, 16) + 1)
                for first, last in re.findall(
                    r'BAR\d: I/O at (0x\w+) \[(0x\w+)\]', text)]
        return found

    def out(self, port: int, value: int, size: str = 'w') -> None:
        self.hmp(f'o/{size} {port:#x} {value:#x}')

    def read(self, where: tuple[int, int, int], at: int) -> int:
        self._select(where, at)
        return int(self.hmp(f'i/w {DATA:#x}').split('=')[1], 16)

    def write(self, where: tuple[int, int, int], at: int, value: int) -> None:
        self._select(where, at)
        self.out(DATA, value)

    def _select(self, where: tuple[int, int, int], at: int) -> None:
        bus, device, function = where
        self.out(ADDRESS, 1 << 31 | bus << 16 | device << 11 | function << 8
                 | at)

    def space(self) -> dict:
        """Of each function, what a guest sees."""
        return {(where, at): self.read(where, at)
                for where in self.functions for at in (*REGISTERS, 0x40, 0x80)}

    def poke(self, where: tuple[int, int, int], rng) -> None:
        for at in rng.sample(REGISTERS, 3):
            self.write(where, at, rng.getrandbits(32))
        for ports in self.functions[where]:
            for _ in range(4):
                self.out(rng.choice(ports), rng.getrandbits(8), 'b')

    def load_kept(self) -> int:
        self.load('s')
        assert_rewound(self)
        return self.last_load()['devices-kept']


@pytest.fixture(params=MACHINES)
def guest(tmp_path, request):
    with Poked(tmp_path, request.param) as guest:
        guest.type = request.param
        guest.stop()
        guest.space()
        guest.save('s')
        guest.load('s')
        yield guest


def test_what_is_as_it_was_is_kept(guest):
    assert [guest.load_kept() for _ in range(4)] == [KEPT[guest.type]] * 4
    guest.cont()
    assert guest.checksum(START, MIB)
    guest.stop()
    assert guest.load_kept() == KEPT[guest.type]


def test_what_has_changed_is_not(guest, rng):
    space, tree = guest.space(), guest.hmp('info mtree -f')
    guest.load('s')
    for i in range(ROUNDS):
        changed = rng.sample(sorted(guest.functions), 1 + i % 2)
        for where in changed:
            guest.poke(where, rng)
        guest.load('s')
        assert_rewound(guest)
        assert guest.space() == space, changed
        assert sorted(guest.hmp('info mtree -f').splitlines()) == \
            sorted(tree.splitlines()), changed
        # to look at them has changed the host bridge
        assert guest.load_kept() >= KEPT[guest.type] - 1


def test_other_snapshots_have_other_devices(guest, rng):
    """What is kept is not what another snapshot has."""
    first = guest.space()
    for where in guest.functions:
        guest.write(where, 0x3c, 0x55)
    second = guest.space()
    assert first != second
    guest.save('t')
    for tag in 'ssttstsst':
        guest.load(tag)
        assert guest.space() == (first if tag == 's' else second)


def test_byte_order_of_the_frame_buffer_is_the_snapshots(guest):
    """Which the guest sets in VGA's memory BAR, and no reset clears."""
    order = {'path': '/machine/peripheral/vga',
             'property': 'big-endian-framebuffer'}
    guest.qmp('qom-set', **order, value=True)
    guest.save('t')
    for _ in range(3):
        guest.load('t')
        guest.qmp('qom-set', **order, value=False)
        guest.load('t')
        assert guest.qmp('qom-get', **order) is True
        assert_rewound(guest)


def test_what_the_snapshot_does_not_have_is_reset(tmp_path):
    """Also the configuration space of a function plugged in since."""
    with Poked(tmp_path, 'pc') as guest:
        guest.stop()
        guest.save('s')
        guest.qmp('device_add', driver='e1000', addr='10')
        guest.load('s')
        where = (0, 16, 0)
        first = {at: guest.read(where, at) for at in REGISTERS}
        for _ in range(4):
            guest.load('s')
            assert {at: guest.read(where, at) for at in REGISTERS} == first
            for at in REGISTERS[1:]:
                guest.write(where, at, 0xfeb05555)


def test_a_reset_unplugs_what_the_guest_was_asked_to_give_up(tmp_path):
    """While other devices are kept, and perhaps this one."""
    with Poked(tmp_path, 'pc') as guest:
        guest.stop()
        guest.save('s')
        for _ in range(2):
            # no driver answers, so the reset of the load unplugs it
            guest.qmp('device_add', driver='pci-bridge', id='b', chassis_nr=3)
            guest.load('s')
            guest.load('s')
            guest.qmp('device_del', id='b')
            guest.load('s')
            assert_rewound(guest)
            assert '"b"' not in guest.hmp('info qtree')
            guest.load_kept()
            assert guest.load_kept() == KEPT['pc']
        # what the snapshot has is missed
        guest.qmp('device_del', id='blk')
        with pytest.raises(MachineError, match='virtio-blk'):
            guest.load('s')


def test_memory_with_a_file_in_it_is_the_snapshots(tmp_path):
    """A reset writes it there, which a rewind leaves out."""
    image = tmp_path / 'image'
    image.write_bytes(b'\xaa' * MIB)
    with Ring3(tmp_path, accel='tcg', ram=RAM_SIZE, strategy='auto',
               options=',rewind=on,verify=on', args=(
                   '-device', f'loader,file={image},addr={START:#x},'
                              'force-raw=on')) as guest:
        file = guest.checksum(START, MIB)
        guest.ask('fill', START, MIB // 2, 0x1234)
        saved = guest.checksum(START, MIB)
        assert saved != file
        guest.save('s')
        for _ in range(3):
            guest.ask('fill', START + MIB // 4, MIB // 2, 0x5678)
            guest.load('s')
            assert_rewound(guest)
            assert guest.checksum(START, MIB) == saved
        # and a reset still does
        guest.qmp('system_reset')
        guest.wait_ready()
        assert guest.checksum(START, MIB) == file
