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
            'vcpus', 'phases', 'cold', 'fork', 'snapctl', 'libvirt', 'soak')
LONG = ('soak',)        # only if they are named
ROOT = Path(__file__).resolve().parents[2]


def measure(context: Context) -> report.Section | None:
    """Returns: None, after a message, if it could not be measured."""
    try:
        return importlib.import_module(context.name).run(context)
    except (report.Failure, OSError) as e:
        print(f'bench: {context.name}: {e}', file=sys.stderr)
    except Exception:
        print(f'bench: {context.name} has failed:', file=sys.stderr)
        traceback.print_exc()
    return None


def run(contexts: list[Context], build: Path, output: Path) -> int:
    facts = report.host_facts(build)
    output.mkdir(parents=True, exist_ok=True)
    for old in ('results.json', 'results.md'):
        (output / old).unlink(missing_ok=True)
    done, failed = [], []
    for context in contexts:
        section = measure(context)
        if section is None:
            failed.append(context.name)
            continue
        done.append(section)
        # an interrupted run leaves the sections that it has finished
        report.write(done, output, facts, context.quick)
        plots.draw(section, output)
        for complaint in section.failed:
            print(f'bench: {context.name}: {complaint}', file=sys.stderr)
    if failed:
        print(f'bench: not measured, see above: {", ".join(failed)}',
              file=sys.stderr)
    return 1 if failed or any(section.failed for section in done) else 0


def main() -> int:
    p = argparse.ArgumentParser(
        prog='bench', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--quick', action='store_true', help='small sizes')
    p.add_argument('--only', action='append', choices=SECTIONS, default=[],
                   metavar='SECTION', help='of ' + ', '.join(SECTIONS))
    p.add_argument('--loads', type=int, default=0, help='of soak')
    p.add_argument('--hmp-loads', type=int, default=0, help='of soak')
    p.add_argument('--output', type=Path, default=ROOT / 'build/bench')
    args = p.parse_args()
    build = ROOT / 'build'
    contexts = [Context(name, args.quick, build, args.loads, args.hmp_loads)
                for name in SECTIONS
                if (name in args.only if args.only else name not in LONG)]
    # so that whatever is mounted or lent is given back
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    start = time.monotonic()
    try:
        status = run(contexts, build, args.output)
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
