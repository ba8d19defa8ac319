# SPDX-License-Identifier: GPL-2.0-or-later
"""
A load leaves the VM state that it has read in the active layer, where it shares
all clusters with the snapshot.  A save does not copy them to write over them.
"""

import pytest

from lib import syscalls
from lib.faults import memset
from lib.kills import Disks, check_disks
from lib.machine import MIB

STRATEGIES = {'stock': '', 'auto': ',rewind=on'}
CONTENT = 16 * MIB
# beside that, RAM that is not zero, devices, and qcow2's tables
OLD, NEW = 1, 2


class Guest(Disks):
    def calls_of_save(self, tag: str, log) -> dict[str, int]:
        with syscalls.counted(self, log) as calls:
            self.save(tag)
        return calls


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_save_after_load(tmp_path, strategy):
    with Guest(tmp_path, 2, strategy=strategy, ram=64 * MIB,
               options=STRATEGIES[strategy]) as guest:
        memset(guest, 32 * MIB, CONTENT, 7)
        guest.fill(OLD)
        guest.save('a')
        guest.fill(NEW)
        before = guest.calls_of_save('b', tmp_path / 'before')
        guest.load('a')
        assert guest.holds(OLD, NEW) == OLD
        guest.fill(NEW)
        after = guest.calls_of_save('c', tmp_path / 'after')
        # qcow2 also copies a table for the VM state, and one for each disk
        assert after['fdatasync'] <= before['fdatasync'] + 10
        assert after['pwritev'] + after.get('pwrite64', 0) <= \
            1.1 * (before['pwritev'] + before.get('pwrite64', 0)) + 10
        for tag, number in (('c', NEW), ('a', OLD), ('b', NEW)):
            guest.load(tag)
            assert guest.holds(OLD, NEW) == number
    check_disks(tmp_path)
