# SPDX-License-Identifier: GPL-2.0-or-later
"""
The host loses its power at the 1st, 2nd, 3rd ... write, flush and truncate of
loads and saves that follow each other: writes since the last flush of an image
have reached the disk or not, by chance (host/kill.c).  All snapshots are then
what they were, the active layer is one that there was, and the images are whole.

RAM_RESET_LONG=1 tries each call with several seeds, otherwise it is one of some.
"""

# Takes: 40 s
# Long: it cuts the power at each call; test_kill_while_saving.py kills QEMU

import shutil
import signal

import pytest

from lib.effort import LONG, rounds
from lib import products
from lib.kills import Disks, Kills, check_disks, copy_disks
from lib.machine import PAGE, MachineError, run_quietly
from lib.patience import patience
from lib.shm import in_memory

A, B, C, LATER = 1, 2, 3, 4
# what the guest writes before each command, from here on
FIRST = 16
NUMBERS = {'a': A, 'b': B, 'c': C}
STRATEGIES = {'stock': '', 'auto': ',rewind=on'}
# each after a write to all disks, every other time with a flush
COMMANDS = ('loadvm a', 'loadvm b', 'loadvm b', 'loadvm a', 'savevm c',
            'loadvm b', 'loadvm c', 'delvm c', 'loadvm a')
MOST = 2000
STEP = 1 if LONG else rounds(11, 23)
SEEDS = 3 if LONG else 1
DISKS = 2


@pytest.fixture
def folder():
    with in_memory('power') as path:
        yield path


@pytest.fixture
def kills(folder, monkeypatch) -> Kills:
    return Kills(folder, monkeypatch)


def start(workdir, strategy) -> Disks:
    return Disks(workdir, DISKS, strategy=strategy,
                 options=STRATEGIES[strategy])


def prepare(workdir) -> None:
    workdir.mkdir()
    with start(workdir, 'stock') as guest:
        for tag in 'ab':
            guest.fill(NUMBERS[tag])
            guest.save(tag)


class Run:
    """The commands, until QEMU is killed in one of them."""

    def __init__(self, guest: Disks):
        self._guest = guest
        self._number = B
        # the numbers that each page of a disk may be, with which others
        self._mixed: set[int] = set()
        self._pure: set[int] = set()

    def _step(self, command: str, number: int, flush: bool) -> None:
        self._mixed, self._pure = {self._number, number}, set()
        self._guest.fill(number)
        if flush:
            for node in self._guest.nodes:
                self._guest.hmp(f'qemu-io {node} flush')
            self._mixed = {number}
        action, tag = command.split()
        self._number = NUMBERS[tag] if action == 'loadvm' else number
        self._pure = {self._number}
        self._guest.hmp(command)

    def is_killed(self) -> bool:
        try:
            for i, command in enumerate(COMMANDS):
                self._step(command, C if command == 'savevm c' else FIRST + i,
                           i % 2 == 0)
        except MachineError:
            assert self._guest.process.wait(patience(20)) == -signal.SIGKILL
            return True
        return False

    def check_active_layers(self, workdir) -> None:
        for disk in workdir.glob('*.qcow2'):
            raw = workdir / 'raw'
            run_quietly(products.QEMU_IMG, 'convert', '-O', 'raw', disk, raw)
            data = raw.read_bytes()[:128 * 1024]
            pages = {data[at:at + PAGE] for at in range(0, len(data), PAGE)}
            found = {page[0] for page in pages}
            assert len(found) == len(pages)
            assert found <= self._mixed or \
                len(found) == 1 and found <= self._pure
            raw.unlink()


def check_snapshots(workdir, strategy) -> None:
    with start(workdir, strategy) as guest:
        tags = guest.tags()
        assert all({'a', 'b'} <= set(found) for found in tags)
        for tag in 'abcab':
            try:
                guest.load(tag)
            except MachineError as error:
                assert tag == 'c'
                assert 'does not exist' in str(error) or \
                    'not made together' in str(error)
            else:
                assert guest.holds(A, B, C) == NUMBERS[tag]
                guest.fill(LATER)


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_power_loss(folder, kills, strategy):
    prepare(folder / 'before')
    for nth in range(1, MOST, STEP):
        for seed in range(1, SEEDS + 1):
            workdir = copy_disks(folder / 'before', folder / 'killed')
            with start(workdir, strategy) as guest:
                run = Run(guest)
                kills.arm(nth, nth * SEEDS + seed)
                killed = run.is_killed()
                _, kind = kills.disarm()
            if killed:
                print(f'{nth}: {kind}')
                run.check_active_layers(workdir)
                # what has leaked is there, or is not
                leaking = copy_disks(workdir, folder / 'leaking')
                for place in leaking, workdir:
                    if place == workdir:
                        check_disks(place)
                    check_snapshots(place, strategy)
                    check_disks(place)
                shutil.rmtree(leaking)
            shutil.rmtree(workdir)
        if not killed:
            break
    assert not killed and nth > 1
