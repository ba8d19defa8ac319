#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The time of a load with more vCPUs, beside an unpatched QEMU, built by

    build/venv/bin/meson compile -C build stock
"""

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import context
import standalone
from lib import products
from lib.guests import PAGE
from lib.machine import MIB, MachineError, kvm_usable
from lib.smp import START, Smp
from report import ROUNDS, Failure, Section, Table, figure

NAME = 'vcpus'
TITLE = 'Loads with several vCPUs'
TAG = 's'
CPUS = (1, 4, 16)
LOADS, QUICK_LOADS = 20, 5
WARM_UPS = 1
PAGES = 8

WHAT = (
    'A guest of 24 MiB is loaded while it runs; the time is that of the '
    'monitor command. Of its vCPUs, all but the first wait to be started, as '
    'after a reset, or all write to memory without a pause. Each writes to '
    f'{PAGES} pages. stock is an unpatched build of the same source, rewind '
    'ram-reset-auto with rewind=on. All take turns; who does not have it is '
    'stopped.')


@dataclass(frozen=True)
class Cell:
    accel: str
    cpus: int
    busy: bool
    what: str


class Runner:
    def __init__(self, work: Path, cell: Cell, stock: Path):
        work.mkdir()
        self.cell = cell
        way = {'qemu': stock} if cell.what == 'stock' else \
            {'strategy': 'auto', 'options': ',rewind=on'}
        self._guest = Smp(work, cpus=str(cell.cpus), accel=cell.accel,
                          ram=24 * MIB, memory='shared', start=cell.busy, **way)
        try:
            if cell.busy:
                self._guest.start_all(PAGES)
            self._guest.save(TAG)
            self._guest.stop()
        except BaseException:
            self._guest.close()
            raise

    def close(self) -> None:
        self._guest.close()

    def cycle(self, loads: int) -> dict[str, float]:
        """The median of @loads, in ms."""
        guest, times = self._guest, []
        guest.cont()
        for _ in range(loads):
            if not self.cell.busy:
                guest.ask('tag', START, PAGES, PAGE, 1)
            begin = time.perf_counter()
            guest.load(TAG)
            times.append((time.perf_counter() - begin) * 1e3)
        if self.cell.what == 'rewind' and not guest.last_load()['rewound']:
            raise MachineError('the last load was a full one')
        guest.stop()
        guest.serial.take()
        return {'load': statistics.median(times)}


def cells() -> list[Cell]:
    return [Cell(accel, cpus, busy, what)
            for accel in ('kvm', 'tcg,thread=multi')
            if accel != 'kvm' or kvm_usable()
            for busy in (False, True) for cpus in CPUS
            for what in ('stock', 'rewind')]


def measure(work: Path, which: Sequence[Cell], stock: Path, rounds: int,
            loads: int) -> list[dict]:
    with contextlib.ExitStack() as stack:
        runners = [stack.enter_context(contextlib.closing(
            Runner(work / str(i), cell, stock)))
            for i, cell in enumerate(which)]
        samples = context.race(runners, lambda r, _: r.cycle(loads), rounds,
                               WARM_UPS)
    return [{**vars(cell), 'samples': context.columns(found)}
            for cell, found in zip(which, samples)]


def table(data: list[dict]) -> Table:
    rows = []
    for row in data:
        first, = (r for r in data if r['cpus'] == CPUS[0] and
                  all(r[key] == row[key] for key in ('accel', 'busy', 'what')))
        load, one = (r['samples']['load'] for r in (row, first))
        rows.append((row['accel'], 'write' if row['busy'] else 'wait',
                     row['cpus'], row['what'], figure(load),
                     f'{statistics.median(load) / statistics.median(one):.2f}'))
    return Table('Loads', ('', 'vCPUs that', 'vCPUs', '', 'load ms',
                           'of that with 1'), rows)


def run(ctx: context.Context, rounds: int = 0) -> Section:
    notes = [WHAT]
    if not kvm_usable():
        notes.append('/dev/kvm cannot be opened, so there is nothing of KVM.')
    which = cells()
    ctx.expect(1)
    ctx.step(f'{len(which)} guests')
    try:
        with tempfile.TemporaryDirectory(prefix='vcpus-', dir=products.BUILD
                                         ) as folder:
            data = measure(Path(folder), which, ctx.stock(),
                           rounds or (3 if ctx.quick else ROUNDS),
                           QUICK_LOADS if ctx.quick else LOADS)
    except (products.Missing, MachineError) as e:
        raise Failure(str(e)) from e
    return Section(NAME, TITLE, data, [table(data)], [], notes)


def main() -> int:
    args = standalone.parser(__doc__).parse_args()
    return standalone.deliver('vcpus.py', args.json, lambda: run(
        standalone.context(args.quick), args.rounds))


if __name__ == '__main__':
    sys.exit(main())
