# SPDX-License-Identifier: GPL-2.0-or-later
"""The file of an incoming migration is mapped, not read."""

# Takes: 40 s

from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.incoming import (
    FIRST, START, Migrating, assert_rewinds, fill, incoming, mappings,
    save_file)
from lib.machine import MIB, PAGE, MachineError
from lib.migrating import set_capabilities, wait_migration

BOTH = 'mapped-ram', 'multifd'


@pytest.fixture
def saved(tmp_path) -> tuple[Path, bytes]:
    """A file, and RAM in it: two pages of four, with zeros between them."""
    return save_file(tmp_path)


def block(guest: Migrating, name: str = 'mem0') -> dict:
    info = guest.qmp('query-ram-reset')['incoming']
    return next(block for block in info['blocks'] if block['name'] == name)


def assert_mapped(guest: Migrating, file: Path) -> None:
    info = guest.qmp('query-ram-reset')['incoming']
    assert info['mapped'] and info['file'] == str(file)
    assert 'reason' not in info
    assert block(guest)['mapped-pages'] >= 4096 and 'reason' not in block(guest)
    assert mappings(guest, file) > 0


@pytest.mark.parametrize('capabilities', (('mapped-ram',), BOTH), ids=len)
def test_is_mapped(tmp_path, saved, capabilities):
    file, image = saved
    with incoming(tmp_path, file, capabilities=capabilities) as guest:
        assert_mapped(guest, file)
        assert_same_ram(guest.ram_image(), image)


def test_by_command_line(tmp_path, saved):
    """-incoming URI; the capabilities are options of the object."""
    file, image = saved
    with Migrating(tmp_path, 'to', '-incoming', f'file:{file}', '-global',
                   'migration.mapped-ram=on', capabilities=()) as guest:
        wait_migration(guest)
        assert_mapped(guest, file)
        assert_same_ram(guest.ram_image(), image)
        assert 'incoming' in guest.hmp('info ram-reset').lower()


@pytest.mark.parametrize('verify', ('off', 'on'))
def test_pages_that_are_not_stored_are_zero(tmp_path, saved, verify):
    """Whatever the file has in their places: a live migration leaves some."""
    file, image = saved
    first = file.read_bytes().index(b'\x01' * PAGE)
    with open(file, 'r+b') as f:
        for page in 2, 3, 6, 4002, 4003, 8190, 8191:
            f.seek(first + page * PAGE)
            f.write(b'x' * PAGE)
    with incoming(tmp_path, file, options=f',verify={verify}') as guest:
        assert_mapped(guest, file)
        assert_same_ram(guest.ram_image(), image)


REASONS = {
    'writable': 'so that others may use it',
    'open': 'a process has it open for writing',
    'locked': 'memory is locked',
}


@pytest.mark.parametrize('why', REASONS)
def test_file_is_read(tmp_path, saved, why):
    """With the same result."""
    file, image = saved
    args = ()
    if why == 'writable':
        file.chmod(0o622)
    elif why == 'locked':
        args = '-overcommit', 'mem-lock=on'
    with open(file, 'r+b' if why == 'open' else 'rb'), \
            incoming(tmp_path, file, args=args) as guest:
        info = guest.qmp('query-ram-reset')['incoming']
        assert not info['mapped'] and REASONS[why] in info['reason']
        assert REASONS[why] in ' '.join(guest.hmp('info ram-reset').split())
        assert not mappings(guest, file)
        assert_same_ram(guest.ram_image()[START:], image[START:])


@pytest.mark.parametrize('memory', ('shared', 'hugetlb'))
def test_block_is_read(tmp_path, saved, memory):
    file, image = saved
    with incoming(tmp_path, file, memory=memory) as guest:
        assert 'not private anonymous' in block(guest)['reason']
        # in front of that a guest may see a ROM
        assert_same_ram(guest.ram_image()[START:], image[START:])


def test_without_object(tmp_path, saved):
    file, image = saved
    with incoming(tmp_path, file, strategy='stock') as guest:
        assert 'incoming' not in guest.qmp('query-ram-reset')
        assert not mappings(guest, file)
        assert_same_ram(guest.ram_image()[START:], image[START:])


def test_several_blocks(tmp_path):
    """A DIMM is mapped, one of shared memory is read."""
    shared = tmp_path / 'shared'
    shared.write_bytes(b's' * 16 * MIB)
    args = ('-m', '64M,slots=2,maxmem=1G',
            '-object', 'memory-backend-ram,id=mem1,size=16M',
            '-device', 'pc-dimm,memdev=mem1,id=dimm1',
            '-object', f'memory-backend-file,id=mem2,size=16M,mem-path={shared}'
                       ',share=on',
            '-device', 'pc-dimm,memdev=mem2,id=dimm2')
    high = 0x100000000
    file = tmp_path / 'file'
    with Migrating(tmp_path, 'from', *args, strategy='stock') as guest:
        fill(guest)
        guest.qtest.ask(f'memset {high + 5 * PAGE:#x} {PAGE:#x} 0x66')
        image = guest.migrate(file)
    shared.write_bytes(b'x' * 16 * MIB)
    with incoming(tmp_path, file, args=args) as guest:
        assert_mapped(guest, file)
        assert block(guest, 'mem1')['mapped-pages'] == 1
        assert 'not private anonymous' in block(guest, 'mem2')['reason']
        assert_same_ram(guest.ram_image(), image)
        assert guest.peek(high + 5 * PAGE, 2) == b'ff'
        assert guest.peek(high + 6 * PAGE, 1) == b'\0'
        assert guest.peek(high + 16 * MIB, 1) == b's'
        assert guest.peek(high + 32 * MIB - 1, 1) == b's'


def test_cut_short(tmp_path, saved):
    """An error before the guest runs."""
    file, _ = saved
    with open(file, 'r+b') as f:
        f.truncate(file.stat().st_size - 8 * MIB)
    with pytest.raises(MachineError, match='failed'):
        incoming(tmp_path, file)


@pytest.mark.parametrize('at', (0, 20, 400, 600, 4096, 5000))
def test_damaged(tmp_path, saved, at):
    """Bytes of the headers: an error, or the right RAM."""
    file, image = saved
    with open(file, 'r+b') as f:
        f.seek(at)
        f.write(b'\xff' * 24)
    try:
        with incoming(tmp_path, file) as guest:
            assert_same_ram(guest.ram_image(), image)
    except MachineError as error:
        assert 'failed' in str(error)


def test_file_goes(tmp_path, saved):
    """Another takes its name; what is mapped stays."""
    file, image = saved
    with incoming(tmp_path, file) as guest:
        file.unlink()
        file.write_bytes(b'x' * MIB)
        assert_same_ram(guest.ram_image(), image)
        assert mappings(guest, file)


@pytest.mark.parametrize('kind', ('image', 'memory'))
def test_rewinds_follow(tmp_path, saved, kind):
    """The file is the baseline: a save in memory has only what has changed."""
    file, image = saved
    with incoming(tmp_path, file, options=',rewind=on,verify=on') as guest:
        assert_mapped(guest, file)
        set_capabilities(guest, 'mapped-ram', state=False)
        assert_rewinds(guest, kind)
        # the file is still whole
        with incoming(tmp_path, file, 'second') as other:
            assert other.peek(START, 2) == bytes((FIRST, FIRST))


def test_migrates_on(tmp_path, saved):
    file, image = saved
    next_file = tmp_path / 'next'
    with incoming(tmp_path, file) as guest:
        guest.put(8, 0x77, 3)
        image = guest.ram_image()
        guest.migrate(next_file)
    with incoming(tmp_path, next_file, 'last') as guest:
        assert mappings(guest, next_file)
        assert_same_ram(guest.ram_image(), image)


def test_pipe(tmp_path):
    """As cuckoo3 does it."""
    file, image = save_file(tmp_path, capabilities=())
    with Migrating(tmp_path, 'to', '-incoming', f'exec:cat {file}',
                   capabilities=()) as guest:
        wait_migration(guest)
        info = guest.qmp('query-ram-reset')['incoming']
        assert 'pipe' in info['reason'] and not info['mapped']
        assert_same_ram(guest.ram_image()[START:], image[START:])
