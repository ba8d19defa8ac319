# SPDX-License-Identifier: GPL-2.0-or-later
"""A directory of templates, its messages, and what others do to it."""

import contextlib
import os
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.guests import Ring3
from lib.machine import MIB, RAM
from lib.snapctl_guest import SAVE, SAVED, A, SnapctlGuest
from lib.templates import (RAM_SIZE, REWIND, START, STORED,
                           assert_from_template, assert_not_from_template,
                           boot, dirty, files, save, start)

SAVES = 40
NOT_MADE = 'has not been made'


def save_state(guest: Ring3, tag: str, seed: int) -> None:
    guest.ask('fill', START, STORED, seed)
    guest.save(tag)


def template_of(guest: Ring3) -> dict:
    return guest.qmp('query-ram-reset')['template']


def let_age(templates: Path) -> None:
    """As if it had all been used before."""
    for file in files(templates):
        was = file.stat()
        os.utime(file, (was.st_atime - 100, was.st_mtime))


def copy_of(workdir: Path, name: str) -> Path:
    folder = workdir / name
    folder.mkdir()
    shutil.copy(workdir / 'disk.qcow2', folder)
    return folder


# Templates of snapshots that are no more

@pytest.mark.parametrize('options', REWIND, ids=('load', 'rewind'))
def test_saving_over_a_snapshot_leaves_one_template(tmp_path, templates,
                                                    options):
    """The snapshot has one template, however often it is overwritten."""
    with boot(tmp_path, templates, options=options) as guest:
        for seed in range(1, SAVES + 1):
            guest.ask('fill', START, STORED // 4, seed)
            guest.save('s')
            file, = files(templates)
            assert template_of(guest)['file'] == str(file)
            if seed % 10 == 0:
                guest.load('s')
                guest.ask('check-fill', START, STORED // 4, seed)
        guest.stop()
        guest.load('s')
        image = guest.ram_image()
    with start(tmp_path, templates, options=options + ',verify=on') as guest:
        assert_from_template(guest, file)
        assert_same_ram(guest.ram_image(), image)


def test_saving_over_what_another_process_saved(tmp_path, templates):
    """Its template is known by the image alone."""
    save(tmp_path, templates, seed=1)
    old, = files(templates)
    with boot(tmp_path, templates) as guest:
        save_state(guest, 't', 2)
        save_state(guest, 's', 3)
        assert old not in files(templates)
        assert len(files(templates)) == 2


def delete(guest: Ring3, tag: str, how: str) -> None:
    if how == 'hmp':
        guest.hmp(f'delvm {tag}')
    else:
        guest.qmp('snapshot-delete', **{'job-id': 'd', 'tag': tag,
                                        'devices': ['disk0']})
        while True:
            job, = guest.qmp('query-jobs')
            if job['status'] == 'concluded':
                break
        assert 'error' not in job
        guest.qmp('job-dismiss', id='d')


@pytest.mark.parametrize('how', ('hmp', 'qmp'))
@pytest.mark.parametrize('loaded', (False, True), ids=('cold', 'loaded'))
def test_deleting_a_snapshot_removes_its_template(tmp_path, templates, how,
                                                  loaded):
    """The template goes even if this QEMU has it mapped, and goes on."""
    image = save(tmp_path, templates)
    old, = files(templates)
    options = {'loadvm': 's'} if loaded else {}
    with boot(tmp_path, templates, **options) as guest:
        guest.stop()
        if loaded:
            guest.load('s')
        guest.save('t')
        other, = set(files(templates)) - {old}
        delete(guest, 's', how)
        assert files(templates) == [other]
        assert template_of(guest).get('file') in (None, str(other))
        if loaded:
            assert_same_ram(guest.ram_image(), image)
        guest.load('t')
        assert_from_template(guest, other)
        delete(guest, 't', how)
        assert files(templates) == []
        assert 'file' not in template_of(guest)
        if loaded:
            assert_same_ram(guest.ram_image(), image)


def test_a_template_that_another_vm_uses_is_not_removed(tmp_path, templates):
    """Copies of an image share it: the last one that goes takes it along."""
    save(tmp_path, templates)
    file, = files(templates)
    folders = [copy_of(tmp_path, str(i)) for i in range(3)]
    with boot(folders[0], templates, loadvm='s') as guest:
        with boot(folders[1], templates, loadvm='s') as other:
            other.hmp('delvm s')
            assert files(templates) == [file]
            # it has not lost its own lock by trying
            with boot(folders[2], templates) as third:
                third.hmp('delvm s')
                assert files(templates) == [file]
        guest.load('s')
        assert_from_template(guest, file)
        save_state(guest, 's', 5)
        assert file not in files(templates)
        assert len(files(templates)) == 1


def test_other_snapshots_keep_theirs(tmp_path, templates):
    """Saves, deletions and loads leave other snapshots' templates alone."""
    with boot(tmp_path, templates) as guest:
        for seed, tag in enumerate('abc', 1):
            save_state(guest, tag, seed)
        kept = set(files(templates))
        assert len(kept) == 3
        save_state(guest, 'd', 4)
        guest.load('a')
        guest.load('b')
        guest.hmp('delvm d')
        assert set(files(templates)) == kept


# Room for others'

def save_of_another(tmp_path: Path, templates: Path, options: str
                    ) -> tuple[Path, str]:
    """The folder of another VM, and the template that it made long ago."""
    other = tmp_path / 'other'
    other.mkdir()
    save(other, templates, options=options)
    theirs, = files(templates)
    let_age(templates)
    return other, theirs


def test_saves_do_not_evict_templates_of_others(tmp_path, templates):
    """A guest that saves makes room among its own."""
    options = f',template-limit={STORED * 5 // 2}'
    other, theirs = save_of_another(tmp_path, templates, options)
    with boot(tmp_path, templates, options=options) as guest:
        mine = []
        for seed, tag in enumerate('abcab', 1):
            save_state(guest, tag, seed)
            mine.append(template_of(guest).get('file'))
            assert theirs in files(templates)
            assert len(files(templates)) == 2
        assert None not in mine and len(set(mine)) == 5
    with boot(other, templates, loadvm='s') as guest:
        assert_from_template(guest, theirs)


def test_saves_are_without_where_only_others_could_go(tmp_path, templates):
    """It is said why, and the next one who loads may make room."""
    options = f',template-limit={STORED * 3 // 2}'
    _, theirs = save_of_another(tmp_path, templates, options)
    with boot(tmp_path, templates, options=options) as guest:
        guest.ask('fill', START, STORED, 2)
        guest.stop()
        image = guest.ram_image()
        assert NOT_MADE in guest.hmp('savevm s')
        assert "not this QEMU's" in template_of(guest)['problem']
    assert files(templates) == [theirs]
    with start(tmp_path, templates, options=options) as guest:
        assert_not_from_template(guest)
        assert_same_ram(guest.ram_image(), image)
        file, = files(templates)
        assert file != theirs
    with start(tmp_path, templates, options=options) as guest:
        assert_from_template(guest, file)


# Log messages

def most_since(begin: float) -> int:
    """Warnings of one problem, a minute or more apart."""
    return 1 + int(time.monotonic() - begin) // 60


def test_templates_that_cannot_be_made_are_logged_once(tmp_path, templates):
    """Saves do not repeat the warning; query-ram-reset has the last reason."""
    said, begin = '', time.monotonic()
    with boot(tmp_path, templates, options=f',template-limit={STORED // 2}'
              ) as guest:
        for seed in range(1, SAVES + 1):
            # each of another name, and of another size
            guest.ask('fill', START, STORED + (seed % 4) * MIB, seed)
            said += guest.hmp(f'savevm s{seed % 5}')
            assert 'MiB' in template_of(guest)['problem']
        assert 1 <= (said + guest.log()).count(NOT_MADE) <= most_since(begin)


def test_failures_between_successes_are_logged_once(tmp_path, templates):
    """A guest decides which of its saves fit."""
    said, begin = '', time.monotonic()
    with boot(tmp_path, templates, options=f',template-limit={STORED // 2}'
              ) as guest:
        for seed in range(1, SAVES // 2 + 1):
            fits = seed % 2
            guest.ask('fill' if not fits else 'set', START, STORED,
                      seed if not fits else 0)
            said += guest.hmp('savevm s')
            assert len(files(templates)) == fits
        assert 1 <= (said + guest.log()).count(NOT_MADE) <= most_since(begin)


@pytest.mark.parametrize('fits', (True, False), ids=('room', 'no-room'))
def test_a_guest_that_saves_in_a_loop(tmp_path, templates, fast_accel, fits):
    """It fills neither the directory nor the log."""
    limit = '' if fits else ',template-limit=1'
    args = ('-object', f'ram-reset-memset,id=rr1,memdev={RAM},'
                       f'template-dir={templates}{limit}')
    with SnapctlGuest(tmp_path, accel=fast_accel, memory='private', args=args
                      ) as guest:
        begin = time.monotonic()
        for _ in range(SAVES):
            assert guest.snap(A, SAVE)[0] == SAVED
            assert len(files(templates)) == fits
        said = guest.log().count(NOT_MADE)
        assert said == 0 if fits else 1 <= said <= most_since(begin)


# Limits on the size of files

@contextlib.contextmanager
def files_up_to(size: int, pid: int = 0) -> Iterator[None]:
    """RLIMIT_FSIZE of this process and those that it starts, or of another."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize('options', REWIND, ids=('load', 'rewind'))
def test_saving_with_a_file_size_limit_below_ram(tmp_path, templates, options):
    """There is no template then, which is said; QEMU goes on."""
    with boot(tmp_path, templates, options=options) as guest:
        guest.ask('fill', START, STORED, 1)
        guest.stop()
        image = guest.ram_image()
        with files_up_to(RAM_SIZE // 2, guest.process.pid):
            assert NOT_MADE in guest.hmp('savevm s')
        assert 'RLIMIT_FSIZE' in template_of(guest)['problem']
        assert files(templates) == []
        guest.cont()
        dirty(guest)
        guest.stop()
        guest.load('s')
        assert_same_ram(guest.ram_image(), image)


def test_loading_with_a_file_size_limit_below_ram(tmp_path, templates):
    """The same of a load that would make one."""
    image = save(tmp_path, templates)
    file, = files(templates)
    file.unlink()
    with files_up_to(RAM_SIZE // 2):
        guest = start(tmp_path, templates)
    with guest, files_up_to(resource.RLIM_INFINITY, guest.process.pid):
        assert 'RLIMIT_FSIZE' in template_of(guest)['problem']
        assert files(templates) == []
        assert_same_ram(guest.ram_image(), image)
    with start(tmp_path, templates):
        assert files(templates) == [file]


@pytest.mark.parametrize('strategy', ('memset', 'madvise', 'remap', 'auto'))
@pytest.mark.parametrize('memory', ('private', 'shared'))
def test_ram_in_a_file_above_the_file_size_limit(tmp_path, templates, strategy,
                                                 memory):
    """It is loaded all the same, from a template or without."""
    setup = {'strategy': strategy, 'memory': memory, 'options': ',verify=on'}
    # behind which the disk must not reach, and RAM has something
    limit = RAM_SIZE // 2
    with boot(tmp_path, templates, **setup) as guest:
        guest.ask('fill', limit + MIB, STORED, 1)
        guest.stop()
        image = guest.ram_image()
        guest.save('s')
    file, = files(templates)
    for has_template in (True, False):
        with boot(tmp_path, templates, **setup) as guest:
            guest.stop()
            with files_up_to(limit, guest.process.pid):
                for _ in range(2):
                    guest.load('s')
                    assert ('template' in guest.last_load()) == has_template
            assert_same_ram(guest.ram_image(), image)
        if has_template:
            file.unlink()
