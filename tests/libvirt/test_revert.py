# SPDX-License-Identifier: GPL-2.0-or-later
"""virsh snapshot-revert, which starts a new QEMU each time."""

from collections.abc import Callable

import pytest

from content import check_state, dirty
from domains import TAG, Domain
from guests import PAGE
from libvirtd import LibvirtError
from vmstate import SECTION_START, VMState

GARBAGE = b'\xff' * (2 * PAGE + 64)  # reaches a record's header, wherever
OTHER = 'other'


def assert_runs(guest: Domain) -> None:
    assert guest.state() == 'running'
    check_state(guest)
    dirty(guest, 9)


def test_revert_of_a_running_guest_brings_memory_back(guest):
    pid = guest.pid()
    dirty(guest, 2)
    guest.revert(TAG)
    assert guest.pid() != pid
    assert_runs(guest)


def test_revert_of_a_destroyed_guest_brings_memory_back(guest):
    dirty(guest, 2)
    guest.destroy()
    guest.revert(TAG)
    assert_runs(guest)


def test_reverts_and_loads_take_turns(plain_guest):
    for step in (plain_guest.load_by_hmp, plain_guest.revert,
                 plain_guest.load_by_qmp, plain_guest.revert,
                 plain_guest.revert):
        dirty(plain_guest, 2)
        step(TAG)
        check_state(plain_guest)
    assert_runs(plain_guest)


def test_start_after_destroy_boots_and_can_be_reverted(plain_guest):
    dirty(plain_guest, 2)
    plain_guest.destroy()
    plain_guest.start()
    dirty(plain_guest, 3)
    plain_guest.revert(TAG)
    assert_runs(plain_guest)


def test_query_tells_what_a_revert_has_done(plain_guest):
    plain_guest.revert(TAG)
    info = plain_guest.qmp('query-ram-reset')
    assert (info['loads'], info['failed-loads'], info['fallbacks']) == \
        (1, 0, 0)
    assert info['last-load']['tag'] == TAG


def remove(guest: Domain) -> None:
    """Behind the back of libvirt, which goes on to have it in its list."""
    assert guest.hmp(f'delvm {TAG}') == ''


def damage(guest: Domain) -> None:
    with VMState(guest.disk, TAG) as state:
        state.write(state.section(SECTION_START, 'ram') + 4 * PAGE, GARBAGE)


def spoil(guest: Domain) -> None:
    guest.replace_in_snapshot(TAG, 'id=rr0', 'id=rr0,threads=65')


# 9.0 passes on what QEMU says; 11.3 has looked before, or has a job's error
SAID = {remove: 'does not (exist|have internal snapshot)',
        damage: 'Error -22 while loading VM state',
        spoil: "property 'threads' of ram-reset-auto takes 0 to 64, not 65"}


@pytest.mark.parametrize('harm', SAID)
def test_failed_revert_says_why_and_leaves_the_guest_off(
        plain_guest, harm: Callable[[Domain], None]):
    harm(plain_guest)
    with pytest.raises(LibvirtError, match=SAID[harm]):
        plain_guest.revert(TAG)
    assert plain_guest.state() == 'shut off'


@pytest.mark.parametrize('harm', SAID)
def test_good_revert_after_a_failed_one(
        plain_guest, harm: Callable[[Domain], None]):
    plain_guest.snapshot(OTHER)
    harm(plain_guest)
    with pytest.raises(LibvirtError):
        plain_guest.revert(TAG)
    plain_guest.revert(OTHER)
    assert_runs(plain_guest)


def test_start_after_a_failed_revert(plain_guest):
    remove(plain_guest)
    with pytest.raises(LibvirtError):
        plain_guest.revert(TAG)
    plain_guest.start()
    dirty(plain_guest, 3)
