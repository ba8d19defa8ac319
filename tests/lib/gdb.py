# SPDX-License-Identifier: GPL-2.0-or-later
"""As much of gdb's remote protocol as it takes to let a guest go on."""

import socket
from pathlib import Path

from lib.patience import patience

TIMEOUT = 20.0


class Debugger:
    """A context that is connected to QEMU's -gdb."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(patience(TIMEOUT))
        self._socket.connect(str(path))
        self._seen = b''

    def __enter__(self) -> 'Debugger':
        return self

    def __exit__(self, *unused) -> None:
        self._socket.close()

    def ask_in_vain(self, packet: str) -> None:
        """QEMU has seen it when this returns, and has not let the guest go."""
        self.send(packet)
        if packet == 'D':
            self._until(b'$OK')
        else:
            # if the guest ran, the first byte would be a request to stop it
            self.send('qC')
            self._until(b'$QC')

    def ask(self, packet: str) -> None:
        self.send(packet)
        self._until(b'$OK')

    def wait_stopped(self) -> None:
        """By a breakpoint."""
        self._until(b'$T05')

    def send(self, packet: str) -> None:
        data = packet.encode()
        self._socket.sendall(b'$%b#%02x' % (data, sum(data) % 256))

    def _until(self, text: bytes) -> None:
        while text not in self._seen:
            data = self._socket.recv(4096)
            if not data:
                raise ConnectionError(f'the debugger is not served any more; '
                                      f'after {self._seen!r}')
            self._seen += data
        self._socket.sendall(b'+')
        self._seen = b''
