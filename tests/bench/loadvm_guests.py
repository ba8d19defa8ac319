# SPDX-License-Identifier: GPL-2.0-or-later
"""The guests of loadvm.py: how they are made, and one measured load of each."""

import contextlib
import ctypes
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lib import products
from lib.guests import PAGE, Ring3
from lib.hugefile import HUGE, HugeRing3
from lib.machine import MIB, RAM, Machine, MachineError

GIB = 1 << 30
TAG = 's'
SEED = 1
# QEMU puts the rest above 4 GiB; the guest reaches what lies below 8 GiB
LOW_LIMIT, HIGH_START, REACH = 3 * GIB, 4 * GIB, 8 * GIB
MAX_LOW = 3584 * MIB
# Percent of RAM
BURST = 50
# Pages that are read back after a load of the warm-up
SAMPLE = 256
# The niceness of threads of vCPUs
NICE = 19
CALIBRATION = 0.3
PR_SET_THP_DISABLE = 41
MEMORIES = {
    'thp': 'private, transparent hugepages',
    '4k': 'private, 4K pages',
    'shared': 'shared memfd, 4K pages',
    'hugetlb': 'shared, 2M hugetlb pages',
}


@dataclass(frozen=True)
class Strategy:
    name: str
    type: str
    options: str = ''

    def suits(self, memory: str) -> bool:
        return self.type != 'hugefile' or memory == 'hugetlb'


FIXED = tuple(Strategy(name, name)
              for name in ('memset', 'madvise', 'remap', 'hugefile'))
AUTO = (Strategy('auto', 'auto', ',objective=total'),
        Strategy('auto-latency', 'auto', ',objective=latency'),
        Strategy('auto-footprint', 'auto', ',objective=footprint'))
STRATEGIES = {s.name: s for s in (Strategy('stock', 'stock'), *FIXED, *AUTO)}


@dataclass(frozen=True)
class Cell:
    """
    @ram in GiB, @stored in MiB, @dirtied in percent of @ram; @pattern:
    scattered, dense, or burst: scattered, and once BURST before all loads.
    """

    accel: str
    memory: str
    ram: int
    stored: int
    dirtied: float
    pattern: str = 'scattered'

    def __str__(self) -> str:
        return (f'{self.accel} {self.memory} {self.ram}G stored={self.stored} '
                f'dirtied={self.dirtied:g}% {self.pattern}')

    @property
    def pages(self) -> int:
        return round(self.ram * GIB * self.dirtied / 100) // PAGE

    def working_set(self) -> list[tuple[int, int, int, int]]:
        """Arguments of the guest's "touch": start, pages, count, step."""
        free = free_memory(self.ram, self.stored)
        left = min(self.pages, sum(size for _, size in free) // PAGE)
        room = sum(size for _, size in free) // PAGE
        parts = []
        for start, size in free:
            pages = size // PAGE
            count = min(left, pages) if self.pattern == 'dense' \
                else round(left * pages / room)
            if count:
                parts.append((start, pages, count, self._step(pages)))
            left -= count
            room -= pages
        return parts

    def _step(self, pages: int) -> int:
        """
        Multiples of the golden ratio keep equal distances however many there
        are, and meet every page once if the step has no divisor in common.
        """
        if self.pattern == 'dense':
            return 1
        step = int(pages * 0.6180339887)
        while math.gcd(step, pages) != 1:
            step += 1
        return step

    def resident(self, strategy: Strategy) -> int:
        """An estimate of what a guest takes from the host, hugetlb aside."""
        size = 64 * MIB + self.stored * MIB
        if self.memory == 'hugetlb':
            return size
        if self.memory == 'shared' and strategy.name == 'stock':
            return size + self.ram * GIB
        unit = HUGE if self.memory == 'thp' and self.pattern == 'scattered' \
            else PAGE
        burst = self.ram * GIB * BURST // 100 if self.pattern == 'burst' else 0
        return size + min(self.ram * GIB, self.pages * unit + burst)

    def hugepages(self, strategy: Strategy) -> int:
        if self.memory != 'hugetlb':
            return 0
        # fresh memory is reserved beside the old, any strategy may be auto's
        times = 2 if strategy.type in ('remap', 'auto') else 1
        return self.ram * GIB // HUGE * times


def free_memory(ram: int, stored: int) -> list[tuple[int, int]]:
    """The part of guest RAM that is zero in the snapshot: start, size."""
    start = Ring3.FIRST_FREE + stored * MIB
    if ram * GIB <= MAX_LOW:
        return [(start, ram * GIB - start)]
    high_end = min(HIGH_START + ram * GIB - LOW_LIMIT, REACH)
    return [(start, LOW_LIMIT - start), (HIGH_START, high_end - HIGH_START)]


@contextlib.contextmanager
def no_thp(active: bool) -> Iterator[None]:
    """Processes that are started inside get no transparent hugepages."""
    libc = ctypes.CDLL(None, use_errno=True)
    if active and libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), 'PR_SET_THP_DISABLE')
    try:
        yield
    finally:
        if active:
            libc.prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0)


def fill(machine: Ring3, stored: int) -> None:
    """With @stored MiB that are not zero."""
    if stored:
        machine.ask('fill', Ring3.FIRST_FREE, stored * MIB, SEED)


class Disk:
    """
    With the last snapshot that was asked for, saved by a guest of its own:
    one at a time is enough.  All load copies.
    """

    def __init__(self, work: Path):
        self._work = work

    def saved(self, accel: str, ram: int, stored: int) -> Path:
        """@ram and @stored in MiB."""
        folder = self._work / f'{accel}-{ram}-{stored}'
        if not folder.exists():
            for other in self._work.iterdir():
                shutil.rmtree(other)
            folder.mkdir()
            with Ring3(folder, accel=accel, ram=ram * MIB) as guest:
                fill(guest, stored)
                self._look(guest, stored)
                guest.save(TAG)
        return folder / 'disk.qcow2'

    def _look(self, guest: Ring3, stored: int) -> None:
        """At what is about to be saved."""


class Snapshots(Disk):
    """
    Snapshots, one for each accelerator, size and content.  Every strategy and
    kind of memory loads a copy of the same snapshot.
    """

    def get(self, cell: Cell) -> tuple[Path, str]:
        """The disk, and the checksum of what is stored."""
        disk = self.saved(cell.accel, cell.ram * GIB // MIB, cell.stored)
        return disk, self._sum

    def _look(self, guest: Ring3, stored: int) -> None:
        self._sum = guest.checksum(Ring3.FIRST_FREE, stored * MIB)


class Guest:
    """A guest that was started with the snapshot, stopped between turns."""

    def __init__(self, work: Path, cell: Cell, strategy: Strategy,
                 snapshots: Snapshots, stock: Path, mount: Path | None):
        self.cell = cell
        self.strategy = strategy
        self._set = cell.working_set()
        disk, self._sum = snapshots.get(cell)
        work.mkdir()
        shutil.copy(disk, work / disk.name)
        self.machine = self._start(work, stock, mount)
        try:
            self._give_way()
            self._hertz = self._calibrate()
            if cell.pattern == 'burst':
                self._touch(replace(cell, dirtied=BURST,
                                    pattern='dense').working_set())
            self._touch(self._set)
            self.machine.stop()
        except BaseException:
            self.close()
            raise

    def _start(self, work: Path, stock: Path, mount: Path | None) -> Machine:
        cell, strategy = self.cell, self.strategy
        common = {'accel': cell.accel, 'ram': cell.ram * GIB, 'loadvm': TAG,
                  'strategy': strategy.type, 'options': strategy.options,
                  'qemu': stock if strategy.name == 'stock' else products.QEMU}
        if strategy.type == 'hugefile':
            return HugeRing3(work, mount / 'ram', **common)
        memory = {'thp': 'private', '4k': 'private'}.get(cell.memory,
                                                         cell.memory)
        with no_thp(cell.memory == '4k'):
            return Ring3(work, memory=memory, **common)

    def close(self) -> None:
        self.machine.close()

    def _give_way(self) -> None:
        """
        The guest polls its port.  On a host with few processors the monitor
        would have to wait for the end of its time slice.
        """
        for cpu in self.machine.qmp('query-cpus-fast'):
            os.setpriority(os.PRIO_PROCESS, cpu['thread-id'], NICE)

    def _ticks(self) -> tuple[float, int]:
        before = time.perf_counter()
        ticks = int(self.machine.ask('ticks'), 16)
        return (before + time.perf_counter()) / 2, ticks

    def _calibrate(self) -> float:
        """The guest's ticks in a second of the host's clock."""
        self._ticks()
        begin, first = self._ticks()
        time.sleep(CALIBRATION)
        end, last = self._ticks()
        return (last - first) / (end - begin)

    def _touch(self, pages: list[tuple[int, int, int, int]]) -> float:
        """Write to @pages; how long that took in the guest, in ms."""
        ticks = sum(int(self.machine.ask('touch', *part), 16)
                    for part in pages)
        return ticks / self._hertz * 1e3

    def _check(self) -> None:
        """Fail loudly unless RAM is what was saved."""
        found = self.machine.checksum(Ring3.FIRST_FREE, self.cell.stored * MIB)
        if found != self._sum:
            raise MachineError(f'{self.cell}, {self.strategy.name}: what the '
                               f'snapshot stores has the checksum {found} '
                               f'after the load and not {self._sum}')
        for start, pages, count, step in self._set:
            self.machine.ask('untouched', start, pages, min(count, SAMPLE),
                             step)

    def cycle(self, check: bool) -> dict:
        """A load and, after it, the working set once more."""
        self.machine.cont()
        before = time.perf_counter()
        self.machine.load(TAG)
        load = (time.perf_counter() - before) * 1e3
        rss = self.machine.rss() / MIB
        if check:
            self._check()
        touch = self._touch(self._set)
        self.machine.stop()
        figures = {'load': load, 'touch': touch, 'total': load + touch,
                   'rss': rss}
        if self.strategy.name != 'stock':
            figures |= self._details()
        return figures

    def _details(self) -> dict:
        last = self.machine.last_load()
        block, = (b for b in last['blocks'] if RAM in b['name'])
        if block['fallback']:
            raise MachineError(f'{self.cell}, {self.strategy.name}: fell back '
                               f'to clearing: {block["reason"]}')
        phases = {f'phase {name}': ns / 1e6
                  for name, ns in last['phases'].items()}
        return {'chosen': block.get('strategy', 'none'),
                'reason': block['reason'], 'decision': block.get('decision'),
                'calls': block['system-calls'], **phases}
