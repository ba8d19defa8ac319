# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory of another process that keeps loads from being rewinds."""

# Takes: 5 s

import array
import os
import socket
import struct
import threading

import pytest

from lib.effort import rounds
from lib.machine import MIB, Machine, MachineError

SIZE = 4 * MIB
PLACE = SIZE // 2
DOORBELL = 'ivshmem-doorbell,vectors=1,chardev=server'
PLAIN = 'ivshmem-plain,memdev=shmem,master=on'


class Server:
    """A server for one guest: its own id is 0, and nobody else is there."""

    def __init__(self, path):
        self.memory = os.memfd_create('shmem')
        os.ftruncate(self.memory, SIZE)
        self._bell = os.eventfd(0)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen(1)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        self._guest, _ = self._listening.accept()
        # version, id, the memory, a vector
        for number, fd in (0, None), (0, None), (-1, self.memory), \
                (0, self._bell):
            passed = [] if fd is None else [(
                socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))]
            self._guest.sendmsg([struct.pack('<q', number)], passed)


def with_doorbell(tmp_path, role: str) -> tuple[Machine, int]:
    path = tmp_path / 'server'
    server = Server(path)
    return machine(tmp_path, '-chardev', f'socket,id=server,path={path}',
                   '-device', DOORBELL + role), server.memory


def with_plain(tmp_path) -> tuple[Machine, int]:
    path = tmp_path / 'shmem'
    memory = os.open(path, os.O_RDWR | os.O_CREAT)
    return machine(
        tmp_path, '-device', PLAIN, '-object', 'memory-backend-file,id=shmem,'
        f'size={SIZE},share=on,mem-path={path}'), memory


def machine(tmp_path, *args) -> Machine:
    return Machine(tmp_path, accel='tcg', ram=64 * MIB, strategy='auto',
                   options=',rewind=on', args=('-S', *args))


def loads(guest: Machine, memory: int) -> list[tuple[bool, bytes]]:
    """For each load: whether it was a rewind, and the memory after it."""
    os.pwrite(memory, b'saved', PLACE)
    guest.save('s')
    seen = []
    for _ in range(rounds(5, 2)):
        os.pwrite(memory, b'later', PLACE)
        guest.load('s')
        seen.append((guest.last_load()['rewound'], os.pread(memory, 5, PLACE)))
    return seen


@pytest.mark.parametrize('ignore', ('on', 'off'))
def test_doorbell(tmp_path, ignore):
    """All of the server's memory is compared, so nobody need log anything."""
    guest, memory = with_doorbell(tmp_path, ',master=on')
    with guest:
        guest.hmp(f'migrate_set_capability x-ignore-shared {ignore}')
        assert set(loads(guest, memory)) == {(True, b'saved')}


def test_doorbell_of_a_peer(tmp_path):
    guest, _ = with_doorbell(tmp_path, '')
    with guest, pytest.raises(MachineError, match='peer mode'):
        guest.save('s')


def test_file_with_a_name(tmp_path):
    guest, memory = with_plain(tmp_path)
    with guest:
        assert set(loads(guest, memory)) == {(False, b'saved')}


def test_file_with_a_name_that_is_not_saved(tmp_path):
    guest, memory = with_plain(tmp_path)
    with guest:
        guest.hmp('migrate_set_capability x-ignore-shared on')
        assert set(loads(guest, memory)) == {(True, b'later')}


def written(guest: Machine) -> dict[str, int]:
    """Pages of each block that the last load has restored."""
    return {b['name']: b['dirty-pages'] + b['copied-pages']
            for b in guest.last_load()['blocks']}


def test_a_reset_leaves_roms_if_each_block_is_rewound(tmp_path):
    """The server's memory blocks rewinds, also with x-ignore-shared."""
    guest, memory = with_doorbell(tmp_path, ',master=on')
    with guest:
        guest.hmp('migrate_set_capability x-ignore-shared on')
        loads(guest, memory)
        guest.load('s')
        assert guest.last_load()['rewound']
        assert set(written(guest).values()) == {0}


def test_a_reset_writes_roms_if_a_block_is_left_out(tmp_path):
    guest, memory = with_plain(tmp_path)
    with guest:
        guest.hmp('migrate_set_capability x-ignore-shared on')
        loads(guest, memory)
        assert sum(written(guest).values()) > 0
