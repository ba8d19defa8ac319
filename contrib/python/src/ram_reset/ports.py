# SPDX-License-Identifier: GPL-2.0-or-later
"""All ways from one machine to its guest."""

from pathlib import Path
from typing import List, Union

from ram_reset.channel import Agent, Result, Serial
from ram_reset.errors import UsageError
from ram_reset.monitor import Monitor
from ram_reset.region import Region

Port = Union[Serial, Agent, Region]
AnyPath = Union[str, Path, None]


class Ports:
    """
    :param serial: the socket of the serial port's chardev
    :param agent: the socket of the guest agent's chardev
    :param region: the file of the snapctl device's memory backend
    """

    def __init__(self, monitor: Monitor, serial: AnyPath = None,
                 agent: AnyPath = None, region: AnyPath = None):
        self.serial = Serial(Path(serial), 'serial port', monitor) \
            if serial else None
        self.agent = Agent(Path(agent), "guest agent's port", monitor) \
            if agent else None
        self.region = Region(Path(region), monitor) if region else None
        found = self.agent, self.serial, self.region
        self.all: List[Port] = [port for port in found if port]

    async def open(self) -> None:
        for port in self.all:
            await port.open()

    def close(self) -> None:
        for port in self.all:
            port.close()

    async def run(self, command: str, timeout: float) -> Result:
        """See Machine.run()."""
        if not self.all:
            raise UsageError('the machine has no way to its guest; start it '
                             'with agent=True or serial=True')
        return await self.all[0].run(command, timeout)
