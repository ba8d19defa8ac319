# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that drives the snapctl device, see guest/ring3-snapctl.c."""

# Takes: 25 s

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import products
from lib.content import check_state, dirty, write_state
from lib.damage import damage_device, damage_ram_records
from lib.effort import rounds
from lib.guests import PAGE, Ring3
from lib.machine import MachineError, run_quietly
from lib.snapctl_guest import (A, B, EMPTY, FAILED, LOAD, LOADED, LOOP,
                               RAM_SIZE, REFUSED, SAVE, SAVED, Register,
                               SnapctlGuest, outcome)
from lib.vmstate import VMState

PLACES = [0xf0000000, 0xf0010000, 0xe0000000]   # of BARs, if the guest chooses


@pytest.fixture(params=('pc', 'q35'))
def machine_type(request) -> str:
    return request.param


def assert_counts(guest: SnapctlGuest, saves: int, loads: int,
                  failures: int = 0) -> None:
    info = guest.info()
    assert (info['saves'], info['loads'], info['failures']) == \
        (saves, loads, failures)
    assert not info['pending']


@pytest.mark.each_value
def test_save_and_load(tmp_path, accel, machine_type, served):
    with SnapctlGuest(tmp_path, accel=accel, strategy=served,
                      machine_type=machine_type) as guest:
        kept = guest.region_address() + PAGE, 16, PAGE
        write_state(guest)
        assert guest.snap(B, LOAD) == (REFUSED, EMPTY, 0)
        assert guest.snap(B, SAVE) == (SAVED, 0, 0)
        saved = guest.completed()
        assert (saved['command'], saved['slot'], saved['tag'],
                saved['success']) == ('save', B, 'b', True)
        random = {guest.register(Register.RANDOM)}
        for n in (1, 2, 3):
            dirty(guest, n)
            guest.ask('tag', *kept, n)
            begin = time.monotonic_ns()
            assert guest.snap(B, LOAD) == (LOADED, 0, n)
            elapsed = time.monotonic_ns() - begin
            loaded = guest.completed()
            check_state(guest)
            guest.ask('check-tag', *kept, n)
            random.add(guest.register(Register.RANDOM))
            assert 0 < guest.register(Register.LOAD_NS) < elapsed
            assert 0 < loaded['time-ns'] < elapsed
            assert outcome(loaded) == guest.info()['last']
            assert (loaded['command'], loaded['slot'], loaded['tag'],
                    loaded['success'], loaded['generation']) == \
                ('load', B, 'b', True, n)
        assert len(random) == 4

        dirty(guest, 4)
        guest.hmp('loadvm b')
        assert guest.next_snap() == (LOADED, 0, 4)
        check_state(guest)
        guest.ask('check-tag', *kept, 3)
        assert_counts(guest, saves=1, loads=3)
        assert guest.info()['generation'] == 4
        assert guest.snap(B, LOAD) == (LOADED, 0, 5)
        loads = guest.qmp('query-ram-reset')
        assert loads['loads'] == 5
        assert loads['rewinds'] == (5 if served == 'auto' else 0)


def damage(change: Callable[[VMState], None]) -> Callable[[Path], None]:
    def apply(disk: Path) -> None:
        with VMState(disk, 'b') as state:
            change(state)
    return apply


BAD = {'device': ((), damage(damage_device)),
       'ram': ((), damage(damage_ram_records)),
       'machine': (('-device', 'i6300esb'), lambda disk: None)}


@pytest.mark.each_value
@pytest.mark.parametrize('bad', BAD)
def test_failed_load(tmp_path, accel, served, bad):
    """It leaves the guest stopped, until the host's user loads another one."""
    more, change = BAD[bad]
    with SnapctlGuest(tmp_path, accel=accel, strategy=served, args=more
                      ) as guest:
        assert guest.snap(B, SAVE) == (SAVED, 0, 0)
    change(guest.disk)
    with SnapctlGuest(tmp_path, accel=accel, strategy=served) as guest:
        write_state(guest)
        assert guest.snap(A, SAVE) == (SAVED, 0, 0)
        generation = 0
        for failures in (1, 2):
            dirty(guest, failures)
            guest.tell('snap', B, LOAD)
            while (event := guest.completed())['slot'] != B:
                pass
            assert (event['command'], event['tag'], event['success']) == \
                ('load', 'b', False)
            assert event['error']
            assert guest.status() == 'restore-vm'
            assert guest.silent(0.1)
            assert outcome(event) == guest.info()['last']

            guest.load('a')
            guest.cont()
            status, error, now = guest.next_snap()
            assert (status, error) == (LOADED, 0)
            assert now > generation
            check_state(guest)
            dirty(guest, 3)
            assert guest.snap(A, LOAD) == (LOADED, 0, now + 1)
            generation = now + 1
            check_state(guest)
            assert_counts(guest, saves=1, loads=failures, failures=failures)
        assert 'snapctl: the guest\'s load of snapshot \'b\': ' in guest.log()


ITERATIONS = {('kvm', 'auto'): rounds(1000, 100),
              ('kvm', 'stock'): rounds(100, 20),
              ('tcg', 'auto'): rounds(200, 40),
              ('tcg', 'stock'): rounds(100, 20)}


@pytest.mark.each_value
def test_iterations(tmp_path, accel, machine_type, served):
    """Nothing but the guest keeps this going."""
    count = ITERATIONS[accel, served]
    with SnapctlGuest(tmp_path, accel=accel, strategy=served,
                      machine_type=machine_type) as guest:
        write_state(guest)
        begin = time.monotonic()
        generation = int(guest.ask('snap-loop', count, A, *LOOP), 16)
        elapsed = time.monotonic() - begin
        print(f'{accel} {machine_type} {served}: {count / elapsed:.0f} '
              'iterations a second')
        assert generation == count
        assert guest.info()['generation'] == count
        assert guest.region_word('loads') == count
        assert_counts(guest, saves=1, loads=count)
        assert guest.info()['refused'] == 0
        loads = guest.qmp('query-ram-reset')
        assert loads['loads'] == count
        assert loads['rewinds'] == (count if served == 'auto' else 0)
        check_state(guest)


@pytest.mark.each_value
def test_loads_by_the_host(tmp_path, accel, served):
    """The same work, driven from outside."""
    count = 20
    with SnapctlGuest(tmp_path, accel=accel, strategy=served) as guest:
        guest.ask('snap-loop', 0, A, *LOOP)
        guest.save('s')
        for i in range(count):
            assert guest.ask('snap-work', i, *LOOP) == f'{i:x}'
            guest.load('s')
        assert guest.info()['generation'] == count
        assert_counts(guest, saves=1, loads=0)


@pytest.mark.any_value
def test_min_interval(tmp_path, accel):
    """A guest that does nothing but ask gets no more than was granted."""
    count, interval = 20, 0.1
    with SnapctlGuest(tmp_path, accel=accel, options=',min-interval=100'
                      ) as guest:
        begin = time.monotonic()
        guest.ask('snap-loop', count, A, *LOOP)
        elapsed = time.monotonic() - begin
        info = guest.info()
        print(f"{accel}: {count / elapsed:.1f} loads a second, "
              f"{info['refused'] / elapsed:.0f} refused")
        assert elapsed >= count * interval
        assert_counts(guest, saves=1, loads=count)
        assert info['refused'] == guest.region_word('refused') > count


def test_failures_fill_no_log(tmp_path, fast_accel):
    """
    Failures fill no queue of events either, not even in turn with successes.  A
    load that is refused before it has changed anything lets the guest go on.
    """
    rounds = 30
    with SnapctlGuest(tmp_path, accel=fast_accel) as guest:
        pass
    run_quietly(products.QEMU_IMG, 'snapshot', '-c', 'b', guest.disk)
    with SnapctlGuest(tmp_path, accel=fast_accel) as guest:
        write_state(guest)
        begin = time.monotonic()
        for _ in range(rounds):
            assert guest.snap(A, SAVE)[0] == SAVED
            assert guest.snap(B, LOAD)[0] == FAILED
        seconds = time.monotonic() - begin
        check_state(guest)
        assert guest.status() == 'running'
        assert_counts(guest, saves=rounds, loads=0, failures=rounds)
        events = [guest.completed()]
        while outcome(events[-1]) != guest.info()['last']:
            events.append(guest.completed())
        assert len(events) <= seconds + 2
        assert guest.log().count('snapctl: the guest') == 1


@pytest.mark.parametrize('firmware', ('qboot.rom', 'bios-256k.bin'))
def test_where_the_device_is(tmp_path, machine_type, firmware):
    """The guest's own part: SeaBIOS finds a place, otherwise the guest does."""
    with SnapctlGuest(tmp_path, accel='tcg', machine_type=machine_type,
                      args=('-bios', firmware)) as guest:
        where = [int(n, 16) for n in guest.ask('snap-where').split()]
        assert len(set(where)) == 3
        assert (where == PLACES) == (firmware == 'qboot.rom')
        assert all(RAM_SIZE < address < 8 << 30 for address in where)
        assert guest.register(Register.MAGIC, 4) == \
            int.from_bytes(b'SNAP', 'little')
        guest.ask('tag', where[2] + PAGE, 16, PAGE, 1)
        guest.ask('check-tag', where[2] + PAGE, 16, PAGE, 1)
        assert guest.snap(A, SAVE) == (SAVED, 0, 0)
        assert guest.snap(A, LOAD) == (LOADED, 0, 1)


def test_no_device(tmp_path, fast_accel, machine_type):
    with Ring3(tmp_path, accel=fast_accel, ram=RAM_SIZE,
               args=('-M', machine_type)) as guest:
        with pytest.raises(MachineError, match='snap: error'):
            guest.snap(A, SAVE)
        guest.sync()
