# SPDX-License-Identifier: GPL-2.0-or-later
"""The monitor of a QEMU whose guest snapctl-feed guards."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

from qemu.qmp import ExecuteError, QMPClient, QMPError
from qemu.qmp.protocol import Runstate

from program import Failure

PATIENCE = 10.0
DEAD = ('shutdown', 'internal-error')


class Monitor:
    """A refusal of QEMU raises a Failure; @lost makes one for a lost QEMU."""

    def __init__(self, name: str, lost: Callable[[], Failure]):
        self.client = QMPClient(name)
        self._lost = lost

    def check(self) -> None:
        if self.client.runstate != Runstate.RUNNING:
            raise self._lost()

    async def do(self, command: str, **arguments) -> object:
        try:
            return await self.client.execute(command, {
                key.replace('_', '-'): value
                for key, value in arguments.items()})
        except ExecuteError as e:
            raise Failure(f'QEMU refuses {command}: {e}')
        except (QMPError, OSError, EOFError):
            raise self._lost()

    async def hmp(self, line: str) -> str:
        output = await self.do('human-monitor-command', command_line=line)
        # an error's details are printed before the error
        if re.search('^Error:', output, re.MULTILINE):
            raise Failure(f"QEMU refuses '{line}': {output.strip()}")
        return output.strip()

    async def poll(self, check: Callable[[], Awaitable[bool]], problem: str
                   ) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await check():
            if time.monotonic() > deadline:
                raise Failure(f'QEMU does not behave: {problem}')
            await asyncio.sleep(0.001)

    async def pause_the_dead(self) -> None:
        """Make QEMU pause when the guest dies, so that it can load again."""
        await self.do('set-action', reboot='shutdown', shutdown='pause',
                      panic='pause')

    async def is_alive(self) -> bool:
        return (await self.do('query-status'))['status'] not in DEAD

    async def reset_the_dead(self) -> None:
        """Reset a machine that has been shut down, so that it can run again."""
        if await self.is_alive():
            return
        await self.do('set-action', reboot='reset')
        await self.do('system_reset')
        await self.poll(self.is_alive, 'it stays dead after a reset; start it '
                                       'with -action reboot=reset')
        await self.do('set-action', reboot='shutdown')
