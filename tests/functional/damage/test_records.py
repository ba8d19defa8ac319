# SPDX-License-Identifier: GPL-2.0-or-later
"""Page records that no savevm writes, but a VM state may hold."""

import pytest

from lib.guests import PAGE, Ring3
from lib.machine import MIB, STRATEGIES
from lib.patience import patience
from lib.vmstate import CONTINUE, XBZRLE, ZERO, VMState

RAM_SIZE = 64 * MIB
DIRTY = Ring3.FIRST_FREE + 16 * MIB, 8 * MIB

AT, DELTA = 16, b'delta'


def zero_record(offset: int) -> bytes:
    return (offset | ZERO | CONTINUE).to_bytes(8, 'big') + b'\0'


def delta_record(offset: int) -> bytes:
    """Some bytes of a page, relative to what it held, see xbzrle.c."""
    data = bytes((AT, len(DELTA))) + DELTA
    return (offset | XBZRLE | CONTINUE).to_bytes(8, 'big') + b'\1' + \
        len(data).to_bytes(2, 'big') + data


@pytest.mark.parametrize('strategy', STRATEGIES[1:])
def test_delta_of_a_zero_page(tmp_path, fast_accel, memory, strategy):
    """
    Two zero records give way to a delta of the page before them, so that
    they are named no more: what is not named is zero as well.
    """
    page = DIRTY[0] + DIRTY[1] // 2
    unnamed = page + PAGE, page + 2 * PAGE
    with Ring3(tmp_path, accel=fast_accel, memory=memory, strategy=strategy,
               ram=RAM_SIZE) as guest:
        guest.stop()
        guest.save('s')
        expected = bytearray(guest.ram_image())
        expected[page + AT:page + AT + len(DELTA)] = DELTA
        guest.qmp('quit')
        guest.process.wait(patience(20))

    with VMState(tmp_path / 'disk.qcow2', 's') as state:
        at = state.stream.index(zero_record(page)) + len(zero_record(page))
        old = b''.join(map(zero_record, unnamed))
        assert state.stream[at:at + len(old)] == old
        assert len(delta_record(page)) == len(old)
        state.write(at, delta_record(page))

    with Ring3(tmp_path, accel=fast_accel, memory=memory, strategy=strategy,
               ram=RAM_SIZE) as guest:
        guest.ask('fill', *DIRTY, 5)
        guest.stop()
        guest.load('s')
        assert guest.ram_image() == expected
