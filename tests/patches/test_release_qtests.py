# SPDX-License-Identifier: GPL-2.0-or-later
# Alone: builds QEMU, and a program takes all hugepages
# Named: so it takes a quarter of an hour
# Takes: 500 s
# Timeout: 3000 s
"""Other releases of QEMU pass our qtests, and tests of what differs there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from common import ROOT
from lib import releases
from lib.releases import OTHERS, PLACE

HERE = Path(__file__).parent
# QEMU 10.0 cannot do this, or does it in another way
DIFFERENT = (HERE / 'mapped_ram.py', HERE / 'code_dropped_without_load.py',
             ROOT / 'tests/functional/machine/test_translated_code.py')
PROGRAMS = ('ram-reset-test', 'ram-reset-cost-test', 'ram-reset-host-test',
            'snapctl-test')


def environment(release: str) -> dict:
    """
    For programs and tests that take the built QEMU.  They do what ./test does:
    with --all the main release's tests do more.
    """
    qemu = PLACE / release / 'qemu'
    emulator, image = str(qemu / 'qemu-system-x86_64'), str(qemu / 'qemu-img')
    return {k: v for k, v in os.environ.items() if k != 'RAM_RESET_ALL'} | {
        'QTEST_QEMU_BINARY': emulator, 'RAM_RESET_QEMU': emulator,
        'QTEST_QEMU_IMG': image, 'RAM_RESET_QEMU_IMG': image}


@pytest.mark.parametrize('program', PROGRAMS)
@pytest.mark.parametrize('release', OTHERS)
def test_qtests_pass(release, program):
    releases.build(release)
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


@pytest.mark.parametrize('release', OTHERS)
def test_what_differs(release):
    releases.build(release)
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
