#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of loading a guest: the load, and using memory again after it.

Beside each strategy there is an unpatched QEMU, which is built by

    build/venv/bin/meson compile -C build stock
"""

import contextlib
import itertools
import random
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import loadvm_guests
import loadvm_tables
import standalone
from context import Context
from lib import hugepages as huge
from lib import products
from lib.hugepages import Lacking
from lib.machine import MachineError, available_memory, kvm_usable
from loadvm_guests import (AUTO, FIXED, HUGE, STRATEGIES, Cell, Guest,
                           Snapshots, Strategy)
from report import ROUNDS, Failure, Section

NAME = 'loadvm'
TITLE = 'Taking a guest back, and using its memory again'

# After them auto has learnt
WARM_UPS = 4
# A second sitting, of those within CLOSE times the best
MORE_ROUNDS, CLOSE = 8, 1.5
# Shares of free memory: for guests that are alive at once, and for hugepages
MEMORY_SHARE, POOL_SHARE = 0.8, 0.6
HUGE_RAM = 1
BASE_RAM, BASE_STORED = 4, 16
DIRTIED = (0.1, 1, 10, 50)

WHAT = (
    'A guest in ring 3 that has been taken back writes its working set, one '
    'word in each of so many percent of its pages, is taken back by loadvm, '
    'and writes the same working set again. load is the time that the client '
    'waits for the monitor command, touch that of the writing after it, as '
    'the guest measures it, and total is both. Scattered pages have equal '
    'distances but come in no order, dense ones are consecutive; all are '
    'zero in the snapshot. In a burst the guest has written to '
    f'{loadvm_guests.BURST} % of its RAM once, before the first of all loads. '
    'stock is an unpatched build of the same source.')
HOW = (
    'All strategies load the same snapshot and take turns, round by round, in '
    'another order each time: what one discards the kernel is still at work '
    'on when the next one loads. Guests wait stopped, as far as memory allows '
    f'all at once. {WARM_UPS} loads before the first round are not counted, '
    'other than after a burst: after two of them the checksum of what is '
    'stored and a sample of the working set were found as saved. The threads '
    "of the guest's processors are nice: what polls a port must not delay the "
    'monitor.')
TWICE = (
    f'Those that take at most {CLOSE} times what the fastest does, in the '
    f'load or in total, were started once more for {MORE_ROUNDS} more rounds, '
    'in reverse order: the host is noisy, and a process may be slower than '
    'another for as long as it lives. After a burst all had those rounds, '
    'without a start.')
MEMORY = '; '.join(f'{name}: {text}'
                   for name, text in loadvm_guests.MEMORIES.items())
HUGE_FILE = ('Under hugetlb, hugefile has a file on a hugetlbfs, all others '
             'a memfd.')
LEFT_OUT = (
    'Of all combinations these were left out, to end in time: RAM of other '
    f'sizes than {BASE_RAM} GiB, 256 MiB stored, and dense working sets, with '
    'more or less than 10 % dirtied; bursts with other than 1 %; under TCG 50 % '
    'dirtied and 256 MiB stored, except of 4k; '
    f'hugetlb of more than {HUGE_RAM} GiB; auto-latency '
    'and auto-footprint except with 1 and 10 % of a working set scattered '
    'over the base size.')
QUICK_LEFT_OUT = (
    'A quick run: guests of 1 GiB with 16 MiB stored and scattered working '
    'sets of 1 and 10 %; under TCG 10 % of 4k and shared only; auto-latency '
    'and auto-footprint with 10 % under KVM only.')
REPORTED = (
    "This host's kernel tells the host outside which memory is free. What was "
    'discarded may therefore be slow to be had again, which shows in the '
    'largest figures of touch.')


def cells(quick: bool) -> list[Cell]:
    """From one base what matters most, not all with all."""
    found = []
    for accel in ('kvm', 'tcg'):
        for memory in loadvm_guests.MEMORIES:
            if quick:
                few = {'kvm': (1, 10), 'tcg': (10,)}[accel]
                if accel == 'kvm' or memory in ('4k', 'shared'):
                    found += [Cell(accel, memory, 1, BASE_STORED, dirtied)
                              for dirtied in few]
                continue
            base = HUGE_RAM if memory == 'hugetlb' else BASE_RAM
            # what takes long and differs least
            less = accel == 'tcg' and memory != '4k'
            found += [Cell(accel, memory, base, BASE_STORED, dirtied)
                      for dirtied in DIRTIED if dirtied != 50 or not less]
            found.append(Cell(accel, memory, base, BASE_STORED, 10, 'dense'))
            if memory != 'hugetlb':
                found.append(Cell(accel, memory, base, BASE_STORED, 1,
                                  'burst'))
            if not less:
                found.append(Cell(accel, memory, base, 256, 10))
            if memory != 'hugetlb':
                found += [Cell(accel, memory, ram, BASE_STORED, 10)
                          for ram in (1, 8)]
    # those with the same snapshot together, and those with lent hugepages
    return sorted(found, key=lambda c: (c.memory == 'hugetlb', c.accel,
                                        c.stored, c.ram))


def chosen(cell: Cell, quick: bool) -> list[Strategy]:
    """
    auto's other objectives: a few cells will do.  If memory is short for all of
    them, neighbours do: their best strategy discards memory too.
    """
    if not has_auto():
        return [STRATEGIES['stock'], *FIXED]
    base = HUGE_RAM if quick or cell.memory == 'hugetlb' else BASE_RAM
    few = (cell.ram, cell.stored, cell.pattern) == (base, BASE_STORED,
                                                    'scattered')
    if quick:
        few = few and cell.accel == 'kvm' and cell.dirtied == 10
    rest = [FIXED[0], AUTO[0], STRATEGIES['stock']]
    if few and cell.dirtied in (1, 10):
        return [*FIXED[1:], *AUTO[1:], *rest]
    return [*rest, *FIXED[1:]]


def has_auto() -> bool:
    run = subprocess.run([products.QEMU, '-object', 'ram-reset-auto,help'],
                         capture_output=True, text=True)
    return run.returncode == 0 and 'objective' in run.stdout


class Bench:
    def __init__(self, work: Path, stock: Path, rounds: int, more: int):
        self._work = work
        self._stock = stock
        self._rounds = rounds
        self._more = more
        self.mount: Path | None = None
        self.hugepages = 0
        self.notes: dict[str, None] = {}
        (work / 'snapshots').mkdir()
        self._snapshots = Snapshots(work / 'snapshots')

    def groups(self, cell: Cell, strategies: Iterable[Strategy]
               ) -> list[list[Strategy]]:
        """Strategies whose guests fit into the host's memory together."""
        memory = available_memory() * MEMORY_SHARE
        groups: list[list[Strategy]] = []
        left = None
        for s in strategies:
            size, pages = cell.resident(s), cell.hugepages(s)
            if size > memory or pages > self.hugepages:
                self.notes[f'{cell.ram} GiB of {cell.memory} with {s.name} '
                           'was left out, as there was no memory for it.'] = None
                continue
            if not left or size > left[0] or pages > left[1]:
                left = [memory, self.hugepages]
                groups.append([])
            left[0] -= size
            left[1] -= pages
            groups[-1].append(s)
        if len(groups) > 1:
            self.notes[
                f'{cell}: too large for all at once, so these took turns: '
                + '; then '.join(', '.join(s.name for s in group)
                                 for group in groups) + '.'] = None
        return groups

    def measure(self, cell: Cell, strategies: Iterable[Strategy]
                ) -> list[dict]:
        """
        In two sittings, the second one of those where chance may decide who
        is the best: a process is slower than another by how it was started.
        """
        suitable = [s for s in strategies if s.suits(cell.memory)]
        more = self._more
        if cell.pattern == 'burst':     # what follows on it takes its time
            results = self._sitting(cell, suitable, self._rounds + more)
            more = 0
        else:
            results = self._sitting(cell, suitable, self._rounds)
        suitable = [s for s in suitable if s.name in results]
        near = close(suitable, results)
        if more and len(near) > 1:
            second = self._sitting(cell, near[::-1], more)
            for name, found in second.items():
                results[name] += found[WARM_UPS:]
        return [row(cell, s, results[s.name]) for s in suitable]

    def _sitting(self, cell: Cell, strategies: list[Strategy], rounds: int
                 ) -> dict[str, list[dict]]:
        """Results of each strategy that memory suffices for, with warm-ups."""
        found: dict[str, list[dict]] = {}
        for group in self.groups(cell, strategies):
            found |= self._race(cell, group, rounds)
        return found

    def _race(self, cell: Cell, group: list[Strategy], rounds: int
              ) -> dict[str, list[dict]]:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(
                tempfile.TemporaryDirectory(dir=self._work)))
            guests = [stack.enter_context(contextlib.closing(
                Guest(folder / s.name, cell, s, self._snapshots, self._stock,
                      self.mount))) for s in group]
            samples: dict[str, list[dict]] = {s.name: [] for s in group}
            order = random.Random(str(cell))
            for n in range(-WARM_UPS, rounds):
                # the same orders whenever this is run
                for guest in order.sample(guests, len(guests)):
                    samples[guest.strategy.name].append(
                        guest.cycle(check=-2 <= n < 0))
        return samples


def close(strategies: list[Strategy], samples: dict[str, list[dict]]
          ) -> list[Strategy]:
    """Strategies whose load, or load and touching, is near the best."""
    near = set()
    for what in ('load', 'total'):
        medians = {s.name: statistics.median(
            r[what] for r in samples[s.name][WARM_UPS:]) for s in strategies}
        near |= {name for name, median in medians.items()
                 if median <= CLOSE * min(medians.values())}
    return [s for s in strategies if s.name in near]


def row(cell: Cell, strategy: Strategy, results: list[dict]) -> dict:
    """Leave out the first of @results, which are the warm-up's."""
    counted = results[WARM_UPS:]
    texts = [key for key in ('chosen', 'reason', 'decision')
             if key in results[0]]
    figures = [key for key in results[0] if key not in texts]
    return {'accel': cell.accel, 'memory': cell.memory, 'ram': cell.ram,
            'stored': cell.stored, 'dirtied': cell.dirtied,
            'pattern': cell.pattern, 'strategy': strategy.name,
            'first': [r['total'] for r in results[:WARM_UPS]],
            'samples': {key: [r[key] for r in counted] for key in figures},
            **{key: [r[key] for r in counted] for key in texts}}


@contextlib.contextmanager
def hugepages(bench: Bench, work: Path, plan: dict[Cell, list[Strategy]]
              ) -> Iterator[None]:
    """Hugepages for all guests of a cell of @plan, or as many as there are."""
    wanted = max(sum(cell.hugepages(s) for s in strategies)
                 for cell, strategies in plan.items())
    limit = int(available_memory() * POOL_SHARE) // HUGE
    with contextlib.ExitStack() as stack:
        try:
            bench.mount = stack.enter_context(huge.mounted_below(work))
            bench.hugepages = stack.enter_context(
                huge.lent(min(wanted, limit)))
        except Lacking as e:
            bench.notes[f'No hugetlbfs could be mounted: {e}'] = None
        yield
    bench.mount, bench.hugepages = None, 0


def measure_all(ctx: Context, plan: dict[Cell, list[Strategy]], rounds: int
                ) -> tuple[list[dict], list[str]]:
    stock = ctx.stock()
    ctx.expect(len(plan))
    data: list[dict] = []
    with tempfile.TemporaryDirectory(prefix='loadvm-', dir=products.BUILD
                                     ) as folder:
        bench = Bench(Path(folder), stock, rounds,
                      0 if ctx.quick else MORE_ROUNDS)
        for lent, part in itertools.groupby(plan,
                                            lambda c: c.memory == 'hugetlb'):
            todo = {cell: plan[cell] for cell in part}
            with hugepages(bench, Path(folder), todo) if lent \
                    else contextlib.nullcontext():
                for cell, strategies in todo.items():
                    ctx.step(str(cell))
                    data += bench.measure(cell, strategies)
    return data, list(bench.notes)


def run(ctx: Context, only: str = '', names: Iterable[str] = (),
        rounds: int = ROUNDS) -> Section:
    notes = [WHAT, HOW, *(() if ctx.quick else (TWICE,)),
             f'Memory: {MEMORY}. {HUGE_FILE}',
             QUICK_LEFT_OUT if ctx.quick else LEFT_OUT]
    wanted = [cell for cell in cells(ctx.quick) if re.search(only, str(cell))]
    if not kvm_usable():
        notes.append('/dev/kvm cannot be opened, so there is nothing of KVM.')
        wanted = [cell for cell in wanted if cell.accel != 'kvm']
    if Path('/sys/module/page_reporting').exists():
        notes.append(REPORTED)
    try:
        plan = {cell: [STRATEGIES[name] for name in names]
                or chosen(cell, ctx.quick) for cell in wanted}
        data, more = measure_all(ctx, plan, rounds)
    except (products.Missing, MachineError) as e:
        raise Failure(str(e)) from e
    return Section(NAME, TITLE, data, loadvm_tables.tables(data),
                   loadvm_tables.pictures(data), notes + more)


def main() -> int:
    p = standalone.parser(__doc__, ROUNDS)
    p.add_argument('--cells', default='', metavar='REGEX',
                   help='only those that match, such as "kvm shared 1G"')
    p.add_argument('--list', action='store_true', help='show the cells')
    p.add_argument('--strategies', default='', metavar='A,B,...',
                   help=f'of {", ".join(STRATEGIES)}')
    args = p.parse_args()
    names = [name for name in args.strategies.split(',') if name]
    if set(names) - set(STRATEGIES):
        p.error(f'strategies are {", ".join(STRATEGIES)}')
    if args.list:
        print('\n'.join(map(str, cells(args.quick))))
        return 0
    return standalone.deliver('loadvm.py', args.json, lambda: run(
        standalone.context(args.quick), args.cells, names, args.rounds))


if __name__ == '__main__':
    sys.exit(main())
