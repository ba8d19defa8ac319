# SPDX-License-Identifier: GPL-2.0-or-later
# Long: what it runs is built with --all only
# Takes: 150 s
# Timeout: 1000 s
"""The unit tests on arm64 with pages of 16 KiB."""

import re

import pytest

from lib import pages


def pytest_generate_tests(metafunc):
    """The tests of each program are known before they run in the guest."""
    if 'test' in metafunc.fixturenames:
        found = [(path.name, name) for path in pages.programs()
                 for name in pages.names(path)]
        metafunc.parametrize('program, test', found, ids=[
            program.removeprefix('test-') + name.replace('/', ':')
            for program, name in found])


@pytest.fixture(scope='module')
def said(tmp_path_factory) -> str:
    return pages.boot(tmp_path_factory.mktemp('guest'))


@pytest.fixture(scope='module')
def results(said) -> dict[str, pages.Program]:
    return pages.parse(said)


def test_kernel_has_such_pages(said):
    assert re.search(r'^= page size 16$', said, re.MULTILINE)


def test_programs_end_well(results):
    assert {name: run.said[-1000:] for name, run in results.items()
            if run.status} == {}
    assert len(results) == len(pages.programs()) > 0


def test_in_guest(results, program, test):
    result = results[program].results.get(test, 'did not run')
    if result.startswith('SKIP'):
        pytest.skip(result.removeprefix('SKIP').strip() or 'no reason given')
    assert result == 'ok', results[program].said[-2000:]
