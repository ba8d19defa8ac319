# SPDX-License-Identifier: GPL-2.0-or-later
"""
Memory that devices have of their own costs a load what was written to it, and
whoever has written to it, it is undone.
"""

# Takes: 15 s

import contextlib
import secrets
import statistics
import time

import pytest

from lib import products
from lib.content import assert_same_ram
from lib.dma import SCRATCH, SECTOR, Disk, Qtest, QtestMachine
from lib.effort import rounds, tried
from lib.guests import Ring3
from lib.kernel import needs_kernel, without_userfaultfd
from lib.machine import DISK, MIB, PAGE, run_quietly
from lib.screens import (ADDRESS, DISPLAYS, LARGE, VGA, Display, clear_by_mode,
                         write_chained, write_plane_by_plane)

RAM_SIZE = 32 * MIB
SOME = 'std', 'cirrus', 'qxl', 'bochs'
REWINDS = {'strategy': 'auto', 'options': ',rewind=on,verify=on'}


def told(block: dict) -> tuple[int, ...]:
    return tuple(block[key] for key in (
        'dirty-pages', 'copied-pages', 'cleared-pages', 'compared-pages'))


class Bare(QtestMachine):
    """No vCPU runs; what @display shows is written by us."""

    def __init__(self, workdir, display: Display = VGA, args=(), **kwargs):
        # QEMU overlooks a disk that no device has, if one has a later disk
        args = [arg.format(dir=workdir) for arg in (
            *display.args, *args, '-device', f'virtio-blk-pci,drive={DISK}')]
        super().__init__(workdir, ram=RAM_SIZE, args=tuple(args),
                         **REWINDS | kwargs)
        self.display = display
        display.map(self.qtest)

    def image(self) -> bytes:
        return self.display.image(self)

    def load_and_check(self, image: bytes) -> dict:
        self.load('s')
        self.display.map(self.qtest)    # not all devices have that saved
        assert_same_ram(self.image(), image)
        return self.display.last(self)


@needs_kernel
@pytest.mark.parametrize('name', tried(tuple(DISPLAYS), SOME))
def test_costs_what_was_written(tmp_path, name):
    """Some pages of data, some that were zero, of memory that is all used."""
    display = DISPLAYS[name]
    with Bare(tmp_path, display) as guest:
        display.fill(guest.qtest, display.size // 2)
        guest.save('s')
        image = guest.image()
        for written in ((3, 2), (0, 0), (1, 0)):
            for n in range(written[0]):
                guest.qtest.write(ADDRESS + (7 + 2 * n) * PAGE, b'\xaa')
            for n in range(written[1]):
                guest.qtest.write(ADDRESS + display.size * 3 // 4 + n * PAGE,
                                  b'\xaa' * PAGE)
            block = guest.load_and_check(image)
            dirty, copied, cleared, compared = told(block)
            # what a reset writes need not be another value
            assert dirty == sum(written) + display.by_reset
            assert written[0] <= copied <= written[0] + display.by_reset
            assert (cleared, compared) == (written[1], 0)
            assert 'the kernel has reported them' in block['reason']


@needs_kernel
def test_what_a_vga_writes_by_itself(tmp_path):
    """
    The dirty log does not have all of that.  It lacks memory that a mode
    clears, and writes through the window, plane by plane, for which it has
    other pages (@others).  A load undoes those as well.
    """
    with Bare(tmp_path) as guest:
        VGA.fill(guest.qtest)
        guest.save('s')
        image = guest.image()
        for write, pages, others in (
                (lambda q: write_chained(q, 0x8000, b'\x55' * 64), 1, 1),
                (lambda q: write_chained(q, 0x3000, b'\x55' * 0x800), 2, 1),
                (lambda q: write_plane_by_plane(q, 0x4000, b'\x99' * 1024),
                 1, 0),
                (lambda q: clear_by_mode(q, 1024, 768), 768, 0),
                (lambda q: clear_by_mode(q, 2048, 2048), 4096, 0)):
            write(guest.qtest)
            assert guest.image() != image
            block = guest.load_and_check(image)
            assert told(block) == (pages + others, pages + others, 0, 0)


@needs_kernel
def test_disk_reads_into_it(tmp_path):
    disk = Disk(tmp_path, MIB, 8 * MIB)
    with Bare(tmp_path, args=disk.args) as guest:
        VGA.fill(guest.qtest, 4 * MIB)
        guest.save('s')
        image = guest.image()
        for _ in range(2):
            disk.read(guest.qtest, 0, 64 * 1024 // SECTOR, ADDRESS + MIB)
            assert guest.image()[MIB:][:65536] == disk.content(0, 128)
            block = guest.load_and_check(image)
            assert told(block) == (16, 16, 0, 0)


@needs_kernel
def test_pages_written_load_after_load_are_left_writable(tmp_path):
    with Bare(tmp_path) as guest:
        VGA.fill(guest.qtest)
        guest.save('s')
        image = guest.image()
        for n in range(4):
            guest.qtest.write(ADDRESS + MIB, bytes([n]) * 20 * PAGE)
            block = guest.load_and_check(image)
        assert block['untracked-pages'] >= 15
        for _ in range(9):
            block = guest.load_and_check(image)
        assert told(block) == (0, 0, 0, 0)
        assert block['untracked-pages'] == 0


@needs_kernel
def test_what_a_template_has(tmp_path):
    """Its file is mapped, and is written to by nobody."""
    folder = tmp_path / 'templates'
    folder.mkdir(mode=0o700)
    options = f',rewind=on,verify=on,template-dir={folder}'
    with Bare(tmp_path, options=options) as guest:
        VGA.fill(guest.qtest)
        guest.save('s')
        image = guest.image()
    with Bare(tmp_path, options=options) as guest:
        guest.load('s')
        assert guest.last_load()['template']
        for pages in (0, 3, 0):
            guest.qtest.ask(f'memset {ADDRESS + MIB:#x} {pages * PAGE:#x} 9'
                            if pages else 'clock_step 1')
            block = guest.load_and_check(image)
            assert told(block) == (pages, pages, 0, 0)
            assert 'the kernel has reported them' in block['reason']


def flash_args(workdir, size: int) -> tuple[str, ...]:
    file = workdir / 'flash.raw'
    file.write_bytes(secrets.token_bytes(size))
    image = workdir / 'flash.qcow2'
    run_quietly(products.QEMU_IMG, 'convert', '-f', 'raw', '-O', 'qcow2', file,
                image)
    return ('-blockdev', f'driver=qcow2,node-name=flash,file.driver=file,'
                         f'file.filename={image}',
            '-M', 'pflash0=flash')


@needs_kernel
def test_flash_costs_what_was_written(tmp_path):
    """Its own commands write to it, of which the dirty log has none."""
    size = 4 * MIB
    start = (4 << 30) - size
    with Bare(tmp_path, args=flash_args(tmp_path, size)) as guest:
        content = guest.qtest.read(start, size)
        guest.save('s')

        def load(pages: int) -> None:
            guest.load('s')
            block, = (b for b in guest.last_load()['blocks']
                      if b['name'] == 'system.flash0')
            assert guest.qtest.read(start, size) == content
            assert told(block) == (pages, pages, 0, 0)

        load(0)
        for at in (5 * PAGE, size - 1):
            for command in (b'\x40', bytes([content[at] ^ 0xff]), b'\xff'):
                guest.qtest.write(start + at, command)
        load(2)
        for command in (b'\x20', b'\xd0', b'\xff'):     # erases
            guest.qtest.write(start + 9 * PAGE, command)
        assert guest.qtest.read(start + 9 * PAGE, PAGE) == b'\xff' * PAGE
        load(1)


@pytest.mark.parametrize('why', ('refused', 'shared'))
def test_is_compared_where_nobody_tells(tmp_path, why):
    machine = {'qemu': without_userfaultfd(tmp_path)} if why == 'refused' else {
        'args': ('-M', 'aux-ram-share=on')}
    reason = 'Operation not permitted' if why == 'refused' else 'it is shared'
    with Bare(tmp_path, **machine) as guest:
        VGA.fill(guest.qtest, 4 * MIB)
        guest.save('s')
        image = guest.image()
        clear_by_mode(guest.qtest, 1024, 512)
        block = guest.load_and_check(image)
        dirty, copied, cleared, compared = told(block)
        assert (dirty, copied, cleared) == (512, 512, 0)
        # pages that are there are looked at, all others are zero
        assert 4 * MIB // PAGE <= compared <= VGA.size // PAGE
        assert reason in block['reason']


@needs_kernel
def test_used_memory_takes_no_longer(tmp_path):
    """A load with 64 MiB of it, against one with none in use."""
    times: dict[bool, list[float]] = {False: [], True: []}
    with contextlib.ExitStack() as stack:
        guests = {}
        for used in times:
            folder = tmp_path / str(used)
            folder.mkdir()
            guests[used] = stack.enter_context(
                Bare(folder, LARGE, options=',rewind=on'))
            if used:
                LARGE.fill(guests[used].qtest)
            guests[used].save('s')
        # they take turns: others are at work on this host
        for _ in range(rounds(40, 20)):
            for used, guest in guests.items():
                before = time.perf_counter()
                guest.load('s')
                times[used].append(time.perf_counter() - before)
    # to compare it takes as long as the rest of a load several times over
    assert statistics.median(times[True]) < 2.5 * statistics.median(times[False])


def test_random_writers(tmp_path, tracker, rng):
    """A guest, a disk, VGA itself, loads in between; each byte is the same."""
    qtest = Qtest(tmp_path)
    disk = Disk(tmp_path, MIB, RAM_SIZE - SCRATCH)
    args = (*VGA.args, *qtest.args, *disk.args,
            '-device', f'virtio-blk-pci,drive={DISK}')
    with Ring3(tmp_path, accel=tracker, ram=RAM_SIZE, args=args,
               **REWINDS) as guest:
        qtest.connect()
        VGA.map(qtest)
        guest.ask('fill', ADDRESS, 8 * MIB, 1)
        guest.stop()
        guest.save('s')
        image = VGA.image(guest)

        def somewhere(most: int) -> tuple[int, int]:
            first = rng.randrange(VGA.size // PAGE - most)
            return ADDRESS + first * PAGE, rng.randrange(1, most)

        def by_guest() -> None:
            start, pages = somewhere(200)
            guest.ask(*rng.choice((('tag', start, pages, PAGE, 5),
                                   ('fill', start, pages * PAGE, 7),
                                   ('set', start, pages * PAGE, 0))))

        def by_disk() -> None:
            start, pages = somewhere(16)
            disk.read(qtest, 0, pages * PAGE // SECTOR, start)

        writers = (by_guest, by_guest, by_guest, by_disk,
                   lambda: clear_by_mode(qtest, 1024, rng.randrange(1, 768)),
                   lambda: write_chained(qtest, rng.randrange(0xff00), b'\1\2'),
                   lambda: write_plane_by_plane(qtest, rng.randrange(0xff00),
                                                b'\3'))
        for _ in range(rounds(60, 8)):
            guest.cont()
            for _ in range(rng.randrange(4)):
                rng.choice(writers)()
            guest.sync()
            guest.stop()
            guest.load('s')
            assert_same_ram(VGA.image(guest), image)
            block = VGA.last(guest)
            assert not block['compared-pages'] or \
                'slow the guest' in block['reason']
        qtest.close()
