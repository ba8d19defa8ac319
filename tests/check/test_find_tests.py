# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/find-tests finds tests in folders, and refuses ambiguous names."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib.products import REPO


@pytest.fixture
def find(tmp_path):
    """Run find-tests in a tree with these tests."""
    (tmp_path / 'scripts').mkdir()
    for name in 'find-tests', 'common.py':
        shutil.copy(REPO / 'scripts' / name, tmp_path / 'scripts')

    def find(**files: str) -> subprocess.CompletedProcess:
        for name, text in files.items():
            path = tmp_path / 'tests' / Path(*name.split('__')
                                             ).with_suffix('.py')
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return subprocess.run(
            [sys.executable, tmp_path / 'scripts/find-tests'], text=True,
            capture_output=True, check=False)
    return find


def test_folders_of_any_depth(find):
    run = find(functional__test_a='', functional__room__test_b='# Takes: 9 s\n',
               functional__room__corner__test_c='# Long: it is\n')
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == [
        'functional,long|c|together|0|tests/functional/room/corner/test_c.py'
        '|1800',
        'functional|a|together|0|tests/functional/test_a.py|1800',
        'functional|b|together|9|tests/functional/room/test_b.py|1800']


@pytest.mark.parametrize('other', ('functional__room', 'libvirt'))
def test_two_files_of_one_name_are_refused(find, other):
    run = find(functional__test_a='', **{f'{other}__test_a': ''})
    assert run.returncode == 1
    assert run.stderr.startswith('find-tests: ') and 'rename one' in run.stderr


def test_folder_that_no_suite_has_is_refused(find):
    run = find(elsewhere__test_a='')
    assert run.returncode == 1
    assert 'tests/elsewhere/test_a.py is in no folder of tests' in run.stderr
