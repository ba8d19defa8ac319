# SPDX-License-Identifier: GPL-2.0-or-later
"""Places of templates, and how much room they may take."""

import os

import pytest

from lib.content import assert_same_ram
from lib.machine import RAM, MachineError, run_quietly
from lib.templates import (RAM_SIZE, REWIND, START, STORED,
                           assert_from_template, assert_not_from_template,
                           boot, dirty, files, main_block, save, start)


def test_limit(tmp_path, templates):
    """A new template replaces those used longest ago, and no others."""
    limit = f',template-limit={STORED * 5 // 2}'
    disks = []
    for i in range(3):
        folder = tmp_path / str(i)
        folder.mkdir()
        save(folder, templates, options=limit)
        with start(folder, templates, options=limit) as guest:
            assert 'file' in guest.qmp('query-ram-reset')['template']
        disks.append(folder)
        used = sum(f.stat().st_blocks * 512 for f in files(templates))
        assert used <= STORED * 5 // 2
        for file in files(templates):
            os.utime(file, (file.stat().st_atime - 100,
                            file.stat().st_mtime))
    assert len(files(templates)) == 2
    with boot(disks[2], templates, options=f',template-limit={STORED}') as guest:
        guest.ask('fill', START, STORED, 5)
        assert 'has not been made' in guest.hmp('savevm t')
        info = guest.qmp('query-ram-reset')['template']
        assert 'MiB' in info['problem'] and 'file' not in info
        guest.ask('fill', START, STORED, 6)
        guest.load('t')
        guest.ask('check-fill', START, STORED, 5)


def test_saves_make_room(tmp_path, templates):
    """A snapshot that is saved anew and anew has a template each time."""
    with boot(tmp_path, templates,
              options=f',template-limit={STORED * 5 // 2}') as guest:
        for seed in range(1, 7):
            guest.ask('fill', START, STORED, seed)
            guest.save('s')
            assert 'file' in guest.qmp('query-ram-reset')['template']
            assert len(files(templates)) <= 2


def test_hugetlbfs(tmp_path, huge_pool, accel):
    """Pages of a template on hugetlbfs are copied, never mapped."""
    place = tmp_path / 'huge'
    place.mkdir()
    try:
        run_quietly('mount', '-t', 'hugetlbfs', '-o', 'pagesize=2M,mode=0700',
                    'none', place)
    except (MachineError, FileNotFoundError) as e:
        pytest.skip(f'hugetlbfs cannot be mounted: {e}')
    try:
        image = save(tmp_path, place, accel=accel)
        for rewind in REWIND:
            with start(tmp_path, place, accel=accel,
                       options=f'{rewind},verify=on') as guest:
                assert_from_template(guest, files(place)[0])
                assert main_block(guest)['mapped-pages'] == 0
                guest.cont()
                dirty(guest)
                guest.stop()
                guest.load('s')
                assert_same_ram(guest.ram_image(), image)
    finally:
        run_quietly('umount', place)


def test_full_file_system(tmp_path):
    """No template is made, and nothing else goes wrong."""
    small = tmp_path / 'small'
    small.mkdir()
    try:
        run_quietly('mount', '-t', 'tmpfs', '-o', f'size={STORED // 2}', 'none',
                    small)
    except (MachineError, FileNotFoundError) as e:
        pytest.skip(f'a small tmpfs cannot be mounted: {e}')
    try:
        image = save(tmp_path, small, options=f',template-limit={RAM_SIZE}')
        assert files(small) == []
        with start(tmp_path, small) as guest:
            assert_same_ram(guest.ram_image(), image)
            assert_not_from_template(guest)
    finally:
        run_quietly('umount', small)


@pytest.mark.parametrize('mode, text', (
    (None, 'No such file'), (0o777, '0777'), (0o100, 'Not a directory')))
def test_directory(tmp_path, mode, text):
    """An unsafe place is an error at start that says what to do."""
    place = tmp_path / 'place'
    if mode == 0o100:
        place.touch()
    elif mode:
        place.mkdir()
        place.chmod(mode)
    with pytest.raises(MachineError, match=text) as caught:
        boot(tmp_path, place)
    assert str(place) in str(caught.value)
    assert 'Make a directory' in str(caught.value)


def test_different_directories(tmp_path, templates):
    other = tmp_path / 'other'
    other.mkdir(mode=0o700)
    with pytest.raises(MachineError, match='different template-dir'):
        boot(tmp_path, templates, args=(
            '-object', f'ram-reset-memset,id=rr1,memdev={RAM},'
                       f'template-dir={other}'))
