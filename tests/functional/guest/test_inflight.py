# SPDX-License-Identifier: GPL-2.0-or-later
"""
A host, a guest and its devices do things at the same time, see
tests/lib/inflight/plan.py.

RAM_RESET_LONG=1 flies for half an hour, or RAM_RESET_MINUTES, and goes on
after a finding, with a QEMU of RAM_RESET_QEMU's, such as what
scripts/build-qemu --sanitize address has built.  To repeat a plan:

    RAM_RESET_SEED=SEED RAM_RESET_MINUTES=1 pytest -k in_flight[ACCELERATOR]
"""

import contextlib
import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.effort import LONG, rounds
from lib.inflight.guest import Finding
from lib.inflight.plan import Flight
from lib.machine import kvm_usable

SECONDS = rounds(11, 7)
PLAN_SECONDS = 60                   # in a long run
MINUTES = os.environ.get('RAM_RESET_MINUTES')
ACCELS = ('kvm', 'tcg', 'qtest')
TSAN_RULES = Path(__file__).with_name('tsan.supp')
# The most that a plan's later half may have more than the first; KiB
GROWTH = {'descriptors': 4, 'mappings': 100, 'anonymous': 40 << 10,
          'shared': 40 << 10}


@contextlib.contextmanager
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in which flushing a disk takes no time, if there is one."""
    place = '/dev/shm' if os.access('/dev/shm', os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(dir=place, prefix='inflight-') as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def reports(monkeypatch) -> None:
    """A sanitizer's report ends QEMU, whose log then has it."""
    monkeypatch.setenv('ASAN_OPTIONS', 'detect_leaks=0:handle_abort=1')
    monkeypatch.setenv('TSAN_OPTIONS', f'suppressions={TSAN_RULES}:'
                                       'halt_on_error=1')


def fly(tmp_path: Path, seed: int, accel: str, seconds: float) -> Counter:
    print(f'RAM_RESET_SEED={seed} {accel}', end=' ', flush=True)
    with scratch(tmp_path) as folder:
        flight = Flight(folder, seed, accel)
        print(flight.setup, flush=True)
        try:
            flight.run(time.monotonic() + seconds)
        except Finding as e:
            raise Finding(
                f'RAM_RESET_SEED={seed} {accel} {flight.setup}, after '
                f'{", ".join(map(str, flight.ops))}: {e}') from e
        finally:
            print(dict(flight.counts), dict(flight.errors.most_common(8)))
        grown = flight.grown()
        # a sanitizer keeps what is freed, TCG keeps translations
        exact = not flight.craft.sanitized and accel != 'tcg'
        if grown and any(grown[what] > most for what, most in GROWTH.items()
                         if exact or what == 'descriptors'):
            raise Finding(f'RAM_RESET_SEED={seed} {accel}: in {seconds:.0f} s '
                          f'it has grown by {grown}')
    return flight.counts


@pytest.mark.any_value
@pytest.mark.parametrize('accel', ACCELS)
def short_flight(tmp_path, accel, seed):
    if accel == 'kvm' and not kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    counts = fly(tmp_path, seed, accel,
                 60 * float(MINUTES) if MINUTES else SECONDS)
    assert counts['bursts'] and counts['load']


def long_flight(tmp_path, seed):
    """Half an hour, of all accelerators."""
    minutes = float(MINUTES or 30)
    until = time.monotonic() + 60 * minutes
    accels = itertools.cycle(a for a in ACCELS if a != 'kvm' or kvm_usable())
    findings, counts = [], Counter()
    for n in itertools.count():
        left = until - time.monotonic()
        if left <= 0:
            break
        try:
            counts += fly(tmp_path, seed + n, next(accels),
                          min(left, PLAN_SECONDS))
        except Finding as e:
            findings.append(str(e))
            print(f'FINDING {e}', flush=True)
    print(f'{minutes:.0f} minutes, {n} plans, {dict(counts)}')
    assert not findings


test_in_flight = long_flight if LONG else short_flight
