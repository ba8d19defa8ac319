#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure what this project claims; ./bench makes ready what is needed."""

import argparse
import importlib
import signal
import sys
import time
import traceback
from pathlib import Path

import plots
import report
from context import Context, clock

SECTIONS = ('region', 'reuse', 'cow', 'unmap', 'loadvm', 'rewind',
            'cold', 'snapctl', 'libvirt')
ROOT = Path(__file__).resolve().parents[2]


def measure(context: Context) -> report.Section | None:
    """None, upon a message, if it could not be measured."""
    try:
        return importlib.import_module(context.name).run(context)
    except (report.Failure, OSError) as e:
        print(f'bench: {context.name}: {e}', file=sys.stderr)
    except Exception:
        print(f'bench: {context.name} has failed:', file=sys.stderr)
        traceback.print_exc()
    return None


def run(names: list[str], quick: bool, build: Path, output: Path) -> int:
    facts = report.host_facts(build)
    output.mkdir(parents=True, exist_ok=True)
    for old in ('results.json', 'results.md'):
        (output / old).unlink(missing_ok=True)
    done, failed = [], []
    for name in names:
        section = measure(Context(name, quick, build))
        if section is None:
            failed.append(name)
            continue
        done.append(section)
        # an interrupted run leaves the sections that it has finished
        report.write(done, output, facts, quick)
        plots.draw(section, output)
    if failed:
        print(f'bench: not measured, as it says above: {", ".join(failed)}',
              file=sys.stderr)
    return 1 if failed else 0


def main() -> int:
    p = argparse.ArgumentParser(
        prog='bench', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--quick', action='store_true', help='small sizes')
    p.add_argument('--only', action='append', choices=SECTIONS, default=[],
                   metavar='SECTION', help='of ' + ', '.join(SECTIONS))
    p.add_argument('--output', type=Path, default=ROOT / 'build/bench')
    args = p.parse_args()
    names = [name for name in SECTIONS if name in (args.only or SECTIONS)]
    # so that whatever is mounted or lent is given back
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    start = time.monotonic()
    try:
        status = run(names, args.quick, ROOT / 'build', args.output)
    except (report.Failure, OSError) as e:
        print(f'bench: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('bench: interrupted', file=sys.stderr)
        return 130
    print(f'bench: {clock(time.monotonic() - start)} in all', file=sys.stderr)
    return status


if __name__ == '__main__':
    sys.exit(main())
