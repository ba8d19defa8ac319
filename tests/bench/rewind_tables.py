# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables and a plot of rewind.py's measurements."""

import functools
import statistics
from typing import Any

import plots
import report
from report import Table, figure, number

WAYS = ('stock', 'new', 'started', 'rewind')
SCENE = ('accel', 'memory', 'ram', 'stored', 'pages', 'same')
COLUMNS = ('memory', 'stored, MiB', 'pages', 'which')
FEW = 100


def of(data: list[dict], table: str) -> list[dict]:
    return [row for row in data if row['table'] == table]


def scenes(rows: list[dict]) -> dict[tuple, dict[str, dict]]:
    """{scene: {what: row}}"""
    found: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        key = tuple(row[name] for name in SCENE)
        found.setdefault(key, {})[row['what']] = row
    return found


def median(row: dict, what: str) -> float:
    return statistics.median(row['samples'][what])


def which(same: bool) -> str:
    return 'same' if same else 'random'


def grid_tables(data: list[dict]) -> list[Table]:
    cells = scenes(of(data, 'grid'))
    found = []
    for what, title in (('total', 'Load and writing again'),
                        ('load', 'Load'), ('touch', 'Writing again')):
        rows = []
        for (_, memory, _, stored, pages, same), ways in cells.items():
            row = [memory, stored, pages, which(same),
                   *(figure(ways[w]['samples'][what]) for w in WAYS)]
            if what == 'total':
                own = median(ways['rewind'], what)
                row += [f'{median(ways[w], what) / own:.1f}'
                        for w in WAYS if w != 'rewind']
            rows.append(row)
        ratios = [f'{w} / rewind' for w in WAYS if w != 'rewind'] \
            if what == 'total' else []
        ram = ', '.join(sorted({f'{key[2]} MiB' for key in cells}))
        found.append(Table(f'{title}, in ms; RAM of {ram}, KVM',
                           (*COLUMNS, *WAYS, *ratios), rows))
    return found


def size_table(data: list[dict]) -> Table:
    rows = []
    for accel in ('kvm', 'tcg', 'qtest'):
        mine = [r for r in of(data, 'size') if r['accel'] == accel]
        if not mine:
            continue
        small, large = sorted((r for r in mine if r['what'] == 'rewind'),
                              key=lambda r: r['ram'])
        stock, = (r for r in mine if r['what'] == 'stock')
        load = [median(r, 'load') for r in (small, large, stock)]
        rows.append((accel, f"{large['ram']} / {large['stored']}",
                     small['pages'],
                     *(figure(r['samples']['load'])
                       for r in (small, large, stock)),
                     f'{load[1] / load[0]:.2f}', f'{load[2] / load[1]:.0f}'))
    return Table('A large guest against a small one of 24 MiB: load, in ms', (
        'accel', 'RAM / stored, MiB', 'pages', 'small', 'large',
        'large, stock', 'large / small', 'stock / rewind'), rows)


def slope_tables(data: list[dict]) -> list[Table]:
    mine = of(data, 'slope')
    few = [r for r in mine if r['pages'] == FEW]
    many = [r for r in mine if r['pages'] != FEW]
    what = 'phase ram-reset'
    by_pages, by_size = [], []
    for row in many:
        base, = (r for r in few if r['ram'] == row['ram'])
        more = row['pages'] - FEW
        by_pages.append((row['ram'], row['pages'], which(row['same']),
                         figure(row['samples'][what]), *(
                             f'{(median(row, w) - median(base, w)) / more * 1e3:.2f}'
                             for w in (what, 'load'))))
    few.sort(key=lambda r: r['ram'])
    for row in few:
        by_size.append((row['ram'], figure(row['samples'][what]),
                        figure(row['samples']['load'])))
    notes = []
    if len(few) > 1:
        gib = (few[-1]['ram'] - few[0]['ram']) / 1024
        rise = (median(few[-1], what) - median(few[0], what)) / gib
        notes.append(f'From the first to the last {rise:.3f} ms for each GiB '
                     'of RAM.')
    return [Table('What a dirty page costs with one thread, beyond a load '
                  f'with {FEW} of them (KVM, shared, 16 MiB stored)',
                  ('RAM, MiB', 'pages', 'which', 'RAM reset, ms',
                   'RAM reset, us per page', 'load, us per page'), by_pages),
            Table(f'What RAM costs of which {FEW} pages are dirty, with one '
                  'thread', ('RAM, MiB', 'RAM reset, ms', 'load, ms'),
                  by_size, notes)]


def speed_table(data: list[dict]) -> Table:
    rows = []
    for row in of(data, 'speed'):
        pair = row['found']['stock'], row['found']['rewind']
        rows.append((row['accel'], row['memory'], row['pages'], *(
            number(way[key]) for key in ('first', 'again') for way in pair)))
    return Table('Writing a word to each of some pages, after a load, in ns '
                 'per page', (
                     'accel', 'memory', 'pages', 'first time, stock',
                     'first time, rewind', 'again, stock', 'again, rewind'),
                 rows)


def repeat_table(data: list[dict]) -> Table:
    columns = ('per second', 'anonymous', 'shared', 'threads', 'mappings',
               'descriptors')
    return Table('One process, load after load (256 MiB, 16 stored, 100 pages '
                 'dirty)', (
                     'accel', 'loads', 'iterations a second since the line '
                     'above', 'RSS anonymous, KiB', 'RSS shared, KiB',
                     'threads', 'mappings', 'descriptors'),
                 [(row['accel'], row['loads'], *(number(row[c]) if
                   c == 'per second' else row[c] for c in columns))
                  for row in of(data, 'repeat')])


def save_table(data: list[dict]) -> Table:
    return Table('savevm of an empty guest on shared memory', (
        'RAM, MiB', 'QEMU', 'savevm, s', 'RSS grown, MiB'),
        [(row['ram'], row['what'], figure(row['samples']['save']),
          figure(row['samples']['grown'])) for row in of(data, 'save')])


def tables(data: list[dict]) -> list[Table]:
    found = [*(grid_tables(data) if of(data, 'grid') else ()),
             size_table(data),
             *(slope_tables(data) if of(data, 'slope') else ()),
             speed_table(data), repeat_table(data), save_table(data)]
    return [table for table in found if table.rows]


def lines(data: list[dict], memory: str) -> dict[str, dict[str, list]]:
    """{panel: {way: [(pages, total)]}}"""
    found: dict[str, dict[str, list]] = {}
    for key, ways in scenes(of(data, 'grid')).items():
        _, kind, _, stored, pages, same = key
        if kind != memory:
            continue
        panel = found.setdefault(f'{stored} MiB, {which(same)}', {})
        for name in WAYS:
            panel.setdefault(name, []).append(
                (pages, median(ways[name], 'total')))
    return found


def draw(found: dict[str, dict[str, list]], figure: Any) -> None:
    figure.set_size_inches(2.1 * len(found) + 1.5, 3.6)
    axes = plots.panels(figure, list(found), 'pages written',
                        'load and writing again, ms')
    for ax, panel in zip(axes, found.values()):
        for i, (name, points) in enumerate(panel.items()):
            ax.plot(*zip(*points), marker='o', color=f'C{i}', label=name,
                    linestyle='-' if name == 'rewind' else '--')
        ax.set(xscale='log', yscale='log')
        plots.plain_numbers(ax.xaxis, [x for x, _ in
                                       next(iter(panel.values()))])
    values = [y for panel in found.values() for points in panel.values()
              for _, y in points]
    ticks = [m * 10 ** e for e in range(5) for m in (1, 2, 5)]
    plots.plain_numbers(axes[0].yaxis, [
        t for t in ticks if min(values) / 1.5 <= t <= max(values) * 1.5])
    plots.legend_below(figure, axes[0])


def pictures(data: list[dict]) -> list[report.Plot]:
    memories = dict.fromkeys(row['memory'] for row in of(data, 'grid'))
    return [(f'rewind-{memory}.svg',
             functools.partial(draw, lines(data, memory)))
            for memory in memories]
