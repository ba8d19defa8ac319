# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of ram-reset loop."""

import argparse
import codecs
import re
from pathlib import Path

from ram_reset.cli.tag import check_tag


def text(value: str) -> bytes:
    escaped = value.encode('latin-1', 'backslashreplace')
    return codecs.decode(escaped, 'unicode_escape').encode('latin-1')


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = ('%(prog)s [options] -- QEMU-COMMAND...\n'
                    '       %(prog)s [options] --connect SOCKET')
    add = parser.add_argument
    add('command', nargs='*', help=argparse.SUPPRESS)
    add('--connect', metavar='SOCKET', help='QMP socket of a running QEMU')
    add('--serial', metavar='SOCKET',
        help="a socket chardev that is the guest's serial port (default: one "
             'is added to the command line if options need it)')
    add('--ready', metavar='REGEX', help='output of a guest that is ready')
    add('--ready-timeout', metavar='SECONDS', type=float, default=120)
    add('--ready-after', metavar='SECONDS', type=float,
        help='the guest is ready after this time')
    add('--snapshot', metavar='TAG', default='ram-reset-loop',
        help='name of the snapshot (default: %(default)s)')
    add('--disk', metavar='NODE', action='append',
        help='save only these disks, the first with RAM; may be '
             'repeated (default: all, with savevm)')
    add('--no-save', action='store_true', help='the snapshot exists: load it')
    add('--keep', action='store_true', help='keep the snapshot at the end')
    add('--iterations', metavar='N', type=int, default=100,
        help='number of loads, 0: no end (default: %(default)s)')
    add('--send', metavar='TEXT', type=text,
        help=r'text for the guest, \n for a newline')
    add('--run', metavar='COMMAND', dest='shell',
        help='shell command, with RAM_RESET_ITERATION and RAM_RESET_SERIAL, '
             "a socket with the guest's serial port, in its environment")
    add('--until', metavar='REGEX', help='output that ends an iteration')
    add('--timeout', metavar='SECONDS', type=float, default=10,
        help='limit for --run and for --until (default: %(default)s)')
    add('--collect', metavar='DIR', type=Path,
        help="write the guest's output to DIR/0001.txt and so on")
    add('--json', metavar='FILE', type=Path,
        help='write all results as data, for ram-reset report')


def check(parser: argparse.ArgumentParser, options: argparse.Namespace
          ) -> None:
    """End with a usage error if options do not fit together."""
    options.talks = any((options.ready, options.send, options.until,
                         options.collect, options.shell))
    for name in ('ready', 'until'):
        try:
            re.compile((getattr(options, name) or '').encode())
        except re.error as e:
            parser.error(f"--{name} is not a regular expression ({e}); put "
                         "'\\' before special characters")
    if bool(options.command) == bool(options.connect):
        parser.error('give either QEMU\'s command line after "--", or '
                     '--connect SOCKET')
    if options.command and not options.no_save and \
            not (options.ready or options.ready_after):
        parser.error('give --ready REGEX or --ready-after SECONDS, so that '
                     'the snapshot is taken when the guest has booted')
    if options.connect and not options.serial and any(
            (options.ready, options.send, options.until, options.collect)):
        parser.error('with --connect, --ready, --send, --until and --collect '
                     "need --serial SOCKET, the guest's serial port")
    if options.iterations < 0 or options.timeout <= 0:
        parser.error('--iterations must not be negative, and --timeout must '
                     'be above 0')
    check_tag(parser, options.snapshot)
