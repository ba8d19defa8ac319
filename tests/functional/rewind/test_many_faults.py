# SPDX-License-Identifier: GPL-2.0-or-later
"""
Each write of a save, a load or a deletion of a snapshot of either kind fails,
among others of both kinds: QEMU says so, all other snapshots load right on RAM
and disk, and so does the old one unless the new one is there.

RAM_RESET_LONG=1 has each write fail, otherwise it is one of some.
"""

# Takes: 15 s

import errno
from collections import Counter

import pytest

from lib import products
from lib.effort import LONG, rounds
from lib.faults import FROM_THEN_ON, ONCE, Faults, memset
from lib.kills import Disks
from lib.machine import MIB, PAGE, MachineError, run_quietly
from lib.shm import in_memory

RAM_SIZE = 8 * MIB
OTHERS = {'i1': 'image', 'm1': 'memory', 'i2': 'image', 'm2': 'memory'}
OPERATIONS = (
    ('image', 'image', 'savevm'), ('image', 'memory', 'savevm'),
    ('memory', 'image', 'savevm'), ('memory', 'memory', 'savevm'),
    ('', 'image', 'savevm'), ('', 'memory', 'savevm'),
    ('image', 'image', 'loadvm'), ('memory', 'image', 'loadvm'),
    ('image', 'image', 'delvm'), ('memory', 'memory', 'delvm'),
)
KINDS = 'disk_write', 'disk_other'
MOST, STEP = 500, 1 if LONG else rounds(4, 9)


class Subject:
    """A machine with snapshots, and the bytes of each of them."""

    def __init__(self, guest: Disks):
        self.guest = guest
        self._saved: dict[str, tuple[bytes, int]] = {}
        self._number = 0
        self._kind = ''
        for tag, kind in OTHERS.items():
            self.change()
            self.save(tag, kind)

    def change(self) -> None:
        """To a state that no snapshot has."""
        self._number = self._number % 250 + 1
        self.guest.fill(self._number)
        for page in range(self._number % 7, 200, 7):
            memset(self.guest, 5 * MIB + page * PAGE, PAGE, self._number)

    def now(self) -> tuple[bytes, int]:
        return self.guest.ram_image(), self._number

    def set_kind(self, kind: str) -> None:
        if kind != self._kind:
            self.guest.qmp('qom-set', path='/objects/rr0',
                           property='save-kind', value=kind)
            self._kind = kind

    def save(self, tag: str, kind: str) -> None:
        self.set_kind(kind)
        self.guest.save(tag)
        self._saved[tag] = self.now()

    def check(self, tag: str, *states: tuple[bytes, int]) -> int:
        """Load it; which of the states it is, that of the save by default."""
        self.change()
        self.guest.load(tag)
        assert self.guest.tags()[0].count(tag) >= 1
        ram = self.guest.ram_image()
        found = [i for i, state in enumerate(states or (self._saved[tag],))
                 if state[0] == ram and
                 self.guest.disk_io(self.guest.nodes[0],
                                    f'read -P {state[1]} 0 128k')]
        assert found, f'{tag} is what it never was'
        return found[0]

    def check_others(self) -> None:
        for tag in OTHERS:
            self.check(tag)

    def check_known(self) -> None:
        """QEMU knows none that the image does not have."""
        known = [s['tag'] for s in
                 self.guest.qmp('query-ram-reset')['rewind']['snapshots']]
        assert not Counter(known) - Counter(self.guest.tags()[0])

    def begin(self, old_kind: str, kind: str) -> None:
        if 'a' in self.guest.tags()[0]:
            self.guest.hmp('delvm a')
        self.change()
        if old_kind:
            self.save('a', old_kind)
        self.set_kind(kind)
        self.change()

    def check_after(self, command: str, failed: bool, before: tuple) -> str:
        """What the tag is then."""
        there = 'a' in self.guest.tags()[0]
        self.check_known()
        if command == 'savevm':
            states = [s for s in (before, self._saved.get('a')) if s]
            if not failed:
                states = [before]
            if not there and len(states) == 2:
                # qcow2 forgets it, cannot say so, and the image still has it
                assert failed and 'a' in run_quietly(
                    products.QEMU_IMG, 'snapshot', '-U', '-l',
                    self.guest.disk).split()
            assert there or failed
            return ('new', 'old')[self.check('a', *states)] if there else 'none'
        if command == 'delvm':
            # qcow2 forgets it first, and may fail to free its clusters
            assert failed or not there
        if there:
            self.check('a')
        return 'old' if there else 'none'


@pytest.mark.parametrize('mode', (ONCE, FROM_THEN_ON),
                         ids=('once', 'from-then-on'))
@pytest.mark.parametrize('error', (errno.ENOSPC, errno.EIO),
                         ids=errno.errorcode.get)
@pytest.mark.parametrize('operation', OPERATIONS, ids='-'.join)
@pytest.mark.each_value
def test_each_write(monkeypatch, operation, error, mode):
    with in_memory('many-faults') as folder:
        faults = Faults(folder, monkeypatch)
        with Disks(folder, 1, strategy='auto', ram=RAM_SIZE, memory='shared',
                   options=',rewind=on,verify=on') as guest:
            faults.watch_disk(guest.disk)
            count_failures(Subject(guest), faults, operation, error, mode)


def count_failures(subject: Subject, faults: Faults, operation: tuple,
                   error: int, mode: int) -> None:
    old_kind, kind, command = operation
    injected = refused = 0
    for failing in KINDS:
        for nth in range(1, MOST, STEP):
            subject.begin(old_kind, kind)
            before = subject.now()
            faults.arm(failing, nth, error, mode)
            try:
                subject.guest.hmp(f'{command} a')
                said = ''
            except MachineError as e:
                said = str(e)
            fired, _ = faults.disarm()
            assert subject.guest.process.poll() is None, subject.guest.log()
            assert fired or not said, said
            outcome = subject.check_after(command, bool(said), before)
            subject.check_others()
            injected += bool(fired)
            refused += bool(said)
            if said:
                print(f'{failing} {nth}: {outcome}: {said}')
            if not fired:
                break
        assert not fired
    print(f'{old_kind} {kind} {command}: {injected} failed, {refused} refused')
