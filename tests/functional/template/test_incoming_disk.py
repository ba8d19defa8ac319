# SPDX-License-Identifier: GPL-2.0-or-later
"""A migration from a file into a machine with a disk and snapshots."""

# Takes: 3 s

from pathlib import Path

import pytest

from lib.content import check_state, dirty, write_state
from lib.guests import Ring3
from lib.machine import DISK, MIB
from lib.migrating import set_capabilities, wait_migration

RAM_SIZE = 64 * MIB


class Migrating(Ring3):
    def __init__(self, workdir: Path, *args: str, options: str = '',
                 mapped: bool = False):
        super().__init__(
            workdir, accel='tcg', ram=RAM_SIZE, strategy='auto',
            options=options,
            args=('-device', f'virtio-blk,drive={DISK}', *args))
        set_capabilities(self, 'mapped-ram', state=mapped)


def migrate(guest: Migrating, file: Path) -> None:
    guest.qmp('migrate', uri=f'file:{file}')
    wait_migration(guest)
    file.chmod(0o600)


def load(guest: Migrating, file: Path) -> None:
    guest.qmp('migrate-incoming', uri=f'file:{file}')
    wait_migration(guest)


def test_memory_of_a_disks_device_is_mapped(tmp_path):
    """The device's block drivers are notified of it."""
    file = tmp_path / 'file'
    with Migrating(tmp_path, mapped=True) as guest:
        write_state(guest)
        migrate(guest, file)
    with Migrating(tmp_path, '-incoming', 'defer', mapped=True) as guest:
        load(guest, file)
        assert f' {file}\n' in Path(
            f'/proc/{guest.process.pid}/maps').read_text()
        guest.sync()
        check_state(guest)
        dirty(guest, 2)


@pytest.mark.parametrize('options', (',verify=on', ',template-dir={}',
                                     ',rewind=on'))
def test_snapshot_is_loaded_afterwards(tmp_path, options):
    """A part of RAM is not all of it, and no template is made of it."""
    file, folder = tmp_path / 'file', tmp_path / 'templates'
    folder.mkdir(0o700)
    with Migrating(tmp_path) as guest:
        write_state(guest)
        guest.save('s')
        dirty(guest, 2)
        migrate(guest, file)
    with Migrating(tmp_path, '-incoming', 'defer',
                   options=options.format(folder)) as guest:
        load(guest, file)
        for seed in 3, 4, 5:
            guest.load('s')
            guest.sync()
            check_state(guest)
            dirty(guest, seed)
