# SPDX-License-Identifier: GPL-2.0-or-later
"""virsh snapshot-revert, which starts a new QEMU each time."""

# Takes: 30 s

import pytest

from lib.content import check_state, dirty
from lib.domains import TAG, assert_runs


@pytest.mark.each_value
def test_revert_of_a_running_guest_brings_memory_back(guest):
    pid = guest.pid()
    dirty(guest, 2)
    guest.revert(TAG)
    assert guest.pid() != pid
    assert_runs(guest)


@pytest.mark.any_value
def test_revert_of_a_destroyed_guest_brings_memory_back(guest):
    dirty(guest, 2)
    guest.destroy()
    guest.revert(TAG)
    assert_runs(guest)


@pytest.mark.each_value
def test_reverts_and_loads_take_turns(plain_guest):
    for step in (plain_guest.load_by_hmp, plain_guest.revert,
                 plain_guest.load_by_qmp, plain_guest.revert,
                 plain_guest.revert):
        dirty(plain_guest, 2)
        step(TAG)
        check_state(plain_guest)
    assert_runs(plain_guest)


@pytest.mark.any_value
def test_start_after_destroy_boots_and_can_be_reverted(plain_guest):
    dirty(plain_guest, 2)
    plain_guest.destroy()
    plain_guest.start()
    dirty(plain_guest, 3)
    plain_guest.revert(TAG)
    assert_runs(plain_guest)


@pytest.mark.each_value
def test_query_tells_what_a_revert_has_done(plain_guest):
    plain_guest.revert(TAG)
    info = plain_guest.qmp('query-ram-reset')
    assert (info['loads'], info['failed-loads'], info['fallbacks']) == \
        (1, 0, 0)
    last = info['last-load']
    assert last['tag'] == TAG
    if 'template' not in info:
        return
    assert last['template'] == info['template']['file']
    block, = (b for b in last['blocks'] if b['name'] == 'pc.ram')
    assert block['strategy'] == 'template'
    assert block['mapped-pages'] > 0
