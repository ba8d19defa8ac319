# SPDX-License-Identifier: GPL-2.0-or-later
"""The programs of contrib run as the Debian package installs them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / 'packaging/debian'
QEMU = ROOT / 'build/qemu-src'


def lines(name: str) -> list[list[str]]:
    text = (PACKAGING / f'qemu-ram-reset.{name}').read_text()
    return [line.split() for line in text.splitlines() if line]


@pytest.fixture(scope='module')
def root(tmp_path_factory) -> Path:
    """A folder with the files of contrib, and QEMU's Python library."""
    root = tmp_path_factory.mktemp('root')
    for source, *target in lines('install'):
        if not source.startswith(('contrib/', 'python/')):
            continue
        path = (ROOT if source.startswith('contrib/') else QEMU) / source
        folder = root / target[0]
        folder.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, folder / path.name, symlinks=True)
        else:
            shutil.copy2(path, folder, follow_symlinks=False)
    for target, link in lines('links'):
        if '/programs/' in target:
            (root / link).parent.mkdir(parents=True, exist_ok=True)
            (root / link).symlink_to(root / target)
    return root


@pytest.mark.parametrize('words', (
    ('ram-reset', '--help'), ('ram-reset', 'loop', '--help'),
    ('ram-reset', 'report', '--help'), ('ram-reset', 'xml', '--help'),
    ('ram-reset', 'feed', '--help')), ids=' '.join)
def test_programs_find_all_they_need(root, words):
    program = root / 'usr/bin' / words[0]
    assert os.access(program, os.X_OK)
    # without the libraries of this Python's environment
    done = subprocess.run(
        [sys.executable, '-S', program, *words[1:]], text=True,
        capture_output=True, check=False, cwd=root,
        env={'PATH': os.environ['PATH'], 'PYTHONDONTWRITEBYTECODE': '1'})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith('usage: ' + ' '.join(words[:-1]))
