# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines that migrate to a file, or from one."""

import re
import time
from pathlib import Path

from lib.dma import QtestMachine
from lib.machine import DISK, MIB, PAGE, MachineError
from lib.patience import Limit

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
        for capability in capabilities:
            self.set_capability(capability, True)

    def set_capability(self, name: str, state: bool) -> None:
        self.qmp('migrate-set-capabilities',
                 capabilities=[{'capability': name, 'state': state}])

    def wait_migrated(self) -> None:
        limit = Limit(60)
        while (state := self.qmp('query-migrate').get('status')) != 'completed':
            if state == 'failed':
                raise MachineError(f'failed: {self.log()}')
            assert not limit.over(), state
            time.sleep(0.01)

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
        guest.qmp('migrate', uri=f'file:{file}')
        guest.wait_migrated()
        return file, guest.ram_image()


def incoming(workdir: Path, file: Path, name: str = 'to', args=(), **kwargs
             ) -> Migrating:
    guest = Migrating(workdir, name, '-incoming', 'defer', *args, **kwargs)
    try:
        guest.qmp('migrate-incoming', uri=f'file:{file}')
        guest.wait_migrated()
    except BaseException:
        guest.close()
        raise
    return guest


def mappings(guest: Migrating, file: Path, populated: bool = False) -> int:
    """
    Private mappings of @file; @populated: in which a page is not a copy.
    """
    text = Path(f'/proc/{guest.process.pid}/smaps').read_text()
    found = re.findall(rf'p [^\n]* {re.escape(str(file))}(?: \(deleted\))?\n'
                       r'.*?^Private_Clean: +(\d+) kB\n.*?^Anonymous: +(\d+)',
                       text, re.M | re.S)
    return len([0 for clean, _ in found if not populated or int(clean)])
