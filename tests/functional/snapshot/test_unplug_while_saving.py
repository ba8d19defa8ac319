# SPDX-License-Identifier: GPL-2.0-or-later
"""
A guest has a disk unplugged while a snapshot is saved.  QEMU looks disks up,
then releases its lock to stop vCPUs: the disk may be freed meanwhile.
"""

# Takes: 30 s
# Long: it tries again and again to meet an instant

import struct
import time
from pathlib import Path

import pytest

from lib import products
from lib.dma import Qtest
from lib.effort import rounds
from lib.machine import MIB, MachineError, run_quietly
from lib.patience import Limit
from lib.smp import START, Smp

AREA = START, MIB
SLOT = 7
# the eject register of the machine "pc", a bit for each slot
EJECT = 0xae08
CLUSTER = 64 << 10
# so many that QEMU takes long to look one up
CROWD, CROWDS = 60000, 6
# seconds from the unplug to the save; the RCU thread frees the disk
EARLIEST, STEP, STEPS = 0, 0.002, 8
ROUNDS = rounds(80, 24)


def crowded(image: Path) -> Path:
    """An image with many snapshots, which can only be read."""
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', image, '8M')
    table = []
    for n in range(1, CROWD + 1):
        number = b'%d' % n
        entry = struct.pack('>QIHHIIQIIQQ', 0, 0, len(number), 1, 0, 0, 0, 0,
                            16, 0, 8 * MIB) + number + b'x'
        table.append(entry.ljust(-(-len(entry) // 8) * 8, b'\0'))
    with open(image, 'r+b') as f:
        at = -(-f.seek(0, 2) // CLUSTER) * CLUSTER
        f.seek(at)
        f.write(b''.join(table))
        f.seek(60)
        f.write(struct.pack('>IQ', CROWD, at))
    return image


def crowd_args(folder: Path) -> list[str]:
    image = crowded(folder / 'crowd.qcow2')
    args = []
    for n in range(CROWDS):
        args += ['-blockdev', f'driver=qcow2,node-name=crowd{n},read-only=on,'
                              f'file.driver=file,file.filename={image}']
    return args


class Victim:
    """A disk that goes away with its device."""

    def __init__(self, folder: Path, guest: Smp, qtest: Qtest):
        self._image = folder / 'victim.qcow2'
        self._guest = guest
        self._qtest = qtest
        run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                    self._image, '8M')

    def plug(self) -> None:
        self._guest.hmp('drive_add 0 if=none,id=victim,format=qcow2,'
                        f'file={self._image}')
        self._guest.qmp('device_add', driver='virtio-blk-pci', drive='victim',
                        addr=hex(SLOT))

    def eject(self) -> None:
        """As a vCPU of a guest with ACPI does it."""
        self._qtest.out('l', EJECT, 1 << SLOT)

    def is_there(self) -> bool:
        return 'victim' in self._guest.hmp('info block')

    def wait_gone(self) -> None:
        limit = Limit(self._guest.timeout)
        while self.is_there():
            assert not limit.over()
            time.sleep(0.01)


def test_disk_is_gone(tmp_path, monkeypatch):
    """It is the one with the VM state, too.  The save works or says why not."""
    monkeypatch.setenv('MALLOC_PERTURB_', '165')    # freed memory has garbage
    crowd = crowd_args(tmp_path)
    qtest = Qtest(tmp_path)
    with Smp(tmp_path, cpus='2', accel='tcg,thread=multi', strategy='auto',
             options=',rewind=on', args=(
                 *qtest.args, *crowd)) as guest:
        qtest.connect()
        victim = Victim(tmp_path, guest, qtest)
        for n in range(ROUNDS):
            victim.plug()
            guest.ask('fill', *AREA, n)
            guest.save('a')
            victim.eject()
            time.sleep(EARLIEST + n % STEPS * STEP)
            try:
                guest.save('a')
            except MachineError as error:
                assert 'has been removed during the save' in str(error)
            victim.wait_gone()
            assert guest.status() == 'running'
            guest.sync()
            guest.ask('check-fill', *AREA, n)
        guest.save('a')
        guest.ask('set', *AREA, 0)
        guest.load('a')
        guest.sync()
        guest.ask('check-fill', *AREA, ROUNDS - 1)
        assert guest.hmp('info snapshots').count(' a ') == 1
        qtest.close()
