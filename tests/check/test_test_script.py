# SPDX-License-Identifier: GPL-2.0-or-later
"""./test: what is built for other machines, and which tests are left out."""

import os
import shutil
import subprocess

import pytest

from lib.products import REPO

FAKES = {'scripts/bootstrap': 'echo "machines: $RAM_RESET_MACHINES"',
         'scripts/summary': '',
         # this host's hugepages are let alone
         'bin/cat': 'echo none',
         # how slow this host is
         'build/venv/bin/python3':
             'case $2 in --slow) exit ${FAKE_SPEED:-1} ;; *) echo "2.5 $1" ;; esac',
         'build/venv/bin/meson':
             'for a; do echo "[$a]"; done; echo "<$RAM_RESET_ALL>"'}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """
    Returns: (whether other machines are built for, what meson is told).  It
    is told before by how much to multiply the tests' limits.
    """
    shutil.copy(REPO / 'test', tmp_path / 'test')
    for name, text in FAKES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'#!/bin/sh\n{text}\n')
        path.chmod(0o755)
    monkeypatch.setenv('PATH', f'{tmp_path}/bin:{os.environ["PATH"]}')
    for name in ('RAM_RESET_MACHINES', 'RAM_RESET_ALL'):
        monkeypatch.delenv(name, raising=False)

    def run(*args: str) -> tuple[bool, list[str]]:
        said = subprocess.run([tmp_path / 'test', *args], text=True,
                              capture_output=True, check=True).stdout
        first, *words, run.effort = said.splitlines()
        run.slow = words[0].startswith('This host is slow: ')
        words = [word[1:-1] for word in words[run.slow:]]
        assert words[words.index('--timeout-multiplier') + 1] == \
            '2.5 tests/lib/patience.py'
        return (first == 'machines: 1',
                words[words.index('--print-errorlogs') + 1:])
    return run


LONG, NAMED, OTHERS = (['--no-suite', suite] for suite in (
    'long', 'named', 'machines'))


@pytest.mark.parametrize('given,machines,told', [
    ('', False, [*LONG, *NAMED, *OTHERS]),
    ('--verbose', False, ['--verbose', *LONG, *NAMED, *OTHERS]),
    ('--repeat 3', False, ['--repeat', '3', *LONG, *NAMED, *OTHERS]),
    ('unit', False, ['--suite', 'unit', *LONG, *NAMED, *OTHERS]),
    # they are in the suite long, and are named
    ('releases', False, ['releases', *OTHERS]),
    ('patches', False, ['--suite', 'patches', *OTHERS]),
    ('machines', True, ['--suite', 'machines', *NAMED]),
    ('s390x-test-snapctl-lib', True, ['s390x-test-snapctl-lib']),
    ('pages', True, ['pages']),
    ('--all', True, NAMED),
    ('--all --repeat 3', True, ['--repeat', '3', *NAMED]),
    ('--all unit', False, ['--suite', 'unit', *NAMED, *OTHERS]),
    ('--all ram-reset-test', False, ['ram-reset-test', *OTHERS]),
    ('--all unit machines', True, ['--suite', 'unit', '--suite', 'machines',
                                   *NAMED]),
])
def test_what_is_run(run, given, machines, told):
    assert run(*given.split()) == (machines, told)


@pytest.mark.parametrize('given,slow,effort', [
    ('', True, ''), ('--all', False, '1'), ('--all', True, 'slow'),
    ('--all unit', True, 'slow'),
])
def test_effort(run, monkeypatch, given, slow, effort):
    monkeypatch.setenv('FAKE_SPEED', '0' if slow else '1')
    run(*given.split())
    assert run.effort == f'<{effort}>'
    assert run.slow == (effort == 'slow')
