# SPDX-License-Identifier: GPL-2.0-or-later
"""The system calls that a QEMU makes, counted by strace."""

import collections
import contextlib
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from lib.machine import Machine, MachineError
from lib.patience import Limit, patience

# Whether a thread has to be woken up, and how often it looks, is chance; one of
# the disk's pool may come or go; and memory of malloc() is given back by RCU's
# thread, whenever that comes
CHANCE = {'KVM_RUN', 'brk', 'clock_nanosleep', 'clone3', 'exit', 'futex',
          'getpid', 'gettid', 'madvise', 'mmap', 'mprotect', 'munmap', 'poll',
          'ppoll', 'prctl', 'read', 'recvmsg', 'restart_syscall', 'rseq',
          'rt_sigprocmask', 'rt_sigreturn', 'sched_yield', 'set_robust_list',
          'tgkill', 'write'}
CALL = re.compile(r'\d+ +(\w+)\((.*)')
# older ones of strace have no name for some
REQUEST = re.compile(r'\d+, (_IOC\([^)]*\)|[A-Z]\w+)')
KNOWN = {'_IOC(_IOC_READ|_IOC_WRITE, 0x66, 0x10, 0x60)': 'PAGEMAP_SCAN'}
PATIENCE = 20.0


def name_of(line: str) -> str | None:
    call = CALL.match(line)
    if not call:
        return None         # a signal, an end, or the second half of a call
    name, arguments = call.groups()
    request = REQUEST.match(arguments) if name == 'ioctl' else None
    return KNOWN.get(request[1], request[1]) if request else name


def count(text: str) -> dict[str, int]:
    names = filter(None, map(name_of, text.splitlines()))
    return dict(collections.Counter(n for n in names if n not in CHANCE))


def is_followed(task: Path) -> bool:
    return not re.search(r'^TracerPid:\s+0$', (task / 'status').read_text(),
                         re.MULTILINE)


class Strace:
    def __init__(self, pid: int, log: Path):
        self._log = log
        self._process = subprocess.Popen(
            ['strace', '-q', '-f', '-o', log, '-p', str(pid)],
            stderr=subprocess.DEVNULL)
        limit = Limit(PATIENCE)
        while not all(map(is_followed, Path(f'/proc/{pid}/task').iterdir())):
            if limit.over() or self._process.poll() is not None:
                self.close()
                raise MachineError(f'strace does not follow process {pid}')
            time.sleep(0.01)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(patience(PATIENCE))

    def text(self) -> str:
        return self._log.read_text()


@contextlib.contextmanager
def counted(guest: Machine, log: Path) -> Iterator[dict[str, int]]:
    """System calls made within; filled in at the end."""
    found: dict[str, int] = {}
    strace = Strace(guest.process.pid, log)
    try:
        yield found
        time.sleep(0.1)     # for what the threads do at their leisure
    finally:
        strace.close()
    found.update(count(strace.text()))
