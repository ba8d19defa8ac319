# SPDX-License-Identifier: GPL-2.0-or-later
"""
A Linux guest writes with fsync, on virtio-blk, virtio-scsi and AHCI, to disks
and file systems, while it is saved and loaded at random.  After each load it
compares its disks with its RAM (guest/ledger.c); file systems and images are
sound.

RAM_RESET_LOADS=N has each of the tests load N times: docs/system/
ram-reset-trust.rst has the counts for 1,000.
"""

# Takes: 40 s
# Long: a guest that writes meets more, the longer it does

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import products
from lib.effort import rounds
from lib.io.guest import BOOTED, WrongContent, boot, copy_disks
from lib.io.ledger import CACHES, Ledger, Traveller
from lib.machine import run_quietly

LOADS = int(os.environ.get('RAM_RESET_LOADS') or rounds(10, 5))
CHECK_EVERY = 20
MANY = 60           # rounds in which each file is likely to be written to
SHIFTS = range(len(CACHES))


@pytest.fixture(scope='module')
def booted(tmp_path_factory) -> Path:
    return boot(Ledger, tmp_path_factory)


@pytest.fixture
def start(tmp_path, booted) -> Callable[..., Ledger]:
    copy_disks(booted, tmp_path)

    def start_guest(options: str, loadvm: str = BOOTED, **kwargs) -> Ledger:
        return Ledger(tmp_path, strategy='auto', options=options, loadvm=loadvm,
                      **kwargs)
    return start_guest


def check_images(workdir: Path) -> None:
    images = list(workdir.glob('*.qcow2'))
    assert len(images) == len(Ledger.disks) + 1
    for image in images:
        run_quietly(products.QEMU_IMG, 'check', '-q', image)


@pytest.mark.each_value
@pytest.mark.parametrize('kind', ('image', 'memory'))
@pytest.mark.parametrize('shift', SHIFTS)
def test_saved_and_loaded(start, tmp_path, rng, kind, shift):
    with start(f',rewind=on,save-kind={kind}', shift=shift) as guest:
        traveller = Traveller(guest, rng)
        traveller.travel(LOADS, CHECK_EVERY)
        known = traveller.known()
    print(f'save-kind={kind}, caches from {CACHES[shift]} on: {traveller}')
    check_images(tmp_path)
    if kind == 'memory':
        return
    # a new QEMU finds the same
    for tag in known:
        with start('', tag, shift=shift) as guest:
            guest.compare_disks()
            guest.check_file_systems()
    check_images(tmp_path)


def write_more(guest: Ledger, name: str) -> None:
    end = guest.churned()[name][0] + MANY
    guest.wait_for(lambda: {name: done for done in [guest.churned()[name][0]]
                            if done < end})


def test_disk_that_does_not_go_back(start, rng):
    """The guest finds it: the test above can fail."""
    disks = list(Ledger.disks)
    with start(',rewind=on') as guest:
        for name in rng.sample(disks, rounds(len(disks), 2)):
            others = [other for other in disks if other != name]
            # RAM has all names of a folder with few files, so that their
            # content on the disk is never read
            write_more(guest, name)
            guest.snapshot_job('snapshot-save', name, others[0], disks)
            write_more(guest, name)
            guest.snapshot_job('snapshot-load', name, others[0], others)
            with pytest.raises(WrongContent, match=name):
                guest.compare_disks()
            guest.snapshot_job('snapshot-load', name, others[0], disks)
            guest.compare_disks()
