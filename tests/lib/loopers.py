# SPDX-License-Identifier: GPL-2.0-or-later
"""
Two fuzzers' loops, endless ones, that can be halted and looked at: one whose
guest asks for its loads itself, and one that is driven as syzkaller does it.
"""

import json
import mmap
import os
import signal
import socket
import struct
import threading
import time
from pathlib import Path

from lib import products
from lib.content import START
from lib.guests import Ring3
from lib.machine import MIB, MachineError
from lib.patience import Limit, patience
from lib.rewinding import footprint
from lib.snapctl_guest import LOOP, A, SnapctlGuest

ENDLESS = 1 << 60
PATIENCE = 60.0
SHMEM_RAM = 64 * MIB
SHMEM_SIZE = MIB
TAG = 'fuzz'
POLL = 0.00005
SETTLE = 0.1        # between two looks at memory that is still being freed
LOOKS = 10


def file_sizes(*files: tuple[str, Path]) -> dict[str, int]:
    found = {}
    for name, path in files:
        stat = path.stat()
        found |= {name: stat.st_size, f'{name} blocks': stat.st_blocks}
    return found


def heap(pid: int) -> int:
    """The resident part of the main arena, in KiB."""
    found = False
    for line in Path(f'/proc/{pid}/smaps').open():
        if line.endswith('[heap]\n'):
            found = True
        elif found and line.startswith('Rss:'):
            return int(line.split()[1])
    return 0


class Looper:
    """A QEMU that does nothing but load, from begin() to end()."""

    guest: Ring3

    def begin(self) -> None:
        raise NotImplementedError

    def count(self) -> int:
        """Loads that its programs have come after."""
        raise NotImplementedError

    def halt(self) -> None:
        """No load is under way then, nor asked for."""
        raise NotImplementedError

    def proceed(self) -> None:
        raise NotImplementedError

    def end(self) -> dict[str, int]:
        """The counts of all parties, which must be equal."""
        raise NotImplementedError

    def close(self) -> None:
        self.thaw()
        self.guest.close()

    def freeze(self) -> None:
        """QEMU does not notice that others have the machine for themselves."""
        os.kill(self.guest.process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        if self.guest.process.poll() is None:
            os.kill(self.guest.process.pid, signal.SIGCONT)

    def cpu(self) -> float:
        """Seconds that all threads have had, those that have ended as well."""
        # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the kernel
        return time.clock_gettime(~self.guest.process.pid << 3 | 2)

    def check(self) -> None:
        status = self.guest.process.poll()
        if status is not None:
            raise MachineError(f'QEMU ended with status {status} after '
                               f'{self.count()} loads: {self.guest.log()}')
        # QEMU would keep the events of all loads for a client that reads none
        self.guest.status()
        self.guest._qmp.clear_events()

    def size(self) -> dict[str, int]:
        """Memory of the process, in KiB, and sizes of its files, in bytes."""
        return {**footprint(self.guest), 'heap': heap(self.guest.process.pid),
                **file_sizes(('log', self.guest._log),
                             ('image', self.guest.disk))}

    def rest(self) -> dict[str, int]:
        """Its size() when what is freed some time later has been freed."""
        self.halt()
        try:
            looks = []
            for _ in range(LOOKS):
                time.sleep(SETTLE)
                looks.append(self.size())
            return min(looks, key=lambda look: look['anonymous'])
        finally:
            self.proceed()

    def snapshots(self) -> str:
        return self.guest.hmp('info snapshots')

    def rewinds(self) -> dict[str, int]:
        found = self.guest.qmp('query-ram-reset')
        return {'loads': found['loads'], 'rewinds': found['rewinds']}


class DeviceLoop(Looper):
    """The guest asks the snapctl device after each program."""

    def __init__(self, work: Path, qemu: Path = products.QEMU):
        work.mkdir()
        self.guest = SnapctlGuest(work, accel='kvm', memory='private',
                                  qemu=qemu)
        self._asked = False

    def begin(self) -> None:
        self.guest.sync()
        self.guest.tell('snap-loop', ENDLESS, A, *LOOP)

    def count(self) -> int:
        return self.guest.region_word('loads')

    def check(self) -> None:
        super().check()
        if said := self.guest.serial.take():
            raise MachineError(f'the guest says {said!r} after '
                               f'{self.count()} loads')

    def halt(self) -> None:
        self.guest.stop()

    def proceed(self) -> None:
        self.guest.cont()

    def end(self) -> dict[str, int]:
        self.guest.set_region_word('stop', 1)
        generation = int(self.guest.next_answer('snap-loop'), 16)
        info = self.guest.info()
        assert (info['saves'], info['failures'], info['refused']) == \
            (1, 0, 0), info
        return {**self.rewinds(), 'device': info['loads'],
                'generation': generation, 'guest': self.count()}


class Monitor:
    """As little between a client and QMP as possible; drops events."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(patience(PATIENCE))
        self._socket.connect(str(path))
        self._lines = self._socket.makefile('rb')
        self._next()
        self.ask('qmp_capabilities')

    def _next(self) -> dict:
        line = self._lines.readline()
        if not line:
            raise MachineError('end of file instead of an answer of QMP')
        return json.loads(line)

    def ask(self, command: str, **arguments) -> object:
        self._socket.sendall(json.dumps({
            'execute': command, 'arguments': arguments}).encode() + b'\n')
        while 'return' not in (answer := self._next()):
            if 'error' in answer:
                raise MachineError(f'{command}: {answer["error"]["desc"]}')
        return answer['return']

    def hmp(self, line: str) -> None:
        if said := self.ask('human-monitor-command', **{'command-line': line}):
            raise MachineError(f'{line}: {said}')

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class HmpLoop(Looper):
    """
    The host writes the next input to ivshmem's memory, has QEMU loadvm, and
    waits in that memory for the output.
    """

    INPUT, OUTPUT, CORRUPT = 0, 8, 16       # see guest/ring3-shmem.c

    def __init__(self, work: Path, qemu: Path = products.QEMU,
                 strategy: str = 'auto'):
        work.mkdir()
        self._strategy = strategy
        place = work / 'shmem'
        monitor = work / 'monitor'
        self.guest = Ring3(
            work, accel='kvm', ram=SHMEM_RAM, qemu=qemu, strategy=strategy,
            options=',rewind=on' if strategy != 'stock' else '', args=(
                '-object', f'memory-backend-file,id=shmem,size={SHMEM_SIZE},'
                           f'share=on,mem-path={place}',
                '-device', 'ivshmem-plain,memdev=shmem,master=on',
                '-qmp', f'unix:{monitor},server=on,wait=off'))
        try:
            with place.open('r+b') as f:
                self._shmem = mmap.mmap(f.fileno(), SHMEM_SIZE)
            self._monitor = Monitor(monitor)
        except BaseException:
            self.guest.close()
            raise
        self._count = 0
        self._failure: Exception | None = None
        self._go, self._parked = threading.Event(), threading.Event()
        self._parked.set()
        self._over = False
        self._thread = threading.Thread(target=self._drive, daemon=True)
        self._thread.start()

    def _word(self, place: int) -> int:
        return struct.unpack_from('<Q', self._shmem, place)[0]

    def begin(self) -> None:
        self._monitor.hmp('migrate_set_capability x-ignore-shared on')
        self.guest.ask('shm-serve', START + 40 * MIB, 64)
        self._monitor.hmp(f'savevm {TAG}')
        self.proceed()

    def _load(self) -> None:
        number = self._count + 1
        struct.pack_into('<Q', self._shmem, self.INPUT, number)
        self._monitor.hmp(f'loadvm {TAG}')
        limit = Limit(PATIENCE)
        while self._word(self.OUTPUT) != number:
            if limit.over():
                raise MachineError(f'no output after load {number}')
            time.sleep(POLL)
        if self._word(self.CORRUPT):
            raise MachineError(f'corrupt memory after load {number}')
        self._count = number

    def _drive(self) -> None:
        try:
            while True:
                if not self._go.is_set():
                    self._parked.set()
                    self._go.wait()
                    self._parked.clear()
                if self._over:
                    return
                self._load()
        except (MachineError, OSError, ValueError) as e:
            self._failure = e
        finally:
            self._parked.set()

    def count(self) -> int:
        return self._count

    def check(self) -> None:
        super().check()
        if self._failure:
            raise MachineError(f'{self._failure}') from self._failure

    def halt(self) -> None:
        self._go.clear()
        if not self._parked.wait(patience(PATIENCE)):
            raise MachineError(f'load {self._count + 1} does not end')

    def proceed(self) -> None:
        self._parked.clear()
        self._go.set()

    def freeze(self) -> None:
        self.halt()
        super().freeze()

    def thaw(self) -> None:
        super().thaw()
        self.proceed()

    def end(self) -> dict[str, int]:
        self.halt()
        return {} if self._strategy == 'stock' else \
            {**self.rewinds(), 'client': self._count}

    def close(self) -> None:
        self._over = True
        self.thaw()
        self._thread.join(patience(PATIENCE))
        self._monitor.close()
        self.guest.close()
