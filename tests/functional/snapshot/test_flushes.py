# SPDX-License-Identifier: GPL-2.0-or-later
"""How often loads and saves flush qcow2 images, with and without an object."""

import pytest

from lib import syscalls
from lib.faults import memset
from lib.kills import Disks, check_disks
from lib.machine import MIB

STRATEGIES = {'stock': '', 'auto': ',rewind=on'}
CONTENT = 16 * MIB
OLD, NEW = 1, 2


class Guest(Disks):
    """A disk with the VM state, and another one."""

    def __init__(self, workdir, strategy: str):
        super().__init__(workdir, 2, strategy=strategy, ram=64 * MIB,
                         options=STRATEGIES[strategy])

    def calls_of(self, command: str, tag: str) -> dict[str, int]:
        with syscalls.counted(self, self.workdir / 'calls') as calls:
            getattr(self, command)(tag)
        return calls

    def flushes_of(self, command: str, tag: str) -> int:
        return self.calls_of(command, tag).get('fdatasync', 0)


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_save_after_load(tmp_path, strategy):
    """
    A load leaves the VM state that it has read in the active layer, where it
    shares all clusters with the snapshot.  A save does not copy them to write
    over them: that would be a flush for each.
    """
    with Guest(tmp_path, strategy) as guest:
        memset(guest, 32 * MIB, CONTENT, 7)
        guest.fill(OLD)
        guest.save('a')
        guest.fill(NEW)
        before = guest.calls_of('save', 'b')
        guest.load('a')
        assert guest.holds(OLD, NEW) == OLD
        guest.fill(NEW)
        after = guest.calls_of('save', 'c')
        # qcow2 also copies a table for the VM state, and one for each disk
        assert after['fdatasync'] <= before['fdatasync'] + 10
        assert after['pwritev'] + after.get('pwrite64', 0) <= \
            1.1 * (before['pwritev'] + before.get('pwrite64', 0)) + 10
        for tag, number in (('c', NEW), ('a', OLD), ('b', NEW)):
            guest.load(tag)
            assert guest.holds(OLD, NEW) == number
    check_disks(tmp_path)


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_loads(tmp_path, strategy):
    """
    A revert flushes once before it writes the active table and once after that.
    The counts of the old table's clusters are written at the next stop, and so
    are tables that the guest has just written to.
    """
    with Guest(tmp_path, strategy) as guest:
        guest.fill(OLD)
        guest.save('a')
        guest.save('b')
        for tag in 'abab':
            guest.load(tag)
        # the other disk has not been written to, and is the same in both
        assert [guest.flushes_of('load', tag) for tag in 'abbba'] == \
            [3, 3, 1, 0, 2]
        guest.disk_io(guest.nodes[0], 'write -P 3 0 128k')
        assert guest.flushes_of('load', 'b') == 4
        for node in guest.nodes:
            guest.disk_io(node, 'write -P 3 0 128k')
        assert guest.flushes_of('load', 'b') == 8
        assert guest.holds(OLD, NEW) == OLD
    check_disks(tmp_path)
