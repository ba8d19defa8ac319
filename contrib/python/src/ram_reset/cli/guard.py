# SPDX-License-Identifier: GPL-2.0-or-later
"""Load the snapshot for a guest of ram-reset feed that cannot request it."""

from typing import Any, Mapping

from ram_reset.cli.guest import CRASHES
from ram_reset.monitor import Monitor
from ram_reset.restorer import DEAD, pause_when_dead, revive, run_state


class Guard:
    """
    Loads the snapshot of a guest that does not request it.

    :ivar crash: how the guest has died, or ''
    :ivar panicked: whether it has not just shut down or reset
    :ivar problem: the reason why the guest's last load has failed, or ''
    """

    def __init__(self, socket: str, tag: str):
        self._socket = socket
        self._tag = tag
        self._monitor = Monitor()
        self.crash = ''
        self.panicked = False
        self.problem = ''

    async def start(self) -> None:
        self._monitor.on_event((*CRASHES, 'SNAPCTL_COMPLETED'), self._note)
        await self._monitor.connect(self._socket)
        await pause_when_dead(self._monitor)

    async def close(self) -> None:
        await self._monitor.close()

    def _note(self, event: Mapping[str, Any]) -> None:
        data = event.get('data', {})
        if event['event'] in CRASHES:
            self.crash = CRASHES[event['event']]
            self.panicked |= event['event'] == 'GUEST_PANICKED'
        elif data['command'] == 'load' and not data['success']:
            self.problem = data.get('error', 'unknown error')

    def check(self) -> None:
        """Raise LostError if QEMU has gone."""
        self._monitor.check()

    async def stop(self) -> None:
        await self._monitor.execute('stop')

    async def save(self) -> None:
        await self.stop()
        await self._monitor.human(f'savevm {self._tag}')
        await self._monitor.execute('cont')

    async def revive(self) -> None:
        """Let a stopped guest continue from the snapshot."""
        if await run_state(self._monitor) in DEAD:
            await revive(self._monitor, lambda: True)
        await self._monitor.human(f'loadvm {self._tag}')
        self.crash = self.problem = ''
        self.panicked = False
        await self._monitor.execute('cont')
