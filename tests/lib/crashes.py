# SPDX-License-Identifier: GPL-2.0-or-later
"""Where a QEMU crashed, from the log of host/crash.c; or where it hangs."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from lib import products

LIBRARY = products.BUILD / 'crash.so'


@functools.cache
def is_sanitized(qemu: Path) -> bool:
    """Sanitizers report crashes themselves, and want to be loaded first."""
    run = subprocess.run(['ldd', qemu], capture_output=True, text=True,
                         check=False)
    return re.search(r'lib[at]san\.so', run.stdout) is not None


def environment(qemu: Path) -> dict[str, str]:
    """For a QEMU that is to say where it crashes."""
    env = dict(os.environ)
    if LIBRARY.exists() and not is_sanitized(qemu):
        env.setdefault('LD_PRELOAD', str(LIBRARY))
    return env


def explained(log: str) -> str:
    """@log with the names of functions, if it tells of a crash."""
    frames = re.findall(r'^((\S+)\(\+(0x[0-9a-f]+)\) ?\[.*\])$', log, re.M)
    if 'crash: signal' not in log or not shutil.which('addr2line'):
        return log
    for program in {program for _, program, _ in frames}:
        ours = [frame for frame in frames if frame[1] == program]
        run = subprocess.run(['addr2line', '-f', '-s', '-e', program,
                              *(address for _, _, address in ours)],
                             capture_output=True, text=True, check=False)
        lines = run.stdout.splitlines()
        for (frame, *_), name, place in zip(ours, lines[::2], lines[1::2]):
            log = log.replace(frame, f'{name} at {place}')
    return log


def show_threads(pid: int) -> None:
    """Print where each thread of a QEMU waits that does not answer."""
    gdb = shutil.which('gdb')
    if gdb:
        run = subprocess.run([gdb, '-p', str(pid), '-batch', '-nx', '-ex',
                              'thread apply all backtrace 16'],
                             capture_output=True, text=True, check=False,
                             timeout=300)
        print(run.stdout)
        return
    for task in Path(f'/proc/{pid}/task').glob('*'):
        print(*((task / name).read_text().strip()
                for name in ('comm', 'wchan', 'syscall')))
