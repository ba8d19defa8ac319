# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU processes, and the folders that they write to."""

import os
import shutil
import socket
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import IO, Callable, List, Optional, Sequence

from ram_reset.errors import Error, LostError, StartError

SHM = '/dev/shm'
LAST_WORDS = 2000       # characters


def _if_owner(owner: int, call: Callable[..., object], *args: object) -> None:
    """Not in a process that os.fork() has made of the owner."""
    if os.getpid() == owner:
        call(*args)


class Folder:
    """
    A temporary folder shared by a machine and its forks.  It is removed when
    the last of them releases it, or when Python ends.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix='ram-reset-'))
        self._users = self._made = 0
        self._memory: Optional[Path] = None
        self._remove_memory: Optional[Callable[[], object]] = None
        self._remove = self._remover(self.path)

    def _remover(self, path: Path) -> Callable[[], object]:
        ignore_errors = True
        return weakref.finalize(self, _if_owner, os.getpid(), shutil.rmtree,
                                path, ignore_errors)

    def for_memory(self, size: int) -> Path:
        """A folder, in memory if there is room for so many bytes."""
        if not self._memory:
            self._memory = Path(tempfile.mkdtemp(prefix='ram-reset-', dir=SHM)
                                if os.access(SHM, os.W_OK) else self.path)
            self._remove_memory = self._remover(self._memory)
        return self._memory if shutil.disk_usage(self._memory).free > size \
            else self.path

    def new(self, name: str) -> Path:
        """A new folder in it."""
        self._made += 1
        folder = self.path / f'{name}{self._made}'
        folder.mkdir()
        return folder

    def take(self) -> 'Folder':
        self._users += 1
        return self

    def release(self) -> None:
        self._users -= 1
        if not self._users:
            self._remove()
            if self._remove_memory:
                self._remove_memory()


def _end(process: 'subprocess.Popen[bytes]') -> None:
    if process.poll() is None:
        process.kill()
        process.wait()


class Process:
    """QEMU ends with this object, at the latest when Python ends."""

    def __init__(self, command: Sequence[str], log: Path):
        """:param command: without a monitor, which is added"""
        self.log_file = log
        self.command = list(command)
        self.monitor, theirs = socket.socketpair()
        with theirs, open(log, 'wb') as output:
            self._popen = self._start(theirs, output)
        self.pid = self._popen.pid
        self.kill = weakref.finalize(self, _if_owner, os.getpid(), _end,
                                     self._popen)

    def _start(self, monitor: socket.socket,
               output: IO[bytes]) -> 'subprocess.Popen[bytes]':
        extra: List[str] = [
            '-chardev', f'socket,id=ram-reset-qmp,fd={monitor.fileno()}',
            '-mon', 'chardev=ram-reset-qmp,mode=control']
        try:
            return subprocess.Popen(
                [*self.command, *extra], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, pass_fds=[monitor.fileno()],
                start_new_session=True)
        except OSError as e:
            self.monitor.close()
            raise StartError(
                f'{self.command[0]} cannot be started ({e.strerror}); give '
                'the path of a QEMU with RAM reset') from e

    def log(self) -> str:
        """QEMU's output; '' when the machine has been closed."""
        try:
            return self.log_file.read_text(errors='replace').strip()
        except FileNotFoundError:
            return ''

    def terminate(self, seconds: float) -> None:
        """Ask QEMU to end, so that it completes its images."""
        self._popen.terminate()
        try:
            self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def lost(self) -> Error:
        """The error for a monitor that QEMU has closed."""
        try:
            status = self._popen.wait(10)
        except subprocess.TimeoutExpired:
            return LostError('QEMU has closed its monitor, but runs on; kill '
                             f'process {self.pid}')
        words = self.log()[-LAST_WORDS:] or '(none)'
        return LostError(f'QEMU has ended with status {status}; its last '
                         f'output: {words}')
