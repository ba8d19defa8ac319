# SPDX-License-Identifier: GPL-2.0-or-later
"""save-kind= and memory-limit= of the snapctl device."""

# Takes: 15 s

import json

import pytest

from lib import products
from lib.content import START
from lib.machine import MIB, run_quietly
from lib.snapctl_guest import (A, B, FAILED, HOST, LIMIT, LOAD, LOADED, SAVE,
                               SAVED, SnapctlGuest)

IN_MEMORY = ',save-kind=memory'
# Room for 3 MiB that differ from the baseline, and not for 5
LIMITED = IN_MEMORY + ',memory-limit=4M'


def sizes(guest: SnapctlGuest) -> dict[str, int]:
    """Name and bytes of the VM state of each snapshot in the image."""
    info = json.loads(run_quietly(products.QEMU_IMG, 'info', '-U',
                                  '--output=json', guest.disk))
    return {s['name']: s['vm-state-size'] for s in info.get('snapshots', ())}


def kinds(guest: SnapctlGuest) -> dict[str, str]:
    known = guest.qmp('query-ram-reset')['rewind']['snapshots']
    return {s['tag']: s['kind'] for s in known}


def pages(guest: SnapctlGuest) -> int:
    """Bytes that all known snapshots have beside the baseline."""
    return guest.qmp('query-ram-reset')['rewind']['pages']


def fill(guest: SnapctlGuest, mib: int, seed: int) -> None:
    guest.ask('fill', START, mib * MIB, seed)


def check(guest: SnapctlGuest, mib: int, seed: int) -> None:
    guest.ask('check-fill', START, mib * MIB, seed)


def test_image_by_default(tmp_path, accel):
    """Whatever the object has: the host saves in memory, the guest does not."""
    with SnapctlGuest(tmp_path, accel=accel, rewind_options=IN_MEMORY) as guest:
        fill(guest, 1, 1)
        assert guest.snap(A, SAVE) == (SAVED, 0, 0)
        guest.save('host')
        found = sizes(guest)
        assert found['a'] > MIB and found['host'] == 0
        assert kinds(guest) == {'a': 'image', 'host': 'memory'}
        info = guest.info()
        assert (info['save-kind'], info['memory']) == ('image', 0)
        assert 'saves go to the image\r\n' in guest.hmp('info snapctl') + '\r\n'
        fill(guest, 1, 2)
        assert guest.snap(A, LOAD) == (LOADED, 0, 1)
        check(guest, 1, 1)


def test_in_memory(tmp_path, accel):
    """The kind is the guest's saves' alone, and may change."""
    with SnapctlGuest(tmp_path, accel=accel, options=IN_MEMORY) as guest:
        fill(guest, 1, 1)
        assert guest.snap(A, SAVE) == (SAVED, 0, 0)
        fill(guest, 1, 2)
        assert guest.snap(B, SAVE) == (SAVED, 0, 0)
        guest.save('host')
        assert kinds(guest) == {'a': 'memory', 'b': 'memory', 'host': 'image'}
        assert sizes(guest)['a'] == sizes(guest)['b'] == 0
        assert MIB < guest.info()['memory'] < 3 * MIB
        assert f'saves go to memory, {guest.info()["memory"] // 1024} KiB in ' \
            'memory' in guest.hmp('info snapctl')
        generation = 0
        for slot in A, B, A:
            generation += 1
            assert guest.snap(slot, LOAD) == (LOADED, 0, generation)
            assert guest.last_load()['rewound']
            check(guest, 1, 1 if slot == A else 2)
        guest.qmp('qom-set', path='/machine/peripheral/snap0',
                  property='save-kind', value='image')
        assert guest.snap(A, SAVE)[0] == SAVED
        assert kinds(guest)['a'] == 'image'


def test_needs_rewind(tmp_path, fast_accel):
    with SnapctlGuest(tmp_path, accel=fast_accel, strategy='stock',
                      options=IN_MEMORY) as guest:
        assert guest.snap(A, SAVE)[:2] == (FAILED, HOST)
        assert 'rewind=on' in guest.info()['last']['error']
        assert not sizes(guest)
        guest.qmp('qom-set', path='/machine/peripheral/snap0',
                  property='save-kind', value='image')
        assert guest.snap(A, SAVE)[:2] == (SAVED, 0)


def assert_over(guest: SnapctlGuest, slot: int) -> None:
    """A save fails because of the limit, and changes nothing."""
    before, info = sizes(guest), guest.info()
    had = pages(guest)
    assert guest.snap(slot, SAVE)[:2] == (FAILED, LIMIT)
    after = guest.info()
    assert 'the limit is 4194304' in after['last']['error']
    assert after['failures'] == info['failures'] + 1
    assert after['memory'] == info['memory'] <= after['memory-limit']
    assert sizes(guest) == before
    # QEMU knows how RAM differs, until the next load
    assert guest.snap(A, LOAD)[0] == LOADED
    assert guest.last_load()['rewound']
    assert pages(guest) == had


def test_limit(tmp_path, accel):
    with SnapctlGuest(tmp_path, accel=accel, options=LIMITED) as guest:
        guest.save('host')
        fill(guest, 3, 1)
        assert guest.snap(A, SAVE)[0] == SAVED
        assert guest.info()['memory'] > 3 * MIB
        fill(guest, 5, 2)
        assert_over(guest, B)
        check(guest, 3, 1)
        fill(guest, 5, 3)
        assert_over(guest, A)           # the old one is still there
        check(guest, 3, 1)
        assert guest.status() == 'running'

        # the overwritten one does not count, and pages in common count once
        for seed in 4, 5, 6:
            fill(guest, 3, seed)
            assert guest.snap(A, SAVE)[0] == SAVED
        assert guest.snap(B, SAVE)[0] == SAVED
        assert 3 * MIB < guest.info()['memory'] < 4 * MIB
        assert pages(guest) < 4 * MIB
        fill(guest, 3, 7)
        assert_over(guest, B)
        check(guest, 3, 6)

        # the host's own snapshots do not count, and have no such limit
        guest.qmp('qom-set', path='/objects/rr0', property='save-kind',
                  value='memory')
        fill(guest, 5, 8)
        guest.save('other')
        assert guest.info()['memory'] < 4 * MIB
        guest.hmp('delvm other')

        # memory comes back with a deletion
        guest.load('host')
        for slot in 'a', 'b':
            guest.hmp(f'delvm {slot}')
        assert guest.info()['memory'] == 0
        assert pages(guest) < MIB
        fill(guest, 3, 9)
        assert guest.snap(B, SAVE)[0] == SAVED
        fill(guest, 3, 1)
        assert guest.snap(B, LOAD)[0] == LOADED
        check(guest, 3, 9)


def test_no_limit(tmp_path, fast_accel):
    """0 is none; rewind-limit= of the object still holds."""
    with SnapctlGuest(tmp_path, accel=fast_accel, options=IN_MEMORY,
                      rewind_options=',rewind-limit=8M') as guest:
        assert guest.snap(A, SAVE)[0] == SAVED
        fill(guest, 5, 1)
        assert guest.snap(B, SAVE)[0] == SAVED
        fill(guest, 5, 2)
        assert guest.snap(B, SAVE)[:2] == (FAILED, HOST)
        assert 'rewind-limit' in guest.info()['last']['error']
        assert guest.snap(B, LOAD)[0] == LOADED
        check(guest, 5, 1)


@pytest.mark.parametrize('by', ('hmp', 'qmp'))
def test_a_failed_save_is_over(tmp_path, fast_accel, by):
    """Its kind and limit do not hold for the host's next save."""
    with SnapctlGuest(tmp_path, accel=fast_accel, options=LIMITED) as guest:
        guest.save('host')
        fill(guest, 5, 1)
        assert guest.snap(A, SAVE)[:2] == (FAILED, LIMIT)
        if by == 'hmp':
            guest.save('a')
        else:
            guest.snapshot_job('snapshot-save', 'a')
        assert kinds(guest)['a'] == 'image'
        assert sizes(guest)['a'] > MIB
