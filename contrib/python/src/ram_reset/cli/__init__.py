# SPDX-License-Identifier: GPL-2.0-or-later
"""The command ram-reset.  Each of its commands is a module."""

import argparse
import sys
from typing import Optional, Sequence

from ram_reset.cli import check, feed, fork, loop, report, run, tree, xml
from ram_reset.errors import Error

COMMANDS = check, run, loop, tree, fork, feed, xml, report


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog='ram-reset', allow_abbrev=False,
        description='Work with snapshots of QEMU guests.')
    commands = top.add_subparsers(metavar='COMMAND', required=True,
                                  title='commands')
    for module in COMMANDS:
        command = commands.add_parser(
            module.__name__.rpartition('.')[2], description=module.__doc__,
            help=module.HELP, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter)
        command.set_defaults(run=module.run, parser=command, prog=command.prog)
        module.add_options(command)
    return top


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Do a command, and return the status that the program ends with."""
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except Error as e:
        problem = str(e)
    except KeyboardInterrupt:
        print(f'{options.prog}: interrupted', file=sys.stderr)
        return 130
    except OSError as e:
        problem = f'{e.filename}: {e.strerror}' if e.filename else str(e)
    print(f'{options.prog}: {problem}', file=sys.stderr)
    return 1
