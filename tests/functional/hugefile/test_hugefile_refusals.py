# SPDX-License-Identifier: GPL-2.0-or-later
"""Files, sizes and memory backends that a ram-reset-hugefile refuses."""

import os
import re

import pytest

from lib.hugefile import (BACKEND, HUGE, KEPT, MARK, UNLINKS, Still,
                          check_all_cleared, clean_end, killed, refusal)
from lib.hugepages import mounted
from lib.machine import MIB, RAM, MachineError


def test_other_size(tmp_path, ramfile):
    killed(tmp_path, ramfile)
    for ram in (4 * HUGE, HUGE):
        said = refusal(tmp_path, ramfile, options=KEPT, ram=ram)
        for word in (str(ramfile), f'{2 * HUGE} bytes', str(ram), f"'{RAM}'",
                     'unlink=existing'):
            assert word in said
    assert MARK in ramfile.read_bytes()
    with Still(tmp_path, ramfile, ram=4 * HUGE) as guest:
        assert guest.is_clean()
    killed(tmp_path, ramfile, ram=4 * HUGE)
    with Still(tmp_path, ramfile, ram=4 * HUGE, options=KEPT) as guest:
        check_all_cleared(guest, 'did not exit cleanly')


MISFITS = {
    'share': (BACKEND + ',share=off', {}, 'share=off', 'use share=on'),
    'reserve': (BACKEND + ',reserve=off', {}, 'reserve=off', 'use reserve=on'),
    'readonly': (BACKEND + ',readonly=on', {}, 'readonly=on'),
    'offset': (BACKEND + ',offset=2M', {}, 'offset='),
    'memfd': (f'memory-backend-memfd,id={RAM},size={{ram}},hugetlb=on', {},
              'use memory-backend-file'),
    'incoming': (BACKEND, {'args': ('-incoming', 'defer')}, '-incoming'),
    'no memdev': (BACKEND, {'memdev': ''}, "'memdev' is missing"),
    'other memdev': (BACKEND, {'memdev': ',memdev=mem9'}, "'mem9'",
                     'does not exist'),
    'odd size': (BACKEND, {'ram': HUGE + MIB}, '2048 KiB', f"'{RAM}'"),
}


@pytest.mark.parametrize('misfit', MISFITS)
def test_misfits(tmp_path, ramfile, misfit):
    backend, kwargs, *words = MISFITS[misfit]
    said = refusal(tmp_path, ramfile, backend=backend, options=KEPT, **kwargs)
    for word in ("ram-reset-hugefile 'rr0'", *words):
        assert word in said
    if 'memdev' not in misfit:
        assert f"'{RAM}'" in said and not ramfile.exists()


def test_backend_that_cannot_be_mapped(tmp_path, ramfile):
    """The backend fails after its file has been taken, which is let go of."""
    align = BACKEND + ',align=3'
    said = refusal(tmp_path, ramfile, backend=align)
    assert '0x3' in said and not ramfile.exists()
    with Still(tmp_path, tmp_path / 'ram1', strategy='stock',
               backend=f'memory-backend-ram,id={RAM},size={{ram}}') as guest:
        guest.qmp('object-add', **{'qom-type': 'ram-reset-hugefile'}, id='rr0',
                  memdev='mem1', state=str(tmp_path / 'state'))
        backend = {'qom-type': 'memory-backend-file', 'id': 'mem1',
                   'size': HUGE, 'share': True, 'mem-path': str(ramfile)}
        with pytest.raises(MachineError, match='0x3'):
            guest.qmp('object-add', **backend, align=3)
        assert not ramfile.exists()
        assert str(tmp_path / 'state') not in guest.open_files()
        guest.qmp('object-add', **backend)
        assert str(tmp_path / 'state') in guest.open_files()


def test_wrong_kinds_of_file(tmp_path, ramfile, huge_mount):
    plain, link, fifo = (tmp_path / n for n in ('plain', 'link', 'fifo'))
    plain.write_bytes(b'mine' * MIB)
    os.mkfifo(fifo)
    killed(tmp_path, ramfile)
    link.symlink_to(ramfile)
    for name, why in ((plain, 'not a file on hugetlbfs'),
                      (tmp_path / 'new', 'not a file on hugetlbfs'),
                      (fifo, 'not a file on hugetlbfs'),
                      (link, 'symbolic link'), (huge_mount, 'is a directory'),
                      (tmp_path / 'nosuch' / 'ram', 'cannot be created')):
        for options in (KEPT, ',unlink=existing'):
            said = refusal(tmp_path, name, options=options)
            assert f"ram-reset-hugefile 'rr0': cannot use '{name}'" in said
            assert why in said
    assert plain.read_bytes() == b'mine' * MIB
    assert not (tmp_path / 'new').exists()
    assert MARK in ramfile.read_bytes() and link.is_symlink()


@pytest.mark.parametrize('options', UNLINKS)
def test_pool_exhausted(tmp_path, huge_mount, options):
    """The mount's limit does for the host's: nobody else is to go short."""
    folder = tmp_path / 'small'
    with mounted(folder, 'pagesize=2M,size=6M'):
        clean_end(tmp_path, folder / 'ram')
        os.truncate(folder / 'ram', 4 * HUGE)
        said = refusal(tmp_path, folder / 'ram', ram=4 * HUGE, options=options)
        has = 2 if options == KEPT else 0
        assert (folder / 'ram').exists() == (options == KEPT)
        assert re.search('4 hugepages of 2048 KiB are needed, the file has '
                         rf'{has} and the host \d+ to spare', said)
        assert 'vm.nr_hugepages' in said and f"'{folder}/ram'" in said
        with Still(tmp_path, folder / 'ram', ram=3 * HUGE) as guest:
            assert guest.is_clean()


def test_made_too_late_or_deleted_too_early(tmp_path, ramfile):
    properties = {'qom-type': 'ram-reset-hugefile', 'memdev': RAM}
    with Still(tmp_path, ramfile, strategy='stock') as guest:
        with pytest.raises(MachineError, match=f"'rr1'.*'{RAM}' was created "
                           'without it; create .* first'):
            guest.qmp('object-add', id='rr1', **properties)
    with Still(tmp_path, ramfile) as guest:
        with pytest.raises(MachineError, match="'rr0' is in use"):
            guest.qmp('object-del', id='rr0')
        with pytest.raises(MachineError, match="'rr0' and 'rr1' both cover"):
            guest.qmp('object-add', id='rr1', **properties)
        assert guest.info()['file'] == str(ramfile)
