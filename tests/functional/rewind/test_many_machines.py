# SPDX-License-Identifier: GPL-2.0-or-later
"""
Back and forth between snapshots of both kinds, of a machine that is not the
same in all of them: memory, devices, what they have of their own, and code.
A snapshot of another machine is refused, and nothing is lost by that.
"""

# Takes: 15 s

import pytest

from lib import products
from lib.content import assert_same_ram
from lib.dma import SCRATCH, Balloon
from lib.effort import rounds
from lib.guests import PAGE
from lib.kernel import needs_kernel
from lib.machine import MIB, MachineError
from lib.rewinding import RAM_SIZE, Still, assert_rewound
from lib.screens import ADDRESS, VGA
from lib.smp import START, Smp
from lib.storing import set_kind
from lib.walking import DIMM_SIZE as SIZE
from lib.walking import (DIMM, PCI_BUS, PCI_EJECT, SLOT, plug_memory,
                         unplug_memory)

KINDS = 'image', 'memory'
CMOS, BYTE = 0x70, 0x71
TIMES = rounds(4, 2)
ROOM = '-m', 'slots=2,maxmem=1G'


def save(guest, tag: str, kind: str) -> None:
    set_kind(guest, kind)
    guest.save(tag)


def eject_device(guest: Still, name: str) -> None:
    guest.qmp('device_del', id=name)
    guest.qtest.out('l', PCI_BUS, 0)
    guest.qtest.out('l', PCI_EJECT, 1 << SLOT)
    guest.event('DEVICE_DELETED')


def refuse(guest: Still, tag: str) -> None:
    """Its machine is another one, and this one stays as it is."""
    before = guest.ram_image()
    with pytest.raises(MachineError):
        guest.load(tag)
    assert_same_ram(guest.ram_image(), before)


class States:
    """Snapshots and the RAM of each, 20 of them and two more."""

    def __init__(self, guest: Still):
        self._guest = guest
        self._images: dict[str, bytes] = {}
        for i in range(10):
            for kind in KINDS:
                self.save(f'{kind}{i}', kind)

    def save(self, tag: str, kind: str) -> None:
        n = len(self._images)
        self._guest.put(3 * n, n + 1, 5)
        save(self._guest, tag, kind)
        self._images[tag] = self._guest.ram_image()

    def load(self, tag: str) -> dict:
        self._guest.put(1, 0xee, 100)
        self._guest.load(tag)
        assert_same_ram(self._guest.ram_image(), self._images[tag])
        return self._guest.last_load()

    def check(self, *tags: str) -> None:
        for tag in tags or self._images:
            self.load(tag)


def check_blocker(guest: Still, name: str, remedy: str) -> None:
    info = guest.rewind()['blocker-info']
    assert info['id'] == name and remedy in info['remedy'], info


@pytest.mark.parametrize('kind', KINDS)
def test_memory_is_plugged(tmp_path, kind):
    with Still(tmp_path, ',verify=on', args=ROOM) as guest:
        states = States(guest)
        for _ in range(TIMES):
            plug_memory(guest)
            check_blocker(guest, 'ram-added', 'save the snapshot')
            for tag in 'image3', 'memory4':
                refuse(guest, tag)
            unplug_memory(guest)
            for tag in 'image3', 'memory4', 'image3', 'memory5':
                states.load(tag)
            assert states.load('image3')['rewound']
            states.save('last', kind)
        states.check()


def test_snapshots_of_more_memory(tmp_path):
    """Those in an image fit any DIMM like theirs."""
    with Still(tmp_path, ',verify=on', args=ROOM) as guest:
        guest.put(0, 1)
        save(guest, 'small', 'image')
        for value in 1, 2:
            plug_memory(guest)
            guest.qtest.ask(f'memset {DIMM:#x} {SIZE:#x} {value}')
            save(guest, f'large{value}', 'image')
            unplug_memory(guest)
            guest.load('small')
        for value in 1, 2, 1:
            plug_memory(guest)
            guest.load(f'large{value}')
            assert guest.qtest.read(DIMM, SIZE) == bytes([value]) * SIZE
            refuse(guest, 'small')
            unplug_memory(guest)
            refuse(guest, 'large1')
            guest.load('small')
            assert guest.qtest.read(START, PAGE) == b'\1' * PAGE


def test_snapshot_in_memory_of_memory_that_went(tmp_path):
    """It is of no use, and says so, until it is deleted."""
    with Still(tmp_path, ',verify=on', args=ROOM) as guest:
        plug_memory(guest)
        save(guest, 'large', 'memory')
        unplug_memory(guest)
        refuse(guest, 'large')
        with pytest.raises(MachineError, match='delete some of them'):
            save(guest, 'small', 'memory')
        save(guest, 'small', 'image')
        check_blocker(guest, 'memory-snapshots', 'delete some of them')
        guest.hmp('delvm large')
        states = States(guest)
        states.check()


@pytest.mark.parametrize('ram', (False, True), ids=('without-ram', 'with-ram'))
def test_device_is_plugged(tmp_path, ram):
    device = {'driver': 'virtio-net-pci', 'id': 'more', 'addr': f'{SLOT}',
              'romfile': str(products.FIRMWARE / 'efi-virtio.rom')}
    if not ram:
        device['romfile'] = ''
    with Still(tmp_path, ',verify=on') as guest:
        states = States(guest)
        for _ in range(TIMES):
            guest.qmp('device_add', **device)
            check_blocker(guest, 'device-plugged', 'load or save')
            if ram:
                refuse(guest, 'memory2')
            eject_device(guest, 'more')
            for tag in 'memory2', 'image2', 'memory2':
                states.load(tag)
            assert states.load('image2')['rewound']
        states.check()


@pytest.mark.parametrize('second', KINDS)
@pytest.mark.parametrize('first', KINDS)
@pytest.mark.each_value
def test_several_blocks(tmp_path, first, second):
    """Each of them differs in some pages."""
    blocks = [f'-object memory-backend-memfd,id=more{n},size=2M,share=on '
              f'-device pc-dimm,memdev=more{n},addr={DIMM + n * SIZE}'
              for n in range(2)]
    with Still(tmp_path, ',verify=on', args=(
            *ROOM, *' '.join(blocks).split())) as guest:
        for value, kind in (1, first), (2, second):
            for n in range(2):
                guest.qtest.ask(f'memset {DIMM + n * SIZE + value * PAGE:#x} '
                                f'{PAGE * 3:#x} {value + 10 * n}')
            guest.put(value, value, 3)
            save(guest, f's{value}', kind)
        for _ in range(TIMES):
            for value in 1, 2:
                guest.qtest.ask(f'memset {DIMM:#x} {2 * SIZE:#x} 0x99')
                guest.load(f's{value}')
                assert guest.last_load()['rewound']
                for n in range(2):
                    old, new = bytes([1 + 10 * n]), bytes([2 + 10 * n])
                    pages = [b'\0', old, old, old, b'\0'] if value == 1 else \
                        [b'\0', old, new, new, new]
                    data = b''.join(page * PAGE for page in pages)
                    assert guest.qtest.read(DIMM + n * SIZE, SIZE) == \
                        data.ljust(SIZE, b'\0')


@pytest.mark.parametrize('second', KINDS)
@pytest.mark.parametrize('first', KINDS)
@pytest.mark.each_value
def test_ignored_block(tmp_path, first, second):
    """x-ignore-shared: it is no part of the snapshots, and stays as it is."""
    shared = tmp_path / 'shared'
    with Still(tmp_path, ',verify=on', memory='private', args=(
            *ROOM, '-object', 'memory-backend-file,id=more,size=2M,share=on,'
                              f'mem-path={shared}',
            '-device', 'pc-dimm,id=dimm,memdev=more')) as guest:
        guest.hmp('migrate_set_capability x-ignore-shared on')
        for value, kind in (1, first), (2, second):
            guest.put(0, value, 10)
            guest.qtest.ask(f'memset {DIMM:#x} {SIZE:#x} {value}')
            save(guest, f's{value}', kind)
        for n in range(TIMES):
            for value in 1, 2:
                guest.qtest.ask(f'memset {DIMM:#x} {SIZE:#x} {7 + n}')
                guest.put(0, 0x55, 20)
                guest.load(f's{value}')
                assert guest.last_load()['rewound']
                assert guest.qtest.read(START, 11 * PAGE) == \
                    bytes([value]) * 10 * PAGE + bytes(PAGE)
                assert guest.qtest.read(DIMM, SIZE) == bytes([7 + n]) * SIZE


def test_memory_that_is_locked(tmp_path):
    """It would be copied into memory that is locked as well."""
    try:
        guest = Still(tmp_path, args=('-overcommit', 'mem-lock=on'))
    except MachineError:
        pytest.skip('memory cannot be locked')
    with guest:
        for value in 1, 2:
            guest.put(0, value, 10)
            save(guest, f's{value}', 'image')
        check_blocker(guest, 'memory-locked', 'mem-lock')
        with pytest.raises(MachineError, match='mem-lock|locked'):
            save(guest, 's3', 'memory')
        for value in 1, 2, 1:
            guest.put(0, 9, 20)
            guest.load(f's{value}')
            assert guest.last_load()['blocker-info']['id'] == 'memory-locked'
            assert guest.qtest.read(START, 11 * PAGE) == \
                bytes([value]) * 10 * PAGE + bytes(PAGE)


@pytest.mark.parametrize('second', KINDS)
@pytest.mark.parametrize('first', KINDS)
@pytest.mark.each_value
def test_video_memory(tmp_path, first, second):
    """The kernel watches it."""
    with Still(tmp_path, ',verify=on', args=(*VGA.args,)) as guest:
        VGA.map(guest.qtest)
        VGA.fill(guest.qtest, 4 * MIB)
        images = {}
        for value, kind in (1, first), (2, second):
            guest.qtest.ask(f'memset {ADDRESS + value * MIB:#x} {MIB:#x} '
                            f'{0x70 + value}')
            save(guest, f's{value}', kind)
            images[value] = VGA.image(guest)
        for _ in range(TIMES):
            for value in 1, 2, 2, 1:
                guest.qtest.ask(f'memset {ADDRESS + 3 * MIB:#x} {PAGE:#x} 0x99')
                guest.load(f's{value}')
                VGA.map(guest.qtest)
                assert_same_ram(VGA.image(guest), images[value])
                assert VGA.last(guest)['dirty-pages'] <= MIB // PAGE + 1


@needs_kernel
def test_video_memory_and_devices_in_any_order(tmp_path, rng):
    """The kernel watches it, and unchanged devices are left alone."""
    with Still(tmp_path, ',verify=on', args=(*VGA.args,)) as guest:
        def put(place: int, value: int) -> None:
            guest.qtest.ask(f'memset {ADDRESS + place * MIB // 2:#x} {MIB:#x} '
                            f'{value}')
            guest.put(place, value, 3)
            guest.qtest.out('b', 0x21, value)       # what the PIC masks

        VGA.map(guest.qtest)
        VGA.fill(guest.qtest, 4 * MIB)
        images = {}
        for value in range(6):
            put(value, value)
            save(guest, f's{value}', KINDS[value % 2])
            images[value] = VGA.image(guest), guest.ram_image()
        kept, value = 0, 5
        for _ in range(rounds(80, 20)):
            if rng.random() < 0.5:
                put(rng.randrange(7), rng.randrange(0x80, 0x100))
            value = rng.choice((value, *images))
            guest.load(f's{value}')
            assert_same_ram(guest.ram_image(), images[value][1])
            assert 'the kernel has reported' in VGA.last(guest)['reason']
            kept += guest.last_load()['devices-kept']
            assert int(guest.qtest.ask('inb 0x21'), 0) == value
            VGA.map(guest.qtest)
            assert_same_ram(VGA.image(guest), images[value][0])
        assert kept


@pytest.mark.parametrize('second', KINDS)
@pytest.mark.parametrize('first', KINDS)
@pytest.mark.each_value
def test_devices(tmp_path, first, second):
    """Also if one did not change since its last load, and differs."""
    with Still(tmp_path, ',verify=on') as guest:
        def cmos(index: int) -> int:
            guest.qtest.out('b', CMOS, index)
            return int(guest.qtest.ask(f'inb {BYTE:#x}'), 0)

        for value, kind in (1, first), (2, second):
            guest.qtest.out('b', CMOS, 0x50)
            guest.qtest.out('b', BYTE, value)
            guest.qtest.out('b', 0x21, value)       # what the PIC masks
            save(guest, f's{value}', kind)
        for n in range(TIMES):
            for value in 1, 2, 2, 1, 1:
                if n % 2:
                    guest.qtest.out('b', 0x21, 7)
                guest.load(f's{value}')
                assert cmos(0x50) == value
                assert int(guest.qtest.ask('inb 0x21'), 0) == value


@pytest.mark.parametrize('second', KINDS)
@pytest.mark.parametrize('first', KINDS)
@pytest.mark.each_value
def test_balloon(tmp_path, first, second):
    """Pages that one has and the other has given to the host."""
    balloon = Balloon(RAM_SIZE - SCRATCH)
    pages = [START + n * PAGE for n in range(100)]
    with Still(tmp_path, ',verify=on', args=balloon.args) as guest:
        guest.put(0, 5, 200)
        save(guest, 'full', first)
        balloon.inflate(guest.qtest, pages)
        save(guest, 'given', second)
        for _ in range(TIMES):
            guest.load('full')
            assert guest.qtest.read(START, 200 * PAGE) == b'\5' * 200 * PAGE
            guest.load('given')
            guest.put(10, 6, 20)
            guest.load('given')
            assert guest.qtest.read(START, 200 * PAGE) == \
                bytes(100 * PAGE) + b'\5' * 100 * PAGE
            guest.load('full')
            balloon.inflate(guest.qtest, pages[50:])
            guest.load('given' if second == 'memory' else 'full')


@pytest.mark.parametrize('accel', ('kvm', 'tcg,thread=multi',
                                   'tcg,thread=single'))
@pytest.mark.parametrize('second', KINDS)
@pytest.mark.parametrize('first', KINDS)
@pytest.mark.each_value
def test_code(tmp_path, accel, first, second):
    """A page has other code in each, which nobody has written since."""
    places = START, START + 5 * PAGE - 1
    with Smp(tmp_path, accel=accel, cpus='2', strategy='auto',
             options=',rewind=on,verify=on') as guest:
        def run() -> set[int]:
            return {int(guest.ask('code-run', cpu, place), 16)
                    for cpu in range(guest.cpus) for place in places}

        for value, kind in (1, first), (2, second), (3, first):
            for place in places:
                guest.ask('code-put', place, value)
            assert run() == {value}
            save(guest, f's{value}', kind)
        for n in range(TIMES):
            for value in 1, 3, 2, 1, 2, 3:
                guest.load(f's{value}', ('hmp', 'qmp')[n % 2])
                assert_rewound(guest)
                assert run() == {value}
        for place in places:
            guest.ask('code-poke', place, 0x55)
        assert run() == {0x55}
        guest.load('s1')
        assert run() == {1}
