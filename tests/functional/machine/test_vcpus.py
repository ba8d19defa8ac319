# SPDX-License-Identifier: GPL-2.0-or-later
"""Loads of guests with several vCPUs, all of which write meanwhile.

RAM_RESET_LONG=1 rewinds 10,000 times in test_many_rewinds.
"""

# Takes: 15 s

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import products
from lib.effort import LONG, rounds, tried
from lib.guests import PAGE
from lib.machine import MachineError, kvm_usable
from lib.rewinding import assert_rewound
from lib.smp import ACCELS, START, CpuSlots, Smp

# With maxcpus= more than are used: TCG counts those that were unplugged, too
WAYS = {
    'stock': {},
    'rewind': {'strategy': 'auto', 'options': ',rewind=on,verify=on'},
    **{strategy: {'strategy': strategy, 'options': ',verify=on'}
       for strategy in ('memset', 'madvise', 'remap')}}
PAGES = 48                      # of each vCPU
CASES = [*(('rewind', machine, cpus)
           for cpus in (4, 16, 2, 1) for machine in ('q35', 'pc')),
         *((way, 'q35', 4) for way in WAYS if way != 'rewind')]


@pytest.fixture(params=ACCELS)
def accel(request) -> str:
    if request.param.startswith('kvm') and not kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    return request.param


def boot(workdir: Path, accel: str, cpus: str = '4', way: str = 'rewind',
         **kwargs) -> Smp:
    return Smp(workdir, accel=accel, cpus=cpus, memory='shared',
               **{**WAYS[way], **kwargs})


@contextlib.contextmanager
def boot_pluggable(workdir: Path, accel: str, way: str = 'rewind', **kwargs
                   ) -> Iterator[tuple[Smp, CpuSlots]]:
    """With one vCPU."""
    slots = CpuSlots(workdir)
    with boot(workdir, accel, '1,maxcpus=4', way, machine='q35',
              args=slots.args, **kwargs) as guest, contextlib.closing(slots):
        slots.connect(guest)
        yield guest, slots


def save_in_loop(guest: Smp) -> None:
    guest.start_all(PAGES)
    guest.save('s')


def load_and_pass(guest: Smp) -> None:
    """
    Every vCPU goes on after it: had one not what it had at the save, in its
    registers or in RAM, it would find that.
    """
    guest.load('s')
    guest.stop()
    guest.settle()
    guest.cont()
    guest.next_pass()


@pytest.mark.each_value
@pytest.mark.parametrize('way, machine, cpus', CASES)
def test_all_vcpus_write(tmp_path, accel, way, machine, cpus):
    """
    verify=on compares all of RAM, and each vCPU what it reads with what it has
    left; a clock that any of them reads is never behind what another has read.
    """
    with boot(tmp_path, accel, str(cpus), way, machine=machine) as guest:
        save_in_loop(guest)
        for _ in range(3):
            load_and_pass(guest)
        if way == 'rewind':
            assert_rewound(guest)
        guest.sync()
        guest.ask('all-check', START, PAGES)


def test_many_rewinds(tmp_path, accel):
    """Four vCPUs, at whatever each of them does in that moment."""
    loads = 10000 if LONG else rounds(100, 15)
    with boot(tmp_path, accel) as guest:
        save_in_loop(guest)
        for n in range(loads):
            if n % 10:
                guest.load('s')
            else:
                load_and_pass(guest)
            assert_rewound(guest)
        load_and_pass(guest)
        info = guest.qmp('query-ram-reset')
        assert info['loads'] >= loads
        guest.sync()
        guest.ask('all-check', START, PAGES)


def test_clocks_agree(tmp_path, accel):
    """No vCPU's clock is ahead of another's, after loads of any kind."""
    for way in tried(('stock', 'rewind', 'memset'), ('rewind',)):
        with boot(tmp_path, accel, '2', way) as guest:
            guest.save(way)
            for _ in range(rounds(4, 2)):
                guest.load(way)
                ahead, at_most = guest.skew(1)
                assert ahead <= 0 <= at_most


def test_loop_finds_a_lost_write(tmp_path, accel):
    """The guest's own check is worth something: another vCPU's page."""
    with boot(tmp_path, accel, '2', 'stock') as guest:
        guest.start_all(PAGES)
        with pytest.raises(AssertionError, match='corrupt'), \
                open(guest.memfd(), 'r+b', buffering=0) as f:
            # the vCPU may write there just after
            for _ in range(1000):
                f.seek(START + (PAGES + 7) * PAGE)
                f.write(b'stale!!!')
                guest.next_pass()


def test_unplugged_vcpu_has_written(tmp_path, accel):
    """
    A load undoes its writes, and those of others to the same pages: with a
    dirty ring, nobody reads what is left in the ring of a lost vCPU.
    """
    with boot_pluggable(tmp_path, accel) as (guest, slots):
        guest.save('s')
        guest.load('s')
        assert_rewound(guest)
        slots.plug(1)
        guest.start_all(PAGES)
        guest.sync()
        slots.unplug(1)
        guest.load('s')
        for _ in range(3):
            guest.ask('tag', START + PAGES * PAGE, PAGES, PAGE, 9)
            guest.load('s')
            if 'ring' in accel:
                assert 'dirty ring' in guest.last_load()['blocker']
            else:
                assert_rewound(guest)


def test_more_vcpus_in_the_snapshot(tmp_path, accel):
    """Is refused with nothing changed; and with that vCPU back, loaded."""
    with boot_pluggable(tmp_path, accel) as (guest, slots):
        slots.plug(1)
        guest.ask('fill', START, PAGES * PAGE, 1)
        guest.save('s')
        slots.unplug(1)
        guest.ask('fill', START, PAGES * PAGE, 2)
        for how in ('hmp', 'qmp'):
            with pytest.raises(MachineError, match='it has CPU 1'):
                guest.load('s', how)
            # as of any snapshot that is refused, unlike a guest in parts
            guest.cont()
            guest.ask('check-fill', START, PAGES * PAGE, 2)
        # KVM may refuse to have a vCPU back that has run
        if accel.startswith('tcg'):
            slots.plug(1)
            for _ in range(3):
                guest.load('s')
                guest.ask('check-fill', START, PAGES * PAGE, 1)
                guest.ask('fill', START, PAGES * PAGE, 2)
            assert_rewound(guest)


def test_fewer_vcpus_in_the_snapshot(tmp_path, accel):
    """A vCPU that was plugged since the save waits to be started."""
    with boot_pluggable(tmp_path, accel) as (guest, slots):
        guest.ask('fill', START, PAGES * PAGE, 1)
        guest.save('s')
        slots.plug(1)
        for _ in range(3):
            guest.start_all(PAGES)
            guest.load('s')
            guest.sync()
            guest.ask('check-fill', START, PAGES * PAGE, 1)
            guest.ask('start-cpu', 1)
        assert_rewound(guest)
        slots.unplug(1)
        guest.load('s')
        guest.ask('check-fill', START, PAGES * PAGE, 1)


def test_stock_fails_midway(tmp_path):
    """Stock QEMU, for comparison: a guest with a partial load."""
    with boot_pluggable(tmp_path, 'tcg', 'stock', qemu=products.stock()
                        ) as (guest, slots):
        slots.plug(1)
        guest.save('s')
        slots.unplug(1)
        with pytest.raises(MachineError, match='Unknown savevm section'):
            guest.load('s')
