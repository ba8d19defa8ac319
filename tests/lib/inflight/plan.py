# SPDX-License-Identifier: GPL-2.0-or-later
"""
Random bursts of whatever a host and a guest may do at the same time.

A plan depends on its seed alone, its results also on who is faster.  No result
is known before, but some must not be, whatever comes first: see
Flight.judge().
"""

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lib import products
from lib.dma import STATUS
from lib.inflight.guest import (BAD_DISK_ERRORS, CORRUPT, DISK_ERROR, HOST,
                                MODE, OWN, PART, PATIENCE, SANITIZER, SLOTS,
                                SPARE_SLOT, TARGET, WORLD, Craft, Finding,
                                Setup)
from lib.inflight.ops import (DIMM_CONTROL, DIMM_SELECT, EJECT, HOST_TAGS,
                              RUN_TAGS, Op, Ops)
from lib.machine import MachineError
from lib.patience import Limit, patience
from lib.snapctl_guest import LOAD, SAVE


class OwnDefect(Exception):
    """A defect of QEMU's own has ended the flight."""


@dataclass
class Known:
    """Moments that a snapshot may have."""

    hosts: set[int] = field(default_factory=set)
    passive: bool = False   # for certain


class Flight(Ops):
    """A QEMU, disturbed in bursts until the time is up."""

    def __init__(self, workdir: Path, seed: int, accel: str,
                 qemu: Path = products.QEMU, verbose: bool = False,
                 setup: Setup | None = None):
        super().__init__()
        rng = random.Random(seed)
        self.seed = seed
        self.setup = setup or Setup.draw(rng, accel)
        self.counts: Counter = Counter()
        self.errors: Counter = Counter()
        self.ops: list[Op] = []
        self._verbose = verbose
        self._everything = os.environ.get('RAM_RESET_FLIGHT') == 'everything'
        self._hosts = 0
        self._known: dict[str, Known] = {}
        self.footprints: list[dict[str, int]] = []
        self.craft = Craft(workdir, self.setup, rng, qemu)

    # Between bursts

    def say(self, text: str) -> None:
        if self._verbose:
            print(f'{time.monotonic():.3f} {text}', flush=True)

    def finish(self, op: Op) -> None:
        """Have its result."""
        if op.future:
            try:
                op.future.result(patience(PATIENCE))
            except TimeoutError as e:
                raise Finding(f'hang: {op} does not end') from e
            except (MachineError, OSError) as e:
                raise Finding(f'{op}: {e}') from e
            return
        answer = self.craft.monitor.answer(op.number)
        if 'error' in answer:
            op.error = answer['error']['desc']
        elif isinstance(answer['return'], str) and 'Error' in answer['return']:
            op.error = answer['return'].strip()
        elif op.job:
            op.error = self._conclude(op)

    def _conclude(self, op: Op) -> str:
        limit = Limit(PATIENCE)
        while True:
            job, = (j for j in self.craft.qmp('query-jobs')
                    if j['id'] == op.job)
            if job['status'] == 'concluded':
                break
            if limit.over():
                raise Finding(f'hang: {op} does not end: {job}')
            time.sleep(0.003)
        self.craft.qmp('job-dismiss', id=op.job)
        return job.get('error', '')

    def _end_migration(self) -> None:
        limit = Limit(PATIENCE)
        while True:
            status = self.craft.qmp('query-migrate').get('status', 'none')
            if status in ('none', 'completed', 'cancelled', 'failed'):
                return
            if status != 'cancelling':
                self.craft.qmp('migrate_cancel')
            if limit.over():
                raise Finding(f'hang: the migration is {status}')
            time.sleep(0.01)

    def alive(self) -> None:
        """No report, no complaint; QEMU still there."""
        log = self.craft.log()
        if OWN.search(log):
            raise OwnDefect(OWN.search(log)[0])
        found = SANITIZER.search(log) or CORRUPT.search(log)
        if found:
            raise Finding(log[max(found.start() - 300, 0):][:3500])
        if self.craft.process.poll() is not None:
            raise Finding(f'QEMU ended with {self.craft.process.returncode}: '
                          f'{log[-1500:]}')
        if self.craft.said_bad():
            text = self.craft.serial.take().decode(errors='replace')
            raise Finding(f'the guest complains: {text[-200:]!r} '
                          f'{self.craft.world()}')

    # Worlds

    def save_host(self, tag: str) -> None:
        """A world of its own, in which the guest asks for nothing."""
        self._hosts += 1
        craft = self.craft
        craft.set_word(MODE, 0)
        if self.setup.accel == 'qtest':
            craft.set_word(HOST, self._hosts)
            if not craft.own_disk.transfer(craft.qtest, True, WORLD):
                raise Finding('the disk does not write')
        else:
            self._fly()
            craft.set_word(HOST, self._hosts)
            self._fly()
            assert craft.world()['written'] == self._hosts
        self._despite_bad_disk(craft.save, tag)
        self._known[tag] = Known({self._hosts}, True)
        self.counts['saved'] += 1

    def _despite_bad_disk(self, command: Callable[[str], None],
                          tag: str) -> None:
        """Each of the disk's errors comes once, and they come to an end."""
        for _ in range(BAD_DISK_ERRORS if self.setup.disk == 'bad' else 0):
            try:
                return command(tag)
            except MachineError as e:
                if not DISK_ERROR.search(str(e)):
                    raise
        return command(tag)

    def _fly(self) -> None:
        if self.setup.accel != 'qtest' and not self.craft.wait_beats(2):
            self.alive()
            if self.craft.was_reset():      # by the host, before it was saved
                self.craft.take_off()
                return
            raise Finding(f'the guest stands still, {self.craft.status()} '
                          f'{self.craft.world()}')

    def recover(self, tag: str) -> None:
        """A good load always works, and leaves the guest in that world."""
        self.tidy()
        # disks are inactive until then; a reset may have come in between
        if self.craft.status() in ('postmigrate', 'prelaunch'):
            self._go_on()
        try:
            self._despite_bad_disk(self.craft.load, tag)
        except MachineError as e:
            raise Finding(f'no good load after all that: {e}') from e
        self.craft.cont()
        self._assert_in({min(self._known[tag].hosts)}, passive=True)
        self._fly()
        self.alive()

    def _go_on(self) -> bool:
        """False if a load has failed half way, as it may with a bad disk."""
        try:
            self.craft.cont()
        except MachineError as e:
            if self.setup.disk != 'bad' or not PART.search(str(e)):
                raise
            return False
        return True

    def tidy(self) -> None:
        """The devices that the host's snapshots have."""
        names = {d['name'] for d in self.craft.qmp(
            'qom-list', path='/machine/peripheral')}
        if 'spare' in names:
            self._eject(SPARE_SLOT)
        if 'dimm' in names:
            self.craft.qtest.out('l', DIMM_SELECT, 0)
            self.craft.qtest.out('b', DIMM_CONTROL, EJECT)
        if 'snap0' not in names:
            self.finish(self._plug_snapctl())
        objects = {o['name'] for o in self.craft.qmp('qom-list',
                                                     path='/objects')}
        if 'more' in objects:
            self.craft.qmp('object-del', id='more')

    def _assert_in(self, hosts: set[int], passive: bool) -> None:
        world = self.craft.world()
        if world['host'] not in hosts or passive and world['mode']:
            raise Finding(
                f'the guest is in world {world["host"]} with mode '
                f'{world["mode"]:#x}, but should be in {sorted(hosts)}'
                f'{" with 0" if passive else ""}')
        if self.setup.accel == 'qtest' and self.setup.disk != 'bad':
            craft = self.craft
            assert craft.own_disk.transfer(craft.qtest, False, TARGET[0])
            on_disk = int.from_bytes(craft.qtest.read(TARGET[0] + HOST, 8),
                                     'little')
            if on_disk != world['host']:
                raise Finding(f'RAM is in world {world["host"]}, the disk in '
                              f'{on_disk}')

    # A burst

    def _exclude(self, kinds: list[str]) -> list[str]:
        """
        Leave out operations that unpatched QEMU does not survive either.
        RAM_RESET_FLIGHT=everything has them all the same, and shows it.
        """
        # A save is in "save-vm" before it is refused, a load that is refused
        # leaves "restore-vm": a migration that ends then is aborted by
        # runstate_set(), and QEMU with it.
        if 'migrate' in kinds:
            kinds = [kind for kind in kinds
                     if 'load' not in kind and kind != 'save']
        # device_add waits for RCU.  If its thread has begun to wait before, a
        # guest of TCG's that takes no interrupts is not asked to get on.
        if self.setup.accel == 'tcg':
            kinds = [kind for kind in kinds if not kind.startswith('plug')]
        # A load that fails among the devices leaves a PCI bus that knows of
        # interrupts and devices that do not: the next one's reset aborts,
        # "bus->irq_count[i] == 0".  So no snapshot of other devices is made,
        # nor a guest loaded that would make one.
        if any('plug' in kind for kind in kinds):
            kinds = [kind for kind in kinds if kind not in (
                'save', 'command', 'load_other', 'load_saved')]
        if 'unplug_snapctl' in kinds:
            kinds = [kind for kind in kinds if 'load' not in kind]
        return kinds

    def burst(self, n: int) -> None:
        rng = random.Random(f'{self.seed} {n}')
        kinds = rng.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()),
                            k=rng.randrange(1, 7))
        planned, = rng.choices([None, *self.PLANNED], [
            100 - sum(self.PLANNED.values()), *self.PLANNED.values()])
        kinds = list(planned or kinds)
        self.by_jobs = rng.random() < 0.6
        if not self._everything:
            kinds = self._exclude(kinds)
        plan = [(kind, rng.choice((0, 0, rng.random() / 50)),
                 rng.getrandbits(32)) for kind in kinds]
        mode = rng.choice((0, SAVE, LOAD, SAVE | LOAD, SAVE | LOAD))
        if any('plug' in kind for kind in kinds):
            mode = 0            # see _exclude()
        mask = rng.choice((0, 0x100, 0x700, 0x1f00)) | \
            rng.choice((0, 0, 2, 8)) << 16
        again = rng.choice(HOST_TAGS)
        self.say(f'burst {n}: mode {mode} {kinds}')
        if self.setup.accel != 'qtest':
            self.craft.set_word(MODE, mode | mask)
        time.sleep(rng.random() / 20)
        before = self.craft.world()['host']
        self.ops = []
        for kind, gap, seed in plan:
            self.ops.append(getattr(self, f'do_{kind}')(random.Random(seed)))
            if gap:
                time.sleep(gap)
        for op in self.ops:
            self.finish(op)
            self.counts[op.kind] += 1
            if op.error:
                self.errors[f'{op.kind}: {op.error[:90]}'] += 1
        self._end_migration()
        self.alive()
        sure = self.judge(before, mode)
        self.say(f'  {self.craft.status()}: {", ".join(map(str, self.ops))}')
        if not sure or rng.random() < 0.2:
            self.recover(again)
        self.footprints.append(self.craft.footprint())

    def judge(self, before: int, mode: int) -> bool:
        """Find fault; whether the guest can go on without help."""
        kinds = {op.kind for op in self.ops}
        loads = [op for op in self.ops if op.kind == 'load']
        failed = [op for op in loads if op.error]
        if self.setup.disk != 'bad' and not kinds & self.MOVING:
            for op in self.ops:
                if op.error and op.tag in HOST_TAGS:
                    raise Finding(f'no reason to fail: {op}')
        for op in self.ops:
            if op.kind == 'save' and not op.error:
                self._known[op.tag] = Known()
        if failed or kinds & {'plug', 'unplug', 'reset'}:
            return False
        to = {op.tag for op in loads}
        if to and to <= set(HOST_TAGS) and 'command' not in kinds:
            self._assert_in(set().union(*(self._known[t].hosts for t in to)),
                            passive=True)
            self.counts['reverts checked'] += 1
        if len(to) == 1 and to <= set(SLOTS[:2]) and 'command' not in kinds:
            # the guest saves only while it is to ask for something
            if self.setup.accel != 'qtest' and not self.craft.world()['mode']:
                raise Finding(f'the guest\'s slot {to} has a world of the '
                              'host\'s')
            self.counts['slots checked'] += 1
        if self.setup.accel == 'qtest':
            self._assert_in(set(range(1, self._hosts + 1)), passive=True)
        # reads that fail and stop the guest would be tried again for ever
        self.craft.qtest.out('b', self.craft.noise.PORT + STATUS, 0)
        if self.craft.status() != 'running' and not self._go_on():
            return False
        self.craft.set_word(MODE, 0)
        try:
            self._fly()
        except Finding:
            if self.setup.disk == 'bad' and \
                    self.craft.status() == 'restore-vm':
                return False        # what the guest has asked for failed
            raise
        self.alive()
        return not to & set(RUN_TAGS + SLOTS)

    def grown(self) -> dict[str, int]:
        """From the first half of the time to the second, of the least."""
        half = len(self.footprints) // 2
        first, second = self.footprints[:half], self.footprints[half:]
        return {what: min(f[what] for f in second) - min(f[what] for f in first)
                for what in first[0]} if half > 20 else {}

    def run(self, until: float, most: int = 1 << 30) -> None:
        with self.craft:
            try:
                self.craft.take_off()
                for tag in HOST_TAGS:
                    self.save_host(tag)
                n = 0
                while time.monotonic() < until and n < most:
                    self.burst(n)
                    n += 1
                self.counts['bursts'] += n
            except OwnDefect as e:
                self.counts[f'ended by {e}'] += 1
            except (MachineError, Finding, OSError) as e:
                if self.craft.process.poll() is None and (
                        'hang' in str(e) or 'no answer' in str(e) or
                        'timed out' in str(e)):
                    raise Finding(f'{e} {self.craft.stacks()}') from e
                try:
                    self.alive()    # says more of it
                except OwnDefect as own:
                    self.counts[f'ended by {own}'] += 1
                    return
                raise Finding(str(e)) from e
