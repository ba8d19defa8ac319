# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that notices any mixture of two moments, and ways to disturb it."""

import itertools
import json
import random
import re
import shutil
import socket
import struct
import subprocess
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lib import crashes, products
from lib.dma import (BAR0, COMMAND, CONFIG_ADDRESS, CONFIG_DATA, DEVICE_WRITES,
                     IO_AND_MASTER, NEXT, SCRATCH, SECTOR, Disk, Legacy, Qtest)
from lib.guests import PAGE, Ring3Words
from lib.machine import DISK, MIB, Machine, MachineError, run_quietly
from lib.patience import Limit, patience

RAM_SIZE = 32 * MIB
WORLD = Ring3Words.FIRST_FREE       # World in guest/ring3-flight.c
WORLD_SIZE = 56
HOST, MODE = 8, 16                  # offsets in it
TARGET = WORLD + 4 * MIB, 2 * MIB   # where the noise goes
SCRATCH_AT = RAM_SIZE - SCRATCH
SCRATCH_AT_2 = SCRATCH_AT - SCRATCH

DISK_SLOT, DISK_PORT = 4, 0xb00
SNAPCTL_SLOT, REGS, MSIX = 7, 0xf0000000, 0xf0010000
SPARE_SLOT = 9
MEMORY_AND_MASTER = 6
SLOTS = ('a', 'b', 'c')             # the guest's, the third is for qtest

PATIENCE = 40.0
SANITIZER = re.compile(
    r'ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error: |'
    r'Assertion .* failed|\*\*\*.*terminated|^qemu.*: aborting', re.MULTILINE)
# A load that fails by a disk's error leaves this, see Flight._exclude()
OWN = re.compile(r'Assertion `bus->irq_count\[i\] == 0\' failed')
BAD_DISK_ERRORS = 24
# QEMU does not say why it cannot create a snapshot
DISK_ERROR = re.compile('Input/output error|No space left on device|'
                        'Could not create snapshot')
PART = re.compile('has a partial load of snapshot')
CORRUPT = re.compile('RAM is not what the snapshot has')


class Finding(AssertionError):
    """Something that must not be."""


@dataclass(frozen=True)
class Setup:
    """The settings of a QEMU."""

    accel: str
    memory: str
    strategy: str
    rewind: bool
    template: bool
    disk: str           # good, slow, or bad
    on_error: str

    @classmethod
    def draw(cls, rng: random.Random, accel: str) -> 'Setup':
        return cls(accel, rng.choice(('private', 'shared')),
                   rng.choice(('stock', 'auto', 'auto', 'memset', 'madvise',
                               'remap')),
                   rng.random() < 0.75, rng.random() < 0.25,
                   # who has no guest to try again needs a disk that works
                   rng.choice(('good', 'slow', 'slow',
                               'slow' if accel == 'qtest' else 'bad')),
                   rng.choice(('stop', 'report', 'enospc')))

    @property
    def stops(self) -> bool:
        """Whether an error stops the guest."""
        return self.on_error != 'report'

    def options(self, workdir: Path) -> str:
        if self.strategy == 'stock':
            return ''
        options = ',verify=on'
        if self.rewind:
            options += ',rewind=on'
        if self.template:
            folder = workdir / 'templates'
            folder.mkdir(mode=0o700, exist_ok=True)
            options += f',template-dir={folder}'
        return options


def bad_disk_rules(rng: random.Random, path: Path) -> None:
    """Now and then an error: blkdebug counts events, and some counts fail."""
    event, most = rng.choice((('flush_to_disk', 40), ('write_aio', 400),
                              ('l2_update', 80), ('refblock_update', 80)))
    fail = list(itertools.accumulate(rng.randrange(2, most)
                                     for _ in range(BAD_DISK_ERRORS)))
    path.write_text(''.join(
        [f'[inject-error]\nevent = "{event}"\nstate = "{n}"\nonce = "on"\n'
         f'errno = "{rng.choice((5, 28))}"\n' for n in fail] +
        [f'[set-state]\nevent = "{event}"\nstate = "{n}"\n'
         f'new_state = "{n + 1}"\n' for n in range(1, fail[-1] + 1)]))


def slow_disk_rules(rng: random.Random, path: Path) -> None:
    delay = f'delay-ns = "{rng.randrange(100, 3000) * 1000}"\n'
    if b'delay-ns' not in products.QEMU.read_bytes():
        delay = ''      # QEMU 10.2 has none
    path.write_text('[inject-error]\nevent = "none"\nerrno = "0"\n'
                    f'{delay}iotype = "write"\n')


class Monitor:
    """QMP without waiting: commands are sent, answers come when they do."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(path))
        self._numbers = itertools.count(1)
        self._answers: dict[int, dict] = {}
        self._changed = threading.Condition()
        self._gone = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self.answer(self.send('qmp_capabilities'))

    def _read(self) -> None:
        try:
            for line in self._socket.makefile():
                message = json.loads(line)
                if 'id' in message:
                    with self._changed:
                        self._answers[message['id']] = message
                        self._changed.notify_all()
        except OSError:
            pass
        with self._changed:
            self._gone = True
            self._changed.notify_all()

    def send(self, command: str, **arguments) -> int:
        number = next(self._numbers)
        try:
            self._socket.sendall(json.dumps(
                {'execute': command, 'id': number,
                 'arguments': arguments}).encode() + b'\n')
        except OSError as e:
            raise Finding(f'QEMU is gone: {e}') from e
        return number

    def answer(self, number: int) -> dict:
        with self._changed:
            limit = patience(PATIENCE)
            if not self._changed.wait_for(
                    lambda: number in self._answers or self._gone, limit):
                raise Finding(f'hang: no answer within {limit:.0f} s')
            if number not in self._answers:
                raise Finding('QEMU is gone')
            return self._answers.pop(number)

    def close(self) -> None:
        self._socket.close()


class GuestDisk(Legacy):
    """The disk of the guest, for where nothing but qtest drives it."""

    def __init__(self) -> None:
        super().__init__(DISK_SLOT, DISK_PORT, SCRATCH_AT_2)

    def transfer(self, qtest: Qtest, write: bool, to: int) -> bool:
        flags = NEXT if write else NEXT | DEVICE_WRITES
        used = self.submit(
            qtest, struct.pack('<IIQB', int(write), 0, 3001, 0xff),
            (self.request, 16, NEXT), (to, SECTOR, flags),
            (self.request + 16, 1, DEVICE_WRITES))
        self.wait(qtest, used)
        return qtest.read(self.request + 16, 1) == b'\0'


class Noise(Disk):
    """Reads into guest RAM, of which those of one sector always fail."""

    BAD = 300       # in the third cluster: there is more before it, and behind

    def __init__(self, workdir: Path, on_error: str):
        super().__init__(workdir, MIB, SCRATCH_AT)
        image = workdir / 'noise.qcow2'
        run_quietly(products.QEMU_IMG, 'convert', '-O', 'qcow2', self._image,
                    image)
        run, = (run for run in json.loads(run_quietly(
            products.QEMU_IMG, 'map', '--output=json', image))
            if 0 <= self.BAD * SECTOR - run['start'] < run['length'])
        at = run['offset'] - run['start'] + self.BAD * SECTOR
        on_error = 'report' if on_error == 'enospc' else on_error
        self.args = (
            '-blockdev', 'driver=blkdebug,node-name=bad,read-only=on,'
                         f'image.driver=file,image.filename={image},'
                         'inject-error.0.event=none,'
                         f'inject-error.0.sector={at // SECTOR}',
            '-blockdev', 'driver=qcow2,node-name=noise,read-only=on,file=bad',
            '-device', 'virtio-blk-pci,drive=noise,disable-modern=on,'
                       f'share-rw=on,addr={self.SLOT},rerror={on_error}')

    def _queue(self, qtest: Qtest, size: int, request: bytes,
               descriptors: tuple[tuple[int, int, int], ...]) -> int:
        # a load or a reset may have taken it from where it was
        return super()._queue(qtest, size, request, descriptors) \
            if size <= 1024 else 0

    def configure(self, qtest: Qtest) -> None:
        self._config(qtest, BAR0, self._port)
        self._config(qtest, COMMAND, IO_AND_MASTER)


class Craft(Ring3Words, Machine):
    """The guest in flight, with a monitor that is not waited for."""

    def __init__(self, workdir: Path, setup: Setup, rng: random.Random,
                 qemu: Path = products.QEMU):
        self.setup = setup
        self.qtest = Qtest(workdir)
        self.noise = Noise(workdir, setup.on_error)
        self.own_disk = GuestDisk()
        self._socket = workdir / 'qmp1.sock'
        blkdebug = ''
        if setup.disk != 'good':
            rules = workdir / 'blkdebug.conf'
            (bad_disk_rules if setup.disk == 'bad' else
             slow_disk_rules)(rng, rules)
            blkdebug = f'config={rules}'
        read_error = 'report' if setup.on_error == 'enospc' else setup.on_error
        on_error = f'rerror={read_error},werror={setup.on_error}'
        super().__init__(
            workdir, accel=setup.accel, ram=RAM_SIZE, memory=setup.memory,
            strategy=setup.strategy, options=setup.options(workdir),
            blkdebug=blkdebug, qemu=qemu, args=(
                '-bios', 'qboot.rom', '-kernel', products.ring3_image(),
                '-m', 'slots=1,maxmem=1G', *self.qtest.args,
                '-chardev', f'socket,id=qmp1,path={self._socket},server=on,'
                            'wait=off',
                '-qmp', 'chardev:qmp1',
                '-device', f'virtio-blk-pci,drive={DISK},id=vd0,'
                           f'disable-modern=on,queue-size=1024,addr={DISK_SLOT},'
                           f'{on_error}',
                '-device', self.snapctl(), *self.noise.args))
        self._pings = itertools.count(1)
        self.worker = ThreadPoolExecutor(1)
        self.sanitized = crashes.is_sanitized(qemu)
        try:
            self.monitor = Monitor(self._socket)
            self.qtest.connect()
            if setup.accel != 'qtest':
                self.wait_ready()
            self.configure()
        except BaseException:
            self.close()
            raise

    @staticmethod
    def snapctl() -> str:
        return (f'snapctl,id=snap0,allow=both,slots={":".join(SLOTS)},'
                f'addr={SNAPCTL_SLOT}')

    def configure(self) -> None:
        """Give devices their addresses, which the guest's work relies on."""
        for slot, register, value in (
                (DISK_SLOT, BAR0, DISK_PORT),
                (DISK_SLOT, COMMAND, IO_AND_MASTER),
                (SNAPCTL_SLOT, BAR0, REGS), (SNAPCTL_SLOT, BAR0 + 4, MSIX),
                (SNAPCTL_SLOT, COMMAND, MEMORY_AND_MASTER)):
            self.qtest.out('l', CONFIG_ADDRESS,
                           1 << 31 | slot << 11 | register)
            self.qtest.out('l', CONFIG_DATA, value)
        self.noise.configure(self.qtest)

    def later(self, what, *args) -> Future:
        """Have qtest do it while others do something else."""
        return self.worker.submit(what, *args)

    def world(self) -> dict[str, int]:
        names = 'beat', 'host', 'mode', 'seed', 'written', 'bad', 'retries'
        return dict(zip(names, struct.unpack(
            '<7Q', self.qtest.read(WORLD, WORLD_SIZE))))

    def set_word(self, offset: int, value: int) -> None:
        self.qtest.write(WORLD + offset, struct.pack('<Q', value))

    def take_off(self) -> None:
        self.qtest.ask(f'memset {WORLD:#x} {PAGE:#x} 0')
        if self.setup.accel != 'qtest':
            self.tell('flight', WORLD)
            self.wait_beats(2)

    def wait_beats(self, count: int) -> bool:
        """Whether the guest has checked itself that often."""
        world, commands = self.world(), self.commands()
        start = world['beat']
        limit = Limit(PATIENCE)
        while not limit.over():
            now = self.world()['beat']
            if now >= start + count:
                return True
            if now < start or self.said_bad():
                return now < start
            if self.status() in ('io-error', 'paused'):
                self.cont()
            time.sleep(0.005)
        # one that takes itself back again and again gets nowhere, and works,
        # and so does one whose disk has an error for ever
        return self.commands() > commands or \
            self.world()['retries'] > world['retries'] + 1

    def was_reset(self) -> bool:
        """It waits for a command, and it was not the guest who wanted that."""
        for event in self._qmp.get_events():
            if event['event'] == 'RESET' and event['data']['guest']:
                return False
        self.TIMEOUT = PATIENCE
        try:
            self.sync()
        except MachineError:
            return False
        return True

    def commands(self) -> int:
        """The number of commands that the guest has had done."""
        try:
            info = self.qmp('query-snapctl')
        except MachineError:
            return 0            # the device is not there
        return info['saves'] + info['loads']

    def said_bad(self) -> bool:
        with self.serial._changed:
            return b'!' in self.serial._text

    def footprint(self) -> dict[str, int]:
        folder = Path(f'/proc/{self.process.pid}')
        status = dict(line.split(':', 1) for line in
                      (folder / 'status').read_text().splitlines())
        # no stacks, with a guard page each: requests may need hundreds at once
        maps = (folder / 'maps').read_text().splitlines()
        guards = sum(' ---p ' in line for line in maps)
        return {'anonymous': int(status['RssAnon'].split()[0]),
                'shared': int(status['RssShmem'].split()[0]),
                'mappings': len(maps) - 2 * guards,
                'descriptors': len(list((folder / 'fd').iterdir()))}

    def stacks(self) -> str:
        """Stacks of its main thread and its vCPU, if gdb is there."""
        if not shutil.which('gdb'):
            return ''
        text = subprocess.run(
            ['gdb', '-p', str(self.process.pid), '-batch', '-ex',
             'thread apply all bt 40'], capture_output=True, text=True,
            check=False).stdout
        threads = re.split(r'^Thread ', text, flags=re.MULTILINE)[1:]
        return '\n'.join(
            line[:150] for thread in threads
            if 'qemu_main_loop' in thread or 'cpu_thread_fn' in thread
            for line in ['', *re.findall(r'^#.*', thread, re.MULTILINE)])

    def close(self) -> None:
        if hasattr(self, 'worker'):
            self.worker.shutdown(wait=False)
        if hasattr(self, 'monitor'):
            self.monitor.close()
        super().close()
