# SPDX-License-Identifier: GPL-2.0-or-later
"""Operations of a host, a guest and its devices, at the same time."""

import random
from concurrent.futures import Future
from dataclasses import dataclass

from lib.dma import (COMMAND, CONFIG_ADDRESS, CONFIG_DATA, IO_AND_MASTER,
                     SECTOR, STATUS)
from lib.inflight.guest import (DISK_PORT, DISK_SLOT, REGS, SLOTS,
                                SNAPCTL_SLOT, SPARE_SLOT, TARGET, Craft)
from lib.machine import DISK, MIB
from lib.snapctl_guest import LOAD, SAVE, Register

HOST_TAGS = ('h0', 'h1', 'h2')      # saved when nothing else is done
RUN_TAGS = ('r0', 'r1')             # saved in flight
# QEMU's ACPI hardware, see its docs/specs/acpi_{pci,mem}_hotplug.rst
EJECT_PCI, SELECT_BUS = 0xae08, 0xae10
DIMM_SELECT, DIMM_CONTROL, EJECT = 0xa00, 0xa14, 8


@dataclass
class Op:
    """An operation that was begun."""

    kind: str
    tag: str = ''
    number: int = 0         # of the command at the monitor
    job: str = ''
    future: Future | None = None
    error: str = ''
    says: str = ''

    def __str__(self) -> str:
        result = f' failed: {self.error}' if self.error else ''
        return f'{self.kind} {self.tag}'.rstrip() + result


class Ops:
    """Begins things without waiting for their ends: do_KIND() for each."""

    craft: Craft

    def __init__(self) -> None:
        self._jobs = 0
        self.by_jobs = False    # the host's snapshots
        self.last_saved = RUN_TAGS[0]

    def _hmp(self, kind: str, line: str, tag: str = '') -> Op:
        return Op(kind, tag, self.craft.monitor.send(
            'human-monitor-command', **{'command-line': line}))

    def _send(self, kind: str, command: str, **arguments) -> Op:
        return Op(kind, '', self.craft.monitor.send(command, **arguments))

    def _job(self, kind: str, command: str, tag: str) -> Op:
        self._jobs += 1
        job = f'f{self._jobs}'
        arguments = {'job-id': job, 'tag': tag, 'devices': [DISK]}
        if command != 'snapshot-delete':
            arguments['vmstate'] = DISK
        number = self.craft.monitor.send(command, **arguments)
        return Op(kind, tag, number, job)

    def _snapshot(self, kind: str, tag: str) -> Op:
        if self.by_jobs:
            return self._job(kind, f'snapshot-{kind}', tag)
        return self._hmp(kind, f'{kind[:3] if kind == "delete" else kind}vm '
                               f'{tag}', tag)

    def do_load(self, rng: random.Random) -> Op:
        return self._snapshot('load', rng.choice(HOST_TAGS))

    def do_load_other(self, rng: random.Random) -> Op:
        return self._snapshot('load', rng.choice(
            (*RUN_TAGS, *RUN_TAGS, *SLOTS)))

    def do_load_saved(self, rng: random.Random) -> Op:
        """Load the snapshot that was saved last, if there is any."""
        return self._snapshot('load', self.last_saved)

    def do_save(self, rng: random.Random) -> Op:
        self.last_saved = rng.choice(RUN_TAGS)
        return self._snapshot('save', self.last_saved)

    def do_delete(self, rng: random.Random) -> Op:
        return self._snapshot('delete', rng.choice((*RUN_TAGS, *SLOTS)))

    def do_stop(self, rng: random.Random) -> Op:
        return self._send('stop', 'stop')

    def do_cont(self, rng: random.Random) -> Op:
        return self._send('cont', 'cont')

    def do_ask(self, rng: random.Random) -> Op:
        return self._send('ask', rng.choice((
            'query-ram-reset', 'query-snapctl', 'query-status', 'query-jobs',
            'query-named-block-nodes', 'query-memory-devices')))

    def do_reset(self, rng: random.Random) -> Op:
        return self._send('reset', 'system_reset')

    def do_migrate(self, rng: random.Random) -> Op:
        return self._send('migrate', 'migrate', uri='exec:cat >/dev/null')

    def do_cancel(self, rng: random.Random) -> Op:
        return self._send('cancel', 'migrate_cancel')

    def do_plug_dimm(self, rng: random.Random) -> Op:
        if self.setup.strategy == 'stock':
            # a load of a machine without it leaves it, and not to be ejected
            return self.do_ask(rng)
        self.craft.monitor.send('object-add', **{
            'qom-type': 'memory-backend-ram', 'id': 'more', 'size': 16 * MIB})
        return self._send('plug', 'device_add', driver='pc-dimm', id='dimm',
                          memdev='more')

    def do_eject_dimm(self, rng: random.Random) -> Op:
        def eject() -> None:
            self.craft.qtest.out('l', DIMM_SELECT, 0)
            self.craft.qtest.out('b', DIMM_CONTROL, EJECT)
        return Op('unplug', 'dimm', future=self.craft.later(eject))

    def do_plug_disk(self, rng: random.Random) -> Op:
        return self._send('plug', 'device_add', driver='virtio-blk-pci',
                          id='spare', addr=str(SPARE_SLOT), drive='noise',
                          **{'share-rw': True})

    def do_unplug_disk(self, rng: random.Random) -> Op:
        return Op('unplug', 'spare',
                  future=self.craft.later(self._eject, SPARE_SLOT))

    def _eject(self, slot: int) -> None:
        self.craft.qtest.out('l', SELECT_BUS, 0)
        self.craft.qtest.out('l', EJECT_PCI, 1 << slot)

    def do_unplug_snapctl(self, rng: random.Random) -> Op:
        return Op('unplug', 'snapctl',
                  future=self.craft.later(self._eject, SNAPCTL_SLOT))

    def do_plug_snapctl(self, rng: random.Random) -> Op:
        return self._plug_snapctl()

    def _plug_snapctl(self) -> Op:
        arguments = dict(part.split('=', 1) for part in
                         self.craft.snapctl().split(',')[1:])
        return self._send('plug', 'device_add', driver='snapctl', **arguments)

    def do_reset_disk(self, rng: random.Random) -> Op:
        return Op('reset-device', 'vd0', future=self.craft.later(
            self.craft.qtest.out, 'b', DISK_PORT + STATUS, 0))

    def do_reset_noise(self, rng: random.Random) -> Op:
        return Op('reset-device', 'noise', future=self.craft.later(
            self.craft.qtest.out, 'b', self.craft.noise.PORT + STATUS, 0))

    def do_reset_function(self, rng: random.Random) -> Op:
        """Takes the disk from the bus, and gives it back."""
        def reset() -> None:
            # the guest leaves these ports alone
            for value in (0, IO_AND_MASTER):
                self.craft.qtest.out('l', CONFIG_ADDRESS,
                                     1 << 31 | DISK_SLOT << 11 | COMMAND)
                self.craft.qtest.out('l', CONFIG_DATA, value)
        return Op('reset-device', 'function', future=self.craft.later(reset))

    def do_noise(self, rng: random.Random) -> Op:
        """Half of it fails, or all."""
        noise, (start, size) = self.craft.noise, TARGET
        count = rng.choice((8, 64, 256))
        sector = rng.choice((0, noise.BAD, noise.BAD - count // 2,
                             noise.BAD - count + 1, noise.BAD + 1))
        to = start + rng.randrange((size - count * SECTOR) // SECTOR) * SECTOR
        return Op('noise', future=self.craft.later(
            noise.start, self.craft.qtest, max(sector, 0), count, to))

    def do_scribble(self, rng: random.Random) -> Op:
        """Somebody else writes to where the noise goes."""
        start, size = TARGET
        return Op('scribble', future=self.craft.later(
            self.craft.qtest.ask,
            f'memset {start:#x} {size:#x} {rng.randrange(256)}'))

    def do_command(self, rng: random.Random) -> Op:
        """Slot c, by whoever else writes to the registers."""
        # the command is behind the slot
        command = rng.choice((SAVE, SAVE, LOAD)) << 32 | 2
        return Op('command', 'c', future=self.craft.later(
            self.craft.qtest.ask,
            f'writeq {REGS + Register.SLOT:#x} {command:#x}'))

    WEIGHTS = {'load': 26, 'load_other': 10, 'load_saved': 4, 'save': 12,
               'delete': 5, 'stop': 8, 'cont': 10, 'ask': 4,
               'reset': 2, 'migrate': 2, 'cancel': 2, 'plug_dimm': 1,
               'eject_dimm': 1, 'plug_disk': 1,
               'unplug_disk': 1, 'unplug_snapctl': 1, 'plug_snapctl': 1,
               'reset_disk': 6, 'reset_noise': 4, 'reset_function': 2,
               'noise': 14, 'scribble': 8, 'command': 5}
    # Bursts that need more luck than others; how many there are in a hundred
    PLANNED = {('load',): 20,
               ('noise', 'scribble', 'save', 'cont', 'load_saved'): 15}
    MOVING = {'plug', 'unplug', 'migrate', 'reset'}
