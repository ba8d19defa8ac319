# SPDX-License-Identifier: GPL-2.0-or-later
"""
QEMU is killed, at random instants and at the Nth write, while it saves, loads
or deletes a snapshot of either kind among others.  No half snapshot can be
loaded then, the old one of the name is there until the new one is, and others
are what they were.

RAM_RESET_LONG=1 kills each operation 30 times at random instants and at each
write.
"""

# Takes: 15 s

import shutil
import signal
import threading
import time

import pytest

from lib.effort import LONG, rounds
from lib.kills import Disks, Kills, Outcomes, check_disks, copy_disks
from lib.machine import MIB, MachineError
from lib.patience import patience
from lib.shm import in_memory

OTHER, OLD, NEW, LATER = 1, 2, 3, 4
RAM_SIZE = 8 * MIB
DISKS = 2
# the kind of 'a', the kind of saves, the command, and what a load of its tag
# may give another QEMU; that can load no snapshot that was in memory
OPERATIONS = (
    ('image', 'image', 'savevm a', ('old', 'new')),
    ('image', 'memory', 'savevm a', ('old', 'refused')),
    ('memory', 'image', 'savevm a', ('new', 'refused')),
    ('memory', 'memory', 'savevm a', ('refused',)),
    ('image', 'image', 'snapshot-save c', ('new', 'refused')),
    ('image', 'memory', 'snapshot-save c', ('refused',)),
    ('image', 'image', 'loadvm a', ('old',)),
    ('memory', 'image', 'loadvm a', ('refused',)),
    ('image', 'image', 'snapshot-load a', ('old',)),
    ('image', 'image', 'delvm a', ('old', 'refused')),
    ('memory', 'memory', 'snapshot-delete a', ('refused',)),
)
IDS = ['-'.join(o[:3]).replace(' ', '-') for o in OPERATIONS]
TIMES = 30 if LONG else rounds(2, 1)
MOST, STEP = 2000, 1 if LONG else rounds(25, 60)


@pytest.fixture
def folder():
    with in_memory('many-kills') as path:
        yield path


def start(workdir) -> Disks:
    return Disks(workdir, DISKS, strategy='auto', options=',rewind=on',
                 ram=RAM_SIZE)


def set_kind(guest: Disks, kind: str) -> None:
    guest.qmp('qom-set', path='/objects/rr0', property='save-kind', value=kind)


def prepare(folder, old_kind: str) -> None:
    """Others are there, one before and one behind 'a'."""
    (folder / 'before').mkdir()
    with start(folder / 'before') as guest:
        for tag, number in ('x', OTHER), ('a', OLD), ('y', OTHER):
            if tag != 'a' or old_kind == 'image':
                guest.fill(number)
                guest.save(tag)


def make_ready(guest: Disks, old_kind: str, kind: str) -> None:
    guest.load('x')
    set_kind(guest, 'memory')
    guest.fill(OTHER)
    guest.save('in-memory')
    if old_kind == 'memory':
        guest.fill(OLD)
        guest.save('a')
    set_kind(guest, kind)
    guest.fill(NEW)


def operate(guest: Disks, command: str) -> None:
    word, tag = command.split()
    if word.startswith('snapshot-'):
        guest.snapshot_job(word, tag, devices=guest.nodes)
    else:
        guest.hmp(command)


def load_all(workdir, tag: str) -> str:
    """By a new QEMU, which can still save; @return what is @tag's."""
    with start(workdir) as guest:
        guest.fill(LATER)
        with pytest.raises(MachineError, match='disk-only|does not exist'):
            guest.load('in-memory')
        assert guest.holds(LATER)
        try:
            guest.load(tag)
        except MachineError as error:
            assert 'does not exist' in str(error) or \
                'not made together' in str(error) or \
                'disk-only' in str(error), error
            assert guest.holds(LATER)
            outcome = 'refused'
        else:
            outcome = 'old' if guest.holds(OLD, NEW) == OLD else 'new'
        for other in 'xy':
            guest.load(other)
            assert guest.holds(OTHER)
        guest.fill(LATER)
        guest.save(tag)
        guest.fill(NEW)
        guest.load(tag)
        assert guest.holds(LATER)
    return outcome


def check_killed(workdir, command: str) -> str:
    outcome = load_all(copy_disks(workdir, workdir / 'leaking'),
                       command.split()[1])
    check_disks(workdir)
    assert load_all(workdir, command.split()[1]) == outcome
    check_disks(workdir)
    return outcome


def is_killed(guest: Disks, command: str) -> bool:
    try:
        operate(guest, command)
    except MachineError:
        assert guest.process.wait(patience(20)) == -signal.SIGKILL
        return True
    return False


@pytest.mark.parametrize('operation', OPERATIONS, ids=IDS)
@pytest.mark.long('test_each_write kills at chosen ones')
def test_random_instant(folder, rng, operation):
    old_kind, kind, command, allowed = operation
    outcomes = Outcomes(f'{old_kind} {kind} {command}')
    prepare(folder, old_kind)
    lasts = 0.0
    for n in range(TIMES + 1):
        workdir = copy_disks(folder / 'before', folder / 'killed')
        with start(workdir) as guest:
            make_ready(guest, old_kind, kind)
            before = time.monotonic()
            killer = threading.Timer(lasts * rng.random(),
                                     guest.process.kill)
            if n:
                killer.start()
            killed = is_killed(guest, command)
            if n:
                killer.join()
                guest.process.wait(patience(20))
            else:
                lasts = time.monotonic() - before
        if n:
            outcome = check_killed(workdir, command)
            outcomes.add('random instant' if killed else 'time behind its end',
                         outcome)
            assert outcome in allowed
        shutil.rmtree(workdir)
    print(outcomes)


@pytest.mark.parametrize('operation', OPERATIONS, ids=IDS)
def test_each_write(folder, monkeypatch, operation):
    old_kind, kind, command, allowed = operation
    outcomes = Outcomes(f'{old_kind} {kind} {command}')
    prepare(folder, old_kind)
    kills = Kills(folder, monkeypatch)
    for nth in range(1, MOST, STEP):
        workdir = copy_disks(folder / 'before', folder / 'killed')
        with start(workdir) as guest:
            make_ready(guest, old_kind, kind)
            kills.arm(nth)
            killed = is_killed(guest, command)
            _, what = kills.disarm()
        if killed:
            outcome = check_killed(workdir, command)
            outcomes.add(what, outcome)
            assert outcome in allowed, f'killed at the {nth}th call, a {what}'
        shutil.rmtree(workdir)
        if not killed:
            break
    print(outcomes)
    assert not killed
