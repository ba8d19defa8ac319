# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU process: monitor, serial port, snapshots, and content of its RAM."""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from qemu.qmp import QMPError
from qemu.qmp.legacy import QEMUMonitorProtocol

from lib import crashes, products
from lib.patience import Limit, patience
from lib.streams import full_chunks

PAGE = 4096
MIB = 1 << 20
MONITOR_TIMEOUT = 120.0
DISK = 'disk0'
RAM = 'mem0'

STRATEGIES = ('stock', 'memset', 'madvise', 'remap', 'auto')
MEMORIES = ('private', 'shared')

# Every load of every test is verified
VERIFY = bool(os.environ.get('RAM_RESET_VERIFY'))


def may_use(strategy: str) -> set[str]:
    """Strategies that query-ram-reset may name for a block of an object's."""
    if strategy == 'auto':
        return {'memset', 'madvise', 'remap', 'split'}
    return {strategy} if strategy != 'stock' else set()


def start_line(qemu: Path, accel: str) -> list:
    """The start of a command of a QEMU that has only the devices given."""
    return [qemu, '-nodefaults', '-display', 'none', '-vga', 'none',
            '-L', products.FIRMWARE, '-accel', accel]


class MachineError(Exception):
    """QEMU refused something, or died."""


class Serial:
    """The guest's serial port, always drained so that the guest can write."""

    def __init__(self, end: socket.socket):
        self._end = end
        self._text = b''
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def _drain(self) -> None:
        while True:
            try:
                data = self._end.recv(65536)
            except OSError:
                data = b''
            with self._changed:
                self._text += data
                self._closed = not data
                self._changed.notify_all()
            if not data:
                return

    def send(self, text: str) -> None:
        self._end.sendall(text.encode())

    def wait(self, pattern: str, timeout: float) -> re.Match:
        """Take all input up to the end of @pattern, see patience.py."""
        regex = re.compile(pattern.encode(), re.MULTILINE | re.DOTALL)
        limit = Limit(timeout)
        with self._changed:
            while True:
                match = regex.search(self._text)
                if match:
                    self._text = self._text[match.end():]
                    return match
                left = limit.left()
                if self._closed or left <= 0:
                    raise MachineError(
                        f'no {pattern!r} from the guest within '
                        f'{limit.seconds():.0f} s, but '
                        f'{self._text[-300:]!r}')
                self._changed.wait(left)

    def take(self) -> bytes:
        with self._changed:
            text, self._text = self._text, b''
            return text

    def close(self) -> None:
        self._end.close()
        self._thread.join(5)


class Machine:
    """A context: QEMU runs inside of it and is gone, with all files, after."""

    timeout = MONITOR_TIMEOUT

    def __init__(self, workdir: Path, *, accel: str, ram: int,
                 memory: str = 'private', strategy: str = 'stock',
                 options: str = '', args: tuple = (), loadvm: str = '',
                 machine: str = 'pc', qemu: Path = products.QEMU,
                 blkdebug: str = ''):
        """@blkdebug: its properties, to be put below the disk's format."""
        products.require(qemu, products.QEMU_IMG, products.FIRMWARE)
        self.workdir = workdir
        self.ram = ram
        self.memory = memory
        self._type = machine
        self.disk = workdir / 'disk.qcow2'
        self._log = workdir / 'qemu.log'
        self._jobs = 0
        if not self.disk.exists():
            run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                        self.disk, '64M')
        command = [
            *start_line(qemu, accel),
            '-blockdev', f'driver=qcow2,node-name={DISK},'
                         + disk_file(self.disk, blkdebug),
            '-m', f'{ram // MIB}M', *self._memory_args(), *args]
        if strategy != 'stock':
            if VERIFY and ',verify=' not in options:
                options += ',verify=on'
            command += ['-object', f'ram-reset-{strategy},id=rr0{options}']
        if loadvm:
            command += ['-loadvm', loadvm]
        self._start([str(arg) for arg in command])

    def _memory_args(self) -> list[str]:
        kinds = {
            'private': f'memory-backend-ram,id={RAM},size={self.ram}',
            'shared': f'memory-backend-memfd,id={RAM},size={self.ram},share=on',
            'hugetlb': f'memory-backend-memfd,id={RAM},size={self.ram},'
                       'share=on,hugetlb=on,hugetlbsize=2M',
        }
        return ['-object', kinds[self.memory],
                '-M', f'{self._type},memory-backend={RAM}']

    def _start(self, command: list[str]) -> None:
        qmp, qemu_qmp = socket.socketpair()
        serial, qemu_serial = socket.socketpair()
        for name, end in (('qmp0', qemu_qmp), ('serial0', qemu_serial)):
            command += ['-chardev', f'socket,id={name},fd={end.fileno()}']
        command += ['-qmp', 'chardev:qmp0',
                    '-serial', 'chardev:serial0']
        with open(self._log, 'ab') as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=(qemu_qmp.fileno(), qemu_serial.fileno()),
                env=crashes.environment(Path(command[0])))
        qemu_qmp.close()
        qemu_serial.close()
        self.serial = Serial(serial)
        self._qmp = QEMUMonitorProtocol(qmp)
        self._qmp.settimeout(patience(self.timeout))
        try:
            self._qmp.connect()
        # qemu.qmp asserts that a session runs once it has been made: QEMU may
        # have died in between
        except (QMPError, OSError, AssertionError) as e:
            status = self.process.wait(patience(10))
            self.close()
            raise MachineError(f'QEMU ends with status {status}: '
                               f'{self._last_words()}') from e
        except BaseException:
            self.close()
            raise

    def log(self) -> str:
        return self._log.read_text(errors='replace').strip()

    def _last_words(self) -> str:
        return crashes.explained(self.log())

    def __enter__(self) -> 'Machine':
        return self

    def __exit__(self, failed, *unused) -> None:
        alive = self.process.poll() is None
        self.close()
        if alive and not failed and self.process.returncode:
            raise MachineError('QEMU ends with status '
                               f'{self.process.returncode}: '
                               f'{self._last_words()}')

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(patience(20))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        try:
            self._qmp.close()
        except (QMPError, OSError, EOFError):
            pass    # the other end is gone, which is all that was wanted
        self.serial.close()

    # The monitor

    def qmp(self, command: str, **arguments) -> object:
        limit = patience(self.timeout)
        self._qmp.settimeout(limit)
        try:
            return self._qmp.cmd(command, **arguments)
        except asyncio.TimeoutError as e:
            crashes.show_threads(self.process.pid)
            raise MachineError(f'{command}: no answer within '
                               f'{limit:.0f} s') from e
        except (QMPError, OSError) as e:
            raise MachineError(f'{command}: {e} {self._last_words()}'.strip()
                               ) from e

    def event(self, name: str) -> dict:
        """Wait for an event of this name, and drop those before it."""
        limit = patience(self.timeout)
        try:
            while True:
                event = self._qmp.pull_event(limit)
                if event['event'] == name:
                    return event.get('data', {})
        except asyncio.TimeoutError as e:
            raise MachineError(f'no event {name} within '
                               f'{limit:.0f} s') from e

    def events(self) -> list[dict]:
        """Those that have come, once each."""
        return self._qmp.get_events()

    def hmp(self, line: str) -> str:
        output = self.qmp('human-monitor-command', **{'command-line': line})
        # an error's details are printed before the error
        if re.search('^Error:', output, re.MULTILINE):
            raise MachineError(output.strip())
        return output

    def release(self) -> tuple[int, int]:
        """Of QEMU; versions of its development are of the next one."""
        version = self.qmp('query-version')['qemu']
        number = version['major'] * 3 + version['minor'] + \
            (version['micro'] >= 50)
        return number // 3, number % 3

    def status(self) -> str:
        return self.qmp('query-status')['status']

    def stop(self) -> None:
        self.qmp('stop')

    def cont(self) -> None:
        self.qmp('cont')

    def save(self, tag: str) -> None:
        self.hmp(f'savevm {tag}')

    def load(self, tag: str, how: str = 'hmp', node: str = DISK) -> None:
        """By @how 'hmp', every node that can have one has to have it."""
        if how == 'hmp':
            self.hmp(f'loadvm {tag}')
        else:
            self.snapshot_job('snapshot-load', tag, node)

    def snapshot_job(self, command: str, tag: str, node: str = DISK,
                     devices: Sequence[str] = (), **arguments) -> None:
        """@node has the VM state, and is the only one unless @devices says."""
        self._jobs += 1
        job = f'job{self._jobs}'
        where = {} if command == 'snapshot-delete' else {'vmstate': node}
        self.qmp(command, **{'job-id': job, 'tag': tag,
                             'devices': [*devices] or [node], **where,
                             **arguments})
        limit = Limit(self.timeout)
        while True:
            state, = (j for j in self.qmp('query-jobs') if j['id'] == job)
            if state['status'] == 'concluded':
                break
            if limit.over():
                raise MachineError(f'{command} does not end: {state}')
            time.sleep(0.001)
        self.qmp('job-dismiss', id=job)
        if 'error' in state:
            raise MachineError(state['error'])

    def last_load(self) -> dict:
        return self.qmp('query-ram-reset')['last-load']

    # Memory

    def rss(self) -> int:
        """Bytes of memory that the process has resident, hugepages included."""
        total = 0
        for line in Path(f'/proc/{self.process.pid}/status').open():
            if line.startswith(('RssAnon:', 'RssShmem:', 'HugetlbPages:')):
                total += int(line.split()[1]) << 10
        return total

    def ram_image(self) -> bytes:
        """
        All of guest RAM.  Shared memory is read from its file, because a read
        of an empty page through the guest's mapping would populate it.
        """
        if self.memory == 'private':
            image = self.workdir / 'pmemsave'
            self.qmp('pmemsave', val=0, size=self.ram, filename=str(image))
            data = image.read_bytes()
            image.unlink()
        else:
            with open(self.memfd(), 'rb') as f:
                data = f.read()
        assert len(data) == self.ram
        return data

    def memfd(self) -> str:
        """The memory file that is mapped now, which need not be the first."""
        maps = Path(f'/proc/{self.process.pid}/maps').read_text()
        inodes = {int(line.split()[4]) for line in maps.splitlines()
                  if '/memfd:memory-backend-memfd' in line}
        for fd in Path(f'/proc/{self.process.pid}/fd').iterdir():
            if fd.stat().st_ino in inodes:
                return str(fd)
        raise MachineError('QEMU maps no memory file')

    def dump(self, consume: Callable[[bytes], None]) -> int:
        """Stream QEMU's own dump of guest RAM, which needs no disk space."""
        fifo = self.workdir / 'dump'
        os.mkfifo(fifo)
        size = 0
        failures = []

        def read() -> None:
            nonlocal size
            try:
                with open(fifo, 'rb', buffering=0) as f:
                    for chunk in full_chunks(f):
                        size += len(chunk)
                        consume(chunk)
            except Exception as e:      # raised again in the main thread
                failures.append(e)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            self.qmp('dump-guest-memory', paging=False,
                     protocol=f'file:{fifo}')
        finally:
            try:
                # lets go of a reader whose writer never came
                os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                pass
            reader.join(patience(MONITOR_TIMEOUT))
            fifo.unlink()
        if failures:
            raise failures[0]
        if size < self.ram:
            raise MachineError(f'the dump has {size} bytes of {self.ram}')
        return size


def disk_file(path: Path, blkdebug: str) -> str:
    if not blkdebug:
        return f'file.driver=file,file.filename={path}'
    rules = ','.join('file.' + rule for rule in blkdebug.split(','))
    return (f'file.driver=blkdebug,{rules},file.image.driver=file,'
            f'file.image.filename={path}')


def run_quietly(*command) -> str:
    result = subprocess.run([str(c) for c in command], text=True,
                            capture_output=True, check=False)
    if result.returncode:
        raise MachineError(f'{command[0]}: {result.stderr.strip()}')
    return result.stdout


def kvm_usable() -> bool:
    return os.access('/dev/kvm', os.R_OK | os.W_OK)


def free_disk(path: Path) -> int:
    return shutil.disk_usage(path).free


def available_memory() -> int:
    found = re.search(r'^MemAvailable: *(\d+) kB',
                      Path('/proc/meminfo').read_text(), re.M)
    return int(found[1]) << 10 if found else 0
