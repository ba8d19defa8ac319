# SPDX-License-Identifier: GPL-2.0-or-later
"""
Hugepages that are kept from run to run never show the guest what an earlier
one has left in them, whatever has happened to the file, its record or QEMU.

Reading the file does not disturb QEMU; mapping it does, on purpose: QEMU takes
note that somebody else had it.
"""

import signal

import pytest

from lib.guests import Ring3
from lib.hugefile import (BACKEND, HUGE, KEPT, LEFT_DIRTY, MARK, HugeRing3,
                          Still, check_all_cleared, killed, mark_by_mapping,
                          refusal)
from lib.machine import MIB, RAM, MachineError


# The file

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
        assert info['record'] == 'the last run exited cleanly'
        assert info['reused-pages'] >= 2
        assert info['dirty-pages'] == (0 if cleared else 2)
        assert info['cleared-bytes'] == (0 if cleared else 2 * HUGE)
        assert guest.is_clean()


def test_many_orderly_ends(tmp_path, ramfile):
    """Pages that one run has left dirty and the next has not touched."""
    for page in (5, 1, 7, 3):
        with Still(tmp_path, ramfile, ram=8 * HUGE,
                   options=LEFT_DIRTY) as guest:
            assert 'cleanly' in guest.info()['record'] or page == 5
            assert guest.is_clean()
            guest.fill(page * HUGE, HUGE)


@pytest.mark.parametrize('align', ('2M', '64G'))
def test_untouched_pages_stay_clean(tmp_path, ramfile, align):
    """Pages stay clean even if nothing else is mapped in the same GiB."""
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
            check_all_cleared(guest, f'process {pid} did not exit cleanly')
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
        check_all_cleared(guest, 'did not exit cleanly')
