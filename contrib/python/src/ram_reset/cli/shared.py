# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest's serial port that other programs use too."""

import asyncio
from pathlib import Path
from typing import Callable, Optional, Set

from ram_reset.channel import Serial
from ram_reset.errors import GuestError


class SharedSerial:
    """
    QEMU serves one client, which is this program; other programs can connect
    to another socket, which this one serves.

    :ivar text: the guest's output since it was emptied last
    :ivar path: of the socket for other programs
    :param changed: to be called when there is new output
    """

    def __init__(self, serial: Serial, path: Path,
                 changed: Callable[[], None]):
        self.text = b''
        self.path = path
        self.serial = serial
        self._changed = changed
        self._writers: Set[asyncio.StreamWriter] = set()
        self._server: Optional[asyncio.AbstractServer] = None

    async def open(self) -> None:
        self.serial.listen(self._note)
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    def _note(self, data: bytes) -> None:
        self.text += data
        for writer in self._writers:
            writer.write(data)
        self._changed()

    async def _serve(self, reader: asyncio.StreamReader,
                     writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                data = await reader.read(65536)
                if not data:
                    break
                await self.serial.write(data)
        except (OSError, GuestError):
            pass            # the ends of QEMU and of programs are watched
        finally:
            self._writers.discard(writer)
            writer.close()

    def close(self) -> None:
        if self._server:
            self._server.close()
        self.serial.close()
