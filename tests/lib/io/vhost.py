# SPDX-License-Identifier: GPL-2.0-or-later
"""
Other processes that do the work of a guest's devices in the guest's memory.

Each is a context.  @device is what QEMU is to be given.
"""

import hashlib
import os
import shutil
import signal
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lib import products
from lib.machine import MIB

BLOCK, SECTOR = 16384, 512      # as in guest/churn.c
LIBRARIES = ('usr/lib/x86_64-linux-gnu', 'lib/x86_64-linux-gnu')
LOADER = 'ld-linux-x86-64.so.2'


def stamped(size: int) -> bytes:
    """A disk for churn, each sector of which says where it belongs."""
    return b''.join(
        struct.pack('<QQQ', at // BLOCK + 1, at // BLOCK,
                    at % BLOCK // SECTOR).ljust(SECTOR, b'\0')
        for at in range(0, size, SECTOR))


class Backend:
    """A process that has @self.fd, where QEMU will connect, and a log."""

    def __init__(self, workdir: Path, name: str):
        self._log = workdir / f'{name}.log'
        self._listener = socket.socket(socket.AF_UNIX)
        # a name that Linux chooses, in no file system: paths can be long
        self._listener.bind('')
        self._listener.listen()
        self.fd = self._listener.fileno()
        self.name = self._listener.getsockname()[1:].decode()

    def start(self, *command: object, env: dict[str, str] | None = None
              ) -> None:
        with open(self._log, 'ab') as log:
            self._process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, pass_fds=(self.fd,), env=env)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def freeze(self, frozen: bool) -> None:
        self._process.send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def log(self) -> str:
        return self._log.read_text()

    def __enter__(self) -> 'Backend':
        return self

    def __exit__(self, *unused) -> None:
        self.freeze(False)
        self.kill()
        self._listener.close()
        print(self.log())


class StorageDaemon(Backend):
    """
    qemu-storage-daemon, which does a disk's I/O in guest RAM.  @iops: no more
    requests than that in a second, so that there are always some that wait.
    """

    def __init__(self, workdir: Path, content: bytes, *, iops: int = 0):
        products.require(products.QSD)
        super().__init__(workdir, 'daemon')
        self.image = workdir / 'served.raw'
        self.image.write_bytes(content)
        below = f'driver=file,node-name=file,filename={self.image}'
        limit: Sequence[str] = ()
        if iops:
            limit = ('--object', 'throttle-group,id=limit,'
                                 f'limits.iops-total={iops}',
                     '--blockdev', 'driver=throttle,node-name=slow,file=file,'
                                   'throttle-group=limit')
        self.start(products.QSD, '--blockdev', below, *limit,
                   '--export', 'vhost-user-blk,id=export,writable=on,'
                               f'node-name={"slow" if iops else "file"},'
                               f'addr.type=fd,addr.str={self.fd}')

    @property
    def device(self) -> tuple[str, ...]:
        return ('-chardev', f'socket,id=vu0,path={self.name},abstract=on',
                '-device', 'vhost-user-blk-pci,chardev=vu0')

    def sha256(self, first: int, count: int) -> str:
        with open(self.image, 'rb') as f:
            f.seek(first * MIB)
            return hashlib.sha256(f.read(count * MIB)).hexdigest()
