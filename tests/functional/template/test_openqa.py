# SPDX-License-Identifier: GPL-2.0-or-later
"""
The commands with which openQA's os-autoinst saves and loads a machine
(backend/qemu.pm at a490955b, save_snapshot and load_snapshot): an overlay for
each disk, a migration to "file:dumpfd", which is one file for all snapshots,
and a new QEMU that migrates from it.
"""

# Takes: 40 s

import time
from pathlib import Path

from lib.forks import overlay
from lib.guests import Linux
from lib.incoming import mappings
from lib.machine import DISK, MIB
from lib.migrating import set_capabilities, wait_migration
from lib.patience import Limit

URI = 'file:dumpfd'
LONG_MAX = (1 << 63) - 1


def wait_while(guest: Linux, *states: str) -> None:
    limit = Limit(60)
    while guest.qmp('query-status')['status'] in states:
        assert not limit.over()
        time.sleep(0.1)


def save(guest: Linux, overlay: Path) -> None:
    assert guest.qmp('query-status')['status'] == 'running'
    guest.qmp('stop')
    wait_while(guest, 'running')
    guest.qmp('blockdev-snapshot-sync', **{
        'node-name': DISK, 'snapshot-node-name': overlay.stem,
        'snapshot-file': str(overlay), 'format': 'qcow2'})
    for name in 'events', 'multifd', 'mapped-ram':
        set_capabilities(guest, name)
    guest.qmp('migrate-set-parameters', **{
        'multifd-channels': 2, 'direct-io': False, 'max-bandwidth': LONG_MAX})
    guest.qmp('stop')
    guest.qmp('migrate', uri=URI)
    wait_migration(guest)
    wait_while(guest, 'paused', 'finish-migrate')
    guest.qmp('cont')


def start(folder: Path, backing: Path | None, *args: str) -> Linux:
    folder.mkdir()
    if backing:
        overlay(backing, folder / 'disk.qcow2')
    return Linux(folder, accel='tcg', ram=256 * MIB, strategy='auto',
                 boot_timeout=0 if backing else Linux.BOOT_TIMEOUT,
                 args=('-device', f'virtio-blk-pci,drive={DISK}', *args))


def load(folder: Path, backing: Path) -> Linux:
    guest = start(folder, backing, '-incoming', 'defer')
    for name in 'events', 'multifd', 'mapped-ram':
        set_capabilities(guest, name)
    guest.qmp('migrate-incoming', uri=URI)
    wait_while(guest, 'inmigrate')
    guest.qmp('cont')
    return guest


def put(guest: Linux, text: str) -> None:
    guest.run(f'echo {text} >/run/state')
    guest.run(f'echo {text} | dd of=/dev/vda seek=100 conv=sync,fsync '
              '2>/dev/null')


def seen(guest: Linux) -> set[str]:
    return {guest.run('cat /run/state'),
            guest.run('dd if=/dev/vda skip=100 count=1 2>/dev/null | head -n 1')}


def test_save_and_load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / 'dumpfd'
    with start(tmp_path / 'a', None) as guest:
        put(guest, 'first')
        save(guest, tmp_path / 'a' / 'overlay0.qcow2')
        put(guest, 'later')
    for name in 'b', 'c':
        with load(tmp_path / name, tmp_path / 'a' / 'disk.qcow2') as guest:
            info = guest.qmp('query-ram-reset')['incoming']
            assert info['mapped'] and mappings(guest, file)
            assert seen(guest) == {'first'}
            put(guest, name)
            if name == 'c':
                # over the file that RAM is mapped from
                save(guest, tmp_path / 'c' / 'overlay0.qcow2')
                assert seen(guest) == {'c'}
                put(guest, 'later')
    with load(tmp_path / 'd', tmp_path / 'c' / 'disk.qcow2') as guest:
        assert mappings(guest, file)
        assert seen(guest) == {'c'}
