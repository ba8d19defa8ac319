# SPDX-License-Identifier: GPL-2.0-or-later
"""Run commands in forks of one guest, all at once.

Starts QEMU with the command line after "--", waits until the guest is ready, and
forks it once for each --do.  All forks begin at the same instant, and share the
memory that they do not write to.  No image given with --disk is changed.

The status is that of the first command that fails, 0 if none does, 1 if QEMU or
a guest fails, 2 for wrong usage and 130 after Ctrl-C.
"""

import argparse
import asyncio
import time
from typing import List

from ram_reset.cli import session
from ram_reset.cli.line import Line
from ram_reset.cli.session import Done
from ram_reset.machine import Machine

HELP = 'run commands in forks of a guest, all at once'


async def do_all(machines: List[Machine], options: argparse.Namespace,
                 line: Line) -> List[Done]:
    """Each command in the machine of its number; shown as they end."""
    left = len(machines)

    async def one(machine: Machine, command: str) -> Done:
        nonlocal left
        done = await session.do(machine, command, options.timeout)
        left -= 1
        session.show(done, line)
        line.show(f'{left} of {len(machines)} commands are running')
        return done

    line.show(f'{left} commands are running')
    return list(await asyncio.gather(*map(one, machines, options.do)))


async def work(options: argparse.Namespace, line: Line) -> int:
    async with session.started(options, line) as machine:
        line.show(f'forks {len(options.do)} machines')
        begin = time.monotonic()
        children = await machine.fork(len(options.do))
        seconds = time.monotonic() - begin
        try:
            found = await do_all(children, options, line)
        finally:
            await asyncio.gather(*(child.close() for child in children))
    line.hide()
    line.say(f'{len(children)} forks were made in {seconds:.2f} s')
    session.write(options, found, fork_seconds=seconds)
    return session.worst(found)


def run(options: argparse.Namespace) -> int:
    return session.run(work, options)


def add_options(parser: argparse.ArgumentParser) -> None:
    session.add_options(parser, attach=False)
