# SPDX-License-Identifier: GPL-2.0-or-later
"""Load the snapshot for a guest of snapctl-feed that cannot request it."""

import asyncio
import contextlib

from qemu.qmp import EventListener, QMPError

from monitor import PATIENCE, Monitor
from program import CRASHES, Failure


class Guard:
    """Loads the snapshot of a guest that does not request it."""

    def __init__(self, socket: str, tag: str):
        self._socket = socket
        self._tag = tag
        self._monitor = Monitor('feed', lambda: Failure(
            'QEMU has closed the monitor connection'))
        self._listener = EventListener((*CRASHES, 'SNAPCTL_COMPLETED'))
        self._task: asyncio.Task | None = None
        self.crash = ''
        self.panicked = False   # not just shut down or reset
        self.problem = ''       # the guest's last load, if it failed

    async def start(self) -> None:
        client = self._monitor.client
        try:
            await asyncio.wait_for(client.connect(self._socket), PATIENCE)
        except asyncio.TimeoutError:
            raise Failure(f'{self._socket} does not answer; give the path of '
                          'an unused QMP socket')
        except (QMPError, OSError, EOFError) as e:
            raise Failure(f'{self._socket} cannot be connected to ({e}); give '
                          'the path of an unused QMP socket')
        client.register_listener(self._listener)
        self._task = asyncio.create_task(self._watch())
        await self._monitor.pause_the_dead()

    async def close(self) -> None:
        if self._task:
            self._task.cancel()
        with contextlib.suppress(QMPError, OSError, EOFError):
            await self._monitor.client.disconnect()

    async def _watch(self) -> None:
        async for event in self._listener:
            data = event.get('data', {})
            if event['event'] in CRASHES:
                self.crash = CRASHES[event['event']]
                self.panicked |= event['event'] == 'GUEST_PANICKED'
            elif data['command'] == 'load' and not data['success']:
                self.problem = data.get('error', 'unknown error')

    def check(self) -> None:
        self._monitor.check()

    async def stop(self) -> None:
        await self._monitor.do('stop')

    async def save(self) -> None:
        await self.stop()
        await self._monitor.hmp(f'savevm {self._tag}')
        await self._monitor.do('cont')

    async def revive(self) -> None:
        """Let a stopped guest continue from the snapshot."""
        await self._monitor.reset_the_dead()
        await self._monitor.hmp(f'loadvm {self._tag}')
        self.crash = self.problem = ''
        self.panicked = False
        await self._monitor.do('cont')
