# SPDX-License-Identifier: GPL-2.0-or-later
"""
Draws docs/benchmarks/demo.svg from what ./demo has measured last, and prints
the table of README.md.  ./bench installs what it needs.
"""

import json
import sys
from pathlib import Path
from typing import Any

from plots import bars, draw, legend_below
from report import Failure, Section

REPO = Path(__file__).resolve().parents[2]
FIGURES = REPO / 'build/demo.json'
OUTPUT = REPO / 'docs/benchmarks'
# what is measured, the way that is for it, and what to say
CASES = (('again', 'rewind', 'back, little has changed'),
         ('load', 'rewind', 'back, {gib:g} GiB written since'),
         ('start', 'template', 'the load of a new QEMU'))
MEMORIES = ('private', 'shared')
SERIES = ('as stock QEMU does it', 'with RAM reset')


def short(ms: float) -> str:
    return f'{ms:.1f} ms' if ms < 10 else f'{ms:.0f} ms'


def rows(figures: dict, memory: str) -> list[tuple[str, float, float]]:
    found = {(r['memory'], r['way']): r for r in figures['results']}
    gib = figures['dirty-mib'] / 1024
    return [(text.format(gib=gib), found[memory, 'stock'][key],
             found[memory, way][key]) for key, way, text in CASES]


def picture(figures: dict, figure: Any) -> None:
    figure.set_size_inches(8, 2.6)
    axes = figure.subplots(1, len(MEMORIES), sharey=True)
    for ax, memory in zip(axes, MEMORIES):
        names, *times = zip(*rows(figures, memory))
        bars(ax, names, dict(zip(SERIES, times)), short)
        ax.set_xscale('log')
        ax.margins(x=0.3)
        ax.set_title(f'{memory} RAM, {figures["ram-mib"] // 1024} GiB')
        ax.set_xlabel('ms')
    # the axes are one, which each of them has turned round
    axes[0].set_ylim(len(CASES) - 0.3, -0.6)
    legend_below(figure, axes[0])


def table(figures: dict) -> str:
    lines = ['| a Linux guest of 4 GiB, 16 MiB of data '
             '| as stock QEMU does it | with RAM reset |',
             '|---|---|---|']
    lines += [f'| {memory} RAM: {name} | {short(stock)} | {short(ours)} |'
              for memory in MEMORIES
              for name, stock, ours in rows(figures, memory)]
    return '\n'.join(lines)


def main() -> int:
    if not FIGURES.exists():
        print(f'demo_plot: {FIGURES} does not exist; run ./demo, which writes '
              'it', file=sys.stderr)
        return 1
    figures = json.loads(FIGURES.read_text())
    try:
        draw(Section('demo', '', figures, plots=[
            ('demo.svg', lambda figure: picture(figures, figure))]), OUTPUT)
    except Failure as e:
        print(f'demo_plot: {e}', file=sys.stderr)
        return 1
    print(table(figures))
    return 0


if __name__ == '__main__':
    sys.exit(main())
