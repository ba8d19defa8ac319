# SPDX-License-Identifier: GPL-2.0-or-later
"""
The host's end of what guest/chatter.c talks to.

Messages go both ways as fast as either end takes them. Each has a number; the
guest sends back the one that it has seen last, so that a number that comes
back has been through the queues of both directions.
"""

import errno
import itertools
import os
import random
import re
import socket
import threading
from pathlib import Path

from lib.machine import MachineError, run_quietly

FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ECONNREFUSED, errno.ENOENT,
        errno.ENOTCONN, errno.EPIPE)
ETHERTYPE = 0x88b5
NUMBER = re.compile(rb'<(\d+)>')


class Channel:
    """@HEADER goes before each message."""

    HEADER = b''

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._number = 0
        self._seen = 0
        self._changed = threading.Condition()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True)
                         for work in (self._send, self._receive)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def send(self, data: bytes) -> None:
        raise NotImplementedError

    def receive(self) -> bytes:
        raise NotImplementedError

    def _send(self) -> None:
        rng = random.Random(1)
        while not self._over.is_set():
            noise = b'.' * rng.randrange(60, 1000)
            try:
                self.send(self.HEADER + b'<%d>' % self._number + noise)
            except OSError as e:
                if e.errno not in FULL:
                    raise
                # as long as QEMU reads nothing
                self._over.wait(0.0005)

    def _receive(self) -> None:
        while not self._over.is_set():
            try:
                data = self.receive()
            except TimeoutError:
                continue
            except OSError:
                return
            for found in NUMBER.finditer(data):
                with self._changed:
                    self._seen = int(found[1])
                    self._changed.notify_all()

    def renew(self) -> None:
        """A new number, which none has seen."""
        self._number = next(self._numbers)

    def flows(self, timeout: float) -> bool:
        """Whether the number of now comes back."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._seen == self._number, timeout)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(10)


class Frames(Channel):
    """The other end of a cable."""

    HEADER = b'\xff' * 6 + b'\2\0\0\0\0\2' + ETHERTYPE.to_bytes(2)

    def __init__(self, workdir: Path):
        super().__init__()
        self._ours, self._theirs = workdir / 'net.host', workdir / 'net.guest'
        self._ours.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._ours))
        self._socket.settimeout(0.2)
        self._sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sending.setblocking(False)
        self.netdev = (f'dgram,local.type=unix,local.path={self._theirs},'
                       f'remote.type=unix,remote.path={self._ours}')

    def send(self, data: bytes) -> None:
        self._sending.sendto(data, str(self._theirs))

    def receive(self) -> bytes:
        return self._socket.recv(2048)


class Datagrams(Channel):
    """A server of this host that user networking reaches."""

    GATEWAY = '10.0.2.2'

    def __init__(self) -> None:
        super().__init__()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(('127.0.0.1', 0))
        self._socket.settimeout(0.2)
        self._peer: tuple[str, int] | None = None
        self.port = self._socket.getsockname()[1]
        self.netdev = 'user'

    def send(self, data: bytes) -> None:
        if not self._peer:
            raise OSError(errno.ENOTCONN, 'the guest has not sent anything')
        self._socket.sendto(data, self._peer)

    def receive(self) -> bytes:
        data, self._peer = self._socket.recvfrom(2048)
        return data


TAP = f'rr{os.getpid()}'


def why_no_tap() -> str:
    """The reason why none can be made: missing rights, or parts; or ''."""
    try:
        run_quietly('ip', 'tuntap', 'add', 'dev', TAP, 'mode', 'tap')
        run_quietly('ip', 'link', 'del', TAP)
    except (OSError, MachineError) as e:
        return str(e)
    return ''


class Tap(Channel):
    """An interface of this host; who may not make one gets an error."""

    HEADER = Frames.HEADER

    def __init__(self) -> None:
        super().__init__()
        self._name = TAP
        vhost = 'on' if os.access('/dev/vhost-net', os.R_OK | os.W_OK) else \
            'off'
        self.netdev = (f'tap,ifname={self._name},script=no,downscript=no,'
                       f'vhost={vhost}')
        self._ip('tuntap', 'add', 'dev', self._name, 'mode', 'tap')

    def _ip(self, *args: str) -> None:
        run_quietly('ip', *args)

    def start(self) -> None:
        self._ip('link', 'set', self._name, 'up')
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                                     socket.htons(ETHERTYPE))
        self._socket.bind((self._name, ETHERTYPE))
        self._socket.settimeout(0.2)
        super().start()

    def send(self, data: bytes) -> None:
        self._socket.send(data)

    def receive(self) -> bytes:
        data, (_, _, kind, *_) = self._socket.recvfrom(2048)
        return b'' if kind == socket.PACKET_OUTGOING else data

    def close(self) -> None:
        super().close()
        self._ip('link', 'del', self._name)


class Stream(Channel):
    """A port of virtio-serial."""

    def __init__(self, path: Path):
        super().__init__()
        self._path = path
        self.chardev = f'socket,path={path},server=on,wait=off'

    def start(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(0.2)
        self._socket.connect(str(self._path))
        super().start()

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except TimeoutError:
            pass        # of a message that is sent in part the end is missing

    def receive(self) -> bytes:
        data = self._socket.recv(8192)
        if not data:
            raise OSError('closed')
        return data
