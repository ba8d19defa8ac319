# SPDX-License-Identifier: GPL-2.0-or-later
"""TCG's translated code stays across a rewind, except the code of pages that
have been restored: see guest/ring3-code.c for the code."""

# Takes: 10 s

import re
from pathlib import Path

import pytest

from lib import products
from lib.dma import Qtest
from lib.effort import rounds
from lib.gdb import Debugger
from lib.guests import Ring3
from lib.machine import DISK, MIB, PAGE, run_quietly
from lib.rewinding import assert_rewound
from lib.smp import START, Smp

MODES = {
    'multi': ('tcg,thread=multi', '2'),
    'single': ('tcg,thread=single', '2'),
    'icount': ('tcg', '1', '-icount', 'shift=auto'),
    'split-wx': ('tcg,split-wx=on', '2'),
    'one-insn': ('tcg,one-insn-per-tb=on', '1'),
}
REWIND = {'strategy': 'auto', 'options': ',rewind=on,verify=on'}
TRACE = '-trace', 'ram_reset_drop*'

# Functions: one lies in a page, of one only the second page has the value that
# it returns, of one only the first, and one writes to itself
INSIDE = START
SECOND = START + 4 * PAGE - 1
FIRST = START + 8 * PAGE - 5
COUNTING = START + 10 * PAGE
OTHER = START + 12 * PAGE       # which nobody writes to
POKED = INSIDE, SECOND, FIRST
# The address at which ring3-shmem.c maps a BAR; PCI IDs and registers
REGION = 0xe0000000
IVSHMEM, VGA = (0x11101af4, 2), (0x11111234, 0)


def boot(workdir: Path, mode: str = 'multi', args: tuple = (), **kwargs
         ) -> Smp:
    accel, cpus, *more = MODES[mode]
    return Smp(workdir, accel=accel, cpus=cpus, args=(*TRACE, *more, *args),
               **{**REWIND, **kwargs})


def run(guest: Smp, place: int, cpu: int = 0) -> int:
    return int(guest.ask('code-run', cpu, place), 16)


def run_all(guest: Smp, place: int) -> set[int]:
    """On each CPU."""
    return {run(guest, place, cpu) for cpu in range(guest.cpus)}


def put_all(guest: Smp) -> None:
    for n, place in enumerate((*POKED, OTHER)):
        guest.ask('code-put', place, n)
    guest.ask('code-count', COUNTING, 0)


def assert_put_back(guest: Smp) -> None:
    for n, place in enumerate((*POKED, OTHER)):
        assert run_all(guest, place) == {n}
    for n in range(2 * guest.cpus):
        assert run(guest, COUNTING, n % guest.cpus) == n + 1


def jit(guest: Smp, what: str) -> int:
    text = guest.qmp('x-query-jit')['human-readable-text']
    return int(re.search(rf'^{what} +(\d+)', text, re.M)[1])


def flushes(guest: Smp) -> int:
    return jit(guest, 'TB flush count')


def dropped(guest: Smp) -> list[int]:
    """Pages of RAM whose code was, by each rewind that dropped any so far."""
    return [int(n) for n in re.findall(
        r'ram_reset_drop_code block mem0: of (\d+) pages', guest.log())]


def dropped_all(guest: Smp) -> int:
    return guest.log().count('ram_reset_drop_all_code')


@pytest.mark.parametrize('mode', MODES)
def test_code_is_put_back(tmp_path, mode):
    with boot(tmp_path, mode) as guest:
        put_all(guest)
        for place in POKED:
            run_all(guest, place)
        guest.save('s')
        guest.load('s')
        before = flushes(guest)
        for n in range(rounds(10, 2)):
            assert_put_back(guest)
            for place in POKED:
                guest.ask('code-poke', place, 0x5555 + n)
                assert run_all(guest, place) == {0x5555 + n}
            guest.load('s')
            assert_rewound(guest)
        assert_put_back(guest)
        assert flushes(guest) == before


def test_rest_is_kept(tmp_path):
    """Only what is of the pages that have been put back is dropped."""
    with boot(tmp_path) as guest:
        put_all(guest)
        guest.save('s')
        guest.load('s')
        guest.load('s')

        def rewind(*changes: tuple) -> int:
            for place in (*POKED, OTHER):
                run_all(guest, place)
            for place, ran in changes:
                guest.ask('code-poke', place, 9)
                if ran:
                    assert run_all(guest, place) == {9}
            before = len(dropped(guest))
            guest.load('s')
            assert_rewound(guest)
            return sum(dropped(guest)[before:])

        rewind()
        own, before = rewind(), flushes(guest)
        assert rewind((INSIDE, True)) == own + 1
        # the first page of it has nothing else, and is not put back
        assert rewind((SECOND, True)) == own + 1
        assert rewind((INSIDE, True), (SECOND, True), (FIRST, True)) == own + 3
        # writing to it has dropped it already
        assert rewind((INSIDE, False)) == own
        assert flushes(guest) == before


def test_when_all_is_dropped(tmp_path):
    """By the first rewind after a snapshot has been saved, and by no more."""
    with boot(tmp_path) as guest:
        for n in range(1, 3):
            put_all(guest)
            guest.save('s')
            before = flushes(guest)
            for _ in range(3):
                guest.load('s')
                assert_rewound(guest)
                assert_put_back(guest)
                assert flushes(guest) == before + 1
                assert dropped_all(guest) == n


@pytest.mark.each_value
@pytest.mark.parametrize('stopped', (False, True))
@pytest.mark.parametrize('options', ('', ',verify=on', REWIND['options']))
def test_any_load(tmp_path, options, stopped):
    """Any load restores code, of a stopped guest and without an object too."""
    strategy = 'auto' if options else 'stock'
    with boot(tmp_path, strategy=strategy, options=options) as guest:
        put_all(guest)
        guest.save('s')
        for n in range(3):
            assert_put_back(guest)
            for place in POKED:
                guest.ask('code-poke', place, 0x6666)
                assert run_all(guest, place) == {0x6666}
            if stopped:
                guest.stop()
            guest.load('s')
            if stopped:
                guest.cont()
        assert_put_back(guest)


def test_breakpoint(tmp_path):
    """It stays, and the code below it is the snapshot's."""
    path = tmp_path / 'gdb'
    with boot(tmp_path, args=('-gdb', f'unix:{path},server=on,wait=off')
              ) as guest:
        put_all(guest)
        guest.save('s')
        guest.load('s')
        with Debugger(path) as gdb:
            gdb.ask(f'Z0,{OTHER:x},1')
            gdb.send('c')
            for _ in range(3):
                assert run_all(guest, INSIDE) == {0}
                guest.ask('code-poke', INSIDE, 0x7777)
                assert run_all(guest, INSIDE) == {0x7777}
                # when it stops the guest, QEMU drops all
                guest.load('s')
                assert_rewound(guest)
                assert run_all(guest, INSIDE) == {0}
                guest.tell('code-run', 0, OTHER)
                gdb.wait_stopped()
                guest.load('s')
                gdb.send('c')
                guest.sync()


def test_memory_of_others(tmp_path):
    """
    Memory that is no part of the snapshot may be executed, and an unlogged
    writer may change it, as fuzzers do.
    """
    place = tmp_path / 'shmem'
    with boot(tmp_path, 'single', args=(
            '-object', f'memory-backend-file,id=shmem,size={MIB},share=on,'
                       f'mem-path={place}',
            '-device', 'ivshmem-plain,memdev=shmem,master=on')) as guest:
        guest.hmp('migrate_set_capability x-ignore-shared on')
        guest.ask('map-bar', *IVSHMEM)
        guest.ask('code-put', REGION, 0)
        guest.save('s')
        with place.open('r+b', buffering=0) as f:
            for n in range(1, 4):
                f.seek(1)
                f.write(bytes((n, 0, 0, 0)))
                guest.load('s')
                assert_rewound(guest)
                assert run_all(guest, REGION) == {n}


@pytest.mark.parametrize('how', ('watched', 'compared'))
def test_memory_of_a_device(tmp_path, how):
    """The kernel watches the memory, or it is compared if that cannot be."""
    args = ('-M', 'aux-ram-share=on') if how == 'compared' else ()
    with boot(tmp_path, 'single', args=('-device', 'VGA', *args)) as guest:
        guest.ask('map-bar', *VGA)
        for place in (REGION, REGION + 4 * PAGE):
            guest.ask('code-put', place, 1)
        guest.save('s')
        for n in range(1, 4):
            for place in (REGION, REGION + 4 * PAGE):
                assert run_all(guest, place) == {1}
            guest.ask('code-poke', REGION, 2)
            assert run_all(guest, REGION) == {2}
            guest.load('s')
            assert_rewound(guest)
            block, = (b for b in guest.last_load()['blocks']
                      if 'vga.vram' in b['name'])
            assert bool(block['compared-pages']) == (how == 'compared')
            found = re.findall(r'drop_code block .*vga.vram: of (\d+) pages',
                               guest.log())
            # what was written and put back would not differ
            assert found == [{'watched': '1', 'compared': '2'}[how]] * n
        assert run_all(guest, REGION) == {1}


@pytest.mark.parametrize('poke', ((64, 0xaa), (1, 1)), ids=('other', 'back'))
@pytest.mark.parametrize('how', ('watched', 'compared'))
def test_device_writes_to_code(tmp_path, how, poke):
    """
    Past TCG, which it tells that the page has no code any more.  It may write
    what the snapshot has, so that nothing differs.
    """
    args = ('-M', 'aux-ram-share=on') if how == 'compared' else ()
    with boot(tmp_path, 'single', args=('-device', 'VGA', *args)) as guest:
        guest.ask('map-bar', *VGA)
        guest.ask('code-put', REGION, 1)
        guest.save('s')
        guest.load('s')
        for _ in range(3):
            assert run_all(guest, REGION) == {1}
            guest.ask('code-poke', REGION, 2)
            assert run_all(guest, REGION) == {2}
            guest.ask('vga-poke', *poke)
            guest.load('s')
            assert_rewound(guest)
            assert run_all(guest, REGION) == {1}


class Flash:
    """The firmware's, with code in it, which the guest programs."""

    SIZE, OFFSET = MIB, 0x10000
    CODE = b'\xb8\1\0\0\0\xc3'     # returns 1, as in guest/ring3-code.c

    def __init__(self, workdir: Path):
        firmware = (products.FIRMWARE / 'qboot.rom').read_bytes()
        content = bytearray(self.SIZE - len(firmware)) + firmware
        content[self.OFFSET:self.OFFSET + len(self.CODE)] = self.CODE
        raw, image = workdir / 'flash.raw', workdir / 'flash.qcow2'
        raw.write_bytes(content)
        run_quietly(products.QEMU_IMG, 'convert', '-f', 'raw', '-O', 'qcow2',
                    raw, image)
        self.place = (4 << 30) - self.SIZE + self.OFFSET
        self._qtest = Qtest(workdir)
        self.args = ('-blockdev', 'driver=qcow2,node-name=flash,'
                                  f'file.driver=file,file.filename={image}',
                     '-M', 'pflash0=flash',
                     # flash has no VM state
                     '-device', f'virtio-blk-pci,drive={DISK}',
                     *self._qtest.args)
        self.connect, self.close = self._qtest.connect, self._qtest.close

    def program(self, value: int) -> None:
        """Make the function return @value."""
        for command in (b'\x40', bytes([value])):
            self._qtest.write(self.place + 1, command)
        self._qtest.write(self.place, b'\xff')


@pytest.mark.parametrize('how', ('watched', 'compared'))
def test_flash_is_programmed_back(tmp_path, how):
    """Flash has what the snapshot has, and nobody says that it was written."""
    flash = Flash(tmp_path)
    args = ('-M', 'aux-ram-share=on') if how == 'compared' else ()
    with boot(tmp_path, 'single', args=(*flash.args, *args)) as guest:
        flash.connect()
        assert run_all(guest, flash.place) == {1}
        guest.save('s')
        guest.load('s')
        for n in range(2, 5):
            flash.program(n)
            assert run_all(guest, flash.place) == {n}
            flash.program(1)
            # QEMU itself would go on with the old code until now
            guest.load('s')
            assert_rewound(guest)
        assert run_all(guest, flash.place) == {1}
        flash.close()
