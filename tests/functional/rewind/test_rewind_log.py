# SPDX-License-Identifier: GPL-2.0-or-later
"""Other users of the dirty log, and unlogged writers to guest RAM."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.dma import SCRATCH, SECTOR, BadDisk, Qtest
from lib.guests import PAGE, Ring3
from lib.machine import DISK, MIB, Machine, MachineError
from lib.migrating import wait_migration
from lib.patience import Limit
from lib.rewinding import RAM_SIZE, START, assert_rewound, boot

DIMM = 4 << 30


def test_migration_after_a_load(tmp_path, tracker):
    """A migration finds all that the guest writes, though a log was on."""
    state = tmp_path / 'state'
    with boot(tmp_path, tracker) as guest:
        guest.ask('fill', START, MIB, 1)
        guest.save('s')
        for _ in range(3):
            guest.ask('fill', START + MIB, MIB, 2)
            guest.load('s')
        assert_rewound(guest)
        guest.start_loop(START + 4 * MIB, 64, 100)
        guest.qmp('migrate-set-parameters', **{'max-bandwidth': 64 * MIB})
        guest.qmp('migrate', uri=f'file:{state}')
        wait_migration(guest, 'completed')
    with Ring3(tmp_path, accel=tracker, memory='shared', ram=RAM_SIZE,
               args=('-incoming', 'defer')) as guest:
        # not before: an event would come between a greeting and its answer
        guest.qmp('migrate-incoming', uri=f'file:{state}')
        for _ in range(5):
            guest.next_pass()
        guest.sync()
        guest.ask('check-fill', START, MIB, 1)


@pytest.mark.any_value
def test_dirty_rate(tmp_path, tracker):
    """Another user of the dirty log gets an answer, and does no harm."""
    mode = 'dirty-ring' if 'ring' in tracker else 'dirty-bitmap'
    with boot(tmp_path, tracker, options=',verify=on') as guest:
        guest.ask('fill', START, MIB, 1)
        guest.stop()
        image = guest.ram_image()
        guest.save('s')
        for n in range(4):
            guest.cont()
            if n % 2:       # one before the load, one across it
                guest.qmp('calc-dirty-rate', mode=mode, **{'calc-time': 1})
            for _ in range(5):
                guest.ask('tag', START + 4 * MIB, 200, PAGE, n + 1)
                time.sleep(0.1)
            if n == 1:
                wait_measured(guest)
            guest.stop()
            guest.load('s')
            assert_rewound(guest)
            assert_same_ram(guest.ram_image(), image)
        guest.cont()
        wait_measured(guest)


def wait_measured(guest: Ring3) -> None:
    limit = Limit(30)
    while (found := guest.qmp('query-dirty-rate'))['status'] != 'measured':
        assert not limit.over(), found
        time.sleep(0.05)


def test_vfio_ends_tracking(tmp_path, fast_accel):
    """It would be notified of the dirty log, and QEMU ends if it refuses."""
    absent = {'driver': 'vfio-pci', 'host': '0000:ff:1f.7', 'id': 'v0'}
    with boot(tmp_path, fast_accel) as guest:
        guest.save('s')
        guest.load('s')
        assert_rewound(guest)
        with pytest.raises(MachineError, match='ff:1f.7'):
            guest.qmp('device_add', **absent)
        guest.load('s')
        assert 'plugged' in guest.last_load()['blocker']
        guest.stop()
        for _ in range(2):
            with pytest.raises(MachineError, match='while the guest is stop'):
                guest.qmp('device_add', **absent)
        guest.load('s')
        assert 'plugged' in guest.last_load()['blocker']
        guest.load('s')
        assert_rewound(guest)


def test_memory_plugged_while_a_log_is_on(tmp_path, tracker):
    """No log has memory that is plugged while another log is on."""
    if 'ring' in tracker:
        mode = 'dirty-ring'
    else:
        mode = 'dirty-bitmap'
    with boot(tmp_path, tracker, options=',verify=on',
              args=('-m', 'slots=1,maxmem=1G')) as guest:
        guest.qmp('calc-dirty-rate', mode=mode, **{'calc-time': 60})
        time.sleep(0.3)
        guest.qmp('object-add', **{'qom-type': 'memory-backend-ram',
                                   'id': 'more', 'size': 16 * MIB})
        guest.qmp('device_add', driver='pc-dimm', id='dimm', memdev='more')
        guest.ask('tag', DIMM, 200, PAGE, 1)
        guest.save('s')
        for n in range(3):
            guest.ask('tag', DIMM + MIB, 300, PAGE, n)
            guest.load('s')     # fails if a page is stale
            assert_rewound(guest)


@contextlib.contextmanager
def with_bad_disk(workdir: Path, accel: str
                  ) -> Iterator[tuple[Ring3, Qtest, BadDisk]]:
    """A guest whose RAM a disk reads into, which fails behind its beginning."""
    qtest = Qtest(workdir)
    disk = BadDisk(workdir, MIB, RAM_SIZE - SCRATCH)
    with boot(workdir, accel, options=',verify=on',
              args=('-device', f'virtio-blk-pci,drive={DISK}', *qtest.args,
                    *disk.args)) as guest:
        qtest.connect()
        yield guest, qtest, disk
        qtest.close()


def test_request_that_failed_in_part(tmp_path, fast_accel):
    """It says that it has written nothing, and is dropped by the reset."""
    good = BadDisk.GOOD * SECTOR
    with with_bad_disk(tmp_path, fast_accel) as (guest, qtest, disk):
        guest.ask('fill', START, 2 * good, 1)
        guest.save('s')
        for _ in range(3):
            disk.start(qtest, 0, 2 * disk.GOOD, START)
            wait_for_status(guest, 'io-error')
            assert qtest.read(START, good) == bytes(good)
            guest.load('s')
            assert_rewound(guest)
            guest.cont()
            guest.ask('check-fill', START, 2 * good, 1)


def test_request_that_was_begun_before_the_save(tmp_path, fast_accel):
    """Its memory was mapped before anything was tracked; a retry writes it."""
    good = BadDisk.GOOD * SECTOR
    with with_bad_disk(tmp_path, fast_accel) as (guest, qtest, disk):
        disk.start(qtest, 0, 2 * disk.GOOD, START)
        wait_for_status(guest, 'io-error')
        qtest.ask(f'memset {START:#x} {2 * good:#x} 0x5a')
        guest.save('s')
        for _ in range(3):
            guest.cont()
            wait_for_status(guest, 'io-error')
            assert qtest.read(START, good) == bytes(good)
            guest.load('s')
            assert_rewound(guest)
            assert qtest.read(START, 2 * good) == b'\x5a' * 2 * good


def test_object_that_comes_late(tmp_path):
    """A load is needed to know what devices had mapped before."""
    qtest = Qtest(tmp_path)
    with Machine(tmp_path, accel='qtest', ram=RAM_SIZE, memory='shared', args=(
            '-M', 'q35', '-device', f'ide-hd,drive={DISK},bus=ide.0',
            *qtest.args)) as machine:
        qtest.connect()
        ahci = Ahci(qtest)
        ahci.read_sector(1)
        before = qtest.read(Ahci.FIS, PAGE)
        machine.qmp('object-add', **{'qom-type': 'ram-reset-auto', 'id': 'rr0',
                                     'rewind': True, 'verify': True})
        machine.save('s')
        for rewound in (False, True, True):
            ahci.read_sector(2)
            assert qtest.read(Ahci.FIS, PAGE) != before
            machine.load('s')
            assert qtest.read(Ahci.FIS, PAGE) == before
            assert machine.last_load()['rewound'] == rewound
            assert rewound or 'added while' in machine.last_load()['blocker']
        qtest.close()


def wait_for_status(guest: Ring3, status: str) -> None:
    limit = Limit(30)
    while guest.status() != status:
        assert not limit.over(), guest.status()
        time.sleep(0.02)


class Ahci:
    """A port of the q35's disk controller, driven by writes to its memory."""

    BAR, PORT = 0xe0000000, 0xe0000100
    LIST, FIS, TABLE, BUFFER = (START + i * PAGE for i in range(4))

    def __init__(self, qtest: Qtest):
        self._qtest = qtest
        for register, value in ((0x24, self.BAR), (0x04, 7)):
            qtest.out('l', 0xcf8, 1 << 31 | 31 << 11 | 2 << 8 | register)
            qtest.out('l', 0xcfc, value)
        self._set(self.BAR + 0x04, 1 << 31)
        for register, value in ((0x00, self.LIST), (0x04, 0), (0x08, self.FIS),
                                (0x0c, 0), (0x18, 0x16), (0x18, 0x17)):
            self._set(self.PORT + register, value)

    def _set(self, address: int, value: int) -> None:
        self._qtest.ask(f'writel {address:#x} {value:#x}')

    def read_sector(self, sector: int) -> None:
        self._qtest.write(self.LIST, struct.pack('<IIII', 5 | 1 << 16, 0,
                                                 self.TABLE, 0))
        read_dma_ext = bytes((0x27, 0x80, 0x25, 0, sector, 0, 0, 0x40))
        self._qtest.write(self.TABLE, read_dma_ext.ljust(12, b'\0')
                          + b'\1'.ljust(0x80 - 12, b'\0')
                          + struct.pack('<QII', self.BUFFER, 0, 511))
        self._set(self.PORT + 0x38, 1)
        limit = Limit(10)
        while int(self._qtest.ask(f'readl {self.PORT + 0x38:#x}'), 0):
            assert not limit.over()
            time.sleep(0.01)


def test_memory_that_stays_mapped(tmp_path):
    """AHCI writes to it as long as a port is in use, and does not say when."""
    qtest = Qtest(tmp_path)
    with Machine(tmp_path, accel='qtest', ram=RAM_SIZE, memory='shared',
                 strategy='auto', options=',rewind=on,verify=on', args=(
                     '-M', 'q35', '-device', f'ide-hd,drive={DISK},bus=ide.0',
                     *qtest.args)) as machine:
        qtest.connect()
        ahci = Ahci(qtest)
        ahci.read_sector(1)
        before = qtest.read(Ahci.FIS, PAGE)
        machine.save('s')
        for _ in range(3):
            ahci.read_sector(2)
            assert qtest.read(Ahci.FIS, PAGE) != before
            machine.load('s')
            assert machine.last_load()['rewound']
            assert qtest.read(Ahci.FIS, PAGE) == before
        qtest.close()


def test_migration_after_one_that_was_cancelled(tmp_path, fast_accel):
    """A page that was missing when the first began is not zero later."""
    pattern, state = b'pattern!' * 512, tmp_path / 'state'
    qtest = Qtest(tmp_path)
    with boot(tmp_path, fast_accel, memory='private', args=qtest.args
              ) as guest, socket.socket(socket.AF_UNIX) as listener:
        qtest.connect()
        guest.ask('fill', START, MIB, 1)
        guest.stop()
        guest.qmp('migrate-set-parameters', **{'max-bandwidth': 40000})
        listener.bind(str(tmp_path / 'sink'))
        listener.listen()
        guest.qmp('migrate', uri=f'unix:{tmp_path}/sink')
        with listener.accept()[0]:
            wait_migration(guest, 'active')
            guest.qmp('migrate_cancel')
        wait_migration(guest, 'cancelled', 'failed')
        qtest.write(START + 8 * MIB, pattern)
        guest.qmp('migrate-set-parameters', **{'max-bandwidth': 1 << 30})
        guest.qmp('migrate-set-capabilities', capabilities=[
            {'capability': 'background-snapshot', 'state': True}])
        guest.qmp('migrate', uri=f'file:{state}')
        wait_migration(guest, 'completed')
        qtest.close()
    assert pattern in state.read_bytes()
