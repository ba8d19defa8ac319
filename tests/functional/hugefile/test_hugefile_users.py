# SPDX-License-Identifier: GPL-2.0-or-later
"""Others who use the file of a ram-reset-hugefile, in between or meanwhile."""

import re

import pytest

from lib.hugefile import (HUGE, KEPT, UNLINKS, Still, check_all_cleared,
                          clean_end, mark_by_mapping, refusal)
from lib.hugepages import mounted


@pytest.mark.parametrize('who', ('stock', 'mmap'))
def test_mapped_in_between(tmp_path, ramfile, who):
    clean_end(tmp_path, ramfile)
    if who == 'mmap':
        mark_by_mapping(ramfile, 1)
    else:
        with Still(tmp_path / 'stock', ramfile, strategy='stock') as guest:
            guest.fill()
    with Still(tmp_path, ramfile, options=KEPT) as guest:
        check_all_cleared(guest, 'another process has mapped the file')


def test_mapped_meanwhile(tmp_path, ramfile):
    with Still(tmp_path, ramfile, options=KEPT, ram=8 * HUGE) as guest:
        guest.save('s')
        mark_by_mapping(ramfile, 5)
        guest.load('s')
        assert guest.is_clean()
        mark_by_mapping(ramfile, 6)
    assert re.search(f"'rr0': '{ramfile}' is left as it is", guest.log())
    with Still(tmp_path, ramfile, options=KEPT, ram=8 * HUGE) as guest:
        assert guest.info()['dirty-pages'] == 8 and guest.is_clean()


@pytest.mark.parametrize('options', UNLINKS)
@pytest.mark.parametrize('who', ('same state', 'other state', 'stock', 'open'))
def test_in_use(tmp_path, ramfile, options, who):
    """Refused whatever is to become of the file; the user notices nothing."""
    if who == 'open':
        clean_end(tmp_path, ramfile)
        with open(ramfile, 'rb'):
            said = refusal(tmp_path, ramfile, options=options)
        assert 'another process has it open' in said and str(ramfile) in said
        return
    with Still(tmp_path, ramfile, options=KEPT,
               strategy='stock' if who == 'stock' else 'hugefile') as guest:
        guest.fill()
        before = guest.ram_image()
        state = guest.state if who == 'same state' else tmp_path / 'other'
        said = refusal(tmp_path / '2', ramfile, options=options, state=state)
        assert "ram-reset-hugefile 'rr0'" in said
        if who == 'same state':
            assert f'process {guest.process.pid} uses it' in said
            assert str(state) in said
        else:
            assert 'another process' in said and str(ramfile) in said
        assert guest.ram_image() == before and ramfile.exists()
        if who != 'stock':
            guest.save('s')
            guest.load('s')
    if who == 'other state':
        # what the second has noted there is no proof of anything
        with Still(tmp_path, ramfile, options=KEPT, state=state) as guest:
            check_all_cleared(guest, 'no record|another file|cleanly')


def test_noatime(tmp_path, huge_mount):
    folder = tmp_path / 'noatime'
    with mounted(folder, 'pagesize=2M,noatime'):
        for dirty in (0, 2, 2):
            with Still(tmp_path, folder / 'ram', options=KEPT) as guest:
                assert re.search(f"warning: .*'rr0'.*{folder}.*noatime",
                                 guest.log())
                assert guest.info()['dirty-pages'] == dirty
                assert guest.is_clean()
                guest.fill()
                guest.save('s')
                guest.load('s')
