#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of virsh snapshot-revert, which starts a new QEMU each time.

Beside an unpatched QEMU, which is built by

    build/venv/bin/meson compile -C build stock
"""

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import standalone
from context import Context, columns, race
from lib import products
from lib.domains import RAM_SIZE, TAG, Config, Domain
from lib.guests import PAGE
from lib.libvirtd import GENERATIONS, Libvirtd, LibvirtError, Unavailable
from lib.machine import MIB, MachineError
from report import ROUNDS, Failure, Section, Table, figure

NAME = 'libvirt'
TITLE = 'Reverting a domain of libvirt'

START = Domain.FIRST_FREE
RAM, STORED = 1024, 692
QUICK_RAM, QUICK_STORED = 256, 160
CHANGED = 1000
SAMPLE = 4 * MIB
WARM_UPS = 1
FLOOR, STOCK = 'nearly no state, stock', 'stock'
OBJECTS = ('ram-reset-auto,id=rr0', 'ram-reset-auto,id=rr0,rewind=on',
           'ram-reset-auto,id=rr0,template-dir={folder}',
           'ram-reset-auto,id=rr0,rewind=on,template-dir={folder}')

WHAT = (
    'revert is what the client waits for virsh snapshot-revert of a domain '
    'that is there already: libvirt ends its QEMU and starts another one, '
    'which loads the snapshot. load is virsh qemu-monitor-command with '
    'loadvm, which leaves QEMU in place. Both include the start of virsh. '
    f'stock is an unpatched build of the same source. "{FLOOR}" is a guest of '
    f'{RAM_SIZE // MIB} MiB that has written to nothing: what libvirt and the '
    'start of a QEMU take in any case.')
HOW = (
    f'The guest is in ring 3, under TCG, has one processor, writes {CHANGED} '
    'pages after each revert, and is suspended while others are measured. All '
    'take turns.')


@dataclass(frozen=True)
class Contender:
    name: str
    config: Config
    stored: int     # MiB


def contenders(ram: int, stored: int, stock: Path,
               objects: tuple[str, ...]) -> list[Contender]:
    found = [Contender(FLOOR, Config(qemu=stock), 0),
             Contender(STOCK, Config(ram=ram * MIB, qemu=stock), stored)]
    return found + [
        Contender(value, Config(objects=(value,), ram=ram * MIB), stored)
        for value in objects]


class Runner:
    """A domain, suspended except while it is measured."""

    def __init__(self, contender: Contender, domain: Domain):
        self.name = contender.name
        self._domain = domain
        self._stored = contender.stored * MIB
        domain.start()
        if self._stored:
            domain.ask('fill', START, self._stored, 1)
        domain.snapshot(TAG)
        domain.virsh('suspend')

    def cycle(self) -> dict[str, float]:
        """In ms."""
        found = {}
        for what, back in (('revert', self._domain.virsh_revert),
                           ('load', self._domain.load_by_hmp)):
            before = time.perf_counter()
            back(TAG)
            found[what] = (time.perf_counter() - before) * 1e3
            if what == 'revert':
                self._domain.connected()
            self._check()
        self._domain.virsh('suspend')
        return found

    def _check(self) -> None:
        """The domain runs and has the snapshot's memory, which changes then."""
        self._domain.sync()
        if self._stored:
            self._domain.ask('check-fill', START, SAMPLE, 1)
            self._domain.ask('check-fill', START + self._stored - SAMPLE,
                             SAMPLE, 1)
            self._domain.ask('tag', START, CHANGED, PAGE, 2)


def measure(generation: str, found: list[Contender], rounds: int, work: Path,
            step: Callable[[str], None]) -> list[dict[str, Any]]:
    def cycle(runner: Runner, turn: int) -> dict[str, float]:
        step(f'{generation}, round {turn}, {runner.name}')
        return runner.cycle()

    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Libvirtd(generation))
        runners = [Runner(c, stack.enter_context(
            Domain(daemon, c.config, work))) for c in found]
        samples = race(runners, cycle, rounds, WARM_UPS)
        return [{'generation': generation, 'what': c.name,
                 'ram': c.config.ram // MIB, 'stored': c.stored,
                 'samples': columns(rows)} for c, rows in zip(found, samples)]


def table(rows: list[dict[str, Any]]) -> Table:
    def median(row: dict[str, Any], what: str = 'revert') -> float:
        return statistics.median(row['samples'][what])

    cells = []
    for row in rows:
        mine = {other['what']: other for other in rows
                if other['generation'] == row['generation']}
        floor, stock = median(mine[FLOOR]), median(mine[STOCK])
        cells.append((
            row['generation'], row['what'],
            *(figure(row['samples'][what]) for what in ('revert', 'load')),
            *(('', '') if row is mine[FLOOR] else
              (f'{median(row) - floor:.0f}', f'{stock / median(row):.2f}'))))
    ram, stored = max((row['ram'], row['stored']) for row in rows)
    return Table(f'A guest of {ram} MiB, {stored} MiB of them not zero, in ms',
                 ('libvirt', 'QEMU', 'revert', 'load',
                  'revert above that of nearly no state',
                  'revert, stock / this'), cells)


def run(ctx: Context, objects: tuple[str, ...] = OBJECTS, rounds: int = 0
        ) -> Section:
    stock = ctx.stock()
    rounds = rounds or (3 if ctx.quick else ROUNDS)
    size = (QUICK_RAM, QUICK_STORED) if ctx.quick else (RAM, STORED)
    found = contenders(*size, stock, objects)
    notes, data = [WHAT, HOW], []
    ctx.expect(len(GENERATIONS) * (WARM_UPS + rounds) * len(found))
    for generation in GENERATIONS:
        with tempfile.TemporaryDirectory(prefix='libvirt-',
                                         dir=products.BUILD) as folder:
            try:
                data += measure(generation, found, rounds, Path(folder),
                                ctx.step)
            except Unavailable as e:
                notes.append(f'There is nothing of {generation}: {e}')
            except (LibvirtError, MachineError, products.Missing) as e:
                raise Failure(str(e)) from e
    if not data:
        raise Failure(notes[-1])
    return Section(NAME, TITLE, data, [table(data)], [], notes)


def main() -> int:
    p = standalone.parser(__doc__)
    p.add_argument('--object', action='append', metavar='OBJECT',
                   help='instead of ' + ' and '.join(OBJECTS)
                   + '; {folder} is one of its own')
    args = p.parse_args()
    return standalone.deliver('libvirt.py', args.json, lambda: run(
        standalone.context(args.quick), tuple(args.object or OBJECTS),
        args.rounds))


if __name__ == '__main__':
    sys.exit(main())
