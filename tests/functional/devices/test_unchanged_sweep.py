# SPDX-License-Identifier: GPL-2.0-or-later
"""
A load that leaves devices alone has the result of a load that resets and
loads all, whatever a guest has done to devices.

RAM_RESET_LONG=1 loads 500 times for each machine and accelerator.
"""

# Takes: 35 s
# Long: random devices; test_unchanged_devices.py has each kind

import time

import pytest

from lib.effort import LONG, rounds
from lib.machine import kvm_usable
from lib.sweeping import MACHINES, Sweep, snapshots

LOADS = 500 if LONG else rounds(80, 40)
# The time of a load is the guest's only if something runs it
ACCELS = ('qtest', 'tcg', 'kvm')


@pytest.fixture(scope='module')
def origins(tmp_path_factory):
    """Folders with snapshots, one for each machine and what runs it."""
    made = {}

    def get(accel: str, machine: str):
        key = 'kvm' if accel == 'kvm' else 'tcg', machine
        if key not in made:
            made[key] = tmp_path_factory.mktemp('-'.join(key))
            snapshots(made[key], *key)
        return made[key]
    return get


@pytest.mark.each_value
@pytest.mark.parametrize('machine', MACHINES)
@pytest.mark.parametrize('accel', ACCELS)
def test_left_alone_against_loaded(tmp_path, origins, rng, accel, machine):
    if accel == 'kvm' and not kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    origin = origins(accel, machine)
    begin = time.monotonic()
    with Sweep(tmp_path, origin, accel, machine, rng) as sweep:
        for n in range(LOADS):
            sweep.act()
            sweep.load()
            sweep.compare()
            if n % (100 if LONG else 20) == 19:
                sweep.compare_sections()
                sweep.compare_running()
        counts = sweep.counts
    print(accel, machine, f'{time.monotonic() - begin:.0f} s', dict(counts))
    # both kinds are there to be compared
    assert counts['rewound'] > LOADS / 2
    assert LOADS < counts['left alone']
