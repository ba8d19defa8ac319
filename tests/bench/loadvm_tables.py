# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables and plots of loadvm.py's measurements."""

import functools
import statistics
from dataclasses import dataclass
from typing import Any

import plots
import report
from report import ROUNDS, Table, figure, number

FIXED = ('memset', 'madvise', 'remap', 'hugefile')
OBJECTIVES = {'auto': 'total', 'auto-latency': 'load', 'auto-footprint': 'rss'}
STRATEGIES = ('stock', *FIXED, *OBJECTIVES)
# In the order of the tables
MEMORIES = ('thp', '4k', 'shared', 'hugetlb')
SHOWN = {
    'total': 'Load and touching again, in ms',
    'load': 'Load, as its client sees it, in ms',
    'touch': 'Touching the working set again, in ms',
    'rss': 'Resident after the load, in MiB',
    'calls': 'System calls of RAM reset in a load',
}
COLUMNS = ('accel', 'memory', 'RAM, GiB', 'stored, MiB', 'dirtied, %')
CLOSE = 1.10


@dataclass(frozen=True)
class Key:
    """A cell."""

    accel: str
    memory: str
    ram: int
    stored: int
    dirtied: float
    pattern: str

    def order(self) -> tuple:
        return (self.accel, MEMORIES.index(self.memory), self.ram, self.stored,
                self.dirtied, self.pattern != 'scattered')

    def columns(self) -> tuple:
        dense = '' if self.pattern == 'scattered' else f' {self.pattern}'
        return (self.accel, self.memory, self.ram, self.stored,
                f'{self.dirtied:g}{dense}')


class Results:
    def __init__(self, data: list[dict]):
        self.cells: dict[Key, dict[str, dict]] = {}
        names = set()
        for row in data:
            key = Key(*(row[name] for name in Key.__dataclass_fields__))
            self.cells.setdefault(key, {})[row['strategy']] = row
            names.add(row['strategy'])
        self.strategies = sorted(names, key=STRATEGIES.index)
        self.keys = sorted(self.cells, key=Key.order)

    def samples(self, key: Key, strategy: str, what: str) -> list[float]:
        row = self.cells[key].get(strategy)
        return row['samples'].get(what, []) if row else []

    def median(self, key: Key, strategy: str, what: str) -> float | None:
        samples = self.samples(key, strategy, what)
        return statistics.median(samples) if samples else None

    def best_fixed(self, key: Key, what: str) -> tuple[float, str] | None:
        medians = ((self.median(key, name, what), name) for name in FIXED)
        return min((pair for pair in medians if pair[0] is not None),
                   default=None)

    def chosen(self, key: Key, strategy: str) -> str:
        """Strategies that were used, the most frequent first."""
        row = self.cells[key][strategy]
        counts = {name: row['chosen'].count(name) for name in row['chosen']}
        names = sorted(counts, key=lambda name: -counts[name])
        return ', '.join(f'{name} {counts[name]}x' if len(names) > 1 else name
                         for name in names)


def wide_table(results: Results, what: str, title: str) -> Table:
    """A row for each cell, a column for each strategy."""
    show = (lambda values: number(statistics.median(values))) \
        if what in ('rss', 'calls') else figure
    names = [name for name in results.strategies
             if any(results.samples(key, name, what) for key in results.keys)]
    rows = []
    for key in results.keys:
        found = [results.samples(key, name, what) for name in names]
        rows.append((*key.columns(), *(show(v) if v else '' for v in found)))
    return Table(title, (*COLUMNS, *names), rows)


def unmapping_table(results: Results) -> Table:
    """The phase ram-reset of those that unmap is nothing but unmapping."""
    names = [n for n in ('madvise', 'remap') if n in results.strategies]
    rows = []
    for key in results.keys:
        cells: list[str] = []
        for name in names:
            reset = results.samples(key, name, 'phase ram-reset')
            total = results.samples(key, name, 'phase total')
            share = [100 * r / t for r, t in zip(reset, total)]
            cells += [figure(reset), figure(share)] if reset else ['', '']
        if any(cells):
            rows.append((*key.columns(), *cells))
    columns = [f'{name}, {unit}' for name in names for unit in ('ms', '%')]
    return Table('How much of a load is unmapping: the phase ram-reset, and '
                 'its share of the whole load', (*COLUMNS, *columns), rows)


def burst_table(results: Results) -> Table:
    """The time that auto invests, and the time that it saves."""
    rows = []
    for key in results.keys:
        if key.pattern != 'burst':
            continue
        cells: list[str] = []
        for name in results.strategies:
            row = results.cells[key].get(name)
            if not row:
                cells.append('')
                continue
            totals = row['first'] + row['samples']['total'][:ROUNDS]
            cells.append(f'{number(sum(totals))}, at most '
                         f'{number(max(totals))}')
        rows.append((*key.columns(), *cells))
    return Table('After a burst: all loads since, those of the warm-up and '
                 f'{ROUNDS} rounds, and touching again, added up, in ms; and '
                 'the slowest of them', (*COLUMNS, *results.strategies), rows)


def choice_table(results: Results) -> Table:
    """Strategies that were used, if the object's name does not say it."""
    rows = []
    for key in results.keys:
        for name, row in results.cells[key].items():
            if 'chosen' in row and set(row['chosen']) != {name}:
                rows.append((*key.columns(), name, results.chosen(key, name),
                             row['reason'][-1]))
    return Table('What was chosen, and the reason given by the last load',
                 (*COLUMNS, 'object', 'chosen', 'reason'), rows)


@dataclass
class Comparison:
    key: Key
    own: float
    chosen: str
    best: float
    best_name: str

    @property
    def ratio(self) -> float:
        return self.own / self.best


def compare(results: Results, name: str) -> list[Comparison]:
    """The worst first."""
    what = OBJECTIVES[name]
    found = []
    for key in results.keys:
        own = results.median(key, name, what)
        best = results.best_fixed(key, what)
        if own is not None and best:
            found.append(Comparison(key, own, results.chosen(key, name),
                                    *best))
    return sorted(found, key=lambda c: -c.ratio)


def auto_tables(results: Results) -> list[Table]:
    summary, details = [], []
    for name, what in OBJECTIVES.items():
        found = compare(results, name)
        if not found:
            continue
        ratios = [c.ratio for c in found]
        close = sum(ratio <= CLOSE for ratio in ratios)
        summary.append((name, what, len(found),
                        f'{100 * close / len(found):.0f} %',
                        f'{statistics.median(ratios):.2f}',
                        f'{max(ratios):.2f}'))
        rows = [(*c.key.columns(), number(c.own), c.chosen, number(c.best),
                 c.best_name, f'{c.ratio:.2f}') for c in found]
        unit = 'MiB' if what == 'rss' else 'ms'
        details.append(Table(
            f'{name} against the best fixed strategy: {what}, worst first',
            (*COLUMNS, f'{name}, {unit}', 'chosen', f'best, {unit}',
             'best strategy', 'ratio'), rows))
    if not summary:
        return []
    return [Table(
        f'The median of auto against that of the best of {", ".join(FIXED)}',
        ('object', 'figure', 'cells', f'within {CLOSE:.2f}', 'median ratio',
         'largest ratio'), summary), *details]


def tables(data: list[dict]) -> list[Table]:
    results = Results(data)
    found = [wide_table(results, what, title) for what, title in SHOWN.items()]
    found += [unmapping_table(results), burst_table(results),
              choice_table(results),
              *auto_tables(results)]
    return [table for table in found if table.rows]


def lines(results: Results, accel: str) -> dict[str, dict[str, list]]:
    """{panel: {strategy: [(dirtied, total)]}}, of the RAM measured most."""
    found: dict[str, dict[str, list]] = {}
    least = min(key.stored for key in results.keys)
    alike = [key for key in results.keys
             if (key.accel, key.stored, key.pattern) ==
             (accel, least, 'scattered')]
    for memory in dict.fromkeys(key.memory for key in alike):
        keys = [key for key in alike if key.memory == memory]
        ram = statistics.mode(key.ram for key in keys)
        panel = found.setdefault(f'{memory}, {ram} GiB', {})
        for name in results.strategies:
            points = [(key.dirtied, results.median(key, name, 'total'))
                      for key in keys if key.ram == ram
                      and results.samples(key, name, 'total')]
            if points and name not in ('auto-latency', 'auto-footprint'):
                panel[name] = points
    return found


def draw(found: dict[str, dict[str, list]], names: list[str],
         figure: Any) -> None:
    figure.set_size_inches(2.6 * len(found) + 1.5, 3.6)
    axes = plots.panels(figure, list(found), 'dirtied, % of RAM',
                        'load and touching again, ms')
    handles = {}
    for ax, panel in zip(axes, found.values()):
        for name, points in panel.items():
            # auto lies on that which it has chosen
            handles[name], = ax.plot(
                *zip(*points), marker='o', color=f'C{names.index(name)}',
                linestyle={'stock': '--', 'auto': ':'}.get(name, '-'))
        ax.set(xscale='log', yscale='log')
        plots.plain_numbers(ax.xaxis, [x for x, _ in
                                       next(iter(panel.values()))])
    values = [y for panel in found.values() for points in panel.values()
              for _, y in points]
    ticks = [m * 10 ** e for e in range(-1, 6) for m in (1, 2, 5)]
    plots.plain_numbers(axes[0].yaxis, [
        tick for tick in ticks
        if min(values) / 1.5 <= tick <= max(values) * 1.5])
    shown = [name for name in names if name in handles]
    figure.legend([handles[name] for name in shown], shown,
                  loc='outside right center')


def pictures(data: list[dict]) -> list[report.Plot]:
    results = Results(data)
    return [(f'loadvm-{accel}.svg',
             functools.partial(draw, found, results.strategies))
            for accel in dict.fromkeys(key.accel for key in results.keys)
            if (found := lines(results, accel))]
