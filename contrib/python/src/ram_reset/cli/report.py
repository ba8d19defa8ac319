# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a page with plots of the results that ram-reset loop --json wrote: one
HTML file that needs no other.
"""

import argparse
import html
import json
import shlex
from pathlib import Path
from typing import Any, Dict, List, Sequence

from ram_reset.cli import plots
from ram_reset.cli.results import FORMAT, VERSION, percentile
from ram_reset.errors import UsageError

HELP = 'make a page with plots of a loop'

SHOWN = 200             # errors
STYLE = '''
body { font-family: sans-serif; max-width: 60em; margin: 2em auto; }
table { border-collapse: collapse; }
td, th { border: 1px solid #ccc; padding: .3em .6em; text-align: left;
         vertical-align: top; }
svg { max-width: 100%; height: auto; }
pre { white-space: pre-wrap; background: #f4f4f4; padding: .6em; }
'''
Data = Dict[str, Any]


def read(path: Path) -> Data:
    try:
        data = json.loads(path.read_text())
    except OSError as e:
        raise UsageError(f'{path} cannot be read ({e.strerror}); name a file '
                         'of ram-reset loop --json') from e
    except ValueError:
        data = None
    if not isinstance(data, dict) or data.get('format') != FORMAT:
        raise UsageError(f'{path} has no results; name a file of ram-reset '
                         'loop --json whose loop has ended')
    if data['version'] != VERSION:
        raise UsageError(
            f'{path} has version {data["version"]} of the format, and this '
            f'program knows version {VERSION}; use the ram-reset that wrote '
            'it')
    if not data['loads']:
        raise UsageError(f'{path} has no load: '
                         f'{data["failure"] or "the loop was interrupted"}')
    return data


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    def line(cells: Sequence[object], tag: str) -> str:
        return '<tr>' + ''.join(
            f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in cells) + \
            '</tr>'

    lines = [line(heads, 'th')] if heads else []
    return '\n'.join(['<table>', *lines, *(line(row, 'td') for row in rows),
                      '</table>'])


def figures(data: Data) -> List[List[str]]:
    loads = [load['seconds'] for load in data['loads']]
    wholes = [load['iteration-seconds'] for load in data['loads']
              if load['iteration-seconds'] is not None]

    def times(seconds: Sequence[float]) -> str:
        if not seconds:
            return 'none was completed'
        return ', '.join(f'{name} {percentile(seconds, part):.2f} ms'
                         for name, part in (('median', .5),
                                            ('99th percentile', .99),
                                            ('slowest', 1)))

    n = len(loads)
    return [['loads', f'{n} in {data["seconds"]:.1f} s, '
                      f'{n / data["seconds"]:.1f} per second'],
            ['time of a load', times(loads)],
            ['time of an iteration', times(wholes)],
            ['rewinds', f'{data["rewinds"]} of {n}'],
            ['errors', str(len(data['errors']))],
            ['end', data['failure'] or ('interrupted' if data['interrupted']
                                        else 'all iterations were made')]]


def page(data: Data) -> str:
    source = shlex.join(data['command']) if 'command' in data else \
        f'QEMU at {data["connect"]}'
    title = f'Loads of snapshot {html.escape(data["snapshot"])}'
    parts = ['<!DOCTYPE html>', '<html lang="en">', '<head>',
             '<meta charset="utf-8">', f'<title>{title}</title>',
             f'<style>{STYLE}</style>', '</head>', '<body>',
             f'<h1>{title}</h1>', table((), figures(data)),
             plots.draw(data['loads'])]
    if data['reasons']:
        parts += ['<h2>Loads that were no rewinds</h2>', table(
            ('loads', 'reason', 'remedy'),
            [(r['times'], r['reason'], r['remedy'] or '')
             for r in data['reasons']])]
    if data['errors']:
        shown = data['errors'][:SHOWN]
        more = len(data['errors']) - len(shown)
        parts += ['<h2>Errors</h2>', table(
            ('iteration', 'kind', 'details'),
            [(e['iteration'], e['kind'], e['text']) for e in shown])]
        parts += [f'<p>There are {more} more.</p>'] if more else []
    parts += ['<h2>QEMU</h2>', f'<pre>{html.escape(source)}</pre>', '</body>',
              '</html>', '']
    return '\n'.join(parts)


def run(options: argparse.Namespace) -> int:
    output = options.output or options.file.with_suffix('.html')
    text = page(read(options.file))
    try:
        output.write_text(text)
    except OSError as e:
        raise UsageError(f'{output} cannot be written ({e.strerror}); give '
                         '--output another file') from e
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('file', metavar='FILE.json', type=Path,
                        help='of ram-reset loop --json')
    parser.add_argument('-o', '--output', metavar='FILE.html', type=Path,
                        help='the page (default: FILE.html)')
