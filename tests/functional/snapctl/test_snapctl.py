# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that drives the snapctl device, see guest/ring3-snapctl.c."""

# Takes: 50 s

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from functools import reduce
from operator import and_, or_
from pathlib import Path

import pytest

from lib import products
from lib.content import START, assert_same_ram, check_state, dirty, write_state
from lib.damage import damage_device, damage_ram_records
from lib.effort import rounds
from lib.guests import PAGE, Corrupt, Ring3
from lib.machine import MIB, MachineError, run_quietly
from lib.patience import Limit, patience
from lib.rewinding import descriptors, footprint
from lib.snapctl_guest import (EMPTY, FAILED, LOAD, LOADED, LOOP, RAM_SIZE,
                               REFUSED, SAVE, SAVED, A, Register, SnapctlGuest)
from lib.vmstate import VMState

B = 1                           # a slot

PLACES = [0xf0000000, 0xf0010000, 0xe0000000]   # of BARs, if the guest chooses
PAIRS = START + 44 * MIB, 64    # an address and pages
HAMMER_SECONDS = {'kvm': rounds(60, 12), 'tcg': rounds(10, 8)}
MANY, MANY_LIMIT = 10, 30       # saves, and loads, and refusals; seconds
ENDLESS = 1 << 60
# For the monitor to answer: nominal seconds, and in which part of all steps of
# a guest that does not let it come to a word
WORST, WORST_PART = 2.0, 1 / 6
# Threads that come and go are less than this, 10 KiB a command are more
SOME_THREADS = {'anonymous': 8192, 'mappings': 24}     # KiB, and a number
# Open while there is a baseline: not where loads of two snapshots take turns
TRACKER = Counter({'anon_inode:[userfaultfd]': 1, '/proc/N/pagemap': 1})


@pytest.fixture(params=('pc', 'q35'))
def machine_type(request) -> str:
    return request.param


def outcome(event: dict) -> dict:
    assert event['qom-path'] == '/machine/peripheral/snap0'
    return {name: event[name] for name in event if name != 'qom-path'}


def assert_counts(guest: SnapctlGuest, saves: int, loads: int,
                  failures: int = 0) -> None:
    info = guest.info()
    assert (info['saves'], info['loads'], info['failures']) == \
        (saves, loads, failures)
    assert not info['pending']


@pytest.mark.each_pair
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


@pytest.mark.each_pair
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


ITERATIONS = {('kvm', 'auto'): rounds(1000, 300),
              ('kvm', 'stock'): rounds(100, 50),
              ('tcg', 'auto'): rounds(200, 100),
              ('tcg', 'stock'): rounds(100, 50)}


@pytest.mark.each_pair
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


@pytest.mark.parametrize('command', ('snap-loop', 'hammer'))
def test_stale_memory_is_found(tmp_path, fast_accel, command):
    """What both check is worth something: a write past the log ends them."""
    address, pages = LOOP if command == 'snap-loop' else PAIRS
    stale = address, pages // 2
    with SnapctlGuest(tmp_path, accel=fast_accel) as guest:
        guest.tell(command, ENDLESS, A, address, pages)
        time.sleep(0.5)
        guest.TIMEOUT = 0.01
        with pytest.raises(Corrupt, match=f'^{command}: corrupt '):
            for _ in range(1000):
                write_past_the_log(guest, *stale)
                # most writes come while a load is undoing everything
                with contextlib.suppress(MachineError):
                    guest.next_answer(command)


def write_past_the_log(guest: Ring3, address: int, pages: int) -> None:
    with open(guest.memfd(), 'r+b', buffering=0) as f:
        f.seek(address)
        f.write(b'stale!!!' * (pages * PAGE // 8))


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


class Watch:
    """Looks at a QEMU while its guest hammers."""

    def __init__(self, guest: SnapctlGuest):
        self._guest = guest
        self._samples: list[dict[str, int]] = []
        self._open: list[Counter[str]] = []
        self.worst = 0.0, 0     # seconds until an answer, steps of the guest

    def run(self, seconds: float) -> None:
        """The monitor is asked all the time, the rest once in a while."""
        end = time.monotonic() + seconds
        sample = 0.0
        while (now := time.monotonic()) < end:
            steps = self._guest.region_word('steps')
            assert self._guest.status() == 'running'
            took = time.monotonic() - now
            steps = self._guest.region_word('steps') - steps
            self.worst = max(self.worst[0], took), max(self.worst[1], steps)
            if now >= sample:
                sample = now + 0.2
                blocks = self._guest.disk.stat().st_blocks
                self._samples.append({**footprint(self._guest),
                                      'disk': blocks // 2})
                self._open.append(descriptors(self._guest))

    def least(self) -> dict[str, int]:
        """Of each, in the later half of the time."""
        samples = self._samples[len(self._samples) // 2:]
        return {what: min(sample[what] for sample in samples)
                for what in samples[0]}

    def once_open(self) -> Counter[str]:
        """Of each name the most, what follows writes always among them."""
        return reduce(or_, self._open, TRACKER)

    def always_open(self) -> Counter[str]:
        """In the later half of the time."""
        return reduce(and_, self._open[len(self._open) // 2:])


def hammered(guest: SnapctlGuest, accel: str, seconds: float) -> None:
    """Nothing grows from the first half of this time to the second."""
    halves = Watch(guest), Watch(guest)
    steps = [guest.region_word('steps')]
    for watch in halves:
        watch.run(seconds / 2)
        steps.append(guest.region_word('steps'))
        assert steps[-1] > steps[-2]
    worst, worst_steps = map(max, zip(*(watch.worst for watch in halves)))
    limit, all_steps = patience(WORST), steps[-1] - steps[0]
    least = [watch.least() for watch in halves]
    grown = {what: least[1][what] - least[0][what] for what in least[0]}
    print(f'worst answer time {worst * 1000:.0f} ms, and {worst_steps} of '
          f'{all_steps} steps, in the end {least[1]}, grown {grown}')
    assert worst < limit
    assert worst_steps < WORST_PART * all_steps
    leaked = halves[1].always_open() - halves[0].once_open()
    assert not leaked
    assert grown['mappings'] < SOME_THREADS['mappings']
    if accel == 'kvm':      # TCG keeps translations until it has no more room
        assert grown['anonymous'] < SOME_THREADS['anonymous']
    assert grown['shared'] < 1024
    assert grown['disk'] < RAM_SIZE // 1024


def wait_for_each(guest: SnapctlGuest, count: int) -> None:
    limit = Limit(MANY_LIMIT)
    while min(map((info := guest.info()).get, ('saves', 'loads', 'refused'))
              ) < count:
        assert not limit.over(), info
        time.sleep(0.1)


def test_hammer(tmp_path, accel, rng):
    """Whatever a guest does to it, QEMU and other snapshots are safe."""
    seconds = HAMMER_SECONDS[accel]
    with SnapctlGuest(tmp_path, accel=accel) as guest:
        write_state(guest)
        guest.stop()
        guest.save('host')
        image = guest.ram_image()
        guest.cont()
        guest.tell('hammer', ENDLESS, rng.getrandbits(63), *PAIRS)
        begin = time.monotonic()
        hammered(guest, accel, seconds)
        wait_for_each(guest, MANY)
        seconds = time.monotonic() - begin
        guest.set_region_word('stop', 1)
        steps = int(guest.next_answer(), 16)

        info = guest.info()
        commands = info['saves'] + info['loads']
        print(f"{accel}: {steps / seconds:.0f} steps, "
              f"{info['saves'] / seconds:.1f} saves and "
              f"{info['loads'] / seconds:.1f} loads a second, "
              f"{info['refused']} refused")
        assert info['failures'] == 0
        assert not info['pending']
        assert info['generation'] == info['loads']
        assert guest.qmp('query-ram-reset')['loads'] == info['loads']
        # one a second, and the last one comes in any case
        events = [guest.completed()]
        while events[-1]['generation'] < info['generation'] or \
                outcome(events[-1]) != info['last']:
            events.append(guest.completed())
        assert len(events) < min(seconds + 5, commands)
        assert all(event['success'] for event in events)
        check_state(guest)

        guest.stop()
        guest.load('host')
        assert_same_ram(guest.ram_image(), image)
        guest.cont()
        guest.sync()
        check_state(guest)
        assert guest.info()['generation'] == info['loads'] + 1
        assert 'snapctl' not in guest.log()
    run_quietly(products.QEMU_IMG, 'check', guest.disk)


def test_failures_fill_no_log(tmp_path, fast_accel):
    """
    Nor queues of events, also when commands fail and succeed in turn.  A load
    that is refused before it has changed anything lets the guest go on.
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
