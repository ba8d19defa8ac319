# SPDX-License-Identifier: GPL-2.0-or-later
"""Hugepages of a new file against those of a file that was kept."""

import ctypes.util
import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import native
import plots
from context import Context, turns
from lib import hugepages as huge
from lib.hugepages import Lacking
from lib.machine import MIB, available_memory
from report import ROUNDS, Failure, Section, Table, figure, number

NAME = 'reuse'
TITLE = 'Hugepage reuse'

SIZES = {True: (512,), False: (1024, 4096)}
# DPDK takes a few pages more than it is asked for
SPARE_PAGES = 16
# The share of free memory that the pool may have
SHARE = 0.6


@dataclass(frozen=True)
class Start:
    """A start of DPDK, and after it another one with the same files."""

    name: str
    options: tuple[str, ...]


STARTS = (Start('existing', ('--huge-unlink=existing',)),
          Start('always', ('--huge-unlink=always',)),
          Start('never', ('--huge-unlink=never',)),
          Start('existing, one file', ('--huge-unlink=existing',
                                       '--single-file-segments')),
          Start('never, one file', ('--huge-unlink=never',
                                    '--single-file-segments')))
# In ms: first, again
RECORDED_MIB = 4096
RECORDED = {'file': (512, 0.85), 'never': (702, 63),
            'never, one file': (631, 13.5)}


def measure_file(ctx: Context, folder: Path, mib: int) -> list[dict]:
    file = folder / 'file'
    rows = []
    for again in (False, True):
        row, = native.call(ctx.build / 'mem-bench', 'reuse', file, mib)
        if row['kept'] != (row['pages'] if again else 0):
            raise Failure(f'{row["kept"]} of {row["pages"]} pages hold what '
                          'was written before')
        total = row['map_ms'] + row['touch_ms']
        rows.append({'what': 'file', 'mib': mib, 'again': again,
                     'total_ms': total} | row)
    return rows


def measure_dpdk(ctx: Context, library: str, folder: Path, start: Start,
                 mib: int) -> list[dict]:
    core = min(os.sched_getaffinity(0))
    rows = []
    with tempfile.TemporaryDirectory(prefix='dpdk-') as runtime:
        for again in (False, True):
            row, = native.call(
                ctx.build / 'dpdk-start', library, mib, *start.options,
                f'--huge-dir={folder}', '--file-prefix=bench', '--no-pci',
                '--no-telemetry', '--iova-mode=va', '-l', core,
                RUNTIME_DIRECTORY=runtime, XDG_RUNTIME_DIR=runtime)
            total = row['init_ms'] + row['zone_ms']
            rows.append({'what': start.name, 'mib': mib, 'again': again,
                         'total_ms': total} | row)
    return rows


def measure_all(ctx: Context, folder: Path, sizes: list[int],
                library: str | None) -> tuple[list[dict], list[str]]:
    if not sizes:
        return [], []
    wanted = [(None, mib) for mib in sizes]
    if library:
        wanted += [(start, mib) for mib in sizes for start in STARTS]
    notes: dict[str, None] = {}
    rows: list[dict] = []
    ctx.expect(len(wanted) * ROUNDS)
    free = huge.pool('free_hugepages')
    # a virtual machine's host may have to provide the memory first
    measure_file(ctx, folder, max(sizes))
    for n, (start, mib) in turns(wanted, ROUNDS):
        what = f'DPDK, {start.name}' if start else 'a file'
        ctx.step(f'{mib} MiB, {what}, round {n + 1} of {ROUNDS}')
        try:
            huge.empty(folder, free)
            rows += (measure_dpdk(ctx, library, folder, start, mib) if start
                     else measure_file(ctx, folder, mib))
        except (Lacking, Failure) as e:
            notes[f'Left out, {mib} MiB, {what}, in at least one round: {e}.'
                  ] = None
    return rows, list(notes)


def run(ctx: Context) -> Section:
    library = ctypes.util.find_library('rte_eal')
    notes = [] if library else [
        'DPDK\'s own start was not measured: its library librte_eal is not '
        'installed and ./bench could not install it.']
    sizes = [mib for mib in SIZES[ctx.quick]
             if mib < available_memory() // MIB * SHARE]
    try:
        with huge.lent(max(sizes, default=0) // huge.SIZE_MIB + SPARE_PAGES) \
                as free, huge.mounted_below(ctx.build) as folder:
            fit = [mib for mib in sizes
                   if mib // huge.SIZE_MIB + SPARE_PAGES <= free]
            rows, more = measure_all(ctx, folder, fit, library)
    except Lacking as e:
        return Section(NAME, TITLE, [], notes=[
            'Not measured, because there are no hugepages or no hugetlbfs: '
            f'{e}.'])
    notes += [f'{mib} MiB were left out: the host has no hugepages for them.'
              for mib in SIZES[ctx.quick] if mib not in fit]
    data = native.collect(rows, ('what', 'mib', 'again'))
    by_cell = {(r['what'], r['mib'], r['again']): r for r in data}
    found = [files(by_cell, fit), starts(by_cell, fit), beside(by_cell, fit)]
    return Section(NAME, TITLE, data, [t for t in found if t.rows],
                   [('reuse.svg', lambda f: draw(f, by_cell, fit[-1]))]
                   if by_cell else [], notes + more)


def names(by_cell: dict) -> list[str]:
    return list(dict.fromkeys(what for what, _, _ in by_cell
                              if what != 'file'))


def files(by_cell: dict, sizes: list[int]) -> Table:
    rows = []
    for mib in sizes:
        for again in (False, True):
            if ('file', mib, again) in by_cell:
                r = by_cell['file', mib, again]
                rows.append((mib, 'kept' if again else 'new',
                             *(figure(r[name]) for name in (
                                 'map_ms', 'touch_ms', 'total_ms',
                                 'clear_ms'))))
    return Table('A file on hugetlbfs with 2M pages: ms, median (min-max) of '
                 f'{ROUNDS} rounds',
                 ('MiB', 'file', 'open and map', 'touch each page', 'both',
                  'to clear it now'), rows,
                 ['All pages of a kept file hold what was written before. '
                  'The last column is what clearing it with streaming stores '
                  'takes, which a user of kept pages has to pay if zeros are '
                  'wanted.'])


def starts(by_cell: dict, sizes: list[int]) -> Table:
    rows = []
    for mib in sizes:
        for name in names(by_cell):
            for again in (False, True):
                if (name, mib, again) in by_cell:
                    r = by_cell[name, mib, again]
                    rows.append((mib, name, 'second' if again else 'first',
                                 *(figure(r[figures]) for figures in (
                                     'init_ms', 'zone_ms', 'total_ms'))))
    return Table('DPDK\'s start, with a zone of all of the memory: ms, median '
                 f'(min-max) of {ROUNDS} rounds',
                 ('MiB', '--huge-unlink', 'start', 'rte_eal_init()',
                  'rte_memzone_reserve()', 'both'), rows,
                 ['"One file": --single-file-segments, otherwise there is a '
                  'file for each page. rte_eal_init() sleeps for 100 ms where '
                  'the CPU does not tell its clock rate.'])


def share(by_cell: dict, mib: int) -> str:
    first, again = (by_cell['file', mib, a]['total_ms'] for a in (False, True))
    return number(100 * (1 - statistics.median(again)
                         / statistics.median(first)))


def beside(by_cell: dict, sizes: list[int]) -> Table:
    def here(what: str, mib: int, name: str) -> str:
        return ', '.join(figure(by_cell[what, mib, again][name])
                         for again in (False, True))

    rows: list[tuple] = []
    for mib in sizes:
        old = mib == RECORDED_MIB
        if ('file', mib, False) in by_cell:
            rows.append((f'{mib} MiB, a file, new and again, ms',
                         '2160, 0.3 (32 GB)', recorded('file', old),
                         here('file', mib, 'total_ms')))
            rows.append((f'{mib} MiB, saved by the kept file, %', 'almost all',
                         '98, clearing' if old else '-', share(by_cell, mib)))
        for what in ('never', 'never, one file'):
            if (what, mib, False) in by_cell:
                rows.append((f'{mib} MiB, DPDK, {what}, first and second '
                             'start, ms', '-', recorded(what, old),
                             here(what, mib, 'total_ms')))
                rows.append((f'{mib} MiB, of that the zone, ms', '-', '-',
                             here(what, mib, 'zone_ms')))
    if rows:
        rows.append(('restart with 1 TB of pools, s', 'up to 15', '-', '-'))
        rows.append(('1024 calls of mmap() for 1 TB, ms', '300', '-', '-'))
    return Table('Beside the source', ('what', 'DPDK', 'recorded earlier',
                                       'here'), rows)


def recorded(what: str, same_size: bool) -> str:
    return ', '.join(map(str, RECORDED[what])) if same_size else '-'


def draw(fig: Any, by_cell: dict, mib: int) -> None:
    ax, = plots.panels(fig, [f'{TITLE}, {mib} MiB'], 'ms', '')
    whats = [w for w in ('file', *names(by_cell))
             if (w, mib, False) in by_cell]
    series = {label: [statistics.median(by_cell[w, mib, again][
        'total_ms' if w == 'file' else 'zone_ms']) for w in whats]
        for label, again in (('new, or first start', False),
                             ('again, or second start', True))}
    plots.bars(ax, ['mapped and touched' if w == 'file'
                    else f'DPDK\'s zone, {w}' for w in whats], series, number)
    ax.set_xscale('log')
    plots.plain_numbers(ax.xaxis, (0.1, 1, 10, 100, 1000))
    plots.legend_below(fig, ax)
