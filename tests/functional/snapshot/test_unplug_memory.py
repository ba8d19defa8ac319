# SPDX-License-Identifier: GPL-2.0-or-later
"""
A guest has given memory back just before a snapshot is saved.  QEMU's RCU
thread frees it some time later, with the lock of RAM blocks.  A save has this
lock, too, and waits for vCPUs meanwhile.
"""

# Takes: 5 s

import time

import pytest

from lib.dma import Qtest
from lib.effort import rounds
from lib.machine import MachineError
from lib.rewinding import Still, boot
from lib.walking import nr_blocks, plug_memory, unplug_memory

ROOM = '-m', 'slots=1,maxmem=1G'
TIMES = rounds(100, 12)
# seconds; the RCU thread waits that long for more to do, at most
LAZY = 0.06


def test_save_waits_for_it(tmp_path):
    """One that is refused at once, so that QEMU has no time otherwise."""
    raw = '-blockdev', 'driver=null-co,node-name=raw'
    with Still(tmp_path, args=(*ROOM, *raw)) as guest:
        blocks = nr_blocks(guest)
        plug_memory(guest)
        unplug_memory(guest)
        assert nr_blocks(guest) == blocks + 1
        with pytest.raises(MachineError, match='does not support snapshots'):
            guest.save('s')
        assert nr_blocks(guest) == blocks


def test_snapshot_with_it_is_refused(tmp_path):
    """Only memory that has been removed is left out."""
    with Still(tmp_path, args=ROOM) as guest:
        plug_memory(guest)
        guest.save('s')
        unplug_memory(guest)
        guest.save('t')
        with pytest.raises(MachineError, match='more0'):
            guest.load('s')
        guest.load('t')


def test_save_at_any_instant(tmp_path, tracker):
    """Whatever the RCU thread is about to do."""
    qtest = Qtest(tmp_path)
    with boot(tmp_path, tracker, args=(*ROOM, *qtest.args)) as guest:
        qtest.connect()
        guest.stop()
        for n in range(TIMES):
            plug_memory(guest)
            unplug_memory(guest, qtest=qtest)
            time.sleep(LAZY * n / TIMES)
            guest.save('s')
        qtest.close()
