# SPDX-License-Identifier: GPL-2.0-or-later
"""
Two vCPUs against the host, see guest/ring3-two.c: one saves and loads by
snapctl, the other ejects, resets and reprograms devices, and the host does what
hosts do.

The choices depend on the seed alone, the results also on who is faster.  QEMU
has to stay, to answer, and to verify each load; and a load of the host's with
all devices in place has to succeed.
"""

import random
import re
import time
from collections import Counter
from pathlib import Path

from lib.inflight.guest import CORRUPT, SANITIZER, Finding
from lib.machine import DISK, MachineError
from lib.patience import Limit
from lib.two_guest import (ALL_SLOTS, PATIENCE, SNAPCTL_SLOT, VICTIMS, Setup,
                           TwoCpus)

TAGS = ('h0', 'h1', 'a', 'b')       # the host's, and the guest's slots
GOOD = 'good'                       # saved before anything is random
RECOVER = 30                        # operations, after which all is put right

# Defects of QEMU that need no save or load: the log's words, and the reason
# why it is no finding
STOCK = {
    r"Assertion `bus->irq_count\[i\] == 0' failed":
        'a load that failed among the devices, then a load or a reset',
    r'job_set_aio_context: Assertion `job->paused|child_job_change_aio_ctx':
        'a guest starts a disk with an iothread, which has a block job',
    r'Assertion `section_index < d->map|#\d+ 0x\w+ in msix_pba_mmio_read':
        'TCG: a vCPU reads a register while another moves a BAR, and gets the '
        'section that has its number in the new map (iotlb_to_section())',
}


class StockDefect(Exception):
    """A defect of STOCK."""


class Duel:
    """A QEMU, until the time is up."""

    def __init__(self, workdir: Path, seed: int, accel: str):
        rng = random.Random(seed)
        self.setup = Setup.draw(rng, accel)
        self._rng = rng
        self.counts: Counter = Counter()
        self.errors: Counter = Counter()
        self.ops: list[str] = []
        self._commands = 0, 0
        self._devices: dict[str, set[str]] = {}
        self._guest = TwoCpus(workdir, self.setup)

    def _qmp(self, command: str, **arguments) -> None:
        self._try(lambda: self._guest.qmp(command, **arguments),
                  f'{command} {arguments}')

    def _hmp(self, line: str) -> None:
        self._try(lambda: self._guest.hmp(line), line)

    def _try(self, act, name: str) -> bool:
        self.ops.append(name)
        try:
            act()
            return True
        except MachineError as e:
            if 'no answer within' in str(e) or 'does not end' in str(e):
                raise Finding(f'hang: {e}') from e
            self.alive()
            self.errors[f'{name.split()[0]}: {str(e)[-70:]}'] += 1
            return False

    def alive(self) -> None:
        log, process = self._guest.log(), self._guest.process
        if process.poll() is not None:
            log = self._guest._last_words()
        for text, why in STOCK.items():
            if re.search(text, log):
                raise StockDefect(why)
        found = SANITIZER.search(log) or CORRUPT.search(log)
        if found:
            raise Finding(log[max(found.start() - 300, 0):][:4000])
        if process.poll() is not None:
            raise Finding(f'QEMU ended with {process.returncode}: '
                          f'{log[-3000:]}')
        if b'!' in self._guest.said():
            raise Finding(f'the guest complains: {self._guest.said()!r}')

    # Actions of the host

    def _draw_tag(self, command: str) -> str:
        """To be loaded mostly one with the devices that there are."""
        now = self._guest.peripherals()
        tag = self._rng.choice(TAGS)
        if command == 'save':
            self._devices[tag] = now
        elif command == 'load' and self._rng.random() < 0.95:
            tag = self._rng.choice([
                tag for tag, devices in self._devices.items()
                if devices == now] or [tag])
        return tag

    def do_save(self) -> None:
        self._hmp(f'savevm {self._draw_tag("save")}')

    def do_load(self) -> None:
        self._hmp(f'loadvm {self._draw_tag("load")}')

    def do_delete(self) -> None:
        self._hmp(f'delvm {self._rng.choice(TAGS)}')

    def do_job(self) -> None:
        command = self._rng.choice(('save', 'load', 'delete'))
        tag = self._draw_tag(command)
        self._try(lambda: self._guest.snapshot_job(f'snapshot-{command}', tag,
                                                   DISK),
                  f'snapshot-{command} {tag}')

    def do_stop(self) -> None:
        self._qmp(self._rng.choice(('stop', 'cont', 'cont')))

    def do_reset(self) -> None:
        self._qmp('system_reset')

    def do_query(self) -> None:
        self._qmp(self._rng.choice(('query-ram-reset', 'query-snapctl',
                                    'query-jobs', 'query-pci',
                                    'query-block')))

    def do_plug(self) -> None:
        # RCU may wait for ever for a vCPU of TCG's that takes no interrupts
        tcg = self.setup.accel != 'kvm'
        if tcg:
            self._qmp('stop')
        self._qmp('device_add', **self._rng.choice(self._guest.devices))
        self._guest.set_region_word('loads', ALL_SLOTS)
        if tcg:
            self._qmp('cont')

    def do_unplug(self) -> None:
        self._guest.set_region_word('loads', ALL_SLOTS)
        self._qmp('device_del', id=f'v{self._rng.randrange(VICTIMS)}')

    def do_bitmap(self) -> None:
        command = self._rng.choice(('add', 'remove', 'remove'))
        self._qmp(f'block-dirty-bitmap-{command}', node='noise0', name='b0')

    def do_block_job(self) -> None:
        job = self._rng.choice(('job0', 'job1'))
        kind = self._rng.choice(('backup', 'mirror', 'cancel', 'cancel'))
        if kind == 'cancel':
            self._qmp('block-job-cancel', device=job, force=True)
            return
        # of noise1, which has an iothread, they would end most duels: STOCK
        self._qmp(f'blockdev-{kind}', **{
            'job-id': job, 'device': 'noise0', 'target': 'nowhere',
            'sync': 'full', 'speed': self._rng.choice((1, 1 << 20))})

    WEIGHTS = {'save': 10, 'load': 24, 'delete': 5, 'job': 8, 'stop': 10,
               'reset': 1, 'query': 8, 'plug': 14, 'unplug': 3, 'bitmap': 4,
               'block_job': 6}

    # Putting right

    def _end_jobs(self) -> None:
        guest = self._guest
        for job in guest.qmp('query-block-jobs'):
            self._qmp('block-job-cancel', device=job['device'], force=True)
        limit = Limit(PATIENCE)
        while guest.qmp('query-block-jobs'):
            if limit.over():
                raise Finding('hang: a block job does not end')
            time.sleep(0.01)
        self._qmp('block-dirty-bitmap-remove', node='noise0', name='b0')

    def _plug_missing(self) -> None:
        guest = self._guest
        there = guest.peripherals()
        for device in guest.devices:
            if device['id'] not in there:
                guest.qmp('device_add', **device)
        if 'snap0' not in there:
            guest.qmp('device_add', driver='snapctl', id='snap0', allow='both',
                      slots='a:b', memdev='region', addr=f'{SNAPCTL_SLOT:#x}')

    def recover(self) -> None:
        """All devices are there, nothing is under way: a load must succeed."""
        guest = self._guest
        # what the guest has begun may end before it is stopped
        self._qmp('stop')
        self._end_jobs()
        for last in (False, True):
            try:
                self._plug_missing()
                guest.load(GOOD)
                break
            except MachineError as e:
                self.alive()
                # a load's reset removes what is being unplugged
                if last or 'Unknown savevm section' not in str(e):
                    raise Finding(f'no good load after all that: {e}') from e
        self._go()
        self.counts['recover'] += 1

    def _go(self) -> None:
        guest = self._guest
        guest.set_region_word('loads', ALL_SLOTS)
        guest.qmp('cont')
        guest.begin()
        if not guest.wait_steps(5):
            self.alive()
            raise Finding(f'the guest stands still, {guest.status()}')
        self.alive()

    def _begin(self) -> None:
        self._guest.prepare()
        self._guest.stop()
        self._guest.save(GOOD)
        self._devices = {GOOD: self._guest.peripherals()}
        self._go()

    def _fight(self, until: float) -> None:
        kinds, weights = zip(*self.WEIGHTS.items())
        self._begin()
        while time.monotonic() < until or not self.counts['recover']:
            for _ in range(RECOVER):
                kind, = self._rng.choices(kinds, weights)
                getattr(self, f'do_{kind}')()
                self.counts[kind] += 1
                self.alive()
                time.sleep(self._rng.choice((0, 0, 0.02)))
                self._note_commands()
            self.recover()

    def run(self, until: float) -> None:
        try:
            with self._guest:
                try:
                    self._fight(until)
                finally:
                    self._count_guest()
        except StockDefect as e:
            self.counts[f'ended by {e}'] += 1
        except MachineError as e:
            try:
                self.alive()
            except StockDefect as own:
                self.counts[f'ended by {own}'] += 1
                return
            raise Finding(str(e)) from e

    def _note_commands(self) -> None:
        """The device's counts end with the device."""
        try:
            info = self._guest.info()
        except MachineError:
            return
        self._commands = tuple(map(max, self._commands,
                                   (info['saves'], info['loads'])))

    def _count_guest(self) -> None:
        self.counts['guest saves'] += self._commands[0]
        self.counts['guest loads'] += self._commands[1]
        self.counts['guest steps'] += self._guest.steps()
