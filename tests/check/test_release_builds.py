# SPDX-License-Identifier: GPL-2.0-or-later
"""tests/patches/test_releases.py asks for a release once, whatever comes."""

import pytest

from lib.scripts import load

MISSING = 'prepare-tree: Debian no longer offers QEMU 10.2'


@pytest.mark.parametrize('said,status,outcome', [
    (MISSING, 1, pytest.skip.Exception),
    ('error: of the compiler', 1, AssertionError),
    ('', 0, None),
])
def test_once(tmp_path, monkeypatch, said, status, outcome):
    releases = load('test_releases.py', 'tests/patches')
    monkeypatch.setattr(releases, 'ROOT', tmp_path)
    monkeypatch.setattr(releases, 'PLACE', tmp_path)
    script = tmp_path / 'scripts/build-qemu'
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\necho "{said}"\necho >>{tmp_path}/asked\n'
                      f'exit {status}\n')
    script.chmod(0o755)
    for _ in range(3):
        if outcome:
            with pytest.raises(outcome, match=said[-20:]):
                releases.build('10.2')
        else:
            releases.build('10.2')
    assert (tmp_path / 'asked').read_text() == '\n'
