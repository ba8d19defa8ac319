# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of making a region zero, and of using it again afterwards."""

import statistics
from typing import Any

import native
import plots
from context import Context, turns
from lib import hugepages as huge
from lib.hugepages import Lacking
from report import ROUNDS, Section, Table, figure, number

NAME = 'region'
TITLE = 'Region reset'

KINDS = {'anonymous': 'private 4K', 'memfd': 'shared 4K (memfd)',
         'hugetlb': 'private 2M', 'hugetlb-memfd': 'shared 2M (memfd)'}
SIZES = {True: {'4k': (64,), '2m': (64,)},
         False: {'4k': (256, 448), '2m': (256,)}}
# As mem-bench names them, and whether the pages stay
WAYS = {'memset': 'memset', 'stream': 'streaming stores',
        'dirty': 'streaming, touched pages only', 'discard': 'discarded',
        'fresh': 'fresh mapping'}
KEEPING = ('memset', 'stream', 'dirty')
DISCARDING = ('discard', 'fresh')
NOTES = (
    'Before a reset the guest has written to some of the pages, and '
    'afterwards it writes one byte to each of the same pages. "All '
    'resident": the other pages are in memory as well, since they were used '
    'earlier. "Touched only": they are not, as it is when a way that '
    'discards pages was used before, again and again. Ways that clear in '
    'place keep all pages and cost the same in both.',
    'Discarded: MADV_DONTNEED of private memory, a hole punched into a memfd. '
    'Fresh mapping: anonymous memory or a new memfd, put in the place of the '
    'old. Transparent hugepages are off; percentages are of the memory\'s own '
    'pages.')
# Earlier, private 4K of 256 MiB: against memset, against streaming stores
RECORDED_CROSSING = {'discard': {'memset': 21, 'stream': 13},
                     'fresh': {'memset': 16, 'stream': 9}}

Cell = tuple[str, int]
Key = tuple[str, int, str, bool, int]


def cells(quick: bool) -> list[Cell]:
    sizes = SIZES[quick]
    return [(kind, mib) for kind in KINDS
            for mib in sizes['2m' if 'hugetlb' in kind else '4k']]


def run(ctx: Context) -> Section:
    wanted = cells(ctx.quick)
    notes = dict.fromkeys(NOTES)
    rows: list[dict] = []
    ctx.expect(len(wanted) * ROUNDS)
    # a fresh mapping lies beside the old one for a moment
    with huge.lent(max(SIZES[ctx.quick]['2m']) // huge.SIZE_MIB * 2):
        for n, (kind, mib) in turns(wanted, ROUNDS):
            ctx.step(f'{mib} MiB, {KINDS[kind]}, round {n + 1} of {ROUNDS}')
            try:
                some = native.call(ctx.build / 'mem-bench', 'region', kind,
                                   mib, n)
            except Lacking as e:
                notes[f'Left out, {mib} MiB, {KINDS[kind]}: {e}.'] = None
                continue
            rows += [{'kind': kind, 'mib': mib} | row for row in some]
    data = native.collect(rows, ('kind', 'mib', 'way', 'resident', 'percent'))
    by_key: dict[Key, dict] = {}
    for r in data:
        r['total_ms'] = [a + b for a, b in zip(r['reset_ms'], r['touch_ms'])]
        by_key[r['kind'], r['mib'], r['way'], r['resident'],
               r['percent']] = r
    measured = [c for c in wanted if any(key[:2] == c for key in by_key)]
    mib = SIZES[ctx.quick]['4k'][0]
    found = [crossings(by_key, measured), beside(by_key, mib)]
    for cell in measured:
        found += matrices(by_key, cell)
    return Section(NAME, TITLE, data, found,
                   [('region.svg', lambda f: draw(f, by_key, mib))],
                   list(notes))


def percents(by_key: dict[Key, dict]) -> list[int]:
    return sorted({key[-1] for key in by_key})


def states() -> list[tuple[str, bool]]:
    return ([(way, True) for way in WAYS]
            + [(way, False) for way in DISCARDING])


def state(way: str, resident: bool) -> str:
    if way in KEEPING:
        return 'either'
    return 'all resident' if resident else 'touched only'


def matrices(by_key: dict[Key, dict], cell: Cell) -> list[Table]:
    kind, mib = cell
    shown = percents(by_key)
    return [Table(
        f'{mib} MiB, {KINDS[kind]}, {what}: ms, median (min-max) of {ROUNDS} '
        'rounds',
        ('way', 'before', *(f'{p} % touched' for p in shown)),
        [(WAYS[way], state(way, resident),
          *(figure(by_key[kind, mib, way, resident, p][name])
            for p in shown)) for way, resident in states()])
        for name, what in (('total_ms', 'reset and touching'),
                           ('reset_ms', 'reset alone'),
                           ('touch_ms', 'touching alone'))]


def crossing(by_key: dict[Key, dict], cell: Cell, way: str, resident: bool,
             other: str) -> str:
    """From how many per cent touched on @way costs more than @other."""
    def median(w: str, r: bool, p: int) -> float:
        return statistics.median(by_key[*cell, w, r, p]['total_ms'])

    before = None
    for p in percents(by_key):
        more = median(way, resident, p) - median(other, True, p)
        if more > 0:
            if before is None:
                return '0 %'
            last, less = before
            return f'{number(last + (p - last) * less / (less - more))} %'
        before = p, more
    return 'never'


def crossings(by_key: dict[Key, dict], wanted: list[Cell]) -> Table:
    rows = []
    for cell in wanted:
        kind, mib = cell
        for resident in (True, False):
            for way in DISCARDING:
                rows.append((f'{mib} MiB, {KINDS[kind]}', WAYS[way],
                             state(way, resident),
                             *(crossing(by_key, cell, way, resident, other)
                               for other in KEEPING)))
    return Table('From how many per cent touched discarding pages costs more '
                 'than clearing in place',
                 ('memory', 'way', 'before', 'than memset', 'than streaming',
                  'than streaming the touched pages'), rows,
                 ['Reset and touching together, medians, interpolated between '
                  'the percentages that were measured. 0 %: always.'])


def reset(by_key: dict[Key, dict], kind: str, mib: int, way: str) -> list:
    return by_key[kind, mib, way, True, 0]['reset_ms']


def beside(by_key: dict[Key, dict], mib: int) -> Table:
    def here(kind: str, way: str) -> str:
        return figure(reset(by_key, kind, mib, way))

    ratios = [a / b for a, b in zip(reset(by_key, 'anonymous', mib, 'memset'),
                                    reset(by_key, 'anonymous', mib, 'fresh'))]
    rows = [('memset, ms', '2370', '20.7', here('anonymous', 'memset')),
            ('fresh mapping, private, ms', '14.6', '-',
             here('anonymous', 'fresh')),
            ('fresh mapping, memfd, ms', '-', '-', here('memfd', 'fresh')),
            ('memset to fresh mapping, private', '150-160 x', '-',
             figure(ratios) + ' x'),
            ('the same as later merged, for Windows alone, ms',
             '138 to 11', '-', '-'),
            ('MADV_DONTNEED, ms', 'one call; no figure', '-',
             here('anonymous', 'discard')),
            ('streaming stores, ms', '-', '12.3',
             here('anonymous', 'stream'))]
    for way, others in RECORDED_CROSSING.items():
        for other, percent in others.items():
            rows.append((f'{WAYS[way]} costs more than {WAYS[other]} from',
                         '-', f'{percent} %',
                         crossing(by_key, ('anonymous', mib), way, False,
                                  other)))
    return Table(f'Beside the source: {mib} MiB here, 256 MiB there',
                 ('what', 'Hyperlight #1605, on Windows',
                  'recorded earlier', 'here'), rows,
                 ['Reset alone, all of the region resident, nothing touched '
                  'afterwards; the percentages are of private memory of which '
                  'only what was touched is resident.'])


def draw(fig: Any, by_key: dict[Key, dict], mib: int) -> None:
    kinds = ('anonymous', 'memfd')
    axes = plots.panels(fig, [f'{mib} MiB, {KINDS[kind]}' for kind in kinds],
                        '% of the pages touched before and after',
                        'reset and touching, ms')
    shown = percents(by_key)
    for ax, kind in zip(axes, kinds):
        for way, resident in states():
            colour = f'C{list(WAYS).index(way)}'
            label = WAYS[way]
            if way in DISCARDING:
                label += ', ' + state(way, resident)
            ax.plot(shown, [statistics.median(
                by_key[kind, mib, way, resident, p]['total_ms'])
                for p in shown], marker='o', color=colour, label=label,
                linestyle='-' if resident else '--')
    axes[0].set_yscale('log')
    axes[0].set_ylim(bottom=0.01)
    plots.plain_numbers(axes[0].yaxis, (0.01, 0.1, 1, 10, 100, 1000))
    axes[0].set_ylim(top=2 * max(ax.dataLim.intervaly[1] for ax in axes))
    plots.legend_below(fig, axes[0])
