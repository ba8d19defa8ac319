# SPDX-License-Identifier: GPL-2.0-or-later
"""
A snapshot of a disk that has had another size since is loaded.

qcow2 keeps VM states behind the disk, so they lie elsewhere then.
"""

import pytest

from lib import products
from lib.machine import DISK, MIB, RAM, run_quietly
from lib.mutations.subjects import CONTENT, GOOD, RAM_SIZE, Subject, content

SIZES = {'grown': (MIB, 20 * MIB), 'shrunk': (20 * MIB, MIB)}
STALE = (MIB, RAM_SIZE - MIB, 0x77),


@pytest.mark.parametrize('options', ('', ',rewind=on,verify=on'))
@pytest.mark.parametrize('strategy', ('stock', 'memset', 'auto'))
@pytest.mark.parametrize('how', SIZES)
def test_resized_disk(tmp_path, strategy, how, options):
    before, after = SIZES[how]
    disk = tmp_path / 'disk.qcow2'
    # an entry of its L1 table is for 2 MiB
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', '-o',
                'cluster_size=4k', disk, str(before))
    options = '' if strategy == 'stock' else options
    with Subject(tmp_path, strategy=strategy, options=options) as guest:
        guest.fill(CONTENT[GOOD])
        guest.save(GOOD)
        guest.qmp('block_resize', **{'node-name': DISK, 'size': after})
        for _ in range(2):
            guest.fill(STALE)
            guest.load(GOOD)
            assert guest.all_ram()[RAM] == content(GOOD)
    info = run_quietly(products.QEMU_IMG, 'info', disk)
    assert f'({before} bytes)' in info
