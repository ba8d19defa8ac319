# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of unmapping pages of 4 KiB, by batches."""

import statistics
from typing import Any

import native
import plots
from context import Context
from report import ROUNDS, Section, Table, figure, number

NAME = 'unmap'
TITLE = 'Unmap cost'

# As mem-bench names them
WAYS = {
    'munmap': 'munmap',
    'dontneed': 'MADV_DONTNEED',
    'mmap': 'mmap over it',
    'punch': 'punch hole (memfd)',
    'memfd-dontneed': 'MADV_DONTNEED (memfd)',
}
# Earlier, on the machine that the project was designed on
RECORDED = {
    'munmap': {1: 3422, 16: 480, 256: 117, 65536: 100},
    'dontneed': {1: 948, 16: 298, 256: 106, 65536: 98},
    'punch': {65536: 375},
    'memfd-dontneed': {65536: 56},
}
PAGES = {True: 8192, False: 65536}
PAGES_PER_GIB = 1 << 18


def run(ctx: Context) -> Section:
    rows: list[dict] = []
    ctx.expect(ROUNDS)
    for n in range(ROUNDS):
        ctx.step(f'round {n + 1} of {ROUNDS}')
        rows += native.call(ctx.build / 'mem-bench', 'unmap',
                            PAGES[ctx.quick], n)
    data = native.collect(rows, ('way', 'batch'))
    samples = {(r['way'], r['batch']): r['ns_per_page'] for r in data}
    batches = sorted({r['batch'] for r in data})
    return Section(NAME, TITLE, data, [costs(samples, batches, ctx.quick),
                                       beside(samples, batches)],
                   [('unmap.svg', lambda f: draw(f, samples, batches))])


def costs(samples: dict, batches: list[int], quick: bool) -> Table:
    return Table(
        f'ns per page, median (min-max) of {ROUNDS} rounds',
        ('pages in a batch', *WAYS.values()),
        [(batch, *(figure(samples[way, batch]) for way in WAYS))
         for batch in batches],
        [f'All of {PAGES[quick]} written pages, or of one batch if it is '
         'larger, are unmapped from the first to the last. "mmap over it" '
         'puts fresh private memory in the place. MADV_DONTNEED of a memfd '
         'leaves its pages in the file.'])


def beside(samples: dict, batches: list[int]) -> Table:
    rows: list[tuple] = []
    for way, figures in RECORDED.items():
        for batch, ns in figures.items():
            rows.append((f'{WAYS[way]}, batches of {batch}, ns per page', '-',
                         ns, figure(samples[way, batch])))
    one, most = batches[0], batches[-1]
    ratios = [a / b for a, b in zip(samples['munmap', one],
                                    samples['munmap', most])]
    rows.append(('all pages of a guest mapped and unmapped, paravirtual '
                 'page tables', '3.269 s, 0.756 s with the operation that '
                 'was added: 4.3 x', '-', '-'))
    rows.append((f'munmap of 4 GiB, batches of {most}, s', '-',
                 number(RECORDED['munmap'][65536] * 4 * PAGES_PER_GIB / 1e9),
                 figure([ns * 4 * PAGES_PER_GIB / 1e9
                         for ns in samples['munmap', most]])))
    rows.append((f'munmap, batches of {one} to batches of {most}', '-',
                 '34 x', f'{number(statistics.median(ratios))} x'))
    return Table('Beside the source', ('what', 'xen-devel, a PV Dom0',
                                       'recorded earlier', 'here'), rows,
                 ['The source profiles a migration: 45 % of the time was '
                  'spent on clearing page-table entries that a hypervisor '
                  'emulates.'])


def draw(fig: Any, samples: dict, batches: list[int]) -> None:
    ax, = plots.panels(fig, [TITLE], 'pages in a batch', 'ns per page')
    for way, title in WAYS.items():
        ax.plot(batches, [statistics.median(samples[way, b]) for b in batches],
                marker='o', label=title)
    ax.set_xscale('log')
    ax.set_yscale('log')
    plots.plain_numbers(ax.xaxis, batches)
    plots.plain_numbers(ax.yaxis, (50, 100, 200, 500, 1000, 2000, 5000))
    ax.legend()
