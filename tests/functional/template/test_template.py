# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshots whose RAM is taken from a file, by this QEMU or another one."""

# Takes: 20 s

import contextlib
import os
import shutil
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.damage import damage_template
from lib.guests import PAGE
from lib.machine import MIB, MachineError
from lib.templates import (RAM_SIZE, START, STORED, assert_from_template,
                           assert_not_from_template, boot, dirty, files,
                           main_block, save, start)


@pytest.mark.each_value
@pytest.mark.parametrize('how', ('loadvm', 'hmp', 'qmp'))
def test_new_process(tmp_path, templates, accel, any_memory, rewind, how):
    """It has the snapshot's RAM, all of it, and the guest goes on."""
    setup = {'accel': accel, 'memory': any_memory,
             'options': f'{rewind},verify=on'}
    image = save(tmp_path, templates, **setup)
    file, = files(templates)
    options = {'loadvm': 's'} if how == 'loadvm' else {}
    with boot(tmp_path, templates, **setup, **options) as guest:
        if not options:
            dirty(guest)
            guest.stop()
            guest.load('s', how)
        else:
            guest.stop()
        assert_from_template(guest, file)
        assert main_block(guest)['strategy'] == \
            ('template' if any_memory == 'private' else 'memset')
        if how != 'loadvm':
            assert_same_ram(guest.ram_image(), image)
        guest.cont()
        guest.ask('check-fill', START, STORED, 1)
        for seed in range(3, 6):
            dirty(guest, seed)
            guest.stop()
            guest.load('s')
            assert_same_ram(guest.ram_image(), image)
            assert guest.last_load()['rewound'] == bool(rewind)
            guest.cont()
    assert files(templates) == [file]


def test_first_load_makes_it(tmp_path, templates, rewind):
    """As if it had been there when the snapshot was saved."""
    image = save(tmp_path, templates)
    file, = files(templates)
    file.unlink()
    for loads in range(2):
        with start(tmp_path, templates, options=rewind) as guest:
            assert_same_ram(guest.ram_image(), image)
            if loads:
                assert_from_template(guest, file)
            else:
                assert_not_from_template(guest)
            assert files(templates) == [file]


def test_is_private(tmp_path, templates):
    """No other guest sees what a guest writes."""
    save(tmp_path, templates)
    file, = files(templates)
    before = file.read_bytes()
    with boot(tmp_path, templates, loadvm='s') as guest:
        assert main_block(guest)['mapped-pages'] >= STORED // PAGE
        guest.ask('fill', START, 12 * MIB, 7)
        guest.sync()
    assert file.read_bytes() == before
    assert file.stat().st_mode & 0o777 == 0o600


def test_of_another_snapshot_of_that_name(tmp_path, templates, rewind):
    """It is told from the one before by more than what it is called."""
    save(tmp_path, templates, seed=1)
    old, = files(templates)
    older = shutil.copy(old, tmp_path / 'older')
    image = save(tmp_path, templates, seed=2)
    newer, = files(templates)
    assert newer != old
    # somebody gives it the name of the other
    for files_are_swapped in (False, True):
        with start(tmp_path, templates, options=rewind) as guest:
            assert_same_ram(guest.ram_image(), image)
            if files_are_swapped:
                assert_not_from_template(guest)
                assert 'another snapshot' in guest.log()
            else:
                assert_from_template(guest, newer)
        shutil.copy(older, newer)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def damage_index(file: Path) -> None:
    with file.open('r+b') as f:
        f.seek(60)
        f.write(b'\xff')


def write_to(file: Path) -> None:
    with file.open('r+b') as f:
        f.seek(-PAGE, os.SEEK_END)
        f.write(b'\xff')


def empty(file: Path) -> None:
    file.write_bytes(b'')


def let_others_write(file: Path) -> None:
    file.chmod(0o666)


def link(file: Path) -> None:
    file.rename(file.with_suffix('.elsewhere'))
    file.symlink_to(file.with_suffix('.elsewhere'))


@pytest.mark.parametrize('harm', (cut, damage_index, write_to, empty,
                                  let_others_write, link))
def test_untrusted(tmp_path, templates, harm):
    """It is not used, which is said, and made anew."""
    image = save(tmp_path, templates)
    file, = files(templates)
    harm(file)
    with start(tmp_path, templates) as guest:
        assert_same_ram(guest.ram_image(), image)
        assert_not_from_template(guest)
        assert f"template '{file}' cannot be used, and will be made again" \
            in guest.log()
    with start(tmp_path, templates) as guest:
        assert_same_ram(guest.ram_image(), image)
        assert_from_template(guest, file)
        assert guest.log().count('cannot be used') == 1


def test_wrong_content(tmp_path, templates):
    """verify=on finds damage once: then the file is gone."""
    image = save(tmp_path, templates)
    file, = files(templates)
    damage_template(file, image[START:START + 64])
    with pytest.raises(MachineError, match='is not what the snapshot has'):
        start(tmp_path, templates, options=',verify=on')
    assert files(templates) == []
    for made in (False, True):
        with start(tmp_path, templates, options=',verify=on') as guest:
            assert_same_ram(guest.ram_image(), image)
            assert ('template' in guest.last_load()) == made


def test_others_that_map_the_file(tmp_path, templates):
    """No template is made if a load into one block shows in another."""
    shared = tmp_path / 'shared'
    args = ['-m', 'slots=2,maxmem=1G']
    for i, share in enumerate(('on', 'off')):
        args += ['-object', f'memory-backend-file,id=m{i},size=16M,'
                            f'mem-path={shared},share={share}',
                 '-device', f'pc-dimm,memdev=m{i},id=d{i}']
    with boot(tmp_path, templates, args=tuple(args)) as guest:
        guest.ask('fill', START, STORED, 1)
        guest.save('s')
        info = guest.qmp('query-ram-reset')['template']
        assert 'file' not in info and 'RAM block' in info['problem']
        guest.ask('fill', START, STORED, 2)
        guest.load('s')
        guest.ask('check-fill', START, STORED, 1)
    assert files(templates) == []


def test_objects_that_come_and_go(tmp_path, templates):
    """A template is not taken for a copy of what is loaded without one."""
    with boot(tmp_path, templates) as guest:
        for tag, seed in (('t', 1), ('s', 2)):
            guest.ask('fill', START, STORED, seed)
            guest.save(tag)
        guest.qmp('object-del', id='rr0')
        guest.qmp('object-add', **{'qom-type': 'ram-reset-memset', 'id': 'rr1',
                                   'rewind': True})
        for _ in range(3):
            guest.load('t')
            guest.ask('check-fill', START, STORED, 1)
            dirty(guest)
        assert guest.last_load()['rewound']


def test_of_other_ram(tmp_path, templates):
    """A machine that it does not fit refuses the snapshot, as ever."""
    save(tmp_path, templates)
    with pytest.raises(MachineError, match='has 33554432 bytes in the'):
        start(tmp_path, templates, ram=2 * RAM_SIZE)


def test_deleted_snapshot(tmp_path, templates):
    """Its template does not bring it back."""
    save(tmp_path, templates)
    with boot(tmp_path, templates) as guest:
        guest.ask('fill', START, STORED, 3)
        guest.save('t')
        guest.ask('fill', START, STORED, 4)
        guest.hmp('delvm t')
        with pytest.raises(MachineError, match="'t'"):
            guest.load('t')
        guest.cont()
        guest.ask('check-fill', START, STORED, 4)
        guest.load('s')
        guest.ask('check-fill', START, STORED, 1)


def test_copies_of_the_image(tmp_path, templates):
    """Guests of one snapshot share a template, and each has its own RAM."""
    image = save(tmp_path, templates)
    file, = files(templates)
    with contextlib.ExitStack() as stack:
        guests = []
        for i in range(3):
            folder = tmp_path / str(i)
            folder.mkdir()
            shutil.copy(tmp_path / 'disk.qcow2', folder)
            guests.append(stack.enter_context(
                boot(folder, templates, loadvm='s')))
            assert_from_template(guests[i], file)
            dirty(guests[i], seed=20 + i)
        for i, guest in enumerate(guests):
            guest.ask('check-fill', START + MIB, 2 * MIB, 20 + i)
            guest.ask('check-fill', START, MIB, 1)
            guest.stop()
            guest.load('s')
            assert_same_ram(guest.ram_image(), image)
    assert files(templates) == [file]
