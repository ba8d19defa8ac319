# SPDX-License-Identifier: GPL-2.0-or-later
"""Patches add few lines in all, and each hook adds few."""

from pathlib import Path

from common import HOOK_LIMIT, HOOKS_LIMIT, Patch, hook_errors


def plant(folder: Path, runs: list[int]) -> list[Patch]:
    """A patch with so many added lines, in runs of these lengths."""
    path = folder / '0001-planted.patch'
    hunks = ''.join(f'@@ -{n},2 +{n},9 @@\n before\n' + '+hook();\n' * run +
                    ' after\n' for n, run in enumerate(runs))
    path.write_text('Subject: planted\n\nWhy.\n\n'
                    f'--- a/file.c\n+++ b/file.c\n{hunks}')
    return [Patch(path)]


def test_hooks_within_both_limits(tmp_path):
    full = HOOKS_LIMIT // HOOK_LIMIT
    runs = [HOOK_LIMIT] * full + [HOOKS_LIMIT - full * HOOK_LIMIT]
    patches = plant(tmp_path, runs)
    assert patches[0].added == HOOKS_LIMIT
    assert not [*hook_errors(patches)]


def test_one_line_too_many_in_all(tmp_path):
    error, = hook_errors(plant(tmp_path, [1] * (HOOKS_LIMIT + 1)))
    assert f'{HOOKS_LIMIT + 1} added lines, more than {HOOKS_LIMIT}' in error


def test_one_line_too_many_in_a_hook(tmp_path):
    error, = hook_errors(plant(tmp_path, [1, HOOK_LIMIT + 1, 1]))
    assert '0001-planted.patch' in error
    assert f'a hook of {HOOK_LIMIT + 1} lines, more than {HOOK_LIMIT}' in error
