# SPDX-License-Identifier: GPL-2.0-or-later
# Alone: builds a part of QEMU
# Long: so it takes minutes
# Takes: 60 s
# Timeout: 3000 s
"""Other releases of QEMU: the series applies, and what is ours compiles without
a warning.  test_release_qtests.py builds and runs all of it."""

import pytest

from common import qemu_version, release_of
from lib import releases
from lib.compiled import check_quiet
from lib.exported import check_series
from lib.releases import OTHERS, PLACE


@pytest.mark.parametrize('release', OTHERS)
def test_compiles_without_a_warning(release):
    releases.build(release, whole=False)
    version = qemu_version(PLACE / release / 'stock-src')
    print(f'QEMU {version}')
    assert release_of(version) == release
    check_quiet(PLACE / release / 'qemu', PLACE / release / 'qemu-src')


@pytest.mark.parametrize('release', OTHERS)
def test_exported_series(tmp_path, release):
    releases.build(release, whole=False)
    check_series(tmp_path, release, PLACE / release / 'stock-src',
                 PLACE / release / 'qemu-src')
