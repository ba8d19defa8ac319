# SPDX-License-Identifier: GPL-2.0-or-later
"""--qemu-src: each script takes the same, from the folder of who calls."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lib.products import REPO

CALLERS = 'package', 'scripts/bootstrap', 'scripts/build-qemu'
# Instead of what installs, fetches and builds: they say what they are told
FAKES = {'scripts/prepare-tree': 'echo "$PWD|$*"; exit 9',
         'scripts/find-features': '', 'scripts/fetch-guest': '',
         'scripts/fetch-libvirt': '', 'scripts/fetch-vhost': '',
         'scripts/fetch-virt-install': '', 'scripts/fetch-debian-qemu': '',
         'build/venv/bin/python3': '',
         'bin/dpkg-query': 'echo installed', 'bin/df': 'echo 99999999'}


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)


@pytest.fixture
def clone(tmp_path) -> Path:
    for name in ('demo', 'scripts/source-option.sh', *CALLERS):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(REPO / name, tmp_path / name)
    for name, text in FAKES.items():
        script(tmp_path / name, text)
    wanted = (tmp_path / 'scripts/bootstrap').read_text()
    requirements = wanted[wanted.index('requirements=('):]
    requirements = requirements[:requirements.index('wanted=')]
    said = subprocess.run(['bash', '-c', requirements +
                           'echo "${requirements[*]}"'], text=True,
                          capture_output=True, check=True).stdout
    (tmp_path / 'build/venv/.complete').write_text(f'{tmp_path} {said}')
    return tmp_path


def call(clone: Path, name: str, *args: str) -> subprocess.CompletedProcess:
    folder = clone / 'elsewhere'
    folder.mkdir(exist_ok=True)
    (folder / 'source').mkdir(exist_ok=True)
    return subprocess.run(
        [f'../{name}', *args], cwd=folder, text=True, capture_output=True,
        env=os.environ | {'PATH': f'{clone}/bin:{os.environ["PATH"]}'},
        check=False)


@pytest.mark.parametrize('name', CALLERS)
def test_a_relative_folder_is_the_callers(clone, name):
    run = call(clone, name, '--qemu-src', 'source')
    assert run.returncode == 9, run
    folder, options = run.stdout.splitlines()[-1].split('|')
    assert folder == str(clone)
    assert options.endswith(f'--qemu-src {clone}/elsewhere/source')


@pytest.mark.parametrize('name', CALLERS)
@pytest.mark.parametrize('known', ('debian', 'debian:10.2'))
def test_debians_releases_are_known(clone, name, known):
    run = call(clone, name, '--qemu-src', known)
    assert run.returncode == 9, run
    assert run.stdout.splitlines()[-1].endswith(f'--qemu-src {known}')


@pytest.mark.parametrize('name', CALLERS)
@pytest.mark.parametrize('wrong', ('debian:10.2.2', 'debian:', 'debain', ''))
def test_what_is_none_is_refused_with_what_there_is(clone, name, wrong):
    run = call(clone, name, '--qemu-src', wrong)
    assert run.returncode == 1 and run.stdout == ''
    line, = run.stderr.splitlines()
    assert wrong in line and line.endswith(
        'a folder or a tarball of QEMU, debian, or debian:RELEASE such as '
        'debian:10.2')


@pytest.mark.parametrize('wrong', ('debian:10.2.2', 'debain'))
def test_prepare_tree_says_the_same(tmp_path, wrong):
    run = subprocess.run([REPO / 'scripts/prepare-tree', '--place', tmp_path,
                          '--qemu-src', wrong], text=True,
                         capture_output=True, check=False)
    assert run.returncode == 1
    assert wrong in run.stderr and 'or debian:RELEASE such as' in run.stderr


def test_the_demo_leaves_it_to_bootstrap(clone):
    script(clone / 'scripts/bootstrap', 'echo "$PWD|$*"; exit 9')
    run = call(clone, 'demo', '--qemu-src', 'source')
    assert run.stdout == f'{clone}/elsewhere|--qemu-src source\n'


@pytest.mark.parametrize('more', ('--in', '--try'))
def test_one_release_is_packaged_at_a_time(clone, more):
    run = call(clone, 'package', '--in', '12', more, '13')
    assert run.returncode == 1
    assert run.stderr.endswith('run this once for each\n')
