# SPDX-License-Identifier: GPL-2.0-or-later
"""
QEMU is killed at the 1st, 2nd, 3rd ... write, flush and truncate of a save, a
load or a deletion.  A load then gives the old state or the new one, on RAM and
on every disk, or refuses.

RAM_RESET_LONG=1 tries each call, otherwise it is one of some.
"""

# Takes: 30 s

import shutil
import signal

import pytest

from lib import products
from lib.effort import LONG, rounds
from lib.kills import Disks, Kills, Outcomes, check_disks, copy_disks
from lib.machine import MachineError, run_quietly
from lib.patience import patience
from lib.shm import in_memory

OLD, NEW, LATER = 1, 2, 3
STRATEGIES = {'stock': '', 'auto': ',rewind=on'}
# what is killed: whether there is an old snapshot, the command, and what a load
# of the snapshot may give afterwards
SAVE, OVERWRITE, DELETE, LOAD = OPERATIONS = (
    (False, 'savevm a', ('new', 'refused')),
    (True, 'savevm a', ('old', 'new')),
    (True, 'delvm a', ('old', 'refused')),
    (True, 'loadvm a', ('old',)),
)
NAMES = 'save', 'overwrite', 'delete', 'load'
MOST = 2000
STEP = 1 if LONG else rounds(3, 7)


@pytest.fixture
def folder():
    with in_memory('kills') as path:
        yield path


@pytest.fixture
def kills(folder, monkeypatch) -> Kills:
    return Kills(folder, monkeypatch)


def start(workdir, number, strategy) -> Disks:
    return Disks(workdir, number, strategy=strategy,
                 options=STRATEGIES[strategy])


def prepare(workdir, number, old: bool) -> None:
    workdir.mkdir()
    with start(workdir, number, 'stock') as guest:
        if old:
            guest.fill(OLD)
            guest.save('a')


def end_at(kills, guest, command, nth) -> bool:
    """False if the command ends before QEMU does."""
    guest.fill(NEW)
    kills.arm(nth)
    try:
        guest.hmp(command)
    except MachineError:
        assert guest.process.wait(patience(20)) == -signal.SIGKILL
        return True
    return False


def loaded(workdir, number, strategy) -> str:
    """The state after a load in a new QEMU, which can still save."""
    with start(workdir, number, strategy) as guest:
        guest.fill(LATER)
        try:
            guest.load('a')
        except MachineError as error:
            assert 'does not exist' in str(error) or \
                'not made together' in str(error)
            assert guest.holds(LATER)
            outcome = 'refused'
        else:
            outcome = 'old' if guest.holds(OLD, NEW) == OLD else 'new'
        guest.fill(LATER)
        guest.save('a')
        assert guest.tags() == [['a']] * number
        guest.fill(NEW)
        guest.load('a')
        assert guest.holds(LATER)
    return outcome


@pytest.mark.parametrize('strategy', STRATEGIES)
@pytest.mark.parametrize('number', (1, 2, 3))
@pytest.mark.parametrize('operation', OPERATIONS, ids=NAMES)
@pytest.mark.each_value
def test_kill(folder, kills, operation, number, strategy):
    old, command, allowed = operation
    outcomes = Outcomes(f'{number} disks, {command}, '
                        f'{"over an old one" if old else "the first"}')
    prepare(folder / 'before', number, old)
    for nth in range(1, MOST, STEP):
        workdir = copy_disks(folder / 'before', folder / 'killed')
        with start(workdir, number, strategy) as guest:
            killed = end_at(kills, guest, command, nth)
            _, kind = kills.disarm()
        if killed:
            outcome = loaded(workdir, number, strategy)
            outcomes.add(kind, outcome)
            assert outcome in allowed, f'killed at the {nth}th call, a {kind}'
            check_disks(workdir)
        shutil.rmtree(workdir)
        if not killed:
            break
    print(outcomes)
    assert not killed and nth > 1


def test_clock_has_not_run(folder):
    """A deletion and a save that are killed behind the first disk."""
    workdir = folder / 'before'
    prepare(workdir, 2, False)
    with start(workdir, 2, 'stock') as guest:
        guest.save('a')
    run_quietly(products.QEMU_IMG, 'snapshot', '-d', 'a',
                workdir / 'disk.qcow2')
    with start(workdir, 2, 'stock') as guest:
        guest.snapshot_job('snapshot-save', 'a')
        with pytest.raises(MachineError, match='not made together'):
            guest.load('a')
