# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of ram-reset feed."""

import argparse
from pathlib import Path
from typing import List

from ram_reset.cli.tag import check_tag
from ram_reset.ring import LARGEST, MAX_ENTRIES


def files(parser: argparse.ArgumentParser, given: List[Path]) -> List[Path]:
    """The given files, and those in given folders."""
    found: List[Path] = []
    for path in given:
        if path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file())
            if not inside:
                parser.error(f'{path} has no files')
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            parser.error(f'{path} is neither a file nor a folder')
    return found


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('inputs', nargs='+', metavar='INPUT', type=Path)
    add('--region', metavar='FILE', type=Path, required=True,
        help="the file that is the device's persistent region")
    add('--results', metavar='DIR', type=Path,
        help='write results.txt there, and outputs to 000001.out and so on')
    add('--repeat', metavar='N', type=int, default=1,
        help='feed each input N times (default: %(default)s)')
    add('--timeout', metavar='SECONDS', type=float, default=30,
        help='treat the guest as hung after SECONDS without a result; longer '
             "than the harness's (default: %(default)s)")
    add('--ready-timeout', metavar='SECONDS', type=float, default=120,
        help='wait this long for the harness (default: %(default)s)')
    add('--output-size', metavar='BYTES', type=int, default=4096,
        help='keep this much of an output (default: %(default)s)')
    add('--entries', metavar='N', type=int,
        help=f'size of the ring (default: up to {MAX_ENTRIES})')
    add('--qmp', metavar='SOCKET',
        help='QMP socket, to load the snapshot if the guest hangs or '
             'crashes')
    add('--snapshot', metavar='TAG', help='snapshot to load then')
    add('--console', metavar='FILE', type=Path,
        help="logfile= of the -chardev of the guest's serial port: shows a "
             "kernel's panic; the output of a guest that hangs or crashes is "
             'stored as 000001.console and so on')
    add('--save', action='store_true',
        help='save TAG first, when the harness is ready; for snapctl-harness '
             '--no-save')


def check(parser: argparse.ArgumentParser, options: argparse.Namespace
          ) -> None:
    """End with a usage error if options do not fit together."""
    for name, low, high in (('repeat', 1, 1 << 62), ('timeout', 1e-9, 1e9),
                            ('ready_timeout', 0, 1e9),
                            ('output_size', 0, LARGEST),
                            ('entries', 1, 65536)):
        value = getattr(options, name)
        # also false for NaN
        if value is not None and not low <= value <= high:
            parser.error(f'--{name.replace("_", "-")} cannot be {value}')
    if bool(options.qmp) != bool(options.snapshot):
        parser.error('--qmp and --snapshot go together: the socket to connect '
                     'to, and the snapshot to load')
    if options.save and not options.qmp:
        parser.error('--save needs --qmp')
    if options.console and not options.qmp:
        parser.error('--console needs --qmp, to load the snapshot')
    if options.snapshot:
        check_tag(parser, options.snapshot)
    options.files = files(parser, options.inputs)
