# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of tests of the job that forks a machine."""

import pytest

from lib.forked import Forked, new_forker
from lib.forking import Forker


@pytest.fixture
def parent(tmp_path):
    with Forked(tmp_path / 'parent') as guest:
        guest.fill()
        yield guest


@pytest.fixture
def forker(tmp_path, parent) -> Forker:
    return new_forker(parent, tmp_path / 'forks')
