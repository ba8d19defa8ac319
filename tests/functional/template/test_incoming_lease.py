# SPDX-License-Identifier: GPL-2.0-or-later
"""The file of a migration changes while QEMU has mapped it."""

# Takes: 40 s

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.effort import rounds, tried
from lib.incoming import (
    START, Migrating, fill, incoming, mappings, save_file)
from lib.machine import MIB, PAGE, MachineError
from lib.migrating import set_capabilities, wait_migration

HIGH = 0x100000000              # the address of the first DIMM


@pytest.fixture
def saved(tmp_path) -> tuple[Path, bytes]:
    return save_file(tmp_path)


CHANGES = {
    'write': lambda file: file.open('r+b').write(b'x' * 16 * MIB),
    'truncate': lambda file: os.truncate(file, 0),
    'overwrite': lambda file: file.write_bytes(b'y' * MIB),
}


@pytest.mark.parametrize('change', CHANGES)
@pytest.mark.parametrize('rewind', ('off', 'on'))
def test_file_changes(tmp_path, saved, change, rewind):
    """QEMU copies what it has mapped, the baseline too, before it changes."""
    file, image = saved
    options = f',rewind={rewind}'
    with incoming(tmp_path, file, options=options) as guest, \
            incoming(tmp_path, file, 'second', options=options) as second:
        changed = bytearray(image)
        guest.put(3, 0x33, 2)
        changed[START + 3 * PAGE:START + 5 * PAGE] = b'\x33' * 2 * PAGE
        CHANGES[change](file)
        assert_same_ram(guest.ram_image(), bytes(changed))
        assert_same_ram(second.ram_image(), image)
        assert not mappings(guest, file, populated=True)
        set_capabilities(guest, 'mapped-ram', state=False)
        guest.snapshot_job('snapshot-save', 's',
                           kind='memory' if rewind == 'on' else 'image')
        guest.put(0, 0x44, 4000)
        guest.load('s')
        assert_same_ram(guest.ram_image(), bytes(changed))


def test_own_migration_to_the_file(tmp_path, saved):
    """The thread that opens the file is not the one that copies."""
    file, image = saved
    with incoming(tmp_path, file) as guest:
        guest.put(8, 0x77, 3)
        image = guest.ram_image()
        guest.migrate(file)
        assert_same_ram(guest.ram_image(), image)
    with incoming(tmp_path, file, 'last') as guest:
        assert_same_ram(guest.ram_image(), image)


def dimms(count: int, size: int) -> tuple[str, ...]:
    args = ['-m', f'64M,slots={count},maxmem=1G']
    for n in range(1, count + 1):
        args += ['-object', f'memory-backend-ram,id=mem{n},size={size}',
                 '-device', f'pc-dimm,memdev=mem{n},id=dimm{n}']
    return tuple(args)


@pytest.mark.parametrize('delay', tried((0, 0.002, 0.01, 0.03), (0.002,)))
def test_changes_while_it_is_mapped(tmp_path, delay):
    """An error, or the content from before the change."""
    count, size, file = 8, 2 * MIB, tmp_path / 'file'
    args = dimms(count, size)
    with Migrating(tmp_path, 'from', *args, strategy='stock') as guest:
        for n in range(count):
            guest.qtest.ask(f'memset {HIGH + n * size:#x} {size:#x} {n + 1:#x}')
        guest.migrate(file)
    with Migrating(tmp_path, 'to', '-incoming', 'defer', *args,
                   options=',rewind=on,save-kind=memory') as guest:
        guest.qmp('migrate-incoming', uri=f'file:{file}')
        time.sleep(delay)
        with open(file, 'r+b') as f:
            try:
                wait_migration(guest)
            except MachineError:
                assert guest.process.wait(60) == 1
                assert 'changed while RAM was loaded' in guest.log()
                return
            f.write(b'Z' * file.stat().st_size)
        set_capabilities(guest, 'mapped-ram', state=False)
        guest.save('s')
        for n in range(count):
            guest.qtest.ask(f'memset {HIGH + n * size:#x} {PAGE:#x} 0x99')
        guest.load('s')
        for n in range(count):
            assert guest.peek(HIGH + n * size, 2) == bytes((n + 1, n + 1))


def test_changes_while_qemu_migrates(tmp_path, saved):
    """Both stop the guest."""
    file, _ = saved
    for n in range(rounds(10, 3)):
        with incoming(tmp_path, file, f'to{n}') as guest:
            target = tmp_path / f'next{n}'
            guest.qmp('migrate-set-parameters', **{'max-bandwidth': 100 * MIB})
            guest.qmp('migrate', uri=f'file:{target}')
            time.sleep(0.02 * n)
            open(file, 'r+b').close()
            wait_migration(guest)
            assert guest.qmp('query-status')['status'] == 'postmigrate'
            image = guest.ram_image()
        with incoming(tmp_path, target, f'last{n}') as guest:
            assert guest.qmp('query-status')['status'] == 'running'
            assert_same_ram(guest.ram_image(), image)


def test_stored_page_that_is_a_hole(tmp_path):
    """As cp --sparse makes one of zeros: the baseline has it, too."""
    file, args = tmp_path / 'file', dimms(1, 16 * MIB)
    with Migrating(tmp_path, 'from', *args, strategy='stock') as guest:
        fill(guest)
        guest.qmp('migrate-set-parameters', **{'zero-page-detection': 'none'})
        guest.migrate(file)
    subprocess.run(['fallocate', '--dig-holes', file], check=True)
    with incoming(tmp_path, file, args=args,
                  options=',rewind=on,save-kind=memory') as guest:
        with open(file, 'r+b') as f:
            f.write(b'Z' * file.stat().st_size)
        set_capabilities(guest, 'mapped-ram', state=False)
        guest.save('s')
        guest.qtest.ask(f'memset {HIGH:#x} {16 * PAGE:#x} 0x11')
        guest.load('s')
        assert guest.last_load()['rewound']
        assert guest.peek(HIGH + 5 * PAGE, 4) == bytes(4)


def test_template_is_mapped_meanwhile(tmp_path, saved):
    """The change concerns the file of the migration only."""
    file, _ = saved
    templates = tmp_path / 'templates'
    templates.mkdir(mode=0o700)
    with incoming(tmp_path, file, options=f',template-dir={templates}',
                  strategy='madvise') as guest:
        set_capabilities(guest, 'mapped-ram', state=False)
        images = {}
        for tag, byte in ('zero', 0), ('full', 0x55):
            guest.put(0, byte, 8192)
            guest.save(tag)
            images[tag] = guest.ram_image()
        guest.load('full')
        open(file, 'r+b').close()
        for template in templates.iterdir():
            template.unlink()
        guest.load('zero')
        assert_same_ram(guest.ram_image(), images['zero'])


@pytest.mark.parametrize('how', ('touch', 'utime'))
def test_touched(tmp_path, saved, how):
    """Its times change, and its content does not."""
    file, image = saved
    with incoming(tmp_path, file) as guest:
        if how == 'touch':
            subprocess.run(['touch', file], check=True)
        else:
            os.utime(file)
        open(file, 'r+b').close()
        assert_same_ram(guest.ram_image(), image)


def test_too_late(tmp_path, saved):
    """The kernel has given the file away: QEMU ends, and does not go on."""
    file, _ = saved
    seconds = Path('/proc/sys/fs/lease-break-time')
    before = seconds.read_text()
    try:
        seconds.write_text('1')
    except OSError:
        pytest.skip(f'{seconds} cannot be set, which root may do')
    try:
        guest = incoming(tmp_path, file)
        guest.process.send_signal(signal.SIGSTOP)
        with open(file, 'r+b') as f:    # waits a second
            f.write(b'Z' * 16 * MIB)
        guest.process.send_signal(signal.SIGCONT)
        assert guest.process.wait(60) == 1
        assert 'QEMU was too late' in guest.log()
        guest.close()
    finally:
        seconds.write_text(before)


def test_file_on_a_server(tmp_path, saved):
    """Nothing would tell of a change that another host makes."""
    file, image = saved
    target = tmp_path / 'mounted'
    target.mkdir()
    if subprocess.run(['mount', '-t', 'ramfs', 'none', target],
                      capture_output=True).returncode:
        pytest.skip('a file system cannot be mounted, which root may do')
    try:
        copy = target / 'file'
        subprocess.run(['cp', '--sparse=always', file, copy], check=True)
        with incoming(tmp_path, copy) as guest:
            info = guest.qmp('query-ram-reset')['incoming']
            assert 'would not learn of a change' in info['reason']
            assert_same_ram(guest.ram_image()[START:], image[START:])
    finally:
        subprocess.run(['umount', target], check=True)
