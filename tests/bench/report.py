# SPDX-License-Identifier: GPL-2.0-or-later
"""The result of a section of the benchmark, and how it is written down."""

import datetime
import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

KIB_PER_GIB = 1 << 20
# The pictures of a section: a file name that ends in .svg, and what draws
# into the matplotlib Figure it is given
Plot = tuple[str, Callable[[Any], None]]
# Rounds in which the cells of a section take turns
ROUNDS = 7


class Failure(Exception):
    """Why a section cannot be measured: one sentence, for the user."""


@dataclass
class Table:
    """Cells are written as they are; see figure() for measured ones."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        lines = [f'### {self.title}', '', row_markdown(self.columns),
                 '|' + '---|' * len(self.columns)]
        lines += [row_markdown(row) for row in self.rows]
        for note in self.notes:
            lines += ['', note]
        return '\n'.join(lines) + '\n'


@dataclass
class Section:
    """
    @data: all that was measured, raw, fit for JSON; @notes: paragraphs that
    say what was measured, or why something was not; @failed: what should not
    be as it was measured.
    """

    name: str
    title: str
    data: Any
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    notes: Sequence[str] = field(default_factory=list)
    failed: Sequence[str] = ()

    def markdown(self) -> str:
        parts = [f'## {self.title}\n']
        parts += [note + '\n' for note in self.notes]
        parts += [table.markdown() for table in self.tables]
        parts += [f'![{name.removesuffix(".svg")}]({name})\n'
                  for name, _ in self.plots]
        return '\n'.join(parts)

    def json(self) -> dict:
        tables = [asdict(table) for table in self.tables]
        return {'title': self.title, 'notes': list(self.notes),
                'data': self.data, 'tables': tables}


def row_markdown(cells: Sequence[Any]) -> str:
    return '| ' + ' | '.join(str(c).replace('|', r'\|') for c in cells) + ' |'


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if abs(value) >= 100:
        return f'{value:.0f}'
    if abs(value) >= 0.001:
        return f'{value:.3g}'
    return f'{value:.5f}'.rstrip('0').rstrip('.')


def figure(values: Sequence[float]) -> str:
    """'median (min-max)', the way all measured figures are shown."""
    return (f'{number(statistics.median(values))} '
            f'({number(min(values))}-{number(max(values))})')


def read(path: str, default: str = '') -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return default


def found(pattern: str, text: str, default: str = 'unknown') -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1].strip() if match else default


def qemu_version(build: Path) -> str:
    try:
        run = subprocess.run([build / 'qemu/qemu-system-x86_64', '--version'],
                             capture_output=True, text=True)
    except OSError:
        return 'not built'
    return found(r'version ([\d.]+)', run.stdout)


def host_facts(build: Path) -> dict[str, Any]:
    """The machine, as far as it matters for the figures; not its name."""
    cpuinfo = read('/proc/cpuinfo')
    thp = '/sys/kernel/mm/transparent_hugepage/'
    memory = int(found(r'^MemTotal:\s*(\d+)', read('/proc/meminfo'), '0'))
    return {
        'date': datetime.date.today().isoformat(),
        'cpu': found(r'^model name\s*:(.*)', cpuinfo),
        'cores': len(os.sched_getaffinity(0)),
        'virtual': ' hypervisor' in cpuinfo,
        'ram-gib': round(memory / KIB_PER_GIB, 1),
        'kernel': found(r'([\d.]+)', platform.release()),
        'thp': found(r'\[(\w+)\]', read(thp + 'enabled'), 'none'),
        'thp-shmem': found(r'\[(\w+)\]', read(thp + 'shmem_enabled'), 'none'),
        'qemu': qemu_version(build),
    }


def host_table(facts: dict[str, Any]) -> Table:
    notes = ['The largest figures may be of memory that the host of this '
             'virtual machine had to provide first.'] * facts['virtual']
    return Table('Host', ('', ''), [
        ('date', facts['date']),
        ('CPU', f"{facts['cpu']}, {facts['cores']} cores"
                + (', a virtual machine' if facts['virtual'] else '')),
        ('RAM', f"{facts['ram-gib']} GiB"),
        ('kernel', facts['kernel']),
        ('transparent hugepages',
         f"{facts['thp']}, shared memory {facts['thp-shmem']}"),
        ('QEMU', facts['qemu'])], notes)


def write(sections: Sequence[Section], output: Path, facts: dict[str, Any],
          quick: bool) -> None:
    """results.json and results.md; the plots are plots.draw()'s."""
    everything = {'host': facts, 'quick': quick,
                  'sections': {s.name: s.json() for s in sections}}
    (output / 'results.json').write_text(json.dumps(everything, indent=1)
                                         + '\n')
    size = 'A quick run, with small sizes.' if quick else 'A full run.'
    parts = ['# Results of ./bench\n',
             f'{size} Figures are medians, with the smallest and the largest '
             'in brackets.\n', host_table(facts).markdown()]
    parts += [section.markdown() for section in sections]
    (output / 'results.md').write_text('\n'.join(parts))
