# SPDX-License-Identifier: GPL-2.0-or-later
"""A load by a monitor on TCP takes no longer than one by a unix socket."""

# Alone: it compares times

import json
import re
import socket
import statistics
import time

import pytest

from lib.effort import rounds
from lib.machine import MIB, Machine

LOADS = rounds(60, 25)
MOST = 1.5                  # times as long
ROUNDS = 5                  # one is enough; a busy host delays one way or other
CHARDEV = 'socket,id=tcp,host=127.0.0.1,port=0,server=on,wait=off'


class Client:
    """The stream of a monitor on TCP, as it leaves the socket."""

    def __init__(self, guest: Machine, mode: str):
        chardev, = (c for c in guest.qmp('query-chardev')
                    if c['label'] == 'tcp')
        port = int(re.search(r'127\.0\.0\.1:(\d+)', chardev['filename'])[1])
        self._socket = socket.create_connection(('127.0.0.1', port), 20)
        self._mode = mode
        self._read()
        if mode == 'control':
            self._send({'execute': 'qmp_capabilities'})

    def _read(self) -> None:
        """Up to the answer, or the prompt."""
        end = rb'\(qemu\) $' if self._mode == 'readline' \
            else rb'(?m)^\{"(return|error|QMP)".*\n'
        found = b''
        while not re.search(end, found):
            found += self._socket.recv(65536)
        assert b'rror' not in found

    def _send(self, command: dict) -> None:
        self._socket.sendall(json.dumps(command).encode())
        self._read()

    def load(self) -> None:
        if self._mode == 'readline':
            self._socket.sendall(b'loadvm a\n')
            self._read()
        else:
            self._send({'execute': 'human-monitor-command',
                        'arguments': {'command-line': 'loadvm a'}})

    def close(self) -> None:
        self._socket.close()


def timed(load) -> float:
    start = time.perf_counter()
    load()
    return time.perf_counter() - start


def medians(ways: dict) -> list[float]:
    """In ms, of loads by each of @ways in turn."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(LOADS):
        for way, load in ways.items():
            times[way].append(timed(load))
    return [statistics.median(times[way]) * 1000 for way in ways]


@pytest.mark.parametrize('mode', ('control', 'readline'))
def test_load_by_tcp(tmp_path, fast_accel, mode):
    with Machine(tmp_path, accel=fast_accel, ram=16 * MIB, strategy='auto',
                 options=',rewind=on', args=(
                     '-chardev', CHARDEV,
                     '-mon', f'chardev=tcp,mode={mode}')) as guest:
        guest.save('a')
        client = Client(guest, mode)
        ways = {'unix': lambda: guest.load('a'), 'tcp': client.load}
        for _ in range(ROUNDS):
            unix, tcp = medians(ways)
            print(f'{mode}: {unix:.2f} ms by a unix socket, {tcp:.2f} ms by '
                  'TCP')
            if tcp < MOST * unix:
                break
        client.close()
    assert tcp < MOST * unix
