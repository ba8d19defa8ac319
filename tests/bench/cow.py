# SPDX-License-Identifier: GPL-2.0-or-later
"""Fork, and what the child's first write to a page costs."""

import statistics
from typing import Any

import native
import plots
from context import Context, turns
from lib import hugepages as huge
from lib.hugepages import Lacking
from report import ROUNDS, Section, Table, figure

NAME = 'cow'
TITLE = 'Copy on write with hugepages'

KINDS = {'4k': '4K pages', 'thp': 'transparent hugepages',
         'hugetlb': '2M hugetlb'}
PATTERNS = {'sparse': 'one byte per 2 MiB', 'dense': 'one byte per 4 KiB'}
SIZES = {True: (1, 32, 128), False: (1, 128, 256, 512)}
# Whole process in ms: N: (hugetlb, 4K)
SOURCE = {
    'sparse': {1: (10.3, 10.3), 128: (276.7, 200.0), 256: (563.2, 383.6),
               512: (1161, 773.3)},
    'dense': {1: (12.2, 15.1), 128: (369.3, 392.4), 256: (732.2, 784.4),
              512: (1467, 1577)},
}
# Write phase of the child in ms, earlier, with N = 512
RECORDED = {('hugetlb', 'sparse'): 171, ('4k', 'sparse'): 1.31,
            ('thp', 'sparse'): 4.1, ('hugetlb', 'dense'): 186,
            ('4k', 'dense'): 658, ('thp', 'dense'): 588}

Key = tuple[str, int, str]


def run(ctx: Context) -> Section:
    cells = [(kind, n, pattern) for n in SIZES[ctx.quick]
             for pattern in PATTERNS for kind in KINDS]
    notes: dict[str, None] = {}
    rows: list[dict] = []
    ctx.expect(len(cells) * ROUNDS)
    # the copies need as many as the parent has
    with huge.lent(2 * max(SIZES[ctx.quick])):
        for r, (kind, n, pattern) in turns(cells, ROUNDS):
            ctx.step(f'{n} x 2 MiB of {KINDS[kind]}, {PATTERNS[pattern]}, '
                     f'round {r + 1} of {ROUNDS}')
            try:
                sample, = native.call(ctx.build / 'mem-bench', 'cow', kind, n,
                                      pattern)
            except Lacking as e:
                notes[f'Left out, {n} x 2 MiB of {KINDS[kind]}: {e}.'] = None
                continue
            rows.append({'kind': kind, 'n': n, 'pattern': pattern} | sample)
    data = native.collect(rows, ('kind', 'n', 'pattern'))
    if not all(all(r['thp']) for r in data if r['kind'] == 'thp'):
        notes['The host did not give transparent hugepages for all of the '
              'memory that asked for them.'] = None
    by_cell = {(r['kind'], r['n'], r['pattern']): r for r in data}
    return Section(NAME, TITLE, data, tables(by_cell, ctx.quick),
                   [('cow.svg', lambda f: draw(f, by_cell))], list(notes))


def shown(by_cell: dict[Key, dict], name: str, key: Key) -> str:
    return figure(by_cell[key][name]) if key in by_cell else '-'


def tables(by_cell: dict[Key, dict], quick: bool) -> list[Table]:
    found = []
    for pattern, title in PATTERNS.items():
        for name, what in (('write_ms', 'write phase of the child'),
                           ('fork_ms', 'fork')):
            found.append(Table(
                f'{title}, {what}: ms, median (min-max) of {ROUNDS} rounds',
                ('N x 2 MiB', *KINDS.values()),
                [(n, *(shown(by_cell, name, (kind, n, pattern))
                       for kind in KINDS)) for n in SIZES[quick]]))
    found.append(whole(by_cell, quick))
    return found if quick else found + [recorded(by_cell)]


def whole(by_cell: dict[Key, dict], quick: bool) -> Table:
    rows = []
    for pattern, title in PATTERNS.items():
        for n in SIZES[quick]:
            source = SOURCE[pattern].get(n, ('-', '-'))
            rows.append((title, n, *source, *(
                shown(by_cell, 'whole_ms', (kind, n, pattern))
                for kind in ('hugetlb', '4k', 'thp'))))
    return Table('Whole process beside the source: ms',
                 ('writes', 'N x 2 MiB', 'source: hugetlb', 'source: 4K',
                  'here: hugetlb', 'here: 4K', 'here: transparent'), rows,
                 ['The parent maps private memory, writes a byte to each 4 '
                  'KiB, forks, waits and ends. Here it is a process forked '
                  'for the purpose, without the start of a program. The '
                  'source has means.'])


def recorded(by_cell: dict[Key, dict]) -> Table:
    return Table('Write phase with N = 512, as recorded earlier: ms',
                 ('writes', 'memory', 'recorded', 'here'),
                 [(PATTERNS[pattern], KINDS[kind], ms,
                   shown(by_cell, 'write_ms', (kind, 512, pattern)))
                  for (kind, pattern), ms in RECORDED.items()])


def draw(fig: Any, by_cell: dict[Key, dict]) -> None:
    sizes = sorted({n for _, n, _ in by_cell})
    axes = plots.panels(fig, list(PATTERNS.values()), 'N x 2 MiB',
                        'write phase of the child, ms')
    for ax, pattern in zip(axes, PATTERNS):
        for kind, title in KINDS.items():
            points = [(n, statistics.median(
                by_cell[kind, n, pattern]['write_ms']))
                for n in sizes if (kind, n, pattern) in by_cell]
            if points:
                ax.plot(*zip(*points), marker='o', label=title)
        ax.set_xscale('log')
        ax.set_yscale('log')
        plots.plain_numbers(ax.xaxis, sizes)
    plots.plain_numbers(axes[0].yaxis, (0.01, 0.1, 1, 10, 100, 1000))
    axes[0].legend()
