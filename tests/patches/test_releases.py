# SPDX-License-Identifier: GPL-2.0-or-later
# Alone: builds QEMU
# Long: so it takes minutes
# Takes: 400 s
# Timeout: 3000 s
"""Other releases of QEMU: the series applies, what is ours compiles without a
warning, and its qtests pass."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from common import BUILD, RELEASES, ROOT
from lib.exported import check_series

PLACE = BUILD / 'releases'
NEWS = Path(__file__).with_name('since_10_2.py')
PROGRAMS = 'ram-reset-test', 'ram-reset-host-test', 'snapctl-test'
# How scripts/prepare-tree says that there is no source to be had
MISSING = re.compile(r'prepare-tree: (Debian no longer offers .*|'
                     r'apt could not fetch qemu=.*)')


@cache
def build(release: str) -> str:
    """Returns: what was said."""
    run = subprocess.run(
        [ROOT / 'scripts/build-qemu', '--minimal', '--place', PLACE / release,
         '--qemu-src', f'debian:{release}'], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
    (PLACE / f'{release}.log').write_text(run.stdout)
    if missing := MISSING.search(run.stdout):
        pytest.skip(missing[1])
    assert run.returncode == 0, run.stdout[-3000:]
    return run.stdout


def environment(release: str) -> dict:
    qemu = PLACE / release / 'qemu'
    programs = {'QEMU': 'qemu-system-x86_64', 'QEMU_IMG': 'qemu-img'}
    return os.environ | {f'{user}_{name}': str(qemu / program)
                         for name, program in programs.items()
                         for user in ('QTEST', 'RAM_RESET')} | {
        'QTEST_QEMU_BINARY': str(qemu / programs['QEMU']),
        'G_TEST_BUILDDIR': str(qemu / 'tests/unit')}


@pytest.mark.parametrize('release', RELEASES[1:])
def test_compiles_without_a_warning(release):
    said = build(release)
    version = (PLACE / release / 'stock-src/VERSION').read_text().strip()
    warnings = [line for line in said.splitlines() if 'warning:' in line]
    print(f'QEMU {version}: {len(warnings)} warnings')
    assert version.startswith(f'{release}.')
    assert not warnings


@pytest.mark.parametrize('program', PROGRAMS)
@pytest.mark.parametrize('release', RELEASES[1:])
def test_qtests_pass(release, program):
    build(release)
    run = subprocess.run(
        [PLACE / release / 'qemu/tests/qtest' / program, '--tap', '-k'],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=environment(release), cwd=PLACE / release / 'qemu')
    passed = re.findall(r'^ok \d+ (?!.*# SKIP)', run.stdout, re.M)
    bad = re.findall(r'^(?:not ok .*|Bail out.*)', run.stdout, re.M)
    if os.geteuid() == 0:       # for others some tests are out of reach
        bad += re.findall(r'^ok .*# SKIP.*', run.stdout, re.M)
    print(f'QEMU {release}, {program}: {len(passed)} passed')
    assert not bad and run.returncode == 0, '\n'.join(bad)
    assert len(passed) > 20


@pytest.mark.parametrize('release', RELEASES[1:])
def test_exported_series(tmp_path, release):
    build(release)
    check_series(tmp_path, release, PLACE / release / 'stock-src',
                 PLACE / release / 'qemu-src')


@pytest.mark.parametrize('release', RELEASES[1:])
def test_what_is_new(release):
    build(release)
    run = subprocess.run(
        [sys.executable, '-m', 'pytest', '-c', ROOT / 'tests/pytest.ini', '-q',
         NEWS], stdout=subprocess.PIPE, text=True, env=environment(release))
    print(run.stdout.splitlines()[-1])
    assert run.returncode == 0, run.stdout[-3000:]
