# SPDX-License-Identifier: GPL-2.0-or-later
"""
Hugepages that are kept from run to run never show the guest what an earlier
one has left in them, whatever has happened to the file, its record or QEMU.

Reading the file does not disturb QEMU; mapping it does, on purpose: QEMU takes
note that somebody else had it.
"""

import mmap
import os
import re
import signal
from pathlib import Path

import pytest

from lib.guests import Ring3
from lib.hugefile import (BACKEND, HUGE, KEPT, LEFT_DIRTY, MARK, HugeRing3,
                          Still, check_all_cleared, killed, refusal)
from lib.hugepages import mounted
from lib.machine import MIB, RAM, MachineError

UNLINKS = KEPT, ',unlink=existing', ',unlink=always'


def mark_by_mapping(path: Path, page: int) -> None:
    with open(path, 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:
        m[page * HUGE:(page + 1) * HUGE] = bytes((MARK,)) * HUGE


# What becomes of the file

@pytest.mark.parametrize('unlink', ('existing', 'always'))
def test_left_over_is_removed(tmp_path, ramfile, unlink):
    killed(tmp_path, ramfile)
    inode = ramfile.stat().st_ino
    with Still(tmp_path, ramfile, options=f',unlink={unlink}') as guest:
        info = guest.info()
        assert guest.is_clean()
        assert info['reused-pages'] == info['dirty-pages'] == 0
        assert info['unlink'] == unlink and info['file'] == str(ramfile)
        assert 'new' in info['record'] and not guest.log()
        assert ramfile.exists() == (unlink == 'existing')
        guest.fill()
        assert guest.view()[MIB:] == bytes((MARK,)) * (guest.ram - MIB)
        assert unlink == 'always' or ramfile.stat().st_ino != inode
        guest.kill()
    assert ramfile.exists() == (unlink == 'existing')


@pytest.mark.parametrize('end', ('quit', signal.SIGTERM, signal.SIGINT,
                                 signal.SIGHUP))
@pytest.mark.parametrize('cleared', (True, False))
def test_orderly_end(tmp_path, ramfile, end, cleared):
    options = KEPT if cleared else LEFT_DIRTY
    with Still(tmp_path, ramfile, options=options, ram=8 * HUGE) as guest:
        assert 'unlink=never' in guest.log() and str(ramfile) in guest.log()
        guest.fill(3 * HUGE, 2 * HUGE)
        guest.end(end)
        assert guest.process.returncode == 0
    assert (MARK in ramfile.read_bytes()) != cleared
    with Still(tmp_path, ramfile, options=options, ram=8 * HUGE) as guest:
        info = guest.info()
        assert info['record'] == 'the last run has ended in order'
        assert info['reused-pages'] >= 2
        assert info['dirty-pages'] == (0 if cleared else 2)
        assert info['cleared-bytes'] == (0 if cleared else 2 * HUGE)
        assert guest.is_clean()


def test_many_orderly_ends(tmp_path, ramfile):
    """What one run has left dirty and the next has not touched."""
    for page in (5, 1, 7, 3):
        with Still(tmp_path, ramfile, ram=8 * HUGE,
                   options=LEFT_DIRTY) as guest:
            assert 'order' in guest.info()['record'] or page == 5
            assert guest.is_clean()
            guest.fill(page * HUGE, HUGE)


@pytest.mark.parametrize('align', ('2M', '64G'))
def test_untouched_pages_stay_clean(tmp_path, ramfile, align):
    """Also where nothing else is mapped in the same GiB of addresses."""
    backend = f'{BACKEND},align={align}'
    Still(tmp_path, ramfile, options=KEPT,
          backend=backend + ',prealloc=on').close()
    for _ in range(2):
        with Still(tmp_path, ramfile, options=LEFT_DIRTY,
                   backend=backend) as guest:
            info = guest.info()
            assert info['reused-pages'] == 2 and info['dirty-pages'] == 0


def test_killed(tmp_path, ramfile):
    pid = killed(tmp_path, ramfile).process.pid
    for _ in range(2):
        with Still(tmp_path, ramfile, options=KEPT) as guest:
            info = guest.info()
            check_all_cleared(guest, f'process {pid} did not end in order')
            assert info['reused-pages'] == 2 and info['cleared-bytes'] > 0
            guest.fill()
            pid = guest.process.pid
            guest.kill()


def test_guest_sees_zeros(tmp_path, ramfile, accel):
    area = Ring3.FIRST_FREE, 16 * MIB
    for _ in range(3):
        with HugeRing3(tmp_path, ramfile, options=KEPT, ram=32 * MIB,
                       accel=accel) as guest:
            guest.ask('check-set', *area, 0)
            guest.ask('set', *area, 0xa7a7a7a7)
            guest.kill()


# Snapshots

def ram_block(guest: Still) -> dict:
    block, = (b for b in guest.last_load()['blocks'] if RAM in b['name'])
    return block


@pytest.mark.parametrize('verify', ('off', 'on'))
@pytest.mark.parametrize('save_with', ('hugefile', 'stock'))
def test_load_after_kill(tmp_path, ramfile, verify, save_with):
    ram = 4 * HUGE
    options = f'{LEFT_DIRTY},verify={verify}'
    with Still(tmp_path, ramfile, options=LEFT_DIRTY, ram=ram,
               strategy=save_with) as guest:
        # all of a hugepage, a part of the next, none of the others
        guest.fill(0, HUGE, 1)
        guest.fill(HUGE + HUGE // 2, HUGE // 4, 2)
        guest.save('s')
        image = guest.ram_image()
        guest.fill()
        guest.kill()
    for end in (Still.kill, Still.close, Still.close):
        with Still(tmp_path, ramfile, options=options, ram=ram,
                   loadvm='s') as guest:
            info, block = guest.info(), ram_block(guest)
            assert guest.ram_image() == image
            assert guest.view()[MIB:] == image[MIB:]
            assert info['dirty-pages'] == info['reused-pages'] == 4
            assert info['cleared-bytes'] == 0
            assert block['strategy'] == 'hugefile' and not block['fallback']
            # what is stored need not be cleared
            assert 2 * HUGE <= block['zeroed-bytes'] <= ram - HUGE
            assert block['skipped-pages'] > 0 < block['copied-pages']
            for _ in range(2):
                guest.fill()
                guest.load('s')
                assert guest.ram_image() == image
            guest.fill()
            end(guest)


def test_load_clears_what_was_used(tmp_path, ramfile):
    with Still(tmp_path, ramfile, options=KEPT, ram=8 * HUGE) as guest:
        guest.save('s')
    with Still(tmp_path, ramfile, options=KEPT, ram=8 * HUGE,
               loadvm='s') as guest:
        assert guest.info()['dirty-pages'] == 0
        assert ram_block(guest)['zeroed-bytes'] == 0
        guest.fill(3 * HUGE, HUGE)
        guest.load('s')
        assert ram_block(guest)['zeroed-bytes'] == HUGE
        assert guest.is_clean()


def test_load_that_leaves_ram_alone(tmp_path, ramfile):
    """It is for a guest that runs; QEMU 10.0 cannot be started with it."""
    killed(tmp_path, ramfile)
    capability = {'capability': 'x-ignore-shared', 'state': True}
    with Still(tmp_path, ramfile, options=KEPT) as guest:
        guest.qmp('migrate-set-capabilities', capabilities=[capability])
        guest.save('s')
        guest.load('s')
        assert 'x-ignore-shared' in ram_block(guest)['reason']
        assert guest.is_clean()
        guest.fill()
        guest.kill()
    assert 'x-ignore-shared' in refusal(tmp_path, ramfile, options=KEPT,
                                        loadvm='s')
    with Still(tmp_path, ramfile, options=KEPT) as guest:
        assert guest.is_clean()


CXL = ('-M', 'q35,cxl=on,cxl-fmw.0.targets.0=cxl0,cxl-fmw.0.size=4G',
       '-machine', 'memory-backend=boot', '-device', 'pxb-cxl,id=cxl0',
       '-device', 'cxl-rp,bus=cxl0,id=rp0,chassis=0,slot=2',
       '-device', f'cxl-type3,bus=rp0,volatile-memdev={RAM}')


def test_load_that_does_not_have_it(tmp_path, ramfile):
    """CXL memory is in no snapshot, and not cleared by the load."""
    backend = BACKEND.format(ram=256 * MIB, path=ramfile)
    cxl = dict(options=KEPT, ram=HUGE,
               backend=f'memory-backend-ram,id=boot,size={HUGE}',
               args=('-object', backend, *CXL))
    try:
        with Still(tmp_path, ramfile, **cxl) as guest:
            guest.save('s')
            guest.kill()
    except MachineError as e:
        if 'to spare' in str(e):
            pytest.skip('128 free hugepages are needed')
        raise
    mark_by_mapping(ramfile, 7)
    for paused in ((), ('-S',)):
        with Still(tmp_path, ramfile, loadvm='s',
                   **cxl | {'args': cxl['args'] + paused}) as guest:
            guest.cont()
            assert MARK not in ramfile.read_bytes()
            guest.kill()
        mark_by_mapping(ramfile, 7)


def test_load_that_fails(tmp_path, ramfile):
    killed(tmp_path, ramfile)
    assert 'nosuch' in refusal(tmp_path, ramfile, options=KEPT, loadvm='nosuch')
    assert MARK in ramfile.read_bytes()
    with Still(tmp_path, ramfile, options=KEPT) as guest:
        check_all_cleared(guest, 'did not end in order')


# Others who use the file

def clean_end(workdir: Path, path: Path) -> None:
    with Still(workdir, path, options=KEPT) as guest:
        guest.fill()


@pytest.mark.parametrize('who', ('stock', 'mmap'))
def test_mapped_in_between(tmp_path, ramfile, who):
    clean_end(tmp_path, ramfile)
    if who == 'mmap':
        mark_by_mapping(ramfile, 1)
    else:
        with Still(tmp_path / 'stock', ramfile, strategy='stock') as guest:
            guest.fill()
    with Still(tmp_path, ramfile, options=KEPT) as guest:
        check_all_cleared(guest, 'somebody else has mapped the file')


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
            check_all_cleared(guest, 'no record|another file|in order')


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


# What is refused

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
        check_all_cleared(guest, 'did not end in order')


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
        with pytest.raises(MachineError, match=f"'rr1'.*'{RAM}' has been made "
                           'without it; create .* first'):
            guest.qmp('object-add', id='rr1', **properties)
    with Still(tmp_path, ramfile) as guest:
        with pytest.raises(MachineError, match="'rr0' is in use"):
            guest.qmp('object-del', id='rr0')
        with pytest.raises(MachineError, match="'rr0' and 'rr1' both cover"):
            guest.qmp('object-add', id='rr1', **properties)
        assert guest.info()['file'] == str(ramfile)
