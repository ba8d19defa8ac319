# SPDX-License-Identifier: GPL-2.0-or-later
"""tests/lib/releases.py asks for a release once, whatever comes."""

import pytest

from lib import releases

MISSING = 'prepare-tree: Debian no longer offers QEMU 10.2'


@pytest.mark.parametrize('said,status,outcome', [
    (MISSING, 1, pytest.skip.Exception),
    ('error: of the compiler', 1, AssertionError),
    ('', 0, None),
])
def test_once(tmp_path, monkeypatch, said, status, outcome):
    releases.tried.cache_clear()
    monkeypatch.setattr(releases, 'SCRIPT', tmp_path / 'build-qemu')
    monkeypatch.setattr(releases, 'PLACE', tmp_path)
    script = releases.SCRIPT
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
    releases.tried.cache_clear()
