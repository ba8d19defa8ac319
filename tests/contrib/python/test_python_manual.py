# SPDX-License-Identifier: GPL-2.0-or-later
"""
The Python package as users have it: a wheel, installed where nothing else is,
and all of the manual with it.
"""

# Takes: 60 s

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib import products
from lib.documents import PYTHON, SHELL, Document
from lib.machine import run_quietly
from lib.patience import patience
from lib.pythons import pythons

PACKAGE = products.REPO / 'contrib/python'
PAGE = Document(products.REPO / 'docs/system/ram-reset-python.rst')


@pytest.fixture(scope='module')
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('wheel')
    shutil.copytree(PACKAGE, folder / 'source')
    run_quietly(sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps', '-w',
                folder, folder / 'source')
    made, = folder.glob('*.whl')
    return made


@pytest.fixture(scope='module')
def guest(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('guest') / 'guest'
    run_quietly(products.REPO / 'scripts/make-guest', folder)
    return folder


@pytest.fixture(scope='module', params=pythons(), ids=lambda path: path.name)
def venv(request, wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp('venv') / 'venv'
    run_quietly(request.param, '-m', 'venv', folder)
    run_quietly(folder / 'bin/pip', 'install', '-q', wheel)
    return folder


def test_only_what_is_needed(venv):
    installed = {line.split('==')[0] for line in run_quietly(
        venv / 'bin/pip', 'list', '--format=freeze').splitlines()}
    assert installed - {'pip', 'setuptools'} == {'ram-reset', 'qemu.qmp'}
    files = run_quietly(venv / 'bin/pip', 'show', '-f', 'ram-reset')
    assert 'ram_reset/py.typed' in files and 'ram_reset/aio.py' in files


def test_all_of_the_manual(venv, guest, tmp_path):
    (tmp_path / 'guest').symlink_to(guest)
    (tmp_path / 'venv').symlink_to(venv)
    for block in PAGE.blocks:
        if block.language == PYTHON:
            (tmp_path / block.caption).write_text(block.text)
    commands = [command.text for command in PAGE.commands()
                if command.text.startswith('venv/bin/python3 ')]
    files = {b.caption for b in PAGE.blocks if b.language == PYTHON}
    assert {c.split()[1] for c in commands} == files - {'guest.py'}
    assert {b.language for b in PAGE.blocks} == {SHELL, PYTHON}
    for command in commands:
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True,
            check=False, timeout=patience(240), env={
                'PATH': f'{products.QEMU.parent}:{os.environ["PATH"]}'})
        assert done.returncode == 0 and done.stderr == '', \
            f'{command}: {done.stdout}{done.stderr}'
        print(command, done.stdout)


def test_readme_is_python():
    block, = (b for b in Document(PACKAGE / 'README.rst').blocks)
    compile(block.text, 'README.rst', 'exec')
