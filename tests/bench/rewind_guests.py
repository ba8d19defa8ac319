# SPDX-License-Identifier: GPL-2.0-or-later
"""Ways to load a guest, which take turns in rewind.py."""

import itertools
import math
import os
import random
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lib import products
from lib.dma import QtestMachine
from lib.guests import PAGE, Ring3
from lib.machine import MIB, RAM, Machine, MachineError
from lib.shm import SHM
from loadvm_guests import LOW_LIMIT, NICE, TAG, Disk, fill, no_thp

START = Ring3.FIRST_FREE
PATIENCE = 60.0
CALIBRATION = 0.3


@dataclass(frozen=True)
class Scene:
    """@ram and @stored in MiB; @pages are written between two loads."""

    accel: str
    memory: str
    ram: int
    stored: int
    pages: int
    same: bool = True

    def __str__(self) -> str:
        return (f'{self.accel} {self.memory} {self.ram}M '
                f'stored={self.stored} pages={self.pages} '
                + ('same' if self.same else 'random'))

    @property
    def room(self) -> int:
        """Pages of which some are written: what is stored, and what is zero"""
        return (min(self.ram * MIB, LOW_LIMIT) - START) // PAGE

    def step(self, turn: int) -> int:
        """Distance of one page written to the next, modulo room."""
        rng = random.Random(0 if self.same else turn)
        while True:
            step = rng.randrange(self.room // 5, self.room)
            if math.gcd(step, self.room) == 1:
                return step


def give_way(machine: Machine) -> None:
    """As Guest does it, and for the same reason."""
    for cpu in machine.qmp('query-cpus-fast'):
        os.setpriority(os.PRIO_PROCESS, cpu['thread-id'], NICE)


def hertz(machine: Machine) -> float:
    """The guest's ticks in a second of the host's clock."""
    def now() -> tuple[float, int]:
        before = time.perf_counter()
        ticks = int(machine.ask('ticks'), 16)
        return (before + time.perf_counter()) / 2, ticks
    now()
    begin, first = now()
    time.sleep(CALIBRATION)
    end, last = now()
    return (last - first) / (end - begin)


def touch(machine: Machine, scene: Scene, turn: int) -> int:
    """Write; how many ticks that has taken in the guest."""
    return int(machine.ask('touch', START, scene.room, scene.pages,
                           scene.step(turn)), 16)


def times(load: float, ticks: int, frequency: float) -> dict[str, float]:
    """In ms."""
    touch = ticks / frequency * 1e3
    return {'load': load * 1e3, 'touch': touch, 'total': load * 1e3 + touch}


class Driven(QtestMachine):
    """Nobody but we writes to this one's memory."""

    def ask(self, command: str, *numbers: int) -> str:
        """As a guest does it that takes no time."""
        if command == 'fill':
            start, size, _ = numbers
            # each page another, so that none is like its neighbour
            for at in range(start, start + size, MIB):
                byte = at >> 20 & 0x7f | 1
                self.qtest.ask(f'memset {at:#x} {MIB:#x} {byte}')
        else:
            start, room, count, step = numbers
            at = (start + i * step % room * PAGE for i in range(count))
            self.qtest.ask_all([f'writeb {a:#x} 0x77' for a in at])
        return '0'


class InProcess:
    """loadvm in a QEMU that stays."""

    WARM_UPS = sys.maxsize

    def __init__(self, name: str, work: Path, scene: Scene, disk: Path | None,
                 qemu: Path, strategy: str = 'stock', options: str = ''):
        self.name = name
        self.scene = scene
        work.mkdir()
        if disk:
            shutil.copy(disk, work / 'disk.qcow2')
        common = {'ram': scene.ram * MIB, 'qemu': qemu, 'strategy': strategy,
                  'options': options, 'loadvm': TAG if disk else '',
                  'memory': 'shared' if scene.memory == 'shared'
                  else 'private'}
        with no_thp(scene.memory == '4k'):
            if scene.accel == 'qtest':
                self.machine: Machine = Driven(work, **common)
            else:
                self.machine = Ring3(work, accel=scene.accel, **common)
        try:
            give_way(self.machine)
            if not disk:
                fill(self.machine, scene.stored)
                self.machine.save(TAG)
            self.hertz = 1.0 if scene.accel == 'qtest' \
                else hertz(self.machine)
            self.machine.stop()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.machine.close()

    def cycle(self, turn: int) -> dict[str, float]:
        """The time of a load, and of writing after it, in ms."""
        scene, machine = self.scene, self.machine
        machine.cont()
        before = time.perf_counter()
        machine.load(TAG)
        load = time.perf_counter() - before
        found = times(load, touch(machine, scene, turn), self.hertz)
        machine.stop()
        if self.name.startswith('rewind'):
            found |= self._details()
        return found

    def _details(self) -> dict[str, float]:
        last = self.machine.last_load()
        if not last['rewound']:
            raise MachineError(f'{self.scene}: a full load, since '
                               f'{last.get("blocker")}')
        block, = (b for b in last['blocks'] if RAM in b['name'])
        return {'dirty': block['dirty-pages'],
                **{f'phase {name}': ns / 1e6
                   for name, ns in last['phases'].items()}}


class Booted(Ring3):
    """The guest on a RAM file, of which it is not waited for @ready."""

    def __init__(self, workdir: Path, scene: Scene, image: Path, share: str,
                 qemu: Path, *args: str):
        self._image = image
        self._share = share
        Machine.__init__(self, workdir, accel=scene.accel,
                         ram=scene.ram * MIB, qemu=qemu, args=(
                             '-bios', 'qboot.rom',
                             '-kernel', products.ring3_image(), *args))
        self._pings = itertools.count(1)
        self.qmp('migrate-set-capabilities', capabilities=[
            {'capability': 'x-ignore-shared', 'state': True}])

    def wait_running(self) -> None:
        """Wait for RESUME: input that is sent to the guest before is lost."""
        deadline = time.monotonic() + PATIENCE
        while (event := self._qmp.pull_event(PATIENCE))['event'] != 'RESUME':
            if time.monotonic() > deadline:
                raise MachineError(f'the guest does not run: {event}')

    def _memory_args(self) -> list[str]:
        return ['-object', f'memory-backend-file,id={RAM},size={self.ram},'
                           f'mem-path={self._image},share={self._share}',
                '-M', f'pc,memory-backend={RAM}']


class Image:
    """
    RAM in a file of /dev/shm, which each iteration's new QEMU maps privately;
    the file of a migration has the devices' state.  No disk is taken back.
    """

    WARM_UPS = 1    # nothing is left of the one before

    def __init__(self, name: str, work: Path, scene: Scene, qemu: Path,
                 started: bool):
        self.name = name
        self.scene = scene
        self._work = work
        self._qemu = qemu
        self._image = SHM / f'ram-reset-bench-{os.getpid()}-{name}'
        self._state = work / 'state'
        self._started = started
        work.mkdir()
        try:
            self._save()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._image.unlink(missing_ok=True)

    def _save(self) -> None:
        with Booted(self._work, self.scene, self._image, 'on',
                    self._qemu) as guest:
            guest.serial.wait(r'^ready 3 ', PATIENCE)
            fill(guest, self.scene.stored)
            self.hertz = hertz(guest)
            guest.qmp('migrate', uri=f'file:{self._state}')
            deadline = time.monotonic() + PATIENCE
            while (status := guest.qmp('query-migrate')['status']) != \
                    'completed':
                if status == 'failed' or time.monotonic() > deadline:
                    raise MachineError(f'the image is not saved: {status}')
                time.sleep(0.01)

    def _start(self) -> Booted:
        return Booted(self._work, self.scene, self._image, 'off', self._qemu,
                      '-incoming', 'defer')

    def cycle(self, turn: int) -> dict[str, float]:
        """As that of InProcess; a load is until the guest runs."""
        guest = self._start() if self._started else None
        before = time.perf_counter()
        guest = guest or self._start()
        try:
            guest.qmp('migrate-incoming', uri=f'file:{self._state}')
            guest.wait_running()
            load = time.perf_counter() - before
            return times(load, touch(guest, self.scene, turn), self.hertz)
        finally:
            guest.process.kill()
            guest.close()


Maker = Callable[[Path, Scene, 'Snapshots'], InProcess | Image]


class Snapshots(Disk):
    """Snapshots for each accelerator, size and content; all load a copy."""

    def __init__(self, work: Path, stock: Path):
        super().__init__(work)
        self.stock = stock

    def get(self, scene: Scene) -> Path | None:
        """None: each saves its own, since the guest has nothing to boot."""
        if scene.accel == 'qtest':
            return None
        return self.saved(scene.accel, scene.ram, scene.stored)


def stock(work: Path, scene: Scene, snapshots: Snapshots) -> InProcess:
    return InProcess('stock', work, scene, snapshots.get(scene),
                     snapshots.stock)


def rewind(work: Path, scene: Scene, snapshots: Snapshots,
           options: str = '') -> InProcess:
    return InProcess('rewind', work, scene, snapshots.get(scene),
                     products.QEMU, 'auto', f',rewind=on{options}')


def one_thread(work: Path, scene: Scene, snapshots: Snapshots) -> InProcess:
    return rewind(work, scene, snapshots, ',threads=1')


def new_qemu(work: Path, scene: Scene, snapshots: Snapshots) -> Image:
    return Image('new', work, scene, snapshots.stock, started=False)


def started_qemu(work: Path, scene: Scene, snapshots: Snapshots) -> Image:
    return Image('started', work, scene, snapshots.stock, started=True)
