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

from common import (BUILD, RELEASES, ROOT, prepared, qemu_version,
                    release_of)
from lib.compiled import check_quiet
from lib.exported import check_series

PLACE = BUILD / 'releases'
HERE = Path(__file__).parent
# QEMU 10.0 cannot do this, or does it in another way
DIFFERENT = (HERE / 'mapped_ram.py', HERE / 'code_dropped_without_load.py',
             ROOT / 'tests/functional/machine/test_translated_code.py')
PROGRAMS = ('ram-reset-test', 'ram-reset-cost-test', 'ram-reset-host-test',
            'snapctl-test')
# How scripts/prepare-tree says that there is no source to be had
MISSING = re.compile(r'prepare-tree: (Debian no longer offers .*|'
                     r'apt could not fetch qemu=.*)')


@cache
def tried(release: str) -> subprocess.CompletedProcess:
    """A build, once whatever comes of it."""
    stock = prepared(PLACE / release)
    had = stock and release_of(qemu_version(stock)) == release
    run = subprocess.run(
        [ROOT / 'scripts/build-qemu', '--minimal', '--place', PLACE / release,
         *([] if had else ['--qemu-src', f'debian:{release}'])], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
    (PLACE / f'{release}.log').write_text(run.stdout)
    return run


def build(release: str) -> None:
    run = tried(release)
    if missing := MISSING.search(run.stdout):
        pytest.skip(missing[1])
    assert run.returncode == 0, run.stdout[-3000:]


def environment(release: str) -> dict:
    qemu = PLACE / release / 'qemu'
    emulator, image = str(qemu / 'qemu-system-x86_64'), str(qemu / 'qemu-img')
    return os.environ | {
        'QTEST_QEMU_BINARY': emulator, 'RAM_RESET_QEMU': emulator,
        'QTEST_QEMU_IMG': image, 'RAM_RESET_QEMU_IMG': image}


@pytest.mark.parametrize('release', RELEASES[1:])
def test_compiles_without_a_warning(release):
    build(release)
    version = qemu_version(PLACE / release / 'stock-src')
    print(f'QEMU {version}')
    assert release_of(version) == release
    check_quiet(PLACE / release / 'qemu', PLACE / release / 'qemu-src')


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
    assert len(passed) > 15


@pytest.mark.parametrize('release', RELEASES[1:])
def test_exported_series(tmp_path, release):
    build(release)
    check_series(tmp_path, release, PLACE / release / 'stock-src',
                 PLACE / release / 'qemu-src')


@pytest.mark.parametrize('release', RELEASES[1:])
def test_what_differs(release):
    build(release)
    run = subprocess.run(
        [sys.executable, '-m', 'pytest', '-c', ROOT / 'tests/pytest.ini', '-q',
         '-rs', *DIFFERENT], stdout=subprocess.PIPE, text=True,
        env=environment(release))
    last = run.stdout.splitlines()[-1]
    print(last)
    assert run.returncode == 0, run.stdout[-3000:]
    assert re.match(r'[1-9]\d* passed', last), run.stdout[-3000:]
    skipped = re.findall(r'^SKIPPED .*', run.stdout, re.M)
    assert [s for s in skipped if 'hugepages' not in s] == []
