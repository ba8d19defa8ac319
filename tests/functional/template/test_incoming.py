# SPDX-License-Identifier: GPL-2.0-or-later
"""The file of an incoming migration is mapped, not read."""

# Takes: 15 s

import re
import time
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.dma import QtestMachine
from lib.machine import MIB, PAGE, MachineError
from lib.patience import Limit

RAM_SIZE = 64 * MIB
START = 2 * MIB
MAPPED = r'block mem0: mapped 1'
CAPABILITIES = 'mapped-ram',


class Migrating(QtestMachine):
    """A machine that migrates from a file, or to one."""

    def __init__(self, workdir: Path, name: str, *args: str,
                 strategy: str = 'auto', capabilities=CAPABILITIES, **kwargs):
        folder = workdir / name
        folder.mkdir()
        super().__init__(folder, ram=RAM_SIZE, strategy=strategy, args=args,
                         **kwargs)
        self.qmp('migrate-set-capabilities', capabilities=[
            {'capability': name, 'state': True} for name in capabilities])
        if strategy != 'stock':
            self.qmp('trace-event-set-state', name='ram_reset_map_incoming',
                     enable=True)

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


def incoming(workdir: Path, file: Path, name: str = 'to', **kwargs
             ) -> Migrating:
    guest = Migrating(workdir, name, '-incoming', 'defer', **kwargs)
    guest.qmp('migrate-incoming', uri=f'file:{file}')
    guest.wait_migrated()
    return guest


def mappings(guest: Migrating, file: Path) -> int:
    maps = Path(f'/proc/{guest.process.pid}/maps').read_text()
    return len(re.findall(rf'p .* {re.escape(str(file))}$', maps, re.M))


@pytest.fixture
def saved(tmp_path) -> tuple[Path, bytes]:
    """A file, and RAM in it: a page in four, with zeros between them."""
    file = tmp_path / 'file'
    with Migrating(tmp_path, 'from', strategy='stock') as guest:
        for page in range(0, 8192, 4):
            guest.put(page, 1 + page % 251)
        guest.qmp('migrate', uri=f'file:{file}')
        guest.wait_migrated()
        image = guest.ram_image()
    file.chmod(0o600)
    return file, image


@pytest.mark.parametrize('capabilities', (('mapped-ram',),
                                          ('mapped-ram', 'multifd')), ids=len)
def test_is_mapped(tmp_path, saved, capabilities):
    file, image = saved
    with incoming(tmp_path, file, capabilities=capabilities) as guest:
        assert re.search(MAPPED, guest.log())
        assert mappings(guest, file) > 0
        assert_same_ram(guest.ram_image(), image)


def test_pages_that_are_not_stored_are_zero(tmp_path, saved):
    """Whatever the file has in their places: a live migration leaves some."""
    file, image = saved
    first = file.read_bytes().index(b'\x01' * PAGE)
    with open(file, 'r+b') as f:
        for page in 1, 3, 5, 4001, 4002, 4003, 8189, 8191:
            f.seek(first + page * PAGE)
            f.write(b'x' * PAGE)
    with incoming(tmp_path, file) as guest:
        assert re.search(MAPPED, guest.log())
        assert_same_ram(guest.ram_image(), image)


REASONS = {
    'writable': 'others may use it',
    'shared': 'not private anonymous',
    'without-object': None,
}


@pytest.mark.parametrize('why', REASONS)
def test_is_read(tmp_path, saved, why):
    """With the same result."""
    file, image = saved
    kwargs = {}
    if why == 'writable':
        file.chmod(0o622)
    elif why == 'shared':
        kwargs['memory'] = 'shared'
    elif why == 'without-object':
        kwargs['strategy'] = 'stock'
    with incoming(tmp_path, file, **kwargs) as guest:
        assert not mappings(guest, file)
        # in front of that a guest may see a ROM
        assert_same_ram(guest.ram_image()[START:], image[START:])
        if REASONS[why]:
            assert re.search(r'block mem0: mapped 0 .*' + REASONS[why],
                             guest.log())


def test_cut_short(tmp_path, saved):
    """An error before the guest runs."""
    file, _ = saved
    with open(file, 'r+b') as f:
        f.truncate(file.stat().st_size - 8 * MIB)
    with pytest.raises(MachineError, match='failed'):
        incoming(tmp_path, file)


def test_file_goes(tmp_path, saved):
    """Another takes its name; what is mapped stays."""
    file, image = saved
    with incoming(tmp_path, file) as guest:
        file.unlink()
        file.write_bytes(b'x' * MIB)
        assert_same_ram(guest.ram_image(), image)


def test_saves_and_loads_follow(tmp_path, saved):
    file, image = saved
    with incoming(tmp_path, file, options=',rewind=on,verify=on') as guest:
        assert re.search(MAPPED, guest.log())
        guest.qmp('migrate-set-capabilities', capabilities=[
            {'capability': 'mapped-ram', 'state': False}])
        guest.save('s')
        for n in range(3):
            guest.put(10 * n, 0xee, 20)
            guest.put(6000, 0xdd)
            guest.load('s')
            assert_same_ram(guest.ram_image(), image)
        assert guest.last_load()['rewound']
        # the file is still whole
        with incoming(tmp_path, file, 'second') as other:
            assert_same_ram(other.ram_image(), image)


def test_migrates_on(tmp_path, saved):
    file, image = saved
    next_file = tmp_path / 'next'
    with incoming(tmp_path, file) as guest:
        guest.put(8, 0x77, 3)
        image = guest.ram_image()
        guest.qmp('migrate', uri=f'file:{next_file}')
        guest.wait_migrated()
    next_file.chmod(0o600)
    with incoming(tmp_path, next_file, 'last') as guest:
        assert mappings(guest, next_file)
        assert_same_ram(guest.ram_image(), image)
