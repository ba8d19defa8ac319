# SPDX-License-Identifier: GPL-2.0-or-later
"""The results of ram-reset-loop, and the guest's serial port."""

import asyncio
import contextlib
import math
import socket
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from program import Failure


@dataclass
class Results:
    loads: list[float] = field(default_factory=list)
    iterations: list[float] = field(default_factory=list)
    bad: Counter = field(default_factory=Counter)
    whole: Counter = field(default_factory=Counter)     # by reason
    rewinds: int = 0
    seconds: float = 0.0

    def note_load(self, info: dict | None) -> None:
        last = (info or {}).get('last-load')
        if last and last['rewound']:
            self.rewinds += 1
        else:
            reason = 'this QEMU has no query-ram-reset' if info is None else \
                (last or {}).get('blocker', 'no ram-reset object has rewind=on')
            self.whole[reason] += 1

    def summary(self) -> str:
        n = len(self.loads)
        if not n:
            return 'No load was made.'
        rate = n / self.seconds
        lines = [f'{n} loads in {self.seconds:.1f} s: {rate:.1f} per second, '
                 f'{n / sum(self.loads):.1f} in the time of loads alone',
                 f'load:      {spread(self.loads)}',
                 f'iteration: {spread(self.iterations)}',
                 f'rewinds:   {self.rewinds} of {n}']
        lines += [f'  not {times}: {reason}'
                  for reason, times in self.whole.most_common()]
        lines.append(f'errors:    {self.bad.total()}')
        lines += [f'  {kind}: {times}' for kind, times in
                  self.bad.most_common()]
        return '\n'.join(lines)


def spread(times: list[float]) -> str:
    if not times:
        return 'none was completed'
    ordered = sorted(times)

    def at(part: float) -> float:
        return ordered[math.ceil(part * len(ordered)) - 1] * 1000

    return f'median {at(.5):.2f} ms, 99th percentile {at(.99):.2f} ms'


class Serial:
    """
    The guest's serial port.  QEMU serves one client, which is this program;
    other programs can connect to another socket, which this one serves.
    """

    def __init__(self, path: str, shared: Path, changed: asyncio.Event):
        self._path = path
        self.shared = shared
        self._changed = changed
        self._socket: socket.socket | None = None
        self._guests: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.text = b''

    async def open(self) -> None:
        self.connect()
        self._server = await asyncio.start_unix_server(self._serve,
                                                       self.shared)

    def connect(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(self._path)
        except OSError as e:
            raise Failure(f'the serial port {self._path} cannot be opened '
                          f'({e.strerror}); give the path of a socket chardev '
                          'of QEMU that has server=on')
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(self._socket, self.drain)

    async def _serve(self, reader: asyncio.StreamReader,
                     writer: asyncio.StreamWriter) -> None:
        self._guests.add(writer)
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self.send(data)
        self._guests.discard(writer)
        writer.close()

    async def send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):  # the guest's end is watched
            await asyncio.get_running_loop().sock_sendall(self._socket, data)

    def drain(self) -> None:
        """Read all output of the guest until now."""
        while True:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b''
            if not data:
                asyncio.get_running_loop().remove_reader(self._socket)
                return
            self.text += data
            for writer in self._guests:
                writer.write(data)
            self._changed.set()

    def disconnect(self) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def close(self) -> None:
        if self._server:
            self._server.close()
        self.disconnect()
