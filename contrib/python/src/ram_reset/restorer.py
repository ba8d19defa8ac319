# SPDX-License-Identifier: GPL-2.0-or-later
"""The course of a restore."""

import asyncio
import time
from typing import Any, Awaitable, Callable, Mapping, Optional, Sequence

from ram_reset.errors import FailedLoadError, GuestError, RefusedError
from ram_reset.monitor import Monitor, word
from ram_reset.ports import Port

DEAD = 'shutdown', 'internal-error', 'guest-panicked'
PATIENCE = 10.0         # seconds
STOPPED = 'paused', 'prelaunch', 'suspended'


async def _failure(work: Awaitable[object]) -> Optional[RefusedError]:
    try:
        await work
    except RefusedError as e:
        return e
    return None


async def run_state(monitor: Monitor) -> str:
    return str((await monitor.execute('query-status'))['status'])


async def pause_when_dead(monitor: Monitor) -> None:
    """Make QEMU pause when the guest shuts down, resets or panics."""
    await monitor.execute('set-action', {
        'reboot': 'shutdown', 'shutdown': 'pause', 'panic': 'pause'})


async def _reset(monitor: Monitor, stops: Callable[[], bool]) -> bool:
    """Returns false if QEMU takes resets for shutdowns."""
    await monitor.execute('system_reset')
    deadline = time.monotonic() + PATIENCE
    while await run_state(monitor) in DEAD:
        if stops():
            return False
        if time.monotonic() > deadline:
            raise GuestError('the machine stays dead after a reset; start QEMU '
                             'with -action reboot=reset')
        await asyncio.sleep(0.001)
    return True


async def revive(monitor: Monitor, stops: Callable[[], bool]) -> None:
    """
    Reset a guest that has shut down, since it cannot run again otherwise.

    :param stops: whether QEMU is known to take resets for shutdowns
    """
    if not stops() and await _reset(monitor, stops):
        return
    await monitor.execute('set-action', {'reboot': 'reset'})
    try:
        await _reset(monitor, lambda: False)
    finally:
        await monitor.execute('set-action', {'reboot': 'shutdown'})


class Restorer:
    """
    Restores one machine.  A command takes QEMU as long as half of a load, so
    events, rather than a query, say whether the machine runs.
    """

    def __init__(self, monitor: Monitor):
        self._monitor = monitor
        self._ports: Sequence[Port] = ()
        self._running = self._reboot_stops = False
        monitor.on_event(('STOP', 'RESUME', 'SHUTDOWN'), self._note)

    def _note(self, event: Mapping[str, Any]) -> None:
        self._running = event['event'] == 'RESUME'
        # with -no-reboot, a reset is a shutdown
        self._reboot_stops |= 'reset' in event.get('data', {}).get('reason', '')

    async def begin(self, ports: Sequence[Port]) -> None:
        """
        To be called once the monitor is connected.

        :param ports: open when the machine is restored
        """
        self._ports = ports
        self._running = await self._status() == 'running'

    async def _status(self) -> str:
        return await run_state(self._monitor)

    async def _load(self, tag: str) -> Optional[RefusedError]:
        return await _failure(self._monitor.human(f'loadvm {word(tag)}'))

    async def restore(self, tag: str, run: Optional[bool]) -> None:
        """See Machine.restore()."""
        if not self._running or \
                not await self._restore_running(tag, run is not False):
            await self._restore_stopped(tag, run)

    async def _restore_running(self, tag: str, run: bool) -> bool:
        """Returns false if the guest has died before the load."""
        if run and not self._ports:
            failed = await self._load(tag)      # after it QEMU goes on
            if failed:
                await self._raise(failed, run)
            return self._running
        for port in self._ports:
            await port.before_load()
        # one way to QEMU and back, which answers in order
        _, failed = await asyncio.gather(self._monitor.execute('stop'),
                                         self._load(tag))
        # the guest must say nothing between the load and this
        for port in self._ports:
            await port.after_load(drop=not failed)
        if failed:
            await self._raise(failed, True)
        if run and not await _failure(self._monitor.execute('cont')):
            return True
        return await self._status() not in DEAD

    async def _restore_stopped(self, tag: str, run: Optional[bool]) -> None:
        state = await self._status()
        await self._monitor.execute('stop')
        if state in DEAD:
            await revive(self._monitor, lambda: self._reboot_stops)
        for port in self._ports:
            await port.before_load()
        failed = await self._load(tag)
        for port in self._ports:
            await port.after_load(drop=not failed)
        if failed:
            await self._raise(failed, state == 'running')
        if state not in STOPPED if run is None else run:
            await self._monitor.execute('cont')

    async def _raise(self, failed: RefusedError, run: bool) -> None:
        """:param run: whether the machine is to go on"""
        refused = await _failure(self._monitor.execute('cont')) if run else None
        if refused:
            raise FailedLoadError(failed.command,
                                  f'{failed.reason}; {refused.reason}')
        raise failed
