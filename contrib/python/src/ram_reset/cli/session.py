# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest with a shell, for commands that run others in it."""

import argparse
import asyncio
import re
import signal
import time
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from shlex import quote
from typing import Any, AsyncIterator, Awaitable, Callable, List, Union

from ram_reset.boot import wait_ready
from ram_reset.cli import json_file
from ram_reset.cli.line import Line
from ram_reset.disks import Disk
from ram_reset.machine import Machine
from ram_reset.spec import OBJECT

FORMAT = ',format='


@dataclass(frozen=True)
class Done:
    """
    A command that has ended in the guest.

    :ivar seconds: its run time, with the way to the guest and back
    """

    command: str
    status: int
    output: str
    seconds: float

    def heading(self) -> str:
        return (f"--- {self.command}: status {self.status}, "
                f'{self.seconds:.2f} s')


def disk(text: str) -> Union[Disk, str]:
    """:param text: FILE, or FILE,format=FORMAT"""
    file, found, kind = text.rpartition(FORMAT)
    return Disk(file, kind) if found else text


def add_options(parser: argparse.ArgumentParser, attach: bool) -> None:
    """:param attach: whether the QEMU may be one that runs already"""
    parser.usage = '%(prog)s [options] --do COMMAND -- QEMU-COMMAND...'
    add = parser.add_argument
    add('qemu', nargs='*', help=argparse.SUPPRESS)
    if attach:
        parser.usage += ('\n       %(prog)s [options] --do COMMAND --connect '
                         'SOCKET')
        add('--connect', metavar='SOCKET', help='QMP socket of a running QEMU')
        add('--serial', metavar='SOCKET',
            help='with --connect: a socket chardev that is the serial port, '
                 'with a shell')
        add('--agent-port', metavar='SOCKET',
            help="with --connect: a socket chardev that is the agent's port")
    add('--do', metavar='COMMAND', action='append', required=True,
        help='a command for the shell in the guest; may be repeated')
    add('--disk', metavar='FILE[,format=FORMAT]', type=disk, action='append',
        default=[],
        help='image of a disk, not changed; qcow2 unless FORMAT says otherwise')
    add('--agent', action='store_true',
        help='use the guest agent; by default the serial port, with a shell')
    add('--ready', metavar='REGEX', default='',
        help='output on the serial port of a guest that is ready')
    add('--ready-timeout', metavar='SECONDS', type=float, default=300.0,
        help='wait this long for it (default: %(default)g)')
    add('--setup', metavar='LINE', action='append', default=[],
        help='line for the serial port then, to log in; may be repeated')
    add('--timeout', metavar='SECONDS', type=float, default=60.0,
        help='limit for each COMMAND (default: %(default)g)')
    add('--object', metavar='OBJECT', default=OBJECT,
        help="of QEMU (default: '%(default)s')")
    add('--json', metavar='FILE', type=Path, help='write all results as data')
    parser.set_defaults(connect=None)


def check(options: argparse.Namespace) -> None:
    """End with a usage error if options do not fit together."""
    error = options.parser.error
    if bool(options.qemu) == bool(options.connect):
        error("give QEMU's command line after \"--\"" + (
            ', or --connect SOCKET, and not both'
            if hasattr(options, 'serial') else ''))
    if options.connect and not (options.serial or options.agent_port):
        error('--connect needs --serial SOCKET or --agent-port SOCKET, the '
              'way to the guest')
    # also false for NaN
    if not (options.timeout > 0 and options.ready_timeout > 0):
        error('--timeout and --ready-timeout must be above 0')
    try:
        ''.join((*options.do, *options.setup)).encode()
    except UnicodeEncodeError:
        error('--do and --setup must be UTF-8; put other bytes into a file')
    try:
        re.compile(options.ready)
    except re.error as e:
        error(f"--ready is not a regular expression ({e}); put '\\' before "
              'special characters')
    json_file.claim(options.json)


async def _start(options: argparse.Namespace) -> Machine:
    if options.connect:
        return await Machine.attach(options.connect, serial=options.serial,
                                    agent=options.agent_port)
    qemu, *args = options.qemu
    # the serial port also says when a guest is ready that has an agent
    serial = not options.agent or bool(options.ready or options.setup)
    return await Machine.start(args, qemu=qemu, disks=options.disk,
                               serial=serial, agent=options.agent,
                               object=options.object)


@asynccontextmanager
async def started(options: argparse.Namespace, line: Line
                  ) -> AsyncIterator[Machine]:
    """A machine whose shell answers."""
    line.show('starts QEMU')
    async with await _start(options) as machine:
        line.show('waits until the guest is ready')
        await wait_ready(machine, options.ready, options.setup,
                         options.ready_timeout)
        yield machine


async def do(machine: Machine, command: str, timeout: float) -> Done:
    begin = time.monotonic()
    # its end is not that of the shell
    result = await machine.run(f'( eval {quote(command)} )', timeout)
    return Done(command, result.status, result.output,
                time.monotonic() - begin)


def show(done: Done, line: Line) -> None:
    """Its output, under a heading."""
    line.hide()
    print(done.heading())
    print(done.output, end='' if done.output.endswith('\n') else '\n',
          flush=True)


def write(options: argparse.Namespace, found: List[Done], **more: Any) -> None:
    json_file.write(options.json, {
        'results': [asdict(done) for done in found], **more})


def worst(found: List[Done]) -> int:
    """The status of the first command that has failed, or 0."""
    return next((done.status for done in found if done.status), 0)


def run(work: Callable[[argparse.Namespace, Line], Awaitable[int]],
        options: argparse.Namespace) -> int:
    """Do the work; signals end it in order."""
    check(options)
    line = Line(options.prog)

    async def main() -> int:
        task = asyncio.ensure_future(work(options, line))
        loop = asyncio.get_running_loop()
        stopped = False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:   # nohup
            loop.add_signal_handler(signal.SIGHUP, stop)
        try:
            return await task
        except asyncio.CancelledError:
            if stopped:
                raise KeyboardInterrupt from None
            raise
        finally:
            line.hide()

    return asyncio.run(main())
