# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of ram-reset-loop."""

import argparse
import codecs
import re
from pathlib import Path

from program import check_snapshot


def text(value: str) -> bytes:
    return codecs.decode(value.encode('latin-1', 'backslashreplace'),
                         'unicode_escape').encode('latin-1')


def parse(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, allow_abbrev=False,
        usage='%(prog)s [options] -- QEMU-COMMAND...\n'
              '       %(prog)s [options] --connect SOCKET',
        formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add('command', nargs='*', help=argparse.SUPPRESS)
    add('--connect', metavar='SOCKET', help='QMP socket of a QEMU that runs')
    add('--serial', metavar='SOCKET',
        help="a socket chardev that is the guest's serial port (default: one "
             'is added to the command line if options need it)')
    add('--ready', metavar='REGEX', help='the guest says this when it is ready')
    add('--ready-timeout', metavar='SECONDS', type=float, default=120)
    add('--ready-after', metavar='SECONDS', type=float,
        help='it is ready after that time')
    add('--snapshot', metavar='TAG', default='ram-reset-loop',
        help='name of the snapshot (default: %(default)s)')
    add('--disk', metavar='NODE', action='append',
        help='save only the disks named so, the first with RAM; may be '
             'repeated (default: all, with savevm)')
    add('--no-save', action='store_true', help='the snapshot exists: load it')
    add('--keep', action='store_true', help='do not delete it at the end')
    add('--iterations', metavar='N', type=int, default=100,
        help='0 for endless (default: %(default)s)')
    add('--send', metavar='TEXT', type=text,
        help=r'to the guest, \n for a newline')
    add('--run', metavar='COMMAND',
        help='of the shell, with RAM_RESET_ITERATION and RAM_RESET_SERIAL, a '
             "socket that is the guest's serial port, in its environment")
    add('--until', metavar='REGEX', help='the guest says this at the end')
    add('--timeout', metavar='SECONDS', type=float, default=10,
        help='for --run and --until, each (default: %(default)s)')
    add('--collect', metavar='DIR', type=Path,
        help='write what the guest says to DIR/0001.txt and so on')
    options = parser.parse_args()
    check(parser, options)
    return options


def check(parser: argparse.ArgumentParser, options: argparse.Namespace
          ) -> None:
    options.talks = any((options.ready, options.send, options.until,
                         options.collect, options.run))
    for name in ('ready', 'until'):
        try:
            re.compile((getattr(options, name) or '').encode())
        except re.error as e:
            parser.error(f"--{name} is no regular expression ({e}); put '\\' "
                         'before characters that are meant as they are')
    if bool(options.command) == bool(options.connect):
        parser.error('give either QEMU\'s command line after "--", or '
                     '--connect SOCKET')
    if options.command and not options.no_save and \
            not (options.ready or options.ready_after):
        parser.error('give --ready REGEX or --ready-after SECONDS, so that the '
                     'snapshot is taken when the guest has booted')
    if options.connect and not options.serial and any(
            (options.ready, options.send, options.until, options.collect)):
        parser.error('with --connect, --ready, --send, --until and --collect '
                     "need --serial SOCKET, the guest's serial port")
    if options.iterations < 0 or options.timeout <= 0:
        parser.error('--iterations must not be negative, and --timeout has to '
                     'be more than 0')
    check_snapshot(parser, options.snapshot)
    if options.collect:
        options.collect.mkdir(parents=True, exist_ok=True)
