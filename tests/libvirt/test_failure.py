# SPDX-License-Identifier: GPL-2.0-or-later
"""Reverts that fail, and what is possible after."""

# Takes: 25 s

from collections.abc import Callable

import pytest

from lib.content import dirty
from lib.damage import damage_device
from lib.domains import TAG, Domain, assert_runs
from lib.libvirtd import LibvirtError
from lib.vmstate import VMState

OTHER = 'other'


def remove(guest: Domain) -> None:
    """Behind the back of libvirt, which goes on to have it in its list."""
    assert guest.hmp(f'delvm {TAG}') == ''


def damage(guest: Domain) -> None:
    """A device, which no template has."""
    with VMState(guest.disk, TAG) as state:
        damage_device(state)


def spoil(guest: Domain) -> None:
    guest.replace_in_snapshot(TAG, 'id=rr0', 'id=rr0,threads=65')


# 9.0 passes on what QEMU says; 11.3 has looked before, or has a job's error
SAID = {remove: 'does not (exist|have internal snapshot)',
        # since 10.2 it says what is unknown
        damage: 'Error -22 while loading VM state|Unknown section',
        spoil: "property 'threads' of ram-reset-auto takes 0 to 64, not 65"}


@pytest.mark.each_value
@pytest.mark.parametrize('harm', SAID)
def test_failed_revert_says_why_and_leaves_the_guest_off(
        plain_guest, harm: Callable[[Domain], None]):
    harm(plain_guest)
    with pytest.raises(LibvirtError, match=SAID[harm]):
        plain_guest.revert(TAG)
    assert plain_guest.state() == 'shut off'


@pytest.mark.each_value
@pytest.mark.parametrize('harm', SAID)
def test_good_revert_after_a_failed_one(
        plain_guest, harm: Callable[[Domain], None]):
    plain_guest.snapshot(OTHER)
    harm(plain_guest)
    with pytest.raises(LibvirtError):
        plain_guest.revert(TAG)
    plain_guest.revert(OTHER)
    assert_runs(plain_guest)


@pytest.mark.each_value
def test_start_after_a_failed_revert(plain_guest):
    remove(plain_guest)
    with pytest.raises(LibvirtError):
        plain_guest.revert(TAG)
    plain_guest.start()
    dirty(plain_guest, 3)


@pytest.mark.each_value
def test_resume_after_a_load_that_failed_is_refused(plain_guest):
    plain_guest.snapshot(OTHER)
    damage(plain_guest)
    assert 'Error' in plain_guest.hmp(f'loadvm {TAG}')
    for _ in range(2):
        with pytest.raises(LibvirtError, match='a partial load of snapshot'):
            plain_guest.virsh('resume')
        assert plain_guest.state() == 'paused'
    assert plain_guest.hmp(f'loadvm {OTHER}') == ''
    plain_guest.virsh('resume')
    assert_runs(plain_guest)
