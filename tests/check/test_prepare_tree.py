# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/prepare-tree replaces what it has made, and nobody else's files."""

import shutil
import subprocess
from pathlib import Path

import pytest

from common import STAMP, STOCK_SRC, series
from lib.products import REPO


def prepare(*args) -> subprocess.CompletedProcess:
    return subprocess.run([REPO / 'scripts/prepare-tree', *args], text=True,
                          capture_output=True, check=False)


@pytest.fixture
def source(tmp_path) -> Path:
    """As much of QEMU as is asked for without patches."""
    tree = tmp_path / 'source'
    needed = tree / 'subprojects/keycodemapdb/meson.build'
    needed.parent.mkdir(parents=True)
    for path in (tree / 'configure', needed):
        path.write_text('')
    (tree / 'VERSION').write_text('10.0.13\n')
    return tree


@pytest.fixture
def place(tmp_path, source) -> Path:
    """With an untouched source."""
    place = tmp_path / 'place'
    run = prepare('--stock', '--place', place, '--qemu-src', source)
    assert run.returncode == 0, run
    return place


@pytest.fixture(params=['', '10.0.13'])
def theirs(request, tmp_path) -> Path:
    """A user's own folder, which may be a QEMU tree as well."""
    mine = tmp_path / 'theirs'
    mine.mkdir()
    (mine / 'mine').write_text('mine')
    if request.param:
        (mine / 'VERSION').write_text(request.param)
    return mine


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob('*'))


def check_refused(run, tree: Path, had: list[Path]) -> None:
    assert run.returncode == 1
    line, = run.stderr.splitlines()
    assert line.startswith(f'prepare-tree: {tree} is not empty, and ')
    assert 'name another' in line and line.endswith('or remove it')
    assert files(tree) == had and (tree / 'mine').read_text() == 'mine'


def test_stock_outdir_of_a_user_is_refused(place, theirs):
    had = files(theirs)
    check_refused(prepare('--stock', '--place', place, theirs), theirs, had)


def test_outdir_of_a_user_is_refused(place, theirs):
    had = files(theirs)
    check_refused(prepare('--place', place, theirs), theirs, had)


@pytest.mark.parametrize('name', ('stock-src', 'qemu-src'))
def test_place_of_a_user_is_refused(tmp_path, place, theirs, source, name):
    """Whichever of the two folders there is the user's."""
    other = tmp_path / 'other'
    other.mkdir()
    if name == 'qemu-src':
        shutil.copytree(place / 'stock-src', other / 'stock-src')
    theirs = theirs.rename(other / name)
    had = files(theirs)
    run = prepare('--place', other, '--qemu-src', source)
    check_refused(run, theirs, had)


def test_what_lies_beside_is_kept(place):
    for name in ('.unpack-mine', 'mine', '.ram-reset-unpack-left'):
        (place / name).mkdir()
    assert prepare('--stock', '--place', place).returncode == 0
    assert sorted(path.name for path in place.iterdir()) == [
        '.unpack-mine', 'mine', 'stock-src']


def test_own_outdir_is_made_anew(tmp_path, place, source):
    out = tmp_path / 'out'
    out.mkdir()
    for number in range(2):
        assert prepare('--stock', '--place', place, out).returncode == 0
        assert (out / 'configure').exists()
        assert not (out / 'new').exists()
        (out / 'new').write_text('')


def test_interrupted_source_is_not_taken_for_whole(place, source):
    """It is ours, and its release is not known to be there."""
    stamp = place / 'stock-src' / STAMP
    stamp.write_text('{"source": null, "version": null, "id": null}')
    (place / 'stock-src/configure').unlink()
    run = prepare('--stock', '--place', place, '--qemu-src', source)
    assert run.returncode == 0, run
    assert (place / 'stock-src/configure').exists()
    assert '10.0.13' in stamp.read_text()


@pytest.mark.parametrize('version, tried', (
    ('10.0.13', True), ('10.2.2', True), ('11.0.92', True),
    ('10.1.0', False), ('9.2.0', False)))
def test_release_that_nobody_tried_is_named(tmp_path, source, version, tried):
    (source / 'VERSION').write_text(f'{version}\n')
    for name in {name for patch in series() for name in patch.files}:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(STOCK_SRC / name, source / name)
    run = prepare('--place', tmp_path / 'place', '--qemu-src', source)
    assert run.returncode == 0, run
    said = f'QEMU {version} is of no release that this was tried with, '
    assert (said in run.stdout) != tried


def test_source_without_a_name_is_refused(place):
    run = prepare('--stock', '--place', place, '--qemu-src', '')
    assert run.returncode == 1
    assert 'a source without a name does not exist' in run.stderr
