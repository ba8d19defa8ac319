# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of functional tests: the axes of the matrix and their hosts."""

import os
import random

import pytest

from lib import machine
from lib.damage import snapshots   # noqa: F401
from lib.fixtures import (accel, built, each_linux_accel,   # noqa: F401
                          fast_accel, huge_pool, linux_accel, no_linux_kvm)
from lib.forks import saved_image   # noqa: F401
from lib.hugefile import huge_mount, ramfile   # noqa: F401
from lib.rewinding import tracker   # noqa: F401
from lib.templates import rewind, templates   # noqa: F401


@pytest.fixture(params=machine.STRATEGIES)
def strategy(request) -> str:
    return request.param


@pytest.fixture(params=('stock', 'auto'))
def served(request) -> str:
    """Without a ram-reset object, or with one."""
    return request.param


@pytest.fixture(params=machine.MEMORIES)
def memory(request) -> str:
    return request.param


@pytest.fixture(params=(*machine.MEMORIES, 'hugetlb'))
def any_memory(request) -> str:
    if request.param == 'hugetlb':
        request.getfixturevalue('huge_pool')
    return request.param


@pytest.fixture
def seed() -> int:
    """RAM_RESET_SEED repeats the run that printed it."""
    seed = int(os.environ.get('RAM_RESET_SEED') or
               random.SystemRandom().getrandbits(32))
    print(f'RAM_RESET_SEED={seed}')
    return seed


@pytest.fixture
def rng(seed) -> random.Random:
    return random.Random(seed)
