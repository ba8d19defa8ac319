# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures of every suite that runs QEMU."""

from pathlib import Path

import pytest

from lib import products

HUGEPAGES = Path('/proc/sys/vm/nr_hugepages')
FREE_HUGEPAGES = Path('/sys/kernel/mm/hugepages/hugepages-2048kB/'
                      'free_hugepages')
HUGE_POOL = 96


@pytest.fixture(scope='session', autouse=True)
def built() -> None:
    try:
        products.require(products.QEMU, products.QEMU_IMG, products.FIRMWARE)
    except products.Missing as e:
        pytest.exit(str(e), returncode=1)


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
