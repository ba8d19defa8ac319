# SPDX-License-Identifier: GPL-2.0-or-later
"""
Some thousand loads in one QEMU leave nothing behind.  `./bench soak` has a
million, and says whether they become slower.
"""

# Takes: 50 s

import contextlib

import pytest

from lib import soak
from lib.effort import rounds
from lib.loopers import DeviceLoop, HmpLoop
from lib.machine import kvm_usable

# More than enough for a leak of 1 KiB per load, or in ./test one of 2 KiB
LOADS = {DeviceLoop: rounds(3000, 800), HmpLoop: rounds(1500, 600)}
WARM_UP = rounds(500, 200)
TURNS = rounds(8, 0)
# A ratio of CPU time; so short a measurement may be out by half
LASTING = 0.5


@pytest.mark.parametrize('loop', (DeviceLoop, HmpLoop))
def test_soak(tmp_path, loop):
    if not kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    plan = soak.Plan(LOADS[loop], WARM_UP, parts=1, turns=TURNS, turn=0.25)
    with contextlib.ExitStack() as stack:
        looper, witness = (
            stack.enter_context(contextlib.closing(loop(tmp_path / name)))
            if name == 'first' or TURNS else None
            for name in ('first', 'witness'))
        found = soak.soak(looper, witness, plan)
    print(found['counted'], soak.grown(found))
    assert not soak.complaints(found)
    if TURNS:
        *_, high = lasting = soak.lasting(found, 'cpu')
        print(lasting, soak.lasting(found, 'rate'))
        assert high > LASTING       # or less, but by chance
