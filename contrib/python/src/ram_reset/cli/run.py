# SPDX-License-Identifier: GPL-2.0-or-later
"""Run commands in a guest, each as if it were the first.

Starts QEMU with the command line after "--" (or connects to a running one),
waits until the guest is ready and saves a snapshot.  Before each command but
the first the guest goes back to it.  No image given with --disk is changed.

The status is that of the first command that fails, 0 if none does, 1 if QEMU or
the guest fails, 2 for wrong usage and 130 after Ctrl-C.
"""

import argparse
import asyncio
import uuid
from typing import List

from ram_reset.cli import session
from ram_reset.cli.line import Line
from ram_reset.cli.session import Done
from ram_reset.machine import Machine
from ram_reset.spec import Snapshot

HELP = 'run commands in a guest, each in a clean one'


async def save(machine: Machine) -> Snapshot:
    """If it is interrupted, no snapshot stays."""
    clean = machine.find(f'ram-reset-run-{uuid.uuid4().hex[:8]}')
    try:
        return await machine.snapshot(clean.name)
    except asyncio.CancelledError:
        await machine.delete(clean)     # after the save, which goes on
        raise


async def work(options: argparse.Namespace, line: Line) -> int:
    found: List[Done] = []
    async with session.started(options, line) as machine:
        line.show('saves a snapshot')
        clean = machine.find(options.snapshot) if options.snapshot else \
            await save(machine)
        try:
            for number, command in enumerate(options.do):
                if number or options.snapshot:
                    line.show('goes back to the snapshot')
                    await machine.restore(clean, run=True)
                line.show(f'runs {command}')
                found.append(await session.do(machine, command,
                                              options.timeout))
                if len(options.do) > 1:
                    session.show(found[-1], line)
                else:
                    line.hide()
                    print(found[-1].output, end='', flush=True)
        finally:
            if options.connect:
                await machine.restore(clean)
            if not options.snapshot:
                await machine.delete(clean)     # it may be in an image
    session.write(options, found)
    return session.worst(found)


def run(options: argparse.Namespace) -> int:
    if options.snapshot and not options.connect:
        options.parser.error('--snapshot needs --connect SOCKET: a QEMU that '
                             'is started here has no snapshot yet')
    return session.run(work, options)


def add_options(parser: argparse.ArgumentParser) -> None:
    session.add_options(parser, attach=True)
    parser.add_argument(
        '--snapshot', metavar='TAG',
        help='with --connect: go to this snapshot before each command, and '
             'save none')
