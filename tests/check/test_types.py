# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python package says its types, and keeps to them."""

import subprocess
import sys

from lib import products

PACKAGE = products.REPO / 'contrib/python'
WRONG = '''
from ram_reset import Machine
with Machine.start(['-m', '1G']) as machine:
    machine.restore('clean')
'''


def check(*arguments, cwd, cache) -> str:
    done = subprocess.run([sys.executable, '-m', 'mypy', '--cache-dir', cache,
                           *arguments], cwd=cwd, capture_output=True,
                          text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_package(tmp_path):
    said = check(cwd=PACKAGE, cache=tmp_path)
    assert said.startswith('Success: no issues found in '), said


def test_users_see_them(tmp_path):
    (tmp_path / 'wrong.py').write_text(WRONG)
    (tmp_path / 'mypy.ini').write_text(
        f'[mypy]\nmypy_path = {PACKAGE / "src"}\n')
    said = check('wrong.py', cwd=tmp_path, cache=tmp_path / 'cache')
    assert 'wrong.py:4: error' in said and 'expected "Snapshot"' in said
