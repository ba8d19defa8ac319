# SPDX-License-Identifier: GPL-2.0-or-later
"""The hooks: small, fuzz-free, and nothing but hooks.

Tests that need the source of other releases are in test_releases.py and
test_release_qtests.py.
"""

import json
import re

import pytest

from common import (BUILD, QEMU_SRC, STOCK_SRC, apply_series, hook_errors,
                    overlay_files, qemu_version, release_of, series)
from lib.compiled import check_quiet
from lib.exported import check_series


def test_series_is_not_empty():
    assert series()


def test_hooks_stay_small():
    assert not [*hook_errors(series())]


@pytest.mark.parametrize('patch', series(), ids=lambda p: p.name)
def test_patch_has_subject_and_reason(patch):
    lines = patch.header.strip().split('\n')
    assert lines[0].startswith('Subject: ')
    assert len(lines) > 2 and not lines[1] and lines[2]
    assert 'TODO' not in patch.header


def test_applies_to_prepared_source_without_fuzz(tmp_path):
    apply_series(series(), STOCK_SRC, tmp_path)


def test_built_tree_holds_the_series(tmp_path):
    patched = apply_series(series(), STOCK_SRC, tmp_path)
    edited = [n for n, data in patched.items()
              if (QEMU_SRC / n).read_bytes() != data]
    assert not edited, 'run scripts/refresh-patches'


def test_overlay_files_are_new():
    assert not [n for n in overlay_files() if (STOCK_SRC / n).exists()]


def test_compiles_without_a_warning():
    check_quiet(BUILD / 'qemu', QEMU_SRC)


def test_make_check_has_time_for_ours_and_runs_one_alone():
    """Others on the host would change what ram-reset-host-test counts."""
    known = json.loads((BUILD / 'qemu/meson-info/intro-tests.json')
                       .read_text())
    ours = {t['name'].rpartition('/')[2]: t for t in known
            if t['name'].startswith('qtest-x86_64/')
            and re.search('/(ram-reset|snapctl)', t['name'])}
    assert {n for n, t in ours.items() if not t['is_parallel']} == \
        {'ram-reset-host-test'}
    assert len(ours) == 4
    assert all(t['timeout'] > 180 for t in ours.values())


def test_exported_series(tmp_path, capfd):
    release = release_of(qemu_version(STOCK_SRC))
    check_series(tmp_path, release, STOCK_SRC, QEMU_SRC)
    bare = not [*STOCK_SRC.glob('python/wheels/meson-*.whl')]
    assert ('no python/wheels/meson-*.whl' in capfd.readouterr().out) == bare
