# SPDX-License-Identifier: GPL-2.0-or-later
"""What the functional tests share: the axes of the matrix and their hosts."""

import os
import random
from pathlib import Path

import pytest

import machine
import products
from guests import linux_boots_under_kvm

HUGEPAGES = Path('/proc/sys/vm/nr_hugepages')
FREE_HUGEPAGES = Path('/sys/kernel/mm/hugepages/hugepages-2048kB/'
                      'free_hugepages')
HUGE_POOL = 96
NO_KVM = '/dev/kvm cannot be opened for reading and writing'


@pytest.fixture(scope='session', autouse=True)
def built() -> None:
    try:
        products.require(products.QEMU, products.QEMU_IMG, products.FIRMWARE)
    except products.Missing as e:
        pytest.exit(str(e), returncode=1)


@pytest.fixture(params=('kvm', 'tcg'))
def accel(request) -> str:
    if request.param == 'kvm' and not machine.kvm_usable():
        pytest.skip(NO_KVM)
    return request.param


@pytest.fixture
def fast_accel() -> str:
    """For tests of something that is the same whatever runs the guest."""
    return 'kvm' if machine.kvm_usable() else 'tcg'


@pytest.fixture(scope='session')
def linux_accel(tmp_path_factory) -> str:
    probe = tmp_path_factory.mktemp('probe')
    return 'kvm' if linux_boots_under_kvm(probe) else 'tcg'


@pytest.fixture(params=machine.STRATEGIES)
def strategy(request) -> str:
    return request.param


@pytest.fixture(params=machine.MEMORIES)
def memory(request) -> str:
    return request.param


@pytest.fixture(params=(*machine.MEMORIES, 'hugetlb'))
def any_memory(request) -> str:
    if request.param == 'hugetlb':
        request.getfixturevalue('huge_pool')
    return request.param


@pytest.fixture(scope='session')
def huge_pool():
    """A pool of 2 MiB pages, put back to its size at the end."""
    if not FREE_HUGEPAGES.exists():
        pytest.skip('this kernel has no 2 MiB hugepages')
    before = int(HUGEPAGES.read_text())
    missing = HUGE_POOL - int(FREE_HUGEPAGES.read_text())
    try:
        if missing > 0:
            HUGEPAGES.write_text(str(before + missing))
    except OSError as e:
        pytest.skip(f'{HUGEPAGES} cannot be written ({e.strerror}): run as '
                    f'root, or set it to {before + missing}')
    try:
        free = int(FREE_HUGEPAGES.read_text())
        if free < HUGE_POOL:
            pytest.skip(f'{HUGE_POOL} free hugepages are needed and the host '
                        f'gives {free}')
        yield
    finally:
        if missing > 0:
            HUGEPAGES.write_text(str(before))


@pytest.fixture
def rng() -> random.Random:
    """RAM_RESET_SEED repeats the run that printed it."""
    seed = int(os.environ.get('RAM_RESET_SEED') or
               random.SystemRandom().getrandbits(32))
    print(f'RAM_RESET_SEED={seed}')
    return random.Random(seed)
