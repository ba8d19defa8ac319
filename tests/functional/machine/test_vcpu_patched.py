# SPDX-License-Identifier: GPL-2.0-or-later
"""
A vCPU's thread may stop in the midst of an exit, as QEMU's vAPIC does, and go
on with it when a load is over.  Nothing of it may get into what was loaded.
"""

# Takes: 4 s

import pytest

from lib import products
from lib.content import START
from lib.effort import rounds
from lib.guests import Ring3
from lib.machine import MIB, kvm_usable

TAG = 's'
CODE = 1 * MIB
LOADS = rounds(60, 20)

pytestmark = pytest.mark.skipif(not kvm_usable(),
                                reason='/dev/kvm cannot be opened')


def test_code_is_not_patched_behind_a_load(tmp_path):
    size = products.ring3_image().stat().st_size
    with Ring3(tmp_path, accel='kvm', memory='shared', strategy='auto',
               ram=64 * MIB, options=',rewind=on,verify=on') as guest:
        guest.stop()
        code = guest.ram_image()[CODE:CODE + size]
        guest.save(TAG)
        guest.cont()
        for _ in range(LOADS):
            guest.tell('code-patched', START)
            guest.settle()
            guest.load(TAG)
            assert guest.ram_image()[CODE:CODE + size] == code
            guest.sync()
        assert guest.qmp('query-ram-reset')['loads'] == LOADS
