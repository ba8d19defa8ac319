# SPDX-License-Identifier: GPL-2.0-or-later
"""
Virtio devices change guest RAM without the guest's doing: tests drive them
through QEMU's qtest protocol, whatever runs the guest meanwhile.

Virtio's legacy interface, see its specification 1.2, sections 2.7 and 4.1.4.8.
"""

import secrets
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

from lib import products
from lib.machine import PAGE, Machine, MachineError, run_quietly
from lib.patience import Limit, patience

SECTOR = 512
SCRATCH = 10 * PAGE             # for a queue of 1024
TIMEOUT = 60.0

CONFIG_ADDRESS, CONFIG_DATA = 0xcf8, 0xcfc
COMMAND, BAR0 = 0x04, 0x10
IO_AND_MASTER = 5

QUEUE_ADDRESS, QUEUE_SIZE, QUEUE_SELECT, QUEUE_NOTIFY, STATUS = \
    8, 12, 14, 16, 18
DRIVER_OK = 7                   # and acknowledged, and a driver found
NEXT, DEVICE_WRITES = 1, 2      # of a descriptor


class Qtest:
    """The machine as its buses see it."""

    def __init__(self, workdir: Path):
        self._path = workdir / 'qtest.sock'
        self.args = ('-qtest', f'unix:{self._path},server=on,wait=off',
                     '-qtest-log', '/dev/null')

    def connect(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(patience(TIMEOUT))
        self._socket.connect(str(self._path))
        self._lines = self._socket.makefile('r')

    def close(self) -> None:
        self._lines.close()
        self._socket.close()

    def use(self, start: int, size: int) -> None:
        """Have QEMU write to guest RAM, with no connection before or after."""
        self.connect()
        self.ask(f'memset {start:#x} {size:#x} 1')
        self.close()

    def send(self, lines: str) -> None:
        """Answers are not waited for, and nothing can be asked afterwards."""
        self._socket.sendall(lines.encode())

    def ask(self, line: str) -> str:
        return self.ask_all([line])[0]

    def ask_all(self, lines: Sequence[str]) -> list[str]:
        """All are sent before the first answer is waited for."""
        self.send(''.join(line + '\n' for line in lines))
        return [self._answer(line) for line in lines]

    def _answer(self, line: str) -> str:
        answer = self._lines.readline().split()
        if not answer or answer[0] != 'OK':
            raise MachineError(f'qtest: {line}: {answer}')
        return answer[1] if len(answer) > 1 else ''

    def out(self, size: str, port: int, value: int) -> None:
        self.ask(f'out{size} {port:#x} {value:#x}')

    def read(self, address: int, size: int) -> bytes:
        return bytes.fromhex(self.ask(f'read {address:#x} {size}')[2:])

    def write(self, address: int, data: bytes) -> None:
        self.ask(f'write {address:#x} {len(data)} 0x{data.hex()}')


class QtestMachine(Machine):
    """A machine without a vCPU, whose memory @qtest reads and writes."""

    def __init__(self, workdir: Path, *args, **kwargs):
        qtest = Qtest(workdir)
        kwargs['args'] = (*qtest.args, *kwargs.get('args', ()))
        super().__init__(workdir, *args, accel='qtest', **kwargs)
        qtest.connect()
        self.qtest = qtest

    def close(self) -> None:
        if hasattr(self, 'qtest'):
            self.qtest.close()
        super().close()


class Legacy:
    """
    A virtio device. @scratch: SCRATCH bytes of guest RAM for a queue and a
    request; whatever a load has done to them is no matter.
    """

    def __init__(self, slot: int, port: int, scratch: int):
        self._slot = slot
        self._port = port
        self._scratch = scratch

    def _config(self, qtest: Qtest, register: int, value: int) -> None:
        qtest.out('l', CONFIG_ADDRESS, 1 << 31 | self._slot << 11 | register)
        qtest.out('l', CONFIG_DATA, value)

    @property
    def request(self) -> int:
        """A page for what the device is to be told."""
        return self._scratch + SCRATCH - PAGE

    def submit(self, qtest: Qtest, request: bytes,
               *descriptors: tuple[int, int, int]) -> int:
        """
        By a fresh driver, to the first queue, not waited for. @descriptors:
        address, bytes, flags.  The address of the used ring.
        """
        self._config(qtest, BAR0, self._port)
        self._config(qtest, COMMAND, IO_AND_MASTER)
        qtest.out('b', self._port + STATUS, 0)
        qtest.out('b', self._port + STATUS, DRIVER_OK & ~4)
        qtest.out('w', self._port + QUEUE_SELECT, 0)
        size = int(qtest.ask(f'inw {self._port + QUEUE_SIZE:#x}'), 0)
        used = self._queue(qtest, size, request, descriptors)
        qtest.out('l', self._port + QUEUE_ADDRESS, self._scratch // PAGE)
        qtest.out('b', self._port + STATUS, DRIVER_OK)
        qtest.out('w', self._port + QUEUE_NOTIFY, 0)
        return used

    def _queue(self, qtest: Qtest, size: int, request: bytes,
               descriptors: tuple[tuple[int, int, int], ...]) -> int:
        available = 16 * size
        used = -(-(available + 6 + 2 * size) // PAGE) * PAGE
        assert used + 6 + 8 * size <= SCRATCH - PAGE
        qtest.ask(f'memset {self._scratch:#x} {SCRATCH} 0')
        qtest.write(self.request, request)
        qtest.write(self._scratch, b''.join(
            struct.pack('<QIHH', *descriptor, i + 1)
            for i, descriptor in enumerate(descriptors)))
        qtest.write(self._scratch + available, struct.pack('<HHH', 0, 1, 0))
        return self._scratch + used

    def wait(self, qtest: Qtest, used: int) -> None:
        limit = Limit(TIMEOUT)
        while qtest.read(used + 2, 2) != b'\1\0':
            if limit.over():
                raise MachineError('the device does not answer')


class Balloon(Legacy):
    """Gives pages of guest RAM to the host."""

    SLOT, PORT = 6, 0xc100

    def __init__(self, scratch: int):
        super().__init__(self.SLOT, self.PORT, scratch)
        self.args = ('-device', 'virtio-balloon-pci,disable-modern=on,'
                                f'addr={self.SLOT}')

    def inflate(self, qtest: Qtest, addresses: list[int]) -> None:
        request = struct.pack(f'<{len(addresses)}I',
                              *(at // PAGE for at in addresses))
        assert len(request) <= PAGE
        self.wait(qtest, self.submit(qtest, request, (self.request,
                                                      len(request), 0)))


class Disk(Legacy):
    """@size bytes of noise."""

    SLOT, PORT = 5, 0xc000

    def __init__(self, workdir: Path, size: int, scratch: int):
        super().__init__(self.SLOT, self.PORT, scratch)
        self._image = workdir / 'noise.raw'
        self._image.write_bytes(secrets.token_bytes(size))
        self.sectors = size // SECTOR
        self.args = (
            '-blockdev', f'driver=file,node-name=noise,read-only=on,'
                         f'filename={self._image}',
            '-device', 'virtio-blk-pci,drive=noise,disable-modern=on,'
                       f'addr={self.SLOT}')

    def content(self, sector: int, count: int) -> bytes:
        with open(self._image, 'rb') as f:
            f.seek(sector * SECTOR)
            return f.read(count * SECTOR)

    def read(self, qtest: Qtest, sector: int, count: int, to: int) -> None:
        """@count sectors from @sector into guest RAM, by a fresh driver."""
        self.wait(qtest, self.start(qtest, sector, count, to))
        status = qtest.read(self.request + 16, 1)
        assert status == b'\0', 'the read fails'

    def start(self, qtest: Qtest, sector: int, count: int, to: int) -> int:
        """The same, not waited for; the address of the used ring."""
        return self.submit(
            qtest, struct.pack('<IIQB', 0, 0, sector, 0xff),
            (self.request, 16, NEXT), (to, count * SECTOR, NEXT | DEVICE_WRITES),
            (self.request + 16, 1, DEVICE_WRITES))


class BadDisk(Disk):
    """A disk whose first GOOD sectors are zero; reads of all others fail."""

    GOOD = 128          # a cluster of qcow2

    def __init__(self, workdir: Path, size: int, scratch: int):
        super().__init__(workdir, size, scratch)
        with open(self._image, 'r+b') as f:
            f.write(bytes(self.GOOD * SECTOR))
        image = workdir / 'noise.qcow2'
        run_quietly(products.QEMU_IMG, 'convert', '-O', 'qcow2', self._image,
                    image)
        # a cluster that is not there is not read from the file
        self.args = (
            '-blockdev', 'driver=blkdebug,node-name=bad,read-only=on,'
                         f'image.driver=file,image.filename={image},'
                         'inject-error.0.event=read_aio',
            '-blockdev', 'driver=qcow2,node-name=noise,read-only=on,file=bad',
            '-device', 'virtio-blk-pci,drive=noise,disable-modern=on,'
                       f'addr={self.SLOT},rerror=stop')
