# SPDX-License-Identifier: GPL-2.0-or-later
"""A load makes the system calls that the documentation lists, and no others."""

import csv
import re

import pytest

from lib import products, syscalls
from lib.guests import PAGE, Ring3
from lib.machine import MIB, kvm_usable

MANUAL = products.REPO / 'docs/devel/ram-reset/machine.rst'
TITLE = 'System calls of a load under KVM'
TAG = 's'
START = 0x600000
# the first that rewinds still notes what later ones go by
WARM_UP = 4
COUNTED = 3


def listed() -> dict[str, int]:
    table = re.search(rf'\.\. csv-table:: {TITLE}\n(?:\s+:[^\n]*\n)*\n'
                      r'((?:   [^\n]*\n)+)', MANUAL.read_text())
    rows = csv.reader((line.strip() for line in table[1].splitlines()),
                      skipinitialspace=True)
    return {name.strip('`'): int(now) for name, _, now, *_ in rows
            if now != '0'}


@pytest.mark.skipif(not kvm_usable(), reason='/dev/kvm cannot be used')
def test_a_load_makes_the_listed_system_calls(tmp_path):
    with Ring3(tmp_path, accel='kvm', ram=64 * MIB, memory='private',
               strategy='auto', options=',rewind=on') as guest:
        # what it says is sent, and it waits
        guest.ask('tag', START, 1, PAGE, 1)
        guest.stop()
        guest.save(TAG)
        guest.cont()
        for _ in range(WARM_UP):
            guest.load(TAG)
        found = []
        for n in range(COUNTED):
            with syscalls.counted(guest, tmp_path / f'log{n}') as calls:
                guest.load(TAG)
            found.append(calls)
        assert guest.last_load()['rewound']
    assert found == [listed()] * COUNTED
