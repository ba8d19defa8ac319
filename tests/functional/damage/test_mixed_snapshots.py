# SPDX-License-Identifier: GPL-2.0-or-later
"""
A save over an old snapshot that was interrupted leaves the old one in some
disks, the new one in others, or both.  A load never mixes them.
"""

# Takes: 30 s

import itertools
import shutil
from pathlib import Path

import pytest

from lib import products
from lib.kills import Disks, check_disks, copy_disks
from lib.machine import MachineError, run_quietly
from lib.shm import in_memory
from lib.vmstate import rename_snapshot, set_snapshot_id

OLD, NEW, LATER = 1, 2, 3
# before both have the name of the first
TAGS = {OLD: 'a', NEW: 'b'}
STRATEGIES = {'stock': '', 'auto': ',rewind=on'}
# the snapshots that a disk has kept
DISKS = 'disk.qcow2', 'disk1.qcow2'
NUMBER = len(DISKS)
NAMES = {(OLD,): 'old', (NEW,): 'new', (OLD, NEW): 'both'}
CASES = [*itertools.product(NAMES, repeat=NUMBER)]
IDS = ['-'.join(NAMES[kept] for kept in case) for case in CASES]
HOWS = 'hmp', 'qmp', 'loadvm'
REFUSAL = "'a' of 'disk1' was not made together with the one of 'disk0'"


@pytest.fixture(scope='module')
def both():
    """Disks with both snapshots, by TAGS."""
    with in_memory('mixed') as folder:
        with start(folder, 'stock') as guest:
            for number, tag in TAGS.items():
                guest.fill(number)
                guest.save(tag)
            guest.fill(LATER)
        yield folder


@pytest.fixture
def folder():
    with in_memory('mixed-case') as path:
        yield path


def start(workdir: Path, strategy: str, **kwargs) -> Disks:
    return Disks(workdir, NUMBER, strategy=strategy,
                 options=STRATEGIES[strategy], **kwargs)


def keep(disk: Path, kept: tuple, taken: int = 0) -> None:
    """@kept of the snapshots, and one that qemu-img has made of @taken."""
    if taken:
        run_quietly(products.QEMU_IMG, 'snapshot', '-a', TAGS[taken], disk)
    for number in {OLD, NEW} - {*kept}:
        run_quietly(products.QEMU_IMG, 'snapshot', '-d', TAGS[number], disk)
    if NEW in kept:
        rename_snapshot(disk, TAGS[NEW], TAGS[OLD])
    if taken:
        run_quietly(products.QEMU_IMG, 'snapshot', '-c', TAGS[OLD], disk)


def kept_in(both: Path, folder: Path, case: tuple, taken: int = 0) -> Path:
    """Disks of which each has kept its part of @case."""
    workdir = copy_disks(both, folder / 'disks')
    for disk, kept in zip(DISKS, case):
        keep(workdir / disk, kept, taken if disk == DISKS[-1] else 0)
    return workdir


def load(guest: Disks, how: str) -> None:
    if how == 'hmp':
        guest.load('a')
    else:
        guest.snapshot_job('snapshot-load', 'a', devices=guest.nodes)


def load_new(workdir: Path, strategy: str, how: str) -> Disks:
    """A QEMU that has been asked for the load, or MachineError."""
    if how == 'loadvm':
        return start(workdir, strategy, loadvm='a')
    guest = start(workdir, strategy)
    try:
        guest.fill(LATER)
        load(guest, how)
    except BaseException:
        guest.close()
        raise
    return guest


def go_on(guest: Disks) -> None:
    """The next save cleans up, and deleting deletes all."""
    guest.cont()
    guest.fill(LATER)
    guest.save('a')
    assert guest.tags() == [['a']] * NUMBER
    guest.fill(NEW)
    guest.load('a')
    assert guest.holds(LATER, NEW) == LATER
    guest.hmp('delvm a')
    assert guest.tags() == [[]] * NUMBER


def refused(guest: Disks, how: str) -> None:
    """The load is refused, and changes nothing."""
    guest.fill(LATER)
    with pytest.raises(MachineError, match=REFUSAL):
        load(guest, how)
    assert guest.holds(LATER)


@pytest.mark.each_pair
@pytest.mark.parametrize('strategy', STRATEGIES)
@pytest.mark.parametrize('how', HOWS)
@pytest.mark.parametrize('case', CASES, ids=IDS)
def test_load(both, folder, case, how, strategy):
    """Gives the one that all disks have; if none is, it is refused."""
    workdir = kept_in(both, folder, case)
    common = set.intersection(*map(set, case))
    if common:
        with load_new(workdir, strategy, how) as guest:
            assert guest.holds(OLD, NEW) in common
            go_on(guest)
    elif how == 'loadvm':
        with pytest.raises(MachineError, match=REFUSAL):
            load_new(workdir, strategy, how)
    else:
        with start(workdir, strategy) as guest:
            refused(guest, how)
            go_on(guest)
    check_disks(workdir)


@pytest.mark.parametrize('strategy', STRATEGIES)
@pytest.mark.parametrize('case', CASES, ids=IDS)
@pytest.mark.each_value
def test_delete(both, folder, case, strategy):
    """All of the name, as the error of a load tells the user to do."""
    workdir = kept_in(both, folder, case)
    with start(workdir, strategy) as guest:
        guest.hmp('delvm a')
        assert guest.tags() == [[]] * NUMBER
        guest.fill(LATER)
        guest.save('a')
        guest.fill(NEW)
        guest.load('a')
        assert guest.holds(LATER, NEW) == LATER
    check_disks(workdir)


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_disk_with_a_snapshot_of_qemu_img(both, folder, strategy):
    """The user has put it there: it has been made with no other."""
    workdir = kept_in(both, folder, ((NEW,), ()), taken=OLD)
    with start(workdir, strategy) as guest:
        for how in 'hmp', 'qmp':
            guest.fill(LATER)
            load(guest, how)
            # RAM, and each disk
            assert guest.has(NEW) == [True, True, False]
            assert guest.has(OLD) == [False, False, True]
        go_on(guest)


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_which_one_the_user_means_is_not_guessed(both, folder, strategy):
    """Beside one of qemu-img there is another one, which was interrupted."""
    workdir = kept_in(both, folder, ((NEW,), (OLD,)), taken=NEW)
    with start(workdir, strategy) as guest:
        for how in 'hmp', 'qmp':
            refused(guest, how)
        go_on(guest)


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_two_snapshots_have_one_id(both, folder, strategy):
    """Of a damaged image: qcow2 takes the first with the ID."""
    workdir = copy_disks(both, folder / 'case')
    for disk in DISKS:
        set_snapshot_id(workdir / disk, TAGS[NEW], '1')
    with start(workdir, strategy) as guest:
        for number in (NEW, OLD, NEW, NEW, OLD):
            guest.fill(LATER)
            guest.load(TAGS[number])
            assert guest.holds(OLD, NEW) == number


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_ids_and_names_do_not_tell(both, folder, strategy):
    """The other snapshot has the ID, and its ID is the name."""
    workdir = copy_disks(both, folder / 'case')
    for disk in DISKS:
        rename_snapshot(workdir / disk, TAGS[NEW], '1')
        set_snapshot_id(workdir / disk, '1', '1')
    with start(workdir, strategy) as guest:
        guest.fill(LATER)
        with pytest.raises(MachineError, match="snapshot has the ID '1' as well"):
            guest.load('1')
        guest.load(TAGS[OLD])
        assert guest.holds(OLD, NEW) == OLD
