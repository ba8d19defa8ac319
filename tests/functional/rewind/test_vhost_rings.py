# SPDX-License-Identifier: GPL-2.0-or-later
"""
A guest that writes to the used ring of a vhost device, which is how QEMU would
know what the back end has finished.  Loads and stops go on, and are right.
"""

# Takes: 35 s

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lib.dma import Qtest
from lib.effort import tried
from lib.io.vhost import BACKENDS, Backend, Served, StorageDaemon, stamped
from lib.machine import MIB

SIZE = 4 * MIB
REWIND = {'strategy': 'auto', 'options': ',rewind=on,verify=on'}
READ = 'dd if=/dev/vda of=/dev/null bs=64k iflag=direct 2>/dev/null'
ANSWERS = 'dd if=/dev/vda of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null'
DEVICE = '/machine/peripheral/served-disk/virtio-backend'
# A load or a stop may take so many times what it takes without the write; one
# that waits for the request that the index claims takes more than 20 times that
RATIO = 8


def seconds(act: Callable, *args: str) -> float:
    begin = time.monotonic()
    act(*args)
    return time.monotonic() - begin


class Liar:
    """Writes the index of a guest's used ring as the guest would."""

    def __init__(self, guest: Served, qtest: Qtest):
        self._qtest = qtest
        # while a device is started, this would have its back end stop a queue
        guest.stop()
        status = guest.qmp('x-query-virtio-queue-status', path=DEVICE, queue=0)
        guest.cont()
        self._address = status['vring-used'] + 2

    def index(self) -> int:
        return int(self._qtest.ask(f'readw {self._address:#x}'), 0)

    def write(self, index: int) -> None:
        self._qtest.ask(f'writew {self._address:#x} {index & 0xffff:#x}')


@contextmanager
def lying(workdir: Path, backend: type[Backend],
          **kwargs) -> Iterator[tuple[Served, Liar]]:
    """A guest that has read its disk."""
    qtest = Qtest(workdir)
    with backend(workdir, stamped(SIZE), **kwargs) as daemon, \
            Served(workdir, [daemon], disks={'served': '/dev/vda'},
                   args=qtest.args, **REWIND) as guest:
        qtest.connect()
        guest.load_drivers(Served.MODULES)
        liar = Liar(guest, qtest)
        guest.run(READ)
        yield guest, liar
        qtest.close()


def check_rewound(guest: Served) -> None:
    load = guest.last_load()
    assert load['rewound'], load['blocker']


def check_disk(guest: Served) -> None:
    said = guest.run('dd if=/dev/vda bs=64k iflag=direct 2>/dev/null | '
                     'sha256sum')
    assert said.split()[0] == hashlib.sha256(stamped(SIZE)).hexdigest()


@pytest.mark.parametrize('backend', BACKENDS)
def test_used_index(tmp_path, backend):
    """Whether the back end had requests since the last load or not."""
    daemon = BACKENDS[backend]
    with lying(tmp_path, daemon, reconnect=True) as (guest, liar):
        guest.save('s')
        saved = liar.index()
        usual = max(seconds(guest.load, 's') for _ in range(3))
        usual_stop = max(seconds(guest.stop) + seconds(guest.cont)
                         for _ in range(3))
        cases = (5, False), (0xffff, True), (5, True), (0xffff, False)
        for index, requests in cases[:tried(4, 2)]:
            if requests:
                guest.run(READ)
            liar.write(index)
            said = []
            assert seconds(lambda: said.append(guest.hmp('loadvm s'))) < \
                RATIO * usual
            # the region knows better than the ring
            assert (f"'{DEVICE}' has not finished" in said[0]) == \
                (not daemon.REGION)
            assert liar.index() == saved
            guest.until(ANSWERS)
            check_disk(guest)
            # no baseline before the device is started anew
            guest.load('s')
            guest.load('s')
            check_rewound(guest)
            if daemon.REGION:
                # it would begin with that index when the guest is resumed
                continue
            # the guest's driver may give its device up, but nothing else
            liar.write(index)
            assert seconds(guest.stop) + seconds(guest.cont) < \
                RATIO * max(usual, usual_stop)
            guest.load('s')
            guest.until(ANSWERS)
            check_disk(guest)


@pytest.mark.long('test_used_index has loads with a wrong index')
def test_snapshot_of_it(tmp_path):
    """Requests that the snapshot lacks for good are no reason for anything."""
    with lying(tmp_path, StorageDaemon) as (guest, liar):
        liar.write(liar.index() - 5)
        guest.save('s')
        # no baseline before the device is started anew
        guest.load('s')
        guest.load('s')
        for _ in range(3):
            guest.load('s')
            check_rewound(guest)


@pytest.mark.long('test_used_index has a request that is missing')
def test_one_less(tmp_path):
    """
    A request may be under way as far as QEMU can know: the back end is
    disconnected, and comes back.
    """
    with lying(tmp_path, StorageDaemon, reconnect=True) as (guest, liar):
        guest.save('s')
        guest.load('s')
        times, said = [], ''
        for _ in range(3):
            guest.run(READ)
            liar.write(liar.index() - 1)
            begin = time.monotonic()
            said += guest.hmp('loadvm s')
            times.append(time.monotonic() - begin)
            assert not guest.last_load()['rewound']
            guest.until(ANSWERS)
            check_disk(guest)
        assert f"'{DEVICE}' has not finished" in said
        # QEMU has less and less patience
        assert times[2] < times[0]
