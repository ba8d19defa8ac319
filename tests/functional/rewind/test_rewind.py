# SPDX-License-Identifier: GPL-2.0-or-later
"""Loads that undo only what has changed, whoever has changed it."""

# Takes: 35 s

import contextlib
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from lib import products
from lib.content import assert_same_ram
from lib.damage import damage_device, damage_ram_records
from lib.dma import SCRATCH, SECTOR, Disk, Qtest
from lib.effort import rounds
from lib.guests import PAGE, Ring3
from lib.machine import DISK, MIB, MachineError, run_quietly
from lib.rewinding import RAM_SIZE, START, assert_rewound, boot, footprint
from lib.vmstate import VMState
from lib.walking import DIMM, plug_memory, unplug_memory

TAGS = ('a', 'b', 'c')
STEPS, MOST = rounds(700, 50), 700
# loads before anything is counted, and in each half of those that count
WARM_UP, HALF = rounds(200, 100), rounds(400, 200)
LOOK_EVERY = 20
# KiB; the heap grows and is trimmed by more than 1 MiB, some 400 loads long
GROWTH = 2000


def test_hot_pages_are_not_tracked(tmp_path, tracker):
    """Pages written to in each load are undone all the same, and cool."""
    often, once = (START + MIB, 100, PAGE), (START + 8 * MIB, 50, PAGE)
    with boot(tmp_path, tracker, options=',verify=on') as guest:
        guest.ask('fill', START, 2 * MIB, 1)
        guest.stop()
        image = guest.ram_image()
        guest.save('s')

        def cycle(write: bool, more: bool = False) -> dict:
            guest.cont()
            if write:
                guest.ask('tag', *often, 5)
            if more:
                guest.ask('tag', *once, 6)
            guest.sync()
            guest.stop()
            guest.load('s')
            assert_same_ram(guest.ram_image(), image)
            return assert_rewound(guest)

        for i in range(6):
            block = cycle(True, more=i == 3)
            written = often[1] + (once[1] if i == 3 else 0)
            assert block['dirty-pages'] >= written
        assert often[1] <= block['untracked-pages'] < often[1] + once[1]
        for _ in range(12):
            block = cycle(False)
        assert block['untracked-pages'] < 20
        assert block['dirty-pages'] < 20


class Plaything:
    """A guest, and whoever else writes to its RAM, in any order."""

    DIMM_SIZE = 16 * MIB
    DAMAGED = {'damaged-ram': damage_ram_records,
               'damaged-device': damage_device}

    def __init__(self, workdir: Path, accel: str, rng: random.Random):
        self._rng = rng
        self._workdir = workdir
        self._saved: dict[str, tuple[bytes, bytes]] = {}
        self._dimm = False
        self._last = ''
        # If KVM emulates ring 0, a guest that starts while a ring has any dirty
        # log comes to a halt, in stock QEMU as well
        self._may_reset = 'ring' not in accel
        self.counts: Counter = Counter()
        self._save_damaged(accel)
        self._qtest = Qtest(workdir)
        self._disk = Disk(workdir, MIB, RAM_SIZE - SCRATCH)
        # QEMU overlooks a disk that no device has, if one has a later disk
        self._guest = boot(
            workdir, accel, options=',verify=on', args=(
                '-m', 'slots=1,maxmem=1G', *self._qtest.args,
                '-device', f'virtio-blk-pci,drive={DISK}', *self._disk.args))
        self._qtest.connect()

    def close(self) -> None:
        self._qtest.close()
        self._guest.close()

    def _save_damaged(self, accel: str) -> None:
        device = '-device', f'virtio-blk-pci,drive={DISK}'
        with boot(self._workdir, accel, args=device) as guest:
            for tag in self.DAMAGED:
                guest.save(tag)
        for tag, damage in self.DAMAGED.items():
            with VMState(self._workdir / 'disk.qcow2', tag) as state:
                damage(state)

    def step(self) -> None:
        kinds = {self.write: 40, self.read_disk: 10, self.save: 5,
                 self.delete: 2, self.load: 38, self.load_damaged: 2,
                 self.plug: 2, self.reset: int(self._may_reset)}
        kind, = self._rng.choices(list(kinds), list(kinds.values()))
        self.counts[kind.__name__] += 1
        kind()
        if self._guest.status() != 'running':
            self._guest.cont()

    def _image(self) -> tuple[bytes, bytes]:
        """All RAM, that which may be plugged last."""
        dimm = b''
        if self._dimm:
            file = self._workdir / 'dimm'
            self._guest.qmp('pmemsave', val=DIMM, size=self.DIMM_SIZE,
                            filename=str(file))
            dimm = file.read_bytes()
        return self._guest.ram_image(), dimm

    def _assert_is(self, image: tuple[bytes, bytes]) -> None:
        for got, expected in zip(self._image(), image):
            assert_same_ram(got, expected)

    def _somewhere(self, most: int) -> tuple[int, int]:
        """
        An address, and how many pages from there on; not the disk's queue, as
        QEMU breaks a disk that is loaded with an index out of range.
        """
        start, size = START, RAM_SIZE - SCRATCH - START
        if self._dimm and self._rng.random() < 0.3:
            start, size = DIMM, self.DIMM_SIZE
        first = self._rng.randrange(size // PAGE)
        count = min(size // PAGE - first, 1 << self._rng.randrange(most))
        return start + first * PAGE, count

    def write(self) -> None:
        address, count = self._somewhere(9)
        seed = self._rng.getrandbits(63)
        how = self._rng.choice(('set', 'fill', 'tag'))
        if how == 'tag':
            self._guest.ask(how, address, count, PAGE, seed)
        else:
            self._guest.ask(how, address, count * PAGE,
                            seed if how == 'fill' else 0)

    def read_disk(self) -> None:
        address, pages = self._somewhere(6)
        count = pages * PAGE // SECTOR
        sector = self._rng.randrange(self._disk.sectors - count)
        self._disk.read(self._qtest, sector, count, address)

    def save(self) -> None:
        tag = self._rng.choice(TAGS)
        self._guest.stop()
        if self._rng.random() < 0.5:
            self._guest.hmp(f'delvm {tag}')
        self._guest.save(tag)
        self._saved[tag] = self._image()

    def delete(self) -> None:
        tag = self._rng.choice(TAGS)
        self._guest.hmp(f'delvm {tag}')
        self._saved.pop(tag, None)

    def _fitting(self) -> list[str]:
        return [tag for tag, image in self._saved.items()
                if bool(image[1]) == self._dimm]

    def load(self) -> None:
        fitting = self._fitting()
        if self._last in fitting and self._rng.random() < 0.6:
            tag = self._last
        elif fitting and self._rng.random() < 0.9:
            tag = self._rng.choice(fitting)
        else:
            tag = self._rng.choice(TAGS)
        how = self._rng.choice(('hmp', 'qmp'))
        self._guest.stop()
        if tag not in fitting:
            self._fail(tag, how)
            return
        self._last = tag
        self._guest.load(tag, how)
        self._assert_is(self._saved[tag])
        last = self._guest.last_load()
        self.counts['rewound' if last['rewound'] else 'whole'] += 1

    def _fail(self, tag: str, how: str) -> None:
        """Load a snapshot that is missing, or of a machine with other RAM."""
        before = self._image()
        with pytest.raises(MachineError):
            self._guest.load(tag, how)
        self._assert_is(before)

    def load_damaged(self) -> None:
        """A partial load is left, which only another load mends."""
        if self._dimm or not self._fitting():
            return      # it would be refused, or there is none to help
        tag = self._rng.choice(self._fitting())
        with pytest.raises(MachineError):
            self._guest.load(self._rng.choice(list(self.DAMAGED)))
        assert self._guest.status() != 'running'
        self._guest.load(tag)
        self._assert_is(self._saved[tag])
        assert not self._guest.last_load()['rewound']
        self.counts['whole'] += 1

    def plug(self) -> None:
        if self._dimm:
            unplug_memory(self._guest, qtest=self._qtest)
        else:
            plug_memory(self._guest, size=self.DIMM_SIZE)
        self._dimm = not self._dimm

    def is_fair(self) -> bool:
        """It has tried enough of both ways to load."""
        return self.counts['rewound'] > STEPS // 20 and \
            self.counts['whole'] > 1

    def reset(self) -> None:
        self._guest.qmp('system_reset')
        self._guest.serial.wait(r'^ready 3 ', self._guest.TIMEOUT)
        self._guest.sync()


@pytest.mark.any_value
def test_random_sequence(tmp_path, tracker, rng):
    """RAM after a load is RAM at the time of the save, in any sequence."""
    with contextlib.closing(Plaything(tmp_path, tracker, rng)) as plaything:
        # a short one goes on until it has loaded in both ways
        for step in range(MOST):
            if step >= STEPS and plaything.is_fair():
                break
            plaything.step()
    print(plaything.counts)
    assert plaything.is_fair()


def test_first_load_after_a_start_is_whole(tmp_path, tracker):
    with boot(tmp_path, tracker) as guest:
        guest.ask('fill', START, MIB, 1)
        guest.save('s')
    with boot(tmp_path, tracker, loadvm='s') as guest:
        guest.ask('check-fill', START, MIB, 1)
        assert not guest.last_load()['rewound']
        guest.ask('fill', START, MIB, 2)
        guest.load('s')
        block = assert_rewound(guest)
        assert block['dirty-pages'] >= MIB // PAGE
        guest.ask('check-fill', START, MIB, 1)


def test_jobs(tmp_path, fast_accel):
    """snapshot-save and snapshot-load do as savevm and loadvm do."""
    with boot(tmp_path, fast_accel, options=',verify=on') as guest:
        guest.ask('fill', START, MIB, 1)
        guest.snapshot_job('snapshot-save', 's')
        guest.ask('fill', START, MIB, 2)
        guest.load('s', 'qmp')
        assert_rewound(guest)
        guest.ask('check-fill', START, MIB, 1)
        guest.qmp('snapshot-delete', **{'job-id': 'd', 'tag': 's',
                                        'devices': [DISK]})


def test_stock_loads_what_was_saved(tmp_path, fast_accel):
    """
    Pages that were saved as zero without being read are undone too.  If no
    unpatched QEMU has been built, ours without an object has to do.
    """
    with boot(tmp_path, fast_accel) as guest:
        guest.ask('fill', START, MIB, 1)
        guest.stop()
        before = guest.rss()
        guest.save('s')
        assert guest.rss() - before < 4 * MIB
        image = guest.ram_image()
    with Ring3(tmp_path, accel=fast_accel, ram=RAM_SIZE, memory='shared',
               loadvm='s', qemu=products.stock()) as guest:
        guest.stop()
        assert_same_ram(guest.ram_image(), image)


def test_disk_is_taken_back(tmp_path, fast_accel):
    """Whether it was written to since the last load, or not."""
    with boot(tmp_path, fast_accel) as guest:
        def io(command: str) -> None:
            guest.hmp(f'qemu-io {DISK} "{command}"')

        io('write -P 1 1M 192k')
        guest.save('a')
        io('write -P 2 1M 192k')
        guest.save('b')
        for tag, pattern, write in (
                ('a', 1, ''), ('a', 1, 'write -P 3 1M 64k'), ('a', 1, ''),
                ('a', 1, 'write -z 1M 192k'), ('b', 2, ''), ('a', 1, ''),
                ('b', 2, 'discard 1M 192k'), ('b', 2, ''), ('b', 2, ''),
                ('a', 1, 'write -P 4 40M 64k'), ('a', 1, '')):
            guest.load(tag)
            io(f'read -P {pattern} 1M 192k')
            io('read -P 0 40M 64k')
            if write:
                io(write)
        guest.hmp('delvm a')
        guest.load('b')
        io('read -P 2 1M 192k')
        io('read -P 5 1M 512')
    # what such commands say comes out at the end
    failures = re.findall('verification failed at offset .*', guest.log())
    assert failures == ['verification failed at offset 1048576, 512 bytes']
    run_quietly(products.QEMU_IMG, 'check', guest.disk)


@pytest.mark.any_value
def test_nothing_grows(tmp_path, tracker):
    """The whole way of a load leaves nothing behind."""
    with boot(tmp_path, tracker) as guest:
        guest.ask('fill', START, MIB, 1)
        guest.save('s')
        halves = [], []
        for n in range(WARM_UP + 2 * HALF):
            guest.ask('tag', START, 50, PAGE, n)
            guest.load('s')
            if n >= WARM_UP and n % LOOK_EVERY == 0:
                halves[(n - WARM_UP) // HALF].append(footprint(guest))
        assert_rewound(guest)
    # a thread of the disk's pool may come or go, with its stack and its heap,
    # and malloc() gives memory back now and then: a leak is what is always
    # there; ./bench counts over more loads
    earlier, later = ({what: min(found[what] for found in half)
                       for what in half[0]} for half in halves)
    grown = {what: later[what] - earlier[what] for what in earlier}
    assert grown['descriptors'] <= 0
    assert grown['mappings'] <= 8
    assert grown['anonymous'] < GROWTH
    assert grown['shared'] < GROWTH
