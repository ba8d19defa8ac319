# SPDX-License-Identifier: GPL-2.0-or-later
"""query-ram-reset and warnings say what is so: phases, costs, limits, ROMs."""

# Takes: 10 s

import mmap
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.machine import MIB, Machine

TAG = 's'
IGNORE = {'capabilities': [{'capability': 'x-ignore-shared', 'state': True}]}


def start(workdir: Path, strategy: str = 'auto', options: str = '',
          **kwargs) -> Machine:
    return Machine(workdir, accel='tcg', ram=64 * MIB, strategy=strategy,
                   options=options, **kwargs)


def load(guest: Machine) -> dict:
    guest.load(TAG)
    return guest.last_load()


@pytest.mark.parametrize('verify', ('off', 'on'))
@pytest.mark.parametrize('rewind', ('off', 'on'))
def test_verify_is_a_phase_of_its_own(tmp_path, verify, rewind):
    with start(tmp_path, options=f',verify={verify},rewind={rewind}',
               args=('-S',)) as guest:
        guest.save(TAG)
        load(guest)
        last = load(guest)
        phases = last['phases']
        text = guest.hmp('info ram-reset')
        total = phases.pop('total')
        assert last['rewound'] == (rewind == 'on')
        assert (phases['verify'] > 0) == (verify == 'on')
        assert sum(phases.values()) == total
        assert f'verify {phases["verify"] / 1e6:.3f} ms' in text


@pytest.mark.parametrize('templates', (False, True))
def test_costs_that_are_not_known_have_no_table(tmp_path, templates):
    """With templates, loads may never need them."""
    (tmp_path / 'templates').mkdir(mode=0o700)
    options = f',template-dir={tmp_path / "templates"}' if templates else ''
    with start(tmp_path, options=options, args=('-S',)) as guest:
        text = guest.hmp('info ram-reset')
    assert ('costs in ns (measured)' in text) == (not templates)
    assert ('granule' in text) == (not templates)
    assert ('no costs measured yet' in text) == templates


@pytest.mark.parametrize('options, warned', (
    (',rewind-limit=1G', 'rewind-limit= has no effect without rewind=on'),
    (',rewind-limit=1G,rewind=on', ''),
    (',template-limit=1G', 'template-limit= has no effect without '
                           'template-dir='),
    ('', '')))
def test_a_limit_of_nothing_is_warned_of(tmp_path, options, warned):
    with start(tmp_path, options=options, args=('-S',)) as guest:
        log = guest.log()
    assert ('has no effect' in log) == bool(warned)
    assert warned in log
    assert not warned or "'rr0'" in log


class Server:
    """Of ivshmem-doorbell: one peer, and memory that all share."""

    def __init__(self, path: Path, size: int):
        self._size = size
        self._memory = os.memfd_create('shared')
        os.ftruncate(self._memory, size)
        self._interrupt = os.eventfd(0)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        self._peer, _ = self._listener.accept()
        # the protocol's version, the peer's number, memory (-1), an interrupt
        for number, fds in ((0, []), (0, []), (-1, [self._memory]),
                            (0, [self._interrupt])):
            socket.send_fds(self._peer, [struct.pack('<q', number)], fds)

    def content(self) -> bytes:
        with mmap.mmap(self._memory, self._size) as m:
            return m[:]

    def close(self) -> None:
        self._thread.join(5)
        self._peer.close()
        self._listener.close()
        os.close(self._memory)
        os.close(self._interrupt)


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    server = Server(tmp_path / 'shmem', MIB)
    yield server
    server.close()


def written(last: dict) -> dict[str, int]:
    return {b['name']: b['dirty-pages'] + b['copied-pages']
            for b in last['blocks']}


def test_shared_memory_of_a_device_lets_roms_stay(tmp_path, server):
    with start(tmp_path, options=',rewind=on', args=('-S',)) as guest:
        guest.save(TAG)
        load(guest)
        alone = load(guest)
        assert alone['rewound']
    with start(tmp_path, options=',rewind=on,verify=on', args=(
            '-S', '-chardev', f'socket,id=shmem,path={tmp_path / "shmem"}',
            '-device', 'ivshmem-doorbell,chardev=shmem,vectors=1,master=on'),
            ) as guest:
        guest.qmp('migrate-set-capabilities', **IGNORE)
        guest.save(TAG)
        load(guest)
        last = load(guest)
        assert last['rewound'], last.get('blocker')
        changed = written(last)
        assert {name: pages for name, pages in changed.items()
                if name in written(alone)} == written(alone)
        assert server.content() == bytes(MIB)
