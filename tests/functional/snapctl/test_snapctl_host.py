# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's jobs, while the guest gives commands to its device all the time."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import products
from lib.content import START
from lib.effort import rounds
from lib.guests import PAGE
from lib.machine import MIB, MachineError, run_quietly
from lib.patience import Limit
from lib.snapctl_guest import A, SnapctlGuest

COMMANDS = {'save': 1, 'load': 2}       # that the guest repeats
MARK = START + MIB, 8, PAGE
HOST, GUEST = 1, 2                      # what is written there
ROUNDS = rounds(60, 20)
SAVES = 4
PATIENCE = 20.0
TAG = 'host'


@pytest.fixture(params=COMMANDS)
def command(request) -> int:
    return COMMANDS[request.param]


class Rival(SnapctlGuest):
    """Idle, until it begins to repeat a command."""

    def begin(self, command: int) -> None:
        self.ask('tag', *MARK, GUEST)
        self.tell('snap-repeat', A, command)

    def is_idle(self) -> bool:
        try:
            self.sync()
        except MachineError:
            return False
        return True

    def goes_on(self) -> bool:
        """It repeats its command."""
        steps = self.region_word('steps')
        limit = Limit(PATIENCE)
        while self.region_word('steps') <= steps + 1:
            if limit.over():
                return False
            time.sleep(0.001)
        return True


@contextlib.contextmanager
def rival(workdir: Path, accel: str, served: str, command: int
          ) -> Iterator[Rival]:
    with Rival(workdir, accel=accel, strategy=served) as guest:
        guest.ask('tag', *MARK, HOST)
        guest.save(TAG)
        guest.TIMEOUT = PATIENCE
        guest.begin(command)
        assert guest.goes_on()
        yield guest
        assert guest.info()['failures'] == 0
    run_quietly(products.QEMU_IMG, 'check', guest.disk)


def test_no_escape_from_a_load(tmp_path, fast_accel, served, command):
    """
    A load of the host's that succeeds ends whatever the guest was doing, and
    the guest's slot never has what the host's snapshot has.
    """
    with rival(tmp_path, fast_accel, served, command) as guest:
        for n in range(ROUNDS):
            guest.snapshot_job('snapshot-load', TAG)
            assert guest.is_idle(), f'the guest has escaped from load {n}'
            guest.ask('check-tag', *MARK, HOST)
            if n % 10 == 9 and 'a ' in guest.hmp('info snapshots'):
                guest.load('a')
                assert guest.goes_on(), 'the slot has the state of the host'
                guest.snapshot_job('snapshot-load', TAG)
                guest.sync()
            guest.begin(command)


def test_saves(tmp_path, fast_accel, served, command):
    """A snapshot that the host saves meanwhile is the guest at one instant."""
    with rival(tmp_path, fast_accel, served, command) as guest:
        marked = mark(guest)
        for n in range(SAVES):
            guest.snapshot_job('snapshot-save', f'save{n}')
            assert guest.goes_on()
        for n in range(SAVES):
            guest.snapshot_job('snapshot-load', TAG)
            guest.sync()
            guest.ask('check-tag', *MARK, HOST)
            guest.load(f'save{n}')
            assert mark(guest) == marked
            assert guest.goes_on()


def mark(guest: Rival) -> bytes:
    guest.stop()
    address, pages, _ = MARK
    found = guest.ram_image()[address:address + pages * PAGE]
    guest.cont()
    return found


@pytest.mark.each_pair
@pytest.mark.parametrize('tag', ('a', 'other'))
def test_deletes(tmp_path, fast_accel, served, command, tag):
    """The host deletes the slot that the guest uses, or another one."""
    with rival(tmp_path, fast_accel, served, command) as guest:
        for _ in range(SAVES):
            if tag == 'other':
                guest.save(tag)
            guest.snapshot_job('snapshot-delete', tag)
        if tag == 'other' or command == COMMANDS['save']:
            assert guest.goes_on()
        guest.load(TAG)
        guest.sync()
        guest.ask('check-tag', *MARK, HOST)
