# SPDX-License-Identifier: GPL-2.0-or-later
"""Hugepages of 2 MiB, lent for a while, and a hugetlbfs of one's own."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from lib.patience import Limit

SIZE_MIB = 2
NAME = 'vm.nr_hugepages'
POOL = Path('/sys/kernel/mm/hugepages/hugepages-2048kB')


class Lacking(Exception):
    """The host does not have what is needed."""


def as_root(*command: str | Path) -> None:
    """Lacking if it cannot be done."""
    sudo = () if os.geteuid() == 0 else ('sudo', '-n')
    try:
        run = subprocess.run([*sudo, *command], capture_output=True, text=True,
                             stdin=subprocess.DEVNULL)
    except OSError as e:
        raise Lacking(f'cannot run {command[0]} as root with sudo '
                      f'({e.strerror})') from e
    if run.returncode:
        raise Lacking(' '.join(run.stderr.split()) or f'{command[0]} fails')


def pool(name: str) -> int:
    try:
        return int((POOL / name).read_text())
    except OSError:
        return 0


def set_pool(pages: int) -> None:
    as_root('sh', '-c', f'echo {pages} >{POOL}/nr_hugepages')


def restore(pages: int) -> None:
    """Pages that are just being freed escape the kernel's count."""
    for _ in range(20):
        if pool('nr_hugepages') == pages:
            return
        set_pool(pages)
        time.sleep(0.1)


@contextlib.contextmanager
def lent(pages: int) -> Iterator[int]:
    """
    At least @pages free ones, or as many as the host gives; the pool has its
    old size afterwards.
    """
    had, free = pool('nr_hugepages'), pool('free_hugepages')
    if free >= pages:
        yield free
        return
    try:
        with contextlib.suppress(Lacking):
            set_pool(had + pages - free)
            print(f'{NAME} is {pool("nr_hugepages")}, {had} again afterwards',
                  file=sys.stderr)
        yield pool('free_hugepages')
    finally:
        with contextlib.suppress(Lacking):
            restore(had)


@contextlib.contextmanager
def mounted(folder: Path, options: str = 'pagesize=2M') -> Iterator[Path]:
    """
    @folder as a hugetlbfs; Lacking if it cannot be.  Its files, and with them
    their hugepages, are gone afterwards.
    """
    folder.mkdir(exist_ok=True)
    as_root('mount', '-t', 'hugetlbfs', '-o',
            f'{options},uid={os.getuid()},gid={os.getgid()}', 'none', folder)
    try:
        yield folder
    finally:
        # whatever still has a file open must not keep the mount as well
        as_root('umount', '-l', folder)


@contextlib.contextmanager
def mounted_below(parent: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix='huge-', dir=parent) as name, \
            mounted(Path(name)) as folder:
        yield folder


def empty(folder: Path, free: int) -> None:
    """
    Remove all files, whose pages the kernel frees in the background, and wait
    for @free ones; Lacking if there are fewer now.
    """
    for left in folder.iterdir():
        left.unlink()
    limit = Limit(2)
    while pool('free_hugepages') < free:
        if limit.over():
            raise Lacking('somebody else has taken hugepages meanwhile')
        time.sleep(0.01)
