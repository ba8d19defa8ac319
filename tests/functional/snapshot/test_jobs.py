# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshot jobs come neither in the midst of other work, nor too late."""

import json
import signal
import socket
import threading
import time

import pytest

from lib.dma import (BAR0, COMMAND, CONFIG_ADDRESS, CONFIG_DATA, DRIVER_OK,
                     SCRATCH, STATUS, Disk, Qtest)
from lib.guests import Ring3
from lib.machine import DISK, MIB, Machine
from lib.patience import patience
from lib.rewinding import RAM_SIZE, boot

LOADS = 60
ENDS = 10
PATIENCE = 30


class Resetter(threading.Thread):
    """The guest's driver, which takes its disk up and resets it for ever."""

    def __init__(self, qtest: Qtest, port: int):
        super().__init__(daemon=True)
        self._qtest = qtest
        self._port = port
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            self._qtest.out('b', self._port + STATUS, DRIVER_OK)
            self._qtest.out('b', self._port + STATUS, 0)


@pytest.mark.parametrize('strategy', ('stock', 'auto'))
def test_load_while_the_guest_resets_a_disk(tmp_path, fast_accel, strategy):
    """To reset it is to wait for its requests, which polls for I/O."""
    qtest = Qtest(tmp_path)
    disk = Disk(tmp_path, MIB, RAM_SIZE - SCRATCH)
    with Ring3(tmp_path, accel=fast_accel, ram=RAM_SIZE, memory='shared',
               strategy=strategy,
               options=',rewind=on,verify=on' if strategy == 'auto' else '',
               args=('-device', f'virtio-blk-pci,drive={DISK}', *qtest.args,
                     *disk.args)) as guest:
        qtest.connect()
        disk.read(qtest, 0, 8, 20 * MIB)
        guest.save('s')
        resetter = Resetter(qtest, disk.PORT)
        resetter.start()
        for _ in range(LOADS):
            guest.load('s', 'qmp')
        resetter.over.set()
        resetter.join(patience(PATIENCE))
        assert not resetter.is_alive()
        qtest.close()


def test_end_with_a_job_that_has_just_begun(tmp_path, fast_accel):
    """It is done, or is not, and QEMU does not wait for it for ever."""
    for number in range(ENDS):
        path = tmp_path / f'qmp{number}'
        with boot(tmp_path, fast_accel, args=(
                '-qmp', f'unix:{path},server=on,wait=off')) as guest, \
                socket.socket(socket.AF_UNIX) as monitor:
            guest.save('s')
            monitor.connect(str(path))
            where = {'tag': 's', 'vmstate': DISK, 'devices': [DISK]}
            commands = [{'execute': 'qmp_capabilities'},
                        {'execute': 'snapshot-load',
                         'arguments': {'job-id': 'j', **where}},
                        {'execute': 'quit'}]
            monitor.sendall(b''.join(json.dumps(c).encode() + b'\n'
                                     for c in commands))
            assert guest.process.wait(patience(PATIENCE)) == 0


class Board:
    """A guest's way to snapctl's registers, to a reset and to its end."""

    BAR, SLOT = 0xe0000000, 5
    POWER, PORTS = 1, 0x600         # PIIX4's function, and where it is put

    def __init__(self, qtest: Qtest):
        self._qtest = qtest
        self._configure(self.SLOT, 0, (BAR0, self.BAR), (COMMAND, 6))
        self._configure(self.POWER, 3, (0x40, self.PORTS | 1), (0x80, 1),
                        (COMMAND, 1))

    def _configure(self, slot: int, function: int, *values: tuple[int, int]
                   ) -> None:
        for register, value in values:
            self._qtest.out('l', CONFIG_ADDRESS,
                            1 << 31 | slot << 11 | function << 8 | register)
            self._qtest.out('l', CONFIG_DATA, value)

    def lines(self) -> str:
        """A save, a reset and the power off."""
        return (f'writel {self.BAR + 0x14:#x} 1\noutb 0xcf9 6\n'
                f'outw {self.PORTS + 4:#x} 0x2000\n')


def test_end_with_a_reset_and_a_command_of_the_guest(tmp_path):
    """The command waits for the reset, which is not to come any more."""
    qtest = Qtest(tmp_path)
    with Machine(tmp_path, accel='qtest', ram=RAM_SIZE, args=(
            '-device', f'snapctl,allow=both,slots=a,addr={Board.SLOT}',
            *qtest.args)) as machine:
        qtest.connect()
        board = Board(qtest)
        machine.snapshot_job('snapshot-save', 's')
        # so that all of it comes in one turn of the main loop's
        machine.process.send_signal(signal.SIGSTOP)
        time.sleep(0.1)
        qtest.send(board.lines())
        machine.process.send_signal(signal.SIGCONT)
        assert machine.process.wait(patience(PATIENCE)) == 0
        qtest.close()
