# SPDX-License-Identifier: GPL-2.0-or-later
"""tests/lib/effort.py leaves out what its marks say; less with --all."""

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


@pytest.mark.each_value
@pytest.mark.parametrize('d', range(4))
@pytest.mark.parametrize('e', range(3))
@pytest.mark.parametrize('f', range(2))
def test_product(d, e, f):
    pass
"""
LINUX = ['test_linux[1-tcg]', 'test_linux[1-kvm]']
PLAIN = ['test_plain']
ALL = [*PLAIN, 'test_long', *(f'test_values[{b}-{a}]'
                              for b in 'xyz' for a in (1, 2)),
       *(f'test_linux[{c}-{accel}]' for c in (1, 2)
         for accel in ('tcg', 'kvm'))]
VALUES = tuple(range(4)), tuple(range(3)), tuple(range(2))


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
            env={k: v for k, v in os.environ.items() if k not in (
                'RAM_RESET_ALL', 'RAM_RESET_LONG')} |
            {'PYTHONPATH': str(REPO / 'tests'), **environ})
        return re.findall(r'^test_it\.py::(.+)$', run.stdout, re.M)
    return chosen


def products(names: list[str]) -> list[tuple[int, ...]]:
    """The values of d, e and f in test_product."""
    return [tuple(int(v) for v in reversed(values)) for name in names
            for values in re.findall(r'^test_product\[(.)-(.)-(.)\]', name)]


def test_some_are_left_out(chosen):
    names = chosen()
    tried = products(names)
    assert names[:-len(tried)] == [*PLAIN, 'test_values[y-1]', *LINUX]
    assert [{values[i] for values in tried} for i in range(3)] == \
        [{*values} for values in VALUES]
    assert len(tried) == 4


def test_more_is_run_with_all(chosen):
    names = chosen(RAM_RESET_ALL='1')
    assert {*PLAIN, 'test_long'} < {*names}
    assert {n[-2] for n in names if n.startswith('test_values')} == {'1', '2'}
    assert {n[12] for n in names if n.startswith('test_values')} == {*'xyz'}
    tried = products(names)
    for i, j in (0, 1), (0, 2), (1, 2):
        assert {(values[i], values[j]) for values in tried} == \
            {(a, b) for a in VALUES[i] for b in VALUES[j]}
    assert 12 <= len(tried) < 20


def test_each_combination_is_run(chosen):
    names = chosen(RAM_RESET_LONG='1')
    tried = products(names)
    assert len({*tried}) == len(tried) == 24
    assert sorted(names[:-24]) == sorted(ALL)


def test_rounds():
    """How often a test does a thing, with each effort."""
    said = [subprocess.run(
        [sys.executable, '-c', 'from lib.effort import rounds, tried; print('
         'rounds(100, 4), rounds(3, 7), rounds(8, 0), tried("all", "few"))'],
        text=True, capture_output=True, check=True, cwd=REPO / 'tests', env={
            'PYTHONPATH': str(REPO / 'tests'), **environ}).stdout.split()
        for environ in ({}, {'RAM_RESET_ALL': '1'}, {'RAM_RESET_LONG': '1'})]
    assert said == [['4', '7', '0', 'few'], ['20', '5', '4', 'all'],
                    ['100', '3', '8', 'all']]


def test_what_is_named_is_run(chosen):
    assert chosen('-k', 'test_long') == ['test_long']
    assert chosen('-k', 'test_values and x') == ['test_values[x-1]']
