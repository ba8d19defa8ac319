# SPDX-License-Identifier: GPL-2.0-or-later
"""A load leaves devices alone that are as the snapshot has them, and no others.
"""

# Takes: 22 s

import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import products
from lib.dma import QtestMachine
from lib.effort import rounds
from lib.guests import Ring3
from lib.machine import DISK, MIB, RAM, MachineError
from lib.patience import Limit
from lib.rewinding import RAM_SIZE, START, assert_rewound
from lib.xhci import Xhci

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

# A tablet's request; the USB controller's port for devices before USB 3
SET_IDLE_TYPE, SET_IDLE = 0x21, 0x0a
FIRST_PORT = 5
# On a q35 with nothing else
WITH_TABLET = 6


class Poked(Ring3):
    """A guest whose devices the test writes to, as its kernel could."""

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
        """The address of each function, and its ports."""
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
        """The configuration space of each function, as a guest sees it."""
        return {(where, at): self.read(where, at)
                for where in self.functions for at in (*REGISTERS, 0x40, 0x80)}

    def poke(self, where: tuple[int, int, int], rng) -> None:
        for at in rng.sample(REGISTERS, 3):
            self.write(where, at, rng.getrandbits(32))
        for ports in self.functions[where]:
            for _ in range(4):
                self.out(rng.choice(ports), rng.getrandbits(8), 'b')

    @contextlib.contextmanager
    def traced_resets(self) -> Iterator[set[str]]:
        """Classes of devices that are reset in this context."""
        begin, found = len(self.log()), set()
        self.hmp('trace-event resettable_phase_hold_exec on')
        yield found
        self.hmp('trace-event resettable_phase_hold_exec off')
        found |= set(re.findall(r'hold_exec obj=\S+?\((\S+)\)',
                                self.log()[begin:]))

    def load_kept(self) -> int:
        self.load('s')
        assert_rewound(self)
        return self.last_load()['devices-kept']


class Sleeper(QtestMachine):
    """A machine without firmware; its power management is switched on."""

    PORT = 0x600
    # of the power management: where it is, and what switches it on
    REGISTERS = {'pc': (1 << 31 | 1 << 11 | 3 << 8, ((0x40, PORT | 1),
                                                     (0x80, 1))),
                 'q35': (1 << 31 | 31 << 11, ((0x40, PORT | 1), (0x44, 0x80)))}
    ENABLE, CONTROL = PORT + 2, PORT + 4
    RTC_ALARM, SLEEP = 1 << 10, 1 << 13 | 1 << 10
    # of the RTC
    SECONDS_ALARM, MINUTES_ALARM, HOURS_ALARM, B, C = 1, 3, 5, 11, 12
    ANY, ALARM, ALARM_AND_24H = 0xff, 0x20, 0x22

    def __init__(self, workdir: Path, machine: str, strategy: str,
                 options: str):
        args = ('-device', f'virtio-blk-pci,drive={DISK}')
        super().__init__(workdir, ram=RAM_SIZE, machine=machine,
                         strategy=strategy, options=options, args=args)
        where, registers = self.REGISTERS[machine]
        for at, value in registers:
            self.qtest.out('l', ADDRESS, where | at)
            self.qtest.out('l', DATA, value)
        for at, value in ((self.SECONDS_ALARM, self.ANY),
                          (self.MINUTES_ALARM, self.ANY),
                          (self.HOURS_ALARM, self.ANY),
                          (self.B, self.ALARM_AND_24H)):
            self.qtest.out('b', 0x70, at)
            self.qtest.out('b', 0x71, value)

    def enable_alarm(self) -> None:
        self.qtest.out('w', self.ENABLE, self.RTC_ALARM)

    def sleep_past_alarm(self) -> str:
        """Let the guest sleep until its alarm, which comes each second."""
        self.qtest.out('w', self.CONTROL, self.SLEEP)
        self.event('SUSPEND')
        assert self.status() == 'suspended'
        self.cmos(self.C)
        limit = Limit(self.timeout)
        while not self.cmos(self.C) & self.ALARM and \
                self.status() == 'suspended':
            assert not limit.over()
            time.sleep(0.05)
        return self.status()

    def cmos(self, at: int) -> int:
        self.qtest.out('b', 0x70, at)
        return int(self.qtest.ask('inb 0x71'), 0)


@pytest.fixture(params=MACHINES)
def guest(tmp_path, request):
    with Poked(tmp_path, request.param) as guest:
        guest.type = request.param
        guest.stop()
        guest.space()
        guest.save('s')
        guest.load('s')
        yield guest


@pytest.mark.any_value
def test_what_is_as_it_was_is_kept(guest):
    assert [guest.load_kept() for _ in range(4)] == [KEPT[guest.type]] * 4
    guest.cont()
    assert guest.checksum(START, MIB)
    guest.stop()
    assert guest.load_kept() == KEPT[guest.type]


@pytest.mark.any_value
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


@pytest.mark.any_value
def test_other_snapshots_have_other_devices(guest, rng):
    """A load of another snapshot does not use the state that is cached."""
    first = guest.space()
    for where in guest.functions:
        guest.write(where, 0x3c, 0x55)
    second = guest.space()
    assert first != second
    guest.save('t')
    for tag in 'ssttstsst':
        guest.load(tag)
        assert guest.space() == (first if tag == 's' else second)


@pytest.mark.any_value
def test_byte_order_of_the_frame_buffer_is_the_snapshots(guest):
    """The guest sets the byte order in VGA's memory BAR; no reset clears it."""
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


@pytest.mark.any_value
def test_byte_order_is_the_default_if_the_snapshot_does_not_tell(guest):
    order = {'path': '/machine/peripheral/vga',
             'property': 'big-endian-framebuffer'}
    for _ in range(2):
        guest.qmp('qom-set', **order, value=True)
        guest.load('s')
        assert guest.qmp('qom-get', **order) is False
        assert_rewound(guest)
    assert guest.load_kept() == KEPT[guest.type]


def test_what_the_snapshot_does_not_have_is_reset(tmp_path):
    """A load resets the configuration space of a function plugged in since."""
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
            with guest.traced_resets() as reset:
                guest.load('s')
            # as it is loaded
            assert reset >= {'vmmouse', 'virtio-blk-pci', 'virtio-net-pci'}
            assert_rewound(guest)
            assert '"b"' not in guest.hmp('info qtree')
            guest.load_kept()
            assert guest.load_kept() == KEPT['pc']
        # what the snapshot has is missed
        guest.qmp('device_del', id='blk')
        with pytest.raises(MachineError, match='virtio-blk'):
            guest.load('s')


def test_a_reset_that_removes_ram_ends_the_plan_to_rewind(tmp_path):
    """All of the plan is given up: RAM is loaded, and each device."""
    with Ring3(tmp_path, accel='tcg', ram=RAM_SIZE, strategy='auto',
               options=f',memdev={RAM},rewind=on,verify=on',
               args=('-bios', 'bios-256k.bin')) as guest:
        guest.stop()
        guest.save('s')
        # the object does not serve its RAM, so that the snapshot still fits
        guest.qmp('device_add', driver='bochs-display', id='b')
        for _ in range(3):
            guest.load('s')
        assert_rewound(guest)
        assert guest.last_load()['devices-kept']
        guest.qmp('device_del', id='b')
        guest.load('s')
        last = guest.last_load()
        assert not last['rewound'] and last['devices-kept'] == 0
        assert last['blocker'].startswith('RAM ')
        assert 'bochs' not in guest.hmp('info qtree')
        for _ in range(2):
            guest.load('s')
        assert_rewound(guest)
        assert guest.last_load()['devices-kept']


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


@pytest.mark.parametrize('machine', MACHINES)
@pytest.mark.any_value
def test_an_alarm_wakes_the_guest_as_after_a_whole_load(tmp_path, machine):
    """QEMU itself knows what may wake the guest, and a reset clears it."""
    states = {}
    for strategy, options in (('stock', ''), ('auto', ',rewind=on')):
        folder = tmp_path / strategy
        folder.mkdir()
        with Sleeper(folder, machine, strategy, options) as guest:
            guest.enable_alarm()
            guest.save('s')
            for _ in range(2):
                guest.load('s')
            guest.enable_alarm()
            guest.load('s')
            assert strategy == 'stock' or guest.last_load()['devices-kept']
            states[strategy] = guest.sleep_past_alarm()
            # enabled anew, it does wake it
            guest.load('s')
            guest.enable_alarm()
            assert strategy == 'stock' or \
                guest.sleep_past_alarm() == 'running'
    assert states['auto'] == states['stock']


@pytest.mark.parametrize('idle', (0, 0x7d))
def test_a_tablet_is_loaded_whose_timer_waits(tmp_path, idle):
    """By the clock before the load it would wait for longer."""
    with QtestMachine(tmp_path, ram=RAM_SIZE, machine='q35', strategy='auto',
                      options=',rewind=on,verify=on', args=(
                          '-device', 'qemu-xhci,addr=3',
                          '-device', 'usb-tablet,port=1',
                          '-device', f'virtio-blk-pci,drive={DISK}')) as guest:
        driver = Xhci(guest, 3, FIRST_PORT)
        driver.request(SET_IDLE_TYPE, SET_IDLE, idle << 8)
        driver.disable()
        guest.save('s')
        kept = set()
        for _ in range(3):
            guest.load('s')
            kept.add(guest.last_load()['devices-kept'])
        # but the first time, the USB controller with its tablet is one
        assert kept - {0} == {WITH_TABLET - bool(idle)}
