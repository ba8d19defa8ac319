# SPDX-License-Identifier: GPL-2.0-or-later
# Alone: builds QEMU, and a program takes all hugepages
# Named: so it takes a quarter of an hour
# Takes: 500 s
# Timeout: 3000 s
"""Other releases of QEMU pass our qtests, and tests of what differs there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from common import ROOT
from lib import releases
from lib.releases import OTHERS

HERE = Path(__file__).parent
# QEMU 10.0 cannot do this, or does it in another way
DIFFERENT = (HERE / 'mapped_ram.py', HERE / 'code_dropped_without_load.py',
             ROOT / 'tests/functional/machine/test_translated_code.py')
PROGRAMS = ('ram-reset-test', 'ram-reset-cost-test', 'ram-reset-host-test',
            'snapctl-test')


@pytest.mark.parametrize('program', PROGRAMS)
@pytest.mark.parametrize('release', OTHERS)
def test_qtests_pass(release, program):
    releases.check_qtest(release, program)


@pytest.mark.parametrize('release', OTHERS)
def test_what_differs(release):
    releases.build(release)
    run = subprocess.run(
        [sys.executable, '-m', 'pytest', '-c', ROOT / 'tests/pytest.ini', '-q',
         '-rs', *DIFFERENT], stdout=subprocess.PIPE, text=True,
        env=releases.environment(release))
    last = run.stdout.splitlines()[-1]
    print(last)
    assert run.returncode == 0, run.stdout[-3000:]
    assert re.match(r'[1-9]\d* passed', last), run.stdout[-3000:]
    skipped = re.findall(r'^SKIPPED .*', run.stdout, re.M)
    assert [s for s in skipped if 'hugepages' not in s] == []
