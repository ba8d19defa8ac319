# SPDX-License-Identifier: GPL-2.0-or-later
"""
Under KVM a load takes the TSC back, on a host whose KVM can: not all of those
that run the tests are such, and host/tsc.c stands in for one.
"""

# Takes: 2 s

from dataclasses import dataclass
from pathlib import Path

import pytest

from lib import products
from lib.guests import Ring3
from lib.machine import MIB, kvm_usable


@dataclass(frozen=True)
class Written:
    """A TSC as host/tsc.c has logged it."""

    vcpu: int
    wanted: int
    set: int
    offset: int


def written_tscs(workdir: Path) -> list[Written]:
    log = (workdir / 'qemu.log').read_text()
    return [Written(*map(int, line.split()[1:]))
            for line in log.splitlines() if line.startswith('tsc ')]


@pytest.mark.skipif(not kvm_usable(), reason='/dev/kvm cannot be opened')
def test_tsc_of_the_first_second(tmp_path, monkeypatch):
    """
    KVM takes a TSC of less than a second, right after a reset, for an attempt
    to synchronize vCPUs.  Each vCPU has to get the first one's as it was saved.
    """
    monkeypatch.setenv('LD_PRELOAD', str(products.tsc()))
    with Ring3(tmp_path, accel='kvm', ram=32 * MIB, args=('-smp', '3')) as vm:
        vm.save('s')
        loaded = []
        for _ in range(4):
            done = len(written_tscs(tmp_path))
            vm.load('s')
            loaded.append(written_tscs(tmp_path)[done:][-3:])
    for (first, *others) in loaded:
        assert first.wanted == loaded[0][0].wanted
        assert first.set == first.wanted
        assert {vcpu.offset for vcpu in others} == {first.offset}
