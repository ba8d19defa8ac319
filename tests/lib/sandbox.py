# SPDX-License-Identifier: GPL-2.0-or-later
"""Namespaces in which commands of a document leave nothing behind."""

import contextlib
import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from lib import products
from lib.patience import patience

SHARED = '/usr/local/src'
CLONE = f'{SHARED}/clone'
UNSHARE = ('unshare', '--mount', '--net', '--pid', '--fork', '--kill-child',
           '--mount-proc')
HUGEPAGES = Path('/dev/hugepages')
SYSTEM_PATH = '/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
PATH = f'{products.QEMU.parent}:{SYSTEM_PATH}'


class Unavailable(Exception):
    """No right to make namespaces."""


def sudo() -> list[str]:
    return [] if os.geteuid() == 0 else ['sudo', '-n']


def child_of(pid: int) -> int:
    """The process in a PID namespace of its own, some levels below."""
    outside = os.readlink('/proc/self/ns/pid')
    while True:
        children = Path(f'/proc/{pid}/task/{pid}/children').read_text().split()
        if not children:
            raise Unavailable(f'process {pid} has made no namespace')
        pid = int(children[0])
        status = subprocess.run([*sudo(), 'readlink', f'/proc/{pid}/ns/pid'],
                                capture_output=True, text=True, check=True)
        if status.stdout.strip() != outside:
            return pid


def enter(pid: int, *more: str) -> list[str]:
    return [*sudo(), 'nsenter', '-t', str(pid), '-m', '-p', *more]


def private_mounts(how: list[str]) -> None:
    """
    An empty /dev/shm, a /usr/local/bin that can be written to, and CLONE: what
    the repository has, where any user may read it, with room for files.
    """
    repo, build = (shlex.quote(str(path))
                   for path in (products.REPO, products.BUILD))
    mounts = (
        # a file system below another one: what is written is nowhere else
        'mount -t tmpfs -o mode=1777 tmpfs /dev/shm',
        'mkdir /dev/shm/upper /dev/shm/work',
        'mount -t overlay -o lowerdir=/usr/local/bin,upperdir=/dev/shm/upper,'
        'workdir=/dev/shm/work overlay /usr/local/bin',
        'mount -t tmpfs -o mode=1777 tmpfs /dev/shm',
        f'mount -t tmpfs -o mode=755 tmpfs {SHARED}',
        f'mkdir -p {SHARED}/repo {CLONE}',
        f'mount --bind {repo} {SHARED}/repo',
        f'mount --bind {build} {SHARED}/repo/build',
        f'ln -s {SHARED}/repo/* {CLONE}')
    subprocess.run([*how, 'sh', '-c', ' && '.join(mounts)], check=True)


def let_all_reach(how: list[str], path: Path) -> None:
    """Any user may read @path, though a folder above it be private."""
    private = [parent for parent in path.parents
               if not parent.stat().st_mode & stat.S_IXOTH]
    if not private:
        return
    here, top = shlex.quote(str(path)), shlex.quote(str(private[-1]))
    mounts = (
        f'mount --bind {here} {SHARED}',
        f'mount -t tmpfs -o mode=755 tmpfs {top}',
        f'mkdir -p {here}',
        f'mount --bind {SHARED} {here}')
    subprocess.run([*how, 'sh', '-c', ' && '.join(mounts)], check=True)


@contextlib.contextmanager
def sandbox() -> Iterator[list[str]]:
    """How to enter one; whatever runs in it ends with it."""
    made = not HUGEPAGES.exists()
    if made:
        subprocess.run([*sudo(), 'mkdir', HUGEPAGES], check=True)
    process = subprocess.Popen(
        [*sudo(), *UNSHARE, sys.executable, '-B',
         Path(__file__).with_name('isolated.py'), HUGEPAGES],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if process.stdout.readline() != b'ready\n':
            raise Unavailable('namespaces have to be made as root or by sudo '
                              f'-n: {process.stderr.read().decode().strip()}')
        how = enter(child_of(process.pid), '-n')
        private_mounts(how)
        yield how
    finally:
        process.stdin.close()
        process.wait(patience(30))
        if made:
            subprocess.run([*sudo(), 'rmdir', HUGEPAGES], check=True)
