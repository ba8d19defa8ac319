# SPDX-License-Identifier: GPL-2.0-or-later
"""Pinned pages and the flags of a mapping stay as they are."""

# Alone: the kernel moves pages to make room for hugepages

import os
from pathlib import Path

import pytest

from lib.dma import Qtest
from lib.guests import PAGE
from lib.machine import MIB, RAM, STRATEGIES, Machine
from lib.pin import pin

def host_pages(vm: Machine) -> list[int]:
    """The host's own number of each page of RAM that is there, else 0."""
    text = vm.hmp('gpa2hva 0')
    address = int(text.split(' is ')[1], 16)
    with open(f'/proc/{vm.process.pid}/pagemap', 'rb') as pagemap:
        pagemap.seek(address // PAGE * 8)
        data = memoryview(pagemap.read(vm.ram // PAGE * 8)).cast('Q')
    return [entry & ((1 << 55) - 1) if entry >> 63 else 0 for entry in data]


@pytest.mark.skipif(os.geteuid() != 0,
                    reason='the kernel shows page numbers to root only')
@pytest.mark.parametrize('strategy', STRATEGIES[1:])
@pytest.mark.parametrize('memory', ('private', 'shared'))
def test_pinned_pages_stay(tmp_path, strategy, memory):
    qtest = Qtest(tmp_path)
    with Machine(tmp_path, accel='qtest', ram=16 * MIB, memory=memory,
                 strategy=strategy, args=qtest.args) as vm:
        qtest.use(MIB, 8 * MIB)
        vm.save('s')
        pin(vm)
        before = host_pages(vm)
        assert any(before)
        for _ in range(3):
            vm.load('s')
            block, = (b for b in vm.last_load()['blocks'] if b['name'] == RAM)
            assert block['strategy'] == 'memset'
            assert block['discarded-pages'] == 0
            if strategy != 'memset':
                assert 'discarding RAM is disabled' in str(block)
            after = host_pages(vm)
            assert [a for a, b in zip(after, before) if b] == \
                [b for b in before if b]


def flags(vm: Machine) -> str:
    address = int(vm.hmp('gpa2hva 0').split(' is ')[1], 16)
    smaps = Path(f'/proc/{vm.process.pid}/smaps').read_text()
    entry = smaps[smaps.index(f'\n{address:x}-'):]
    return entry[entry.index('VmFlags:'):].splitlines()[0]


@pytest.mark.parametrize('strategy', STRATEGIES[1:])
@pytest.mark.parametrize('memory', ('private', 'shared'))
def test_flags_stay(tmp_path, fast_accel, memory, strategy):
    """With an accelerator, RAM is not for children of QEMU either (dc)."""
    with Machine(tmp_path, accel=fast_accel, ram=16 * MIB, memory=memory,
                 strategy=strategy) as vm:
        vm.save('s')
        before = flags(vm)
        assert ' dc ' in before
        vm.load('s')
        vm.load('s')
        assert flags(vm) == before
