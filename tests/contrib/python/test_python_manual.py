# SPDX-License-Identifier: GPL-2.0-or-later
"""
The Python package as users have it: a wheel, installed where nothing else is,
and all of the manual with it.
"""

# Takes: 110 s

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib import effort, products
from lib.documents import PYTHON, SHELL, Document
from lib.machine import run_quietly
from lib.patience import patience
from lib.pythons import pythons

PACKAGE = products.REPO / 'contrib/python'
PAGE, AGENTS = (Document(products.REPO / f'docs/system/ram-reset-{name}.rst')
                for name in ('python', 'agents'))
# test_python_hosts.py runs it
ELSEWHERE = {'hosts.py'}
THOUSAND = 'venv/bin/python3 restore.py 1000'


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


def transcript() -> str:
    text, = (b.text for b in PAGE.blocks if b.text.startswith('$ '))
    return text


def test_transcript_is_what_the_manual_says():
    typed = re.findall(r'^\$ (?:time )?(.*)', transcript(), re.M)
    first = [command.text for command in PAGE.commands()][:len(typed) - 1]
    assert typed == ["TIMEFORMAT='(%R s)'", *first] and \
        first[-1] == THOUSAND


def test_a_thousand_restores(venv, guest, tmp_path):
    """Fewer of them here, but they say the same."""
    count = 1000 if effort.LONG else 50
    (tmp_path / 'guest').symlink_to(guest)
    (tmp_path / 'venv').symlink_to(venv)
    write_files(PAGE, tmp_path)
    said = run(THOUSAND.replace('1000', str(count)), tmp_path)
    shown = transcript().partition(f'{THOUSAND}\n')[2].splitlines()[:2]
    assert [re.sub(r'\d+\.\d+', '0.0', line) for line in said.splitlines()] \
        == [re.sub(r'\d+\.\d+', '0.0', line).replace('1000', str(count))
            for line in shown]


def write_files(page: Document, folder: Path) -> set[str]:
    files = {b.caption: b.text for b in page.blocks if b.language == PYTHON}
    for name, text in files.items():
        (folder / name).write_text(text)
    return set(files)


@pytest.mark.parametrize('page', (PAGE, AGENTS), ids=lambda page: page.name)
def test_all_of_the_manual(venv, guest, tmp_path, page):
    (tmp_path / 'guest').symlink_to(guest)
    (tmp_path / 'venv').symlink_to(venv)
    write_files(PAGE, tmp_path)
    files = write_files(page, tmp_path)
    commands = [command.text for command in page.commands()
                if command.text.startswith('venv/bin/python3 ')]
    assert {c.split()[1] for c in commands} == files - {'guest.py'}
    assert {b.language for b in page.blocks} <= {SHELL, PYTHON, 'none'}
    for command in commands:
        if command.split()[1] not in ELSEWHERE and command != THOUSAND:
            run(command, tmp_path)


def run(command: str, folder: Path) -> str:
    done = subprocess.run(
        command, shell=True, cwd=folder, capture_output=True, text=True,
        check=False, timeout=patience(240), env={
            'PATH': f'{products.QEMU.parent}:{os.environ["PATH"]}'})
    assert done.returncode == 0 and done.stderr == '', \
        f'{command}: {done.stdout}{done.stderr}'
    print(command, done.stdout)
    return done.stdout


def test_readme_is_python():
    block, = (b for b in Document(PACKAGE / 'README.rst').blocks)
    compile(block.text, 'README.rst', 'exec')
