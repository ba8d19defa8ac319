# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's end of a channel to an agent in the guest, see guest/agent.c."""

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from lib import products
from lib.guests import Linux
from lib.machine import MIB
from lib.patience import Limit, patience

DROP = b'\xff'
TIMEOUT = 60.0
QUIET = 0.3


def hashed(data: bytes) -> int:
    total = 0x811c9dc5
    for byte in data:
        total = (total ^ byte) * 0x01000193 & 0xffffffff
    return total


class Garbage(AssertionError):
    """An answer to no request, or a wrong one."""


class Peer:
    """Sends requests, and takes answers, on a stream."""

    def __init__(self, end: socket.socket):
        self.end = end
        self.end.settimeout(patience(TIMEOUT))
        self._input = b''
        self._number = secrets.randbelow(1 << 30)

    def request(self, body: bytes, size: int = 0) -> tuple[bytes, bytes]:
        """A request, and the answer to it."""
        self._number += 1
        return (b'ask %d %d %b\n' % (self._number, size, body),
                b'%d %d %08x %b\n' % (self._number, len(body), hashed(body),
                                      b'.' * size))

    def send(self, data: bytes) -> None:
        self.end.sendall(data)

    def receive(self, size: int) -> bytes:
        """So many bytes."""
        self._receive(lambda: len(self._input) >= size)
        return self._take(size)

    def line(self) -> bytes:
        self._receive(lambda: b'\n' in self._input)
        return self._take(self._input.index(b'\n') + 1)

    def rest(self) -> bytes:
        """All that comes until it is quiet."""
        self.end.settimeout(QUIET)
        try:
            while data := self.end.recv(65536):
                self._input += data
        except TimeoutError:
            pass
        self.end.settimeout(patience(TIMEOUT))
        return self._take(len(self._input))

    def _take(self, size: int) -> bytes:
        data, self._input = self._input[:size], self._input[size:]
        return data

    def _receive(self, enough: Callable[[], bool]) -> None:
        while not enough():
            data = self.end.recv(65536)
            if not data:
                raise ConnectionError('the other end is closed')
            self._input += data

    def ask(self, body: bytes, size: int = 0) -> None:
        request, expected = self.request(body, size)
        self.send(request)
        if (found := self.line()) != expected:
            raise Garbage(f'{found[:80]!r} is not {expected[:80]!r}')

    def sync(self) -> int:
        """
        After this an answer is that to the next request.  The bytes that were
        neither.  Both ends drop all that comes before the mark; and a mark that
        is not this one is of a time before.
        """
        self._number += 1
        expected = b'sync %d\n' % self._number
        self.send(DROP + expected)
        dropped = 0
        while True:
            self._receive(lambda: DROP in self._input)
            dropped += len(self._take(self._input.index(DROP) + 1)) - 1
            self._receive(lambda: b'\n' in self._input or DROP in self._input)
            if self._input.startswith(expected):
                self._take(len(expected))
                return dropped


class AgentGuest(Linux):
    """An agent at a port of virtio-serial, or of vsock if @cid."""

    PORT = 5000

    def __init__(self, workdir: Path, *, cid: int = 0, **kwargs):
        self._path = workdir / 'port'
        self._cid = cid
        device = ('-device', f'vhost-vsock-pci,guest-cid={cid}') if cid else (
            '-chardev', f'socket,id=port0,path={self._path},server=on,wait=off',
            '-device', 'virtio-serial-pci', '-device',
            'virtserialport,chardev=port0,name=port0')
        super().__init__(workdir, ram=192 * MIB,
                         initrd=products.trust_initramfs(), args=device,
                         **kwargs)
        if not kwargs.get('loadvm'):
            self._start_agent()

    def _start_agent(self) -> None:
        for module in products.VSOCK_MODULES if self._cid else ():
            self.run(f'insmod /lib/{Path(module).name}.ko')
        way = f'vsock {self.PORT}' if self._cid else 'serial /dev/vport*p1'
        self.run(f'agent {way} /run/agent & sleep 0.1')

    def connect(self) -> Peer:
        if self._cid:
            end = socket.socket(socket.AF_VSOCK)
            end.settimeout(patience(TIMEOUT))
            end.connect((self._cid, self.PORT))
        else:
            end = socket.socket(socket.AF_UNIX)
            end.connect(str(self._path))
        return Peer(end)

    def pending(self) -> int:
        """Bytes of the request that the agent has in part."""
        return int(self.run('cat /run/agent').split()[0])

    def wait_pending(self, size: int) -> None:
        limit = Limit(TIMEOUT)
        while (found := self.pending()) != size:
            assert not limit.over(), f'{found} bytes are there, not {size}'
