# SPDX-License-Identifier: GPL-2.0-or-later
"""The context that a section is given, and turns of what it compares."""

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from report import Failure

T = TypeVar('T')


def clock(seconds: float) -> str:
    return f'{int(seconds) // 60}:{int(seconds) % 60:02}'


@dataclass
class Context:
    """Sizes, places, and whom to tell."""

    name: str
    quick: bool
    build: Path
    loads: int = 0          # that the user asks for; 0 if that is left to us
    hmp_loads: int = 0
    _total: int = 0
    _done: int = 0
    _start: float = field(default_factory=time.monotonic)

    def expect(self, cells: int) -> None:
        self._total = cells

    def step(self, cell: str) -> None:
        """Called before a cell is measured."""
        elapsed = time.monotonic() - self._start
        left = '?'
        if self._done and self._total:
            left = clock(elapsed / self._done * (self._total - self._done))
        self._done += 1
        total = self._total or '?'
        print(f'[{self._done:>{len(str(total))}}/{total}] {self.name}: {cell}, '
              f'{clock(elapsed)} elapsed, {left} to go', file=sys.stderr,
              flush=True)

    def stock(self) -> Path:
        """The unpatched QEMU."""
        path = self.build / 'stock/qemu-system-x86_64'
        if not path.exists():
            raise Failure('the unpatched QEMU is missing: build/venv/bin/meson '
                          'compile -C build stock')
        return path


def turns(cells: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Each cell once in a round; every round begins with another one."""
    for n in range(rounds):
        shift = n % len(cells)
        for cell in (*cells[shift:], *cells[:shift]):
            yield n, cell


def race(runners: Sequence[T], cycle: Callable[[T, int], dict],
         rounds: int, warm_ups: int) -> list[list[dict]]:
    """
    Returns: the measurements of each of @runners, by round.  All take turns,
    in another order each time.
    """
    order = random.Random(0)
    samples: list[list[dict]] = [[] for _ in runners]
    for turn in range(warm_ups + rounds):
        for i in order.sample(range(len(runners)), len(runners)):
            found = cycle(runners[i], turn)
            if turn >= warm_ups:
                samples[i].append(found)
    return samples


def columns(found: Sequence[dict]) -> dict[str, list]:
    """Rows that are alike, as a list for each key."""
    return {key: [row[key] for row in found] for key in found[0]}
