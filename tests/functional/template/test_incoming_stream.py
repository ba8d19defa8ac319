# SPDX-License-Identifier: GPL-2.0-or-later
"""The file of a migration in the form of a stream gets a template."""

# Takes: 30 s

import os
import shutil
import time
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.incoming import (
    START, Migrating, assert_rewinds, fill, incoming, mappings, save_file)
from lib.machine import MIB, PAGE, MachineError
from lib.migrating import wait_migration

SETTLED = 0.1                   # seconds, longer than the kernel's tick


@pytest.fixture
def saved(tmp_path) -> tuple[Path, bytes]:
    file, image = save_file(tmp_path, capabilities=())
    time.sleep(SETTLED)
    return file, image


@pytest.fixture
def templates(tmp_path) -> Path:
    templates = tmp_path / 'templates'
    templates.mkdir(mode=0o700)
    return templates


def start(tmp_path: Path, file: Path, templates: Path, name: str,
          options: str = '', **kwargs) -> Migrating:
    kwargs.setdefault('capabilities', ())
    return incoming(tmp_path, file, name,
                    options=f',template-dir={templates}{options}', **kwargs)


def load_first(tmp_path: Path, file: Path, templates: Path) -> None:
    """Makes the template."""
    start(tmp_path, file, templates, 'first').close()


def info_of(guest: Migrating) -> dict:
    return guest.qmp('query-ram-reset')['incoming']


def names(templates: Path) -> list[str]:
    return sorted(os.listdir(templates))


def test_second_load_is_mapped(tmp_path, saved, templates):
    file, image = saved
    with start(tmp_path, file, templates, 'first') as guest:
        assert not info_of(guest)['mapped']
        assert 'reason' not in info_of(guest)
        assert_same_ram(guest.ram_image(), image)
    name, = names(templates)
    for n in range(2):
        with start(tmp_path, file, templates, f'next{n}') as guest:
            info = info_of(guest)
            assert info['mapped']
            assert info['template'] == str(templates / name)
            assert mappings(guest, templates / name)
            assert_same_ram(guest.ram_image(), image)
            guest.put(0, 0x77, 100)
    assert names(templates) == [name]


@pytest.mark.parametrize('memory', ('shared', 'hugetlb'))
def test_other_memory_is_copied(tmp_path, saved, templates, memory):
    file, image = saved
    load_first(tmp_path, file, templates)
    with start(tmp_path, file, templates, 'second', memory=memory) as guest:
        block, = (block for block in info_of(guest)['blocks']
                  if block['name'] == 'mem0')
        assert 'not private anonymous' in block['reason']
        assert info_of(guest)['template']
        assert_same_ram(guest.ram_image()[START:], image[START:])


def test_at_an_offset(tmp_path, templates):
    """As libvirt's, behind a header of its own."""
    file = tmp_path / 'file'
    with Migrating(tmp_path, 'from', strategy='stock',
                   capabilities=()) as guest:
        fill(guest)
        image = guest.migrate(f'{file},offset=0x1234')
    time.sleep(SETTLED)
    for n in range(2):
        with incoming(tmp_path, Path(f'{file},offset=0x1234'), f'to{n}',
                      options=f',template-dir={templates}',
                      capabilities=()) as guest:
            assert info_of(guest)['mapped'] == bool(n)
            assert_same_ram(guest.ram_image(), image)


def test_live(tmp_path, templates):
    """Pages are in it twice, and RAM has several sections."""
    file = tmp_path / 'file'
    with Migrating(tmp_path, 'from', strategy='stock',
                   capabilities=()) as guest:
        fill(guest)
        guest.qmp('migrate-set-parameters', **{'max-bandwidth': 8 * MIB,
                                               'downtime-limit': 10})
        guest.qmp('migrate', uri=f'file:{file}')
        for n in range(20):
            guest.put(n * 100, 0x80 + n, 30)
            time.sleep(0.05)
        guest.qmp('migrate-set-parameters', **{'max-bandwidth': 1 << 40,
                                               'downtime-limit': 1000})
        wait_migration(guest)
        image = guest.ram_image()
    time.sleep(SETTLED)
    for n in range(2):
        with start(tmp_path, file, templates, f'to{n}') as guest:
            assert info_of(guest)['mapped'] == bool(n)
            assert_same_ram(guest.ram_image(), image)


CHANGES = {
    'same-size': lambda file, n: file.open('r+b').write(b'Q'),
    'longer': lambda file, n: file.open('ab').write(b'x'),
    'touched': lambda file, n: os.utime(file),
}


@pytest.mark.parametrize('change', CHANGES)
def test_changed_file_has_another(tmp_path, saved, templates, change):
    file, image = saved
    load_first(tmp_path, file, templates)
    times = os.stat(file)
    CHANGES[change](file, 0)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    time.sleep(SETTLED)
    with start(tmp_path, file, templates, 'second') as guest:
        assert not info_of(guest)['mapped']
        assert_same_ram(guest.ram_image(), image)
    assert len(names(templates)) == 2


def test_copy_has_another(tmp_path, saved, templates):
    """The name says nothing: another file there is another."""
    file, image = saved
    load_first(tmp_path, file, templates)
    shutil.copy2(file, tmp_path / 'copy')
    os.replace(tmp_path / 'copy', file)
    time.sleep(SETTLED)
    with start(tmp_path, file, templates, 'second') as guest:
        assert not info_of(guest)['mapped']


def test_written_just_now(tmp_path, saved, templates):
    """The change time would not show another change in the same tick."""
    file, image = saved
    with Migrating(tmp_path, 'to', '-incoming', 'defer', capabilities=(),
                   options=f',template-dir={templates}') as guest:
        before = time.monotonic()
        os.utime(file)
        guest.qmp('migrate-incoming', uri=f'file:{file}')
        after = time.monotonic()
        wait_migration(guest)
        assert_same_ram(guest.ram_image(), image)
        if after - before < 0.02:   # not on a host that is too busy
            assert 'written just now' in info_of(guest)['reason']
            assert not names(templates)


def test_damaged_template_is_replaced(tmp_path, saved, templates):
    file, image = saved
    load_first(tmp_path, file, templates)
    name, = names(templates)
    with open(templates / name, 'r+b') as f:
        f.truncate(8192)
    for n in range(2):
        with start(tmp_path, file, templates, f'to{n}') as guest:
            assert info_of(guest)['mapped'] == bool(n)
            assert_same_ram(guest.ram_image(), image)


def test_other_machine(tmp_path, saved, templates):
    """RAM of another size is an error, with a template and without."""
    file, _ = saved
    load_first(tmp_path, file, templates)
    with pytest.raises(MachineError, match='failed'):
        start(tmp_path, file, templates, 'second',
              args=('-m', '64M,slots=1,maxmem=1G',
                    '-object', 'memory-backend-ram,id=mem1,size=16M',
                    '-device', 'pc-dimm,memdev=mem1,id=dimm1'))


@pytest.mark.parametrize('part', (0.3, 0.9))
def test_cut_short(tmp_path, saved, templates, part):
    file, _ = saved
    load_first(tmp_path, file, templates)
    os.truncate(file, int(file.stat().st_size * part))
    time.sleep(SETTLED)
    with pytest.raises(MachineError, match='failed'):
        start(tmp_path, file, templates, 'second')
    assert len(names(templates)) == 1


@pytest.mark.parametrize('kind', ('image', 'memory'))
@pytest.mark.parametrize('first', (True, False))
def test_rewinds_follow(tmp_path, saved, templates, kind, first):
    """The template is the baseline, also in the QEMU that has made it."""
    file, image = saved
    if not first:
        load_first(tmp_path, file, templates)
    with start(tmp_path, file, templates, 'to',
               options=',rewind=on') as guest:
        assert_rewinds(guest, kind)


def test_without_directory(tmp_path, saved):
    file, image = saved
    with incoming(tmp_path, file, capabilities=()) as guest:
        assert 'template-dir' in info_of(guest)['reason']
        assert_same_ram(guest.ram_image(), image)


def test_verify_reads_all(tmp_path, saved, templates):
    file, image = saved
    load_first(tmp_path, file, templates)
    with start(tmp_path, file, templates, 'second',
               options=',verify=on') as guest:
        assert 'verify=on' in info_of(guest)['reason']
        assert_same_ram(guest.ram_image(), image)


def test_ignored_shared_memory(tmp_path, templates):
    """Shared memory stays what it is, and there is a template of the rest."""
    shared = tmp_path / 'shared'
    shared.write_bytes(b's' * 16 * MIB)
    args = ('-m', '64M,slots=1,maxmem=1G',
            '-object', f'memory-backend-file,id=mem1,size=16M,share=on,'
                       f'mem-path={shared}',
            '-device', 'pc-dimm,memdev=mem1,id=dimm1')
    high = 0x100000000
    capabilities = 'x-ignore-shared',
    file = tmp_path / 'file'
    with Migrating(tmp_path, 'from', *args, strategy='stock',
                   capabilities=capabilities) as guest:
        fill(guest)
        image = guest.migrate(file)
    time.sleep(SETTLED)
    for n in range(2):
        shared.write_bytes(bytes([n]) * 16 * MIB)
        with start(tmp_path, file, templates, f'to{n}', args=args,
                   capabilities=capabilities) as guest:
            assert info_of(guest)['mapped'] == bool(n)
            assert_same_ram(guest.ram_image(), image)
            assert guest.peek(high + 3 * PAGE, 1) == bytes([n])
