# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/find-features: what QEMU is built with, and what that lacks."""

import os
import subprocess
from pathlib import Path

import pytest

from lib import products

FINDER = products.REPO / 'scripts/find-features'
TABLE = [line.split() for line in
         (products.REPO / 'scripts/qemu-features').read_text().splitlines()
         if not line.startswith('#')]


def find(*args, path: Path | None = None) -> subprocess.CompletedProcess:
    env = dict(os.environ)
    if path:
        env['PATH'] = f'{path}:{env["PATH"]}'
    return subprocess.run([FINDER, *args], capture_output=True, text=True,
                          env=env, check=False)


@pytest.fixture
def source(tmp_path) -> Path:
    """As much of QEMU's source as it looks at."""
    tree = tmp_path / 'qemu'
    tree.mkdir()
    names = [row[0].partition('=')[0].replace('-', '_') for row in TABLE]
    (tree / 'meson_options.txt').write_text(
        ''.join(f"option('{name}', type: 'feature')\n" for name in names))
    (tree / 'configure').write_text('')
    (tree / 'VERSION').write_text('10.0.50\n')
    return tree


@pytest.fixture
def finds_all_but(tmp_path):
    """A folder for PATH, whose pkg-config does not know some packages."""
    def make(*names: str) -> Path:
        folder = tmp_path / 'bin'
        folder.mkdir()
        for program, last in (('pkg-config', ''), ('cc', 'cat >/dev/null\n')):
            path = folder / program
            path.write_text(f'#!/bin/sh\n{last}case " $* " in\n' +
                            ''.join(f'*" {n} "*) exit 1 ;;\n' for n in names) +
                            'esac\n')
            path.chmod(0o755)
        return folder
    return make


def test_all_that_is_listed_is_printed(source, finds_all_but):
    run = find(source, path=finds_all_but())
    assert run.returncode == 0 and not run.stderr
    assert run.stdout.split() == [row[0] for row in TABLE]


def test_all_that_is_missing_is_named_at_once(source, finds_all_but):
    run = find(source, path=finds_all_but('slirp', 'liburing'))
    assert run.returncode == 1 and not run.stdout
    assert 'slirp needs slirp, which is in Debian\'s package libslirp-dev' in \
        run.stderr
    assert run.stderr.endswith('apt-get install libslirp-dev liburing-dev\n')
    assert 'libcurl' not in run.stderr


def test_what_a_tree_does_not_know_is_left_out(source, finds_all_but):
    options = source / 'meson_options.txt'
    options.write_text(options.read_text().replace("'slirp'", "'other'"))
    run = find(source, path=finds_all_but('slirp'))
    assert run.returncode == 0
    assert run.stderr == ('find-features: QEMU 10.0.50 has no slirp, and is '
                          'built without\n')
    assert 'slirp' not in run.stdout.split()


def test_what_later_releases_have_anyway_is_not_missed(source, finds_all_but):
    options = source / 'meson_options.txt'
    options.write_text(options.read_text().replace("'avx2'", "'other'"))
    run = find(source, path=finds_all_but())
    assert run.returncode == 0 and not run.stderr
    assert 'avx2' not in run.stdout.split()


def test_no_source_is_refused(tmp_path):
    run = find(tmp_path)
    assert run.returncode == 1 and 'is not a source of QEMU' in run.stderr


def test_packages_are_those_of_the_table():
    packages = find('--packages').stdout.split()
    assert {'libslirp-dev', 'liburing-dev'} <= set(packages)
    assert set(packages) == {row[2] for row in TABLE} - {'-'}
    assert all(len(row) == 3 and (row[1] in '-~') == (row[2] == '-')
               for row in TABLE)
