# SPDX-License-Identifier: GPL-2.0-or-later
"""
Random steps among many snapshots of a machine without a vCPU.  A model beside
has every page of RAM; RAM is compared with it, not with what RAM was.
"""

import os
import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.dma import SCRATCH, Balloon, Qtest, QtestMachine
from lib.effort import rounds
from lib.kills import disk_io
from lib.machine import DISK, MIB, PAGE, Machine, MachineError

RAM_SIZE = 4 * MIB
# Queues of the balloon: the device writes there, and the model reads it
QUEUE = RAM_SIZE - SCRATCH
FIRST, LAST = MIB // PAGE, QUEUE // PAGE
ZERO = bytes(PAGE)
DIMM, DIMM_SIZE = 4 << 30, 2 * MIB
# QEMU's ACPI hardware, see its docs/specs/acpi_mem_hotplug.rst and
# acpi_pci_hotplug.rst
DIMM_SELECT, DIMM_CONTROL, DIMM_EJECT = 0xa00, 0xa14, 8
PCI_BUS, PCI_EJECT, SLOT = 0xae10, 0xae08, 7
PLUGGED = {'driver': 'virtio-rng-pci', 'id': 'plugged', 'addr': f'{SLOT}'}


def plug_memory(guest: Machine, n: int = 0, size: int = DIMM_SIZE, **kwargs
                ) -> None:
    """DIMM @n, of zeros; @kwargs: more properties of it."""
    # QEMU 10.0 gives a memfd backend the file of an earlier one of its name
    guest.qmp('object-add', **{'qom-type': 'memory-backend-ram',
                               'id': f'more{n}', 'size': size})
    guest.qmp('device_add', driver='pc-dimm', id=f'dimm{n}', memdev=f'more{n}',
              **kwargs)


def unplug_memory(guest: Machine, n: int = 0, qtest: Qtest | None = None
                  ) -> None:
    """
    What is in slot @n, as a guest does it.  QEMU frees it later, in another
    thread, though it has no name any more.
    """
    qtest = qtest or guest.qtest
    qtest.out('l', DIMM_SELECT, n)
    qtest.out('b', DIMM_CONTROL, DIMM_EJECT)
    guest.qmp('object-del', id=f'more{n}')


def nr_blocks(guest: Machine) -> int:
    """A measure of the number of RAM blocks, with those that lost their name."""
    return len(guest.hmp('info ramblock').splitlines())


def steps(full: int, short: int) -> int:
    """RAM_RESET_STEPS walks as far as it says."""
    return int(os.environ.get('RAM_RESET_STEPS', rounds(full, short)))


@dataclass(frozen=True)
class Saved:
    """The model's knowledge of a snapshot."""

    kind: str
    machine: int            # which DIMM is plugged, 0: none
    pages: tuple[bytes, ...]
    dimm: int               # the byte that fills it
    disk: int               # and that of the disk


class Walker(QtestMachine):
    """A machine with a balloon and a place for a DIMM and a device."""

    SNAPSHOTS = 64

    def __init__(self, workdir: Path, rng: random.Random, options: str = ''):
        self._balloon = Balloon(QUEUE)
        super().__init__(
            workdir, ram=RAM_SIZE, memory='shared', strategy='auto',
            options=',rewind=on' + options,
            args=('-m', 'slots=1,maxmem=1G', *self._balloon.args))
        self._rng = rng
        self._saved: dict[str, Saved] = {}
        self._dimms = self._machine = 0
        self._dimm = self._disk = 0
        self.counts: Counter[str] = Counter()
        image = self.ram_image()
        self._pages = [image[at:at + PAGE] for at in range(0, self.ram, PAGE)]

    def step(self) -> None:
        # a DIMM goes soon, and what only it can be loaded with
        kinds = {self._write: 26, self._write_disk: 4, self._discard: 4,
                 self._save: 20, self._load: 38, self._plug_device: 1,
                 self._delete: 20 if self._useless() else 5,
                 self._plug_memory: 5 if self._machine else 1}
        kind, = self._rng.choices(list(kinds), list(kinds.values()))
        kind()
        self.counts[kind.__name__.lstrip('_')] += 1

    def _check(self) -> None:
        assert_same_ram(self.ram_image(), b''.join(self._pages))
        if self._machine:
            file = self.workdir / 'dimm'
            self.qmp('pmemsave', val=DIMM, size=DIMM_SIZE, filename=str(file))
            assert file.read_bytes() == bytes([self._dimm]) * DIMM_SIZE

    def _check_disk(self) -> None:
        assert disk_io(self, DISK, f'read -P {self._disk} 0 64k')
        os.truncate(self.workdir / 'qemu.log', 0)

    def _somewhere(self) -> tuple[int, int]:
        count = 1 << self._rng.randrange(8)
        return self._rng.randrange(FIRST, LAST - count), count

    def _write(self) -> None:
        for _ in range(self._rng.randrange(1, 4)):
            first, count = self._somewhere()
            if self._rng.random() < 0.3:
                data = self._rng.randbytes(16)
                at = self._rng.randrange(PAGE - len(data))
                self.qtest.write(first * PAGE + at, data)
                page = self._pages[first]
                self._pages[first] = page[:at] + data + page[at + len(data):]
                continue
            byte = self._rng.choice((0, self._rng.randrange(256)))
            self.qtest.ask(f'memset {first * PAGE:#x} {count * PAGE:#x} {byte}')
            self._pages[first:first + count] = [bytes([byte]) * PAGE] * count
        if self._machine:
            self._dimm = self._rng.randrange(256)
            self.qtest.ask(f'memset {DIMM:#x} {DIMM_SIZE:#x} {self._dimm}')

    def _write_disk(self) -> None:
        self._disk = self._rng.randrange(256)
        assert disk_io(self, DISK, f'write -P {self._disk} 0 64k')

    def _discard(self) -> None:
        """By the balloon, of which the guest then has less."""
        first, count = self._somewhere()
        self._balloon.inflate(self.qtest, [
            page * PAGE for page in range(first, first + count)])
        self._pages[first:first + count] = [ZERO] * count
        queue = self.ram_image()[QUEUE:]
        self._pages[QUEUE // PAGE:] = [
            queue[at:at + PAGE] for at in range(0, len(queue), PAGE)]
        self._check()

    def _may_be_in_memory(self) -> bool:
        """The copy that those in memory need is of one machine."""
        return all(s.machine == self._machine for s in self._saved.values()
                   if s.kind == 'memory')

    def _save(self) -> None:
        tag = f't{self._rng.randrange(self.SNAPSHOTS)}'
        kind = self._rng.choice(('memory', 'image'))
        self.qmp('qom-set', path='/objects/rr0', property='save-kind',
                 value=kind)
        try:
            self.save(tag)
        except MachineError as error:
            # of those in memory there may be too many, and nothing is lost
            assert kind == 'memory'
            assert 'rewind-limit' in str(error) or \
                not self._may_be_in_memory(), error
            self.counts[f'refused save: {kind}'] += 1
            self._check()
            return
        self.counts[f'overwrite: {tag in self._saved}'] += 1
        self._saved[tag] = Saved(kind, self._machine, tuple(self._pages),
                                 self._dimm, self._disk)

    def _fits(self, saved: Saved) -> bool:
        if saved.kind == 'memory':
            return saved.machine == self._machine
        return bool(saved.machine) == bool(self._machine)

    def _load(self) -> None:
        if not self._saved:
            return
        tag = self._rng.choice(list(self._saved))
        saved = self._saved[tag]
        how = self._rng.choice(('hmp', 'qmp'))
        if not self._fits(saved):
            with pytest.raises(MachineError):
                self.load(tag, how)
            self.counts['refused load'] += 1
            self._check()
            return
        self.load(tag, how)
        self._pages = list(saved.pages)
        self._dimm, self._disk = saved.dimm, saved.disk
        self._check()
        self._check_disk()
        last = self.last_load()
        self.counts['rewound' if last['rewound'] else
                    last['blocker-info']['id']] += 1

    def _useless(self) -> list[str]:
        """In memory, and of a DIMM that is gone."""
        return [tag for tag, saved in self._saved.items()
                if saved.kind == 'memory' and
                saved.machine not in (0, self._machine)]

    def _delete(self) -> None:
        if self._saved:
            tag = self._rng.choice(self._useless() or list(self._saved))
            self.hmp(f'delvm {tag}')
            del self._saved[tag]

    def _plug_device(self) -> None:
        """And unplug it."""
        self.qmp('device_add', **PLUGGED)
        if self._rng.random() < 0.5:
            self._check()
        self.qmp('device_del', id='plugged')
        self.qtest.out('l', PCI_BUS, 0)
        self.qtest.out('l', PCI_EJECT, 1 << SLOT)
        self.event('DEVICE_DELETED')

    def _plug_memory(self) -> None:
        """It comes, or goes."""
        if self._machine:
            unplug_memory(self)
            self._machine = 0
            return
        plug_memory(self)
        self._dimms += 1
        self._machine, self._dimm = self._dimms, 0

    def check_all(self) -> None:
        """There are those of the model, and no others."""
        images = {n['node-name']: n['image']
                  for n in self.qmp('query-named-block-nodes')}
        found = images[DISK].get('snapshots', ())
        assert {s['name'] for s in found} == set(self._saved)
        assert {s['name'] for s in found if not s['vm-state-size']} == {
            tag for tag, s in self._saved.items() if s.kind == 'memory'}
        for tag, saved in self._saved.items():
            if self._fits(saved):
                self.load(tag)
                self._pages = list(saved.pages)
                self._dimm, self._disk = saved.dimm, saved.disk
                self._check()
                self._check_disk()
