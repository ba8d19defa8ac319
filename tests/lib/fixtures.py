# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of every suite that runs QEMU."""

import pytest

from lib import hugepages, machine, products
from lib.guests import no_linux_under_kvm

HUGE_POOL = 96


@pytest.fixture(scope='session', autouse=True)
def built() -> None:
    try:
        products.require(products.QEMU, products.QEMU_IMG, products.FIRMWARE)
    except products.Missing as e:
        pytest.exit(str(e), returncode=1)


@pytest.fixture(params=('kvm', 'tcg'))
def accel(request) -> str:
    if request.param == 'kvm' and not machine.kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    return request.param


@pytest.fixture
def fast_accel() -> str:
    """For tests of something that is the same whatever runs the guest."""
    return 'kvm' if machine.kvm_usable() else 'tcg'


@pytest.fixture(scope='session')
def no_linux_kvm(tmp_path_factory) -> str:
    """Why Linux does not boot under KVM here, or ''."""
    return no_linux_under_kvm(tmp_path_factory.mktemp('probe'))


@pytest.fixture(scope='session')
def linux_accel(no_linux_kvm) -> str:
    """For tests of something that is the same whatever runs Linux."""
    return 'tcg' if no_linux_kvm else 'kvm'


@pytest.fixture(scope='session', params=('tcg', 'kvm'))
def each_linux_accel(request) -> str:
    if request.param == 'kvm':
        reason = request.getfixturevalue('no_linux_kvm')
        if reason:
            pytest.skip(reason)
    return request.param


@pytest.fixture(scope='session')
def huge_pool():
    """A pool of 2 MiB pages, put back to its size at the end."""
    if not hugepages.POOL.exists():
        pytest.skip('this kernel has no 2 MiB hugepages')
    with hugepages.lent(HUGE_POOL) as free:
        if free < HUGE_POOL:
            pytest.skip(f'{HUGE_POOL} free hugepages are needed and the host '
                        f'gives {free}: run as root, or set {hugepages.NAME}')
        yield
