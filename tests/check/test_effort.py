# SPDX-License-Identifier: GPL-2.0-or-later
"""tests/lib/effort.py leaves out what its marks say, and nothing with --all."""

import os
import re
import subprocess
import sys

import pytest

from lib.products import REPO

CONFTEST = """
from lib.effort import pytest_collection_modifyitems, pytest_configure
"""
TESTS = """
import pytest


def test_plain():
    pass


@pytest.mark.long('test_plain does as much')
def test_long():
    pass


@pytest.mark.any_value
@pytest.mark.parametrize('a', (1, 2))
@pytest.mark.parametrize('b', (
    pytest.param('x', marks=pytest.mark.long('as y')), 'y', 'z'))
def test_values(a, b):
    pass


@pytest.mark.any_value
@pytest.mark.parametrize('each_linux_accel', ('tcg', 'kvm'))
@pytest.mark.parametrize('c', (1, 2))
def test_linux(c, each_linux_accel):
    pass
"""
LINUX = ['test_linux[1-tcg]', 'test_linux[1-kvm]']
PLAIN = ['test_plain']
ALL = [*PLAIN, 'test_long', *(f'test_values[{b}-{a}]'
                              for b in 'xyz' for a in (1, 2)),
       *(f'test_linux[{c}-{accel}]' for c in (1, 2)
         for accel in ('tcg', 'kvm'))]


@pytest.fixture
def chosen(tmp_path):
    """The tests that pytest would run."""
    (tmp_path / 'conftest.py').write_text(CONFTEST)
    (tmp_path / 'test_it.py').write_text(TESTS)

    def chosen(*args: str, **environ: str) -> list[str]:
        run = subprocess.run(
            [sys.executable, '-m', 'pytest', '--collect-only', '-q', '-p',
             'no:cacheprovider', '--strict-markers', *args], text=True,
            capture_output=True, check=True, cwd=tmp_path,
            env={k: v for k, v in os.environ.items() if k != 'RAM_RESET_ALL'} |
            {'PYTHONPATH': str(REPO / 'tests'), **environ})
        return re.findall(r'^test_it\.py::(.+)$', run.stdout, re.M)
    return chosen


def test_some_are_left_out(chosen):
    assert chosen() == [*PLAIN, 'test_values[y-1]', *LINUX]


def test_all_are_run(chosen):
    assert sorted(chosen(RAM_RESET_ALL='1')) == sorted(ALL)


def test_what_is_named_is_run(chosen):
    assert chosen('-k', 'test_long') == ['test_long']
    assert chosen('-k', 'test_values and x') == ['test_values[x-1]']
