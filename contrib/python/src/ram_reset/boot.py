# SPDX-License-Identifier: GPL-2.0-or-later
"""The time between the start of a machine and a shell in it that answers."""

import asyncio
import time
from typing import Sequence

from ram_reset.errors import GuestError
from ram_reset.machine import Machine

TRY = 5.0               # seconds; what is sent to a booting guest may be lost
PAUSE = 0.1             # seconds; an agent may refuse at once


async def wait_ready(machine: Machine, ready: str = '',
                     lines: Sequence[str] = (), seconds: float = 300.0
                     ) -> None:
    """
    Wait until the guest has booted, and its shell answers.

    :param ready: a regular expression that the serial port says then
    :param lines: sent to the serial port then
    :param seconds: the limit
    """
    end = time.monotonic() + seconds
    if machine.serial and ready:
        await machine.serial.expect(ready, seconds)
    if machine.serial:
        for line in lines:
            await machine.serial.send(line + '\n')
    while True:
        try:
            # also: a snapshot that is saved next has no half of these lines
            await machine.run(':', TRY)
            break
        except GuestError:
            if time.monotonic() > end:
                raise
            await asyncio.sleep(PAUSE)
