# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that hammers the snapctl device, see guest/ring3-snapctl.c."""

# Takes: 30 s
# Long: a guest that hammers meets more, the longer it does

import contextlib
import time
from collections import Counter
from functools import reduce
from operator import and_, or_

import pytest

from lib import products
from lib.content import assert_same_ram, check_state, write_state
from lib.effort import rounds
from lib.guests import PAGE, Corrupt, Ring3
from lib.machine import MachineError, run_quietly
from lib.patience import Limit, patience
from lib.rewinding import descriptors, footprint
from lib.snapctl_guest import A, LOOP, PAIRS, RAM_SIZE, SnapctlGuest, outcome

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


@pytest.mark.parametrize('command', ('snap-loop', 'hammer'))
def test_stale_memory_is_found(tmp_path, fast_accel, command):
    """Both commands check RAM: a write past the log ends them."""
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
        """The least of each figure, in the later half of the time."""
        samples = self._samples[len(self._samples) // 2:]
        return {what: min(sample[what] for sample in samples)
                for what in samples[0]}

    def once_open(self) -> Counter[str]:
        """The most of each name; the tracker's are always among them."""
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
    """QEMU and other snapshots are safe whatever a guest does to snapctl."""
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
