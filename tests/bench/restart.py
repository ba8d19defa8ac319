#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Restarts of a QEMU that loads a snapshot into RAM on 2 MiB hugepages.

Before each start a guest has written all of its RAM.  Cells take turns:

  fresh    unlink=existing: a new file, which prealloc=on has the host fill
           with cleared hugepages
  lazy     the same without prealloc: what is left is cleared when touched
  clean    unlink=never, cleared when the QEMU before it ended
  mapped   the same with prealloc=on
  dirty    unlink=never,clear-on-exit=off: cleared at start
  killed   unlink=never after SIGKILL: cleared at start

start is the time from exec until the monitor answers, with the snapshot
loaded.  clearing is, for kept files, what query-ram-reset says (clear-ns and
the phase ram-reset); the kernel does not tell what it spends on clearing, so
for a fresh file it is by how much its start is longer than the lazy one of the
same round.  exit is the time from the signal until the process is gone, of the
run before the start.  All in ms.

Needs root to mount a hugetlbfs, and enough free hugepages (vm.nr_hugepages).
"""

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from context import turns
from lib.hugefile import BACKEND, HUGE, KEPT, LEFT_DIRTY, Still
from lib.hugepages import Lacking, mounted, pool
from lib.machine import MIB, MachineError

FILL = 64 * MIB
FIGURES = ('start', 'clearing', 'exit')


@dataclass
class Cell:
    name: str
    options: str
    prealloc: str = 'off'
    end: int = signal.SIGTERM


CELLS = (Cell('fresh', ',unlink=existing', 'on'),
         Cell('lazy', ',unlink=existing'),
         Cell('clean', KEPT), Cell('mapped', KEPT, 'on'),
         Cell('dirty', LEFT_DIRTY), Cell('killed', KEPT, end=signal.SIGKILL))


class Bench:
    def __init__(self, work, folder, mib, stored):
        self.work = work
        self.path = folder / 'ram'
        self.ram = mib * MIB
        with self.run(CELLS[0]) as guest:
            guest.fill(0, stored * MIB)
            guest.save('s')

    def run(self, cell, loadvm=''):
        backend = f'{BACKEND},prealloc={cell.prealloc}'
        return Still(self.work, self.path, ram=self.ram, options=cell.options,
                     backend=backend, loadvm=loadvm)

    def use_and_end(self, cell):
        """Leave what @cell is to start with; how long the end took, in s."""
        with self.run(cell) as guest:
            for start in range(0, self.ram, FILL):
                guest.fill(start, min(FILL, self.ram - start))
            before = time.monotonic()
            guest.process.send_signal(cell.end)
            guest.process.wait()
            return time.monotonic() - before

    def measure(self, cell):
        end = self.use_and_end(cell)
        before = time.monotonic()
        with self.run(cell, loadvm='s') as guest:
            start = time.monotonic() - before
            phases = guest.last_load()['phases']
            info = guest.info()
            guest.kill()
        if cell.name == 'clean' and info['dirty-pages']:
            sys.exit(f'restart.py: not clean: {info}')
        return {'start': start * 1e3, 'exit': end * 1e3,
                'clearing': (info['clear-ns'] + phases['ram-reset']) / 1e6,
                'ram-load': phases['ram-load'] / 1e6,
                'dirty-pages': info['dirty-pages']}


def race(bench, rounds):
    """{cell: one result a round}"""
    results = {cell.name: [] for cell in CELLS}
    for n, cell in turns(CELLS, rounds):
        print(f'\r  round {n + 1} of {rounds}', end='', file=sys.stderr)
        results[cell.name].append(bench.measure(cell))
    print(file=sys.stderr)
    for fresh, lazy in zip(results['fresh'], results['lazy']):
        fresh['ram-reset'] = fresh['clearing']
        fresh['clearing'] = fresh['start'] - lazy['start']
    return results


def report(results):
    for figure in FIGURES:
        print(f'\n{figure:<8} {"median":>9} {"min":>9} {"max":>9}  fresh/this')
        fresh = statistics.median(r[figure] for r in results['fresh'])
        for name, rounds in results.items():
            values = [r[figure] for r in rounds]
            mid = statistics.median(values)
            print(f'{name:<8} {mid:9.2f} {min(values):9.2f} {max(values):9.2f}'
                  f'  {fresh / mid:10.2f}')
    looked = statistics.median(r['ram-reset'] for r in results['fresh'])
    print(f'\nIn a fresh file, clearing includes {looked:.2f} ms in which the '
          'load looks whether\npreallocated pages are zero.')


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--size', type=int, default=2048, help='MiB of guest RAM')
    p.add_argument('--stored', type=int, default=64,
                   help='MiB of it that the snapshot has')
    p.add_argument('--rounds', type=int, default=7)
    p.add_argument('--json', help='write all results to this file')
    args = p.parse_args()
    free, needed = pool('free_hugepages'), args.size * MIB // HUGE
    if free < needed:
        sys.exit(f'restart.py: {needed} free hugepages are needed and there '
                 f'are {free}: raise vm.nr_hugepages, or take a smaller --size')
    with tempfile.TemporaryDirectory() as work:
        try:
            with mounted(Path(work) / 'huge') as folder:
                bench = Bench(Path(work), folder, args.size, args.stored)
                results = race(bench, args.rounds)
        except (Lacking, MachineError) as e:
            sys.exit(f'restart.py: {e}')
    print(f'{args.size} MiB of RAM, {args.stored} MiB in the snapshot, median '
          f'of {args.rounds} in ms')
    report(results)
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1) + '\n')


if __name__ == '__main__':
    main()
