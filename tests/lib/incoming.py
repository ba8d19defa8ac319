# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines that migrate to a file, or from one."""

import re
from pathlib import Path

from lib.content import assert_same_ram
from lib.dma import QtestMachine
from lib.machine import DISK, MIB, PAGE
from lib.migrating import set_capabilities, wait_migration

RAM_SIZE = 64 * MIB
START = 2 * MIB
FIRST = 1                       # the byte at START, see fill()


class Migrating(QtestMachine):
    """A machine that migrates from a file, or to one."""

    def __init__(self, workdir: Path, name: str, *args: str,
                 strategy: str = 'auto', capabilities=('mapped-ram',),
                 **kwargs):
        folder = workdir / name
        folder.mkdir()
        # a disk registers all of RAM for its I/O
        disk = '-device', f'virtio-blk-pci,drive={DISK}'
        super().__init__(folder, ram=RAM_SIZE, strategy=strategy,
                         args=(*disk, *args), **kwargs)
        set_capabilities(self, *capabilities)

    def migrate(self, file: Path | str) -> bytes:
        """Returns the RAM that is in @file then."""
        self.qmp('migrate', uri=f'file:{file}')
        wait_migration(self)
        return self.ram_image()

    def put(self, page: int, byte: int, count: int = 1) -> None:
        self.qtest.ask(f'memset {START + page * PAGE:#x} {count * PAGE:#x} '
                       f'{byte:#x}')

    def peek(self, address: int, size: int) -> bytes:
        answer = self.qtest.ask(f'read {address:#x} {size:#x}')
        return bytes.fromhex(answer.split('0x')[1])


def fill(guest: Migrating) -> None:
    """Two pages of four."""
    for page in range(0, 8192, 4):
        guest.put(page, FIRST + page % 251, 2)


def save_file(workdir: Path, capabilities=('mapped-ram',), strategy='stock'
              ) -> tuple[Path, bytes]:
    """A file of a migration, and RAM in it."""
    file = workdir / 'file'
    with Migrating(workdir, 'from', strategy=strategy,
                   capabilities=capabilities) as guest:
        fill(guest)
        return file, guest.migrate(file)


def incoming(workdir: Path, file: Path, name: str = 'to', args=(), **kwargs
             ) -> Migrating:
    guest = Migrating(workdir, name, '-incoming', 'defer', *args, **kwargs)
    try:
        guest.qmp('migrate-incoming', uri=f'file:{file}')
        wait_migration(guest)
    except BaseException:
        guest.close()
        raise
    return guest


def assert_rewinds(guest: Migrating, kind: str) -> None:
    """
    From a save on that follows: with @kind memory, it has only what has changed
    since RAM came in.
    """
    assert guest.qmp('query-ram-reset')['rewind']['baseline'] > 16 * MIB
    guest.put(5, 0x55, 2)
    image = guest.ram_image()
    guest.snapshot_job('snapshot-save', 's', kind=kind)
    if kind == 'memory':
        assert guest.qmp('query-ram-reset')['rewind']['pages'] <= 16 * PAGE
    for n in range(3):
        guest.put(10 * n, 0xee, 20)
        guest.put(6000, 0xdd)
        guest.load('s')
        assert_same_ram(guest.ram_image(), image)
        assert guest.last_load()['rewound']


def mappings(guest: Migrating, file: Path, populated: bool = False) -> int:
    """
    Private mappings of @file; @populated: in which a page is not a copy.
    """
    text = Path(f'/proc/{guest.process.pid}/smaps').read_text()
    found = re.findall(rf'p [^\n]* {re.escape(str(file))}(?: \(deleted\))?\n'
                       r'.*?^Private_Clean: +(\d+) kB\n.*?^Anonymous: +(\d+)',
                       text, re.M | re.S)
    return len([0 for clean, _ in found if not populated or int(clean)])
