# SPDX-License-Identifier: GPL-2.0-or-later
"""
Two vCPUs against the host, see lib/two.py.

RAM_RESET_LONG=1 goes on for half an hour, or RAM_RESET_MINUTES, with a QEMU of
RAM_RESET_QEMU's, such as what scripts/build-qemu --sanitize address has built.
To repeat a duel:

    RAM_RESET_SEED=SEED RAM_RESET_MINUTES=1 pytest -k two_vcpus[ACCELERATOR]
"""

# Takes: 25 s

import itertools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from lib.effort import LONG, rounds
from lib.inflight.guest import Finding
from lib.machine import kvm_usable
from lib.two import Duel

MINUTES = os.environ.get('RAM_RESET_MINUTES')
SECONDS = rounds(30, 8)             # and until all has been put right once
MOST = 6                            # duels, if those have not done enough
DUEL_SECONDS = 60                   # in a long run
ACCELS = ('kvm', 'tcg')


@pytest.fixture(autouse=True)
def reports(monkeypatch) -> None:
    """glibc overwrites freed memory; a sanitizer's report ends QEMU."""
    monkeypatch.setenv('MALLOC_PERTURB_', '165')
    monkeypatch.setenv('ASAN_OPTIONS', 'detect_leaks=0:handle_abort=1')


def fight(tmp_path: Path, seed: int, accel: str, seconds: float) -> Counter:
    print(f'RAM_RESET_SEED={seed} {accel}', end=' ', flush=True)
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        duel = Duel(Path(folder), seed, accel)
        print(duel.setup, flush=True)
        try:
            duel.run(time.monotonic() + seconds)
        except Finding as e:
            raise Finding(f'RAM_RESET_SEED={seed} {accel} {duel.setup}, after '
                          f'{"; ".join(duel.ops[-40:])}: {e}') from e
        finally:
            print(dict(duel.counts), dict(duel.errors.most_common(8)),
                  flush=True)
    return duel.counts


def fight_on(tmp_path: Path, seed: int, accels: Iterable[str],
             seconds: float) -> Counter:
    """Duels take turns; all findings are reported at the end."""
    until = time.monotonic() + seconds
    findings, counts = [], Counter()

    def enough() -> bool:
        return counts['recover'] > 0 and \
            counts['guest saves'] + counts['guest loads'] > 0

    for n, accel in enumerate(itertools.cycle(accels)):
        left = until - time.monotonic()
        if left <= 0 and (enough() or findings or n >= MOST):
            break
        try:
            counts += fight(tmp_path, seed + n, accel, min(left, DUEL_SECONDS))
        except Finding as e:
            findings.append(str(e))
            print(f'FINDING {e}', flush=True)
    print(f'{seconds:.0f} s, {n} duels, {dict(counts)}')
    assert not findings
    return counts


@pytest.mark.any_value
@pytest.mark.parametrize('accel', ACCELS)
def short_duel(tmp_path, accel, seed):
    if accel == 'kvm' and not kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    seconds = 60 * float(MINUTES) if MINUTES else SECONDS
    counts = fight_on(tmp_path, seed, [accel], seconds)
    assert counts['recover'] and counts['guest saves'] + counts['guest loads']


def long_duel(tmp_path, seed):
    """Half an hour, of both accelerators."""
    fight_on(tmp_path, seed,
             [a for a in ACCELS if a != 'kvm' or kvm_usable()],
             60 * float(MINUTES or 30))


test_two_vcpus = long_duel if LONG else short_duel
