#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Restores by the Python package, beside QMP itself."""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import context
import standalone
from qemu.qmp.legacy import QEMUMonitorProtocol

sys.path.insert(0, str(Path(__file__).parents[2] / 'contrib/python/src'))

from ram_reset import Machine, Snapshot, aio      # noqa: E402

from lib import package                 # noqa: E402
from lib.machine import kvm_usable      # noqa: E402
from report import Section, Table, figure       # noqa: E402

NAME = 'package'
TITLE = 'Restores by the Python package'
LOADS = 300
WARM_UPS = 20
MACHINES = 10
TOGETHER = 1000

WHAT = (
    'A bare-metal guest of 64 MiB waits for a command. loadvm is the command of '
    'the human monitor, by QMP and with the client of qemu.qmp that is meant '
    'for asyncio, or the synchronous one. restore() is that of the package, in '
    'turns with it. With a serial port restore() stops the guest before, and '
    'lets it run after, and so do the commands by QMP.')


def args() -> list[str]:
    return package.ring3('kvm' if kvm_usable() else 'tcg')


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    begin = time.perf_counter()
    await work()
    return (time.perf_counter() - begin) * 1000


def commands(serial: bool, clean: Snapshot) -> list[tuple[str, dict]]:
    """Of QMP, that do what restore() does."""
    load = ('human-monitor-command', {'command-line': f'loadvm {clean.name}'})
    return [('stop', {}), load, ('cont', {})] if serial else [load]


async def asynchronously(serial: bool) -> dict[str, list[float]]:
    async with await aio.Machine.start(args(), qemu=package.QEMU,
                                       serial=serial) as machine:
        clean = await machine.snapshot()

        async def by_qmp() -> None:
            for command, arguments in commands(serial, clean):
                await machine.execute(command, arguments)

        found: dict[str, list[float]] = {'QMP': [], 'restore': []}
        for _ in range(WARM_UPS + LOADS):
            found['QMP'].append(await timed(by_qmp))
            found['restore'].append(
                await timed(lambda: machine.restore(clean)))
        count = await machine.statistics()
        assert count and count.rewinds == count.loads
        return {name: times[WARM_UPS:] for name, times in found.items()}


def synchronously(serial: bool) -> dict[str, list[float]]:
    """With the synchronous client that qemu.qmp has."""
    with tempfile.TemporaryDirectory() as folder, Machine.start(
            [*args(), '-qmp', f'unix:{folder}/qmp,server=on,wait=off'],
            qemu=package.QEMU, serial=serial) as machine:
        clean = machine.snapshot()
        client = QEMUMonitorProtocol(f'{folder}/qmp')
        client.connect()
        found: dict[str, list[float]] = {'QMP': [], 'restore': []}
        for _ in range(WARM_UPS + LOADS):
            begin = time.perf_counter()
            for command, arguments in commands(serial, clean):
                client.cmd(command, **arguments)
            middle = time.perf_counter()
            machine.restore(clean)
            found['QMP'].append((middle - begin) * 1000)
            found['restore'].append((time.perf_counter() - middle) * 1000)
            client.clear_events()
        client.close()
        return {name: times[WARM_UPS:] for name, times in found.items()}


async def together() -> float:
    """Seconds of so many restores, by machines side by side."""
    machines = await asyncio.gather(*(
        aio.Machine.start(args(), qemu=package.QEMU, serial=True)
        for _ in range(MACHINES)))
    try:
        clean = await asyncio.gather(*(m.snapshot() for m in machines))

        async def one(number: int) -> None:
            for _ in range(TOGETHER // MACHINES):
                await machines[number].restore(clean[number])

        begin = time.perf_counter()
        await asyncio.gather(*map(one, range(MACHINES)))
        seconds = time.perf_counter() - begin
        for machine in machines:
            assert (await machine.statistics()).rewinds == TOGETHER // MACHINES
        return seconds
    finally:
        await asyncio.gather(*(machine.close() for machine in machines))


def run(ctx: context.Context) -> Section:
    ctx.expect(3)
    data: dict = {}
    rows = []
    for name, serial in ('no serial port', False), ('a serial port', True):
        ctx.step(name)
        for way, found in (('asyncio', asyncio.run(asynchronously(serial))),
                           ('synchronous', synchronously(serial))):
            data[f'{name}, {way}'] = found
            more = (statistics.median(found['restore'])
                    - statistics.median(found['QMP']))
            rows.append((f'{name}, {way}', figure(found['QMP']),
                         figure(found['restore']), f'{more:+.2f}'))
    ctx.step('together')
    data['together'] = asyncio.run(together())
    table = Table('ms for each restore', (
        'machine', 'QMP', 'restore()', 'more'), rows, [
        f'{TOGETHER} restores of {MACHINES} machines side by side, with serial '
        f'ports, in one loop: {data["together"]:.2f} s.'])
    return Section(NAME, TITLE, data, [table], [], [WHAT])


def main() -> int:
    options = standalone.parser(__doc__).parse_args()
    return standalone.deliver('package.py', options.json, lambda: run(
        standalone.context(options.quick)))


if __name__ == '__main__':
    sys.exit(main())
