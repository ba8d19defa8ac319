# SPDX-License-Identifier: GPL-2.0-or-later
"""A save that fails says so, and what it was to replace is still there."""

import shutil
from pathlib import Path

import pytest

from lib import products
from lib.content import START
from lib.machine import DISK, MIB, MachineError, run_quietly
from lib.snapctl_guest import FAILED, SAVE, SAVED, A, SnapctlGuest

AREA = START, 2 * MIB
OLD, NEW = 1, 2
FLUSHES = 12                # more than a save has
WRITES = 12
ERRORS = {'EIO': 5, 'ENOSPC': 28}


def failing_flush(number: int, errno: int) -> str:
    return failing('flush_to_os', number, errno) + \
        ',inject-error.0.iotype=flush'


def failing(event: str, number: int, errno: int) -> str:
    """
    For blkdebug: after the first write of a VM state that one of such events
    fails, and no other.
    """
    rules = ['set-state.0.event=vmstate_save', 'set-state.0.state=1',
             'set-state.0.new_state=2']
    for n in range(1, number):
        rules += [f'set-state.{n}.event={event}',
                  f'set-state.{n}.state={n + 1}',
                  f'set-state.{n}.new_state={n + 2}']
    rules += [f'inject-error.0.event={event}',
              f'inject-error.0.state={number + 1}', 'inject-error.0.once=on',
              f'inject-error.0.errno={errno}']
    return ','.join(rules)


@pytest.fixture(scope='module')
def saved(tmp_path_factory) -> Path:
    """A disk whose snapshots "a" and "1" have the old content."""
    workdir = tmp_path_factory.mktemp('saved')
    with SnapctlGuest(workdir, accel='tcg', strategy='stock') as guest:
        guest.ask('fill', *AREA, OLD)
        guest.save('1')         # its id in qcow2 as well
        guest.save('a')
    return guest.disk


def save_by_hmp(guest: SnapctlGuest) -> bool:
    try:
        guest.save('a')
    except MachineError as error:
        assert 'no answer' not in str(error)
        return False
    return True


def save_by_guest(guest: SnapctlGuest) -> bool:
    status, error, _ = guest.snap(A, SAVE)
    ok = status == SAVED
    assert ok or status == FAILED and error
    info = guest.info()
    assert (info['saves'], info['failures']) == (int(ok), int(not ok))
    event = guest.completed()
    assert event == {**info['last'], 'qom-path': event['qom-path']}
    assert event['success'] == ok
    assert ok or event['error']
    return ok


def tags(guest: SnapctlGuest) -> list[str]:
    node, = (n for n in guest.qmp('query-named-block-nodes')
             if n['node-name'] == DISK)
    return [s['name'] for s in node['image'].get('snapshots', ())]


@pytest.mark.each_value
@pytest.mark.parametrize('how', (save_by_hmp, save_by_guest))
@pytest.mark.parametrize('strategy', ('stock', 'auto'))
def test_old_snapshot_is_kept(tmp_path, fast_accel, saved, how, strategy):
    """Whichever flush fails, there is the new snapshot, or the old one."""
    failed = 0
    for number in range(1, FLUSHES + 1):
        workdir = tmp_path / str(number)
        workdir.mkdir()
        shutil.copy(saved, workdir / 'disk.qcow2')
        with SnapctlGuest(workdir, accel=fast_accel, strategy=strategy,
                          blkdebug=failing_flush(number, ERRORS['EIO'])
                          ) as guest:
            guest.ask('fill', *AREA, NEW)
            ok = how(guest)
            failed += not ok
            assert guest.status() == 'running'
            guest.ask('check-fill', *AREA, NEW)
            assert tags(guest) == ['1', 'a']
            guest.ask('set', *AREA, 0)
            guest.load('a')
            guest.sync()
            guest.ask('check-fill', *AREA, NEW if ok else OLD)
        # and as the image has it
        with SnapctlGuest(workdir, accel=fast_accel, strategy=strategy,
                          loadvm='a') as guest:
            guest.sync()
            guest.ask('check-fill', *AREA, NEW if ok else OLD)
            assert tags(guest) == ['1', 'a']
        # what a failure has allocated may leak, nothing else
        run_quietly(products.QEMU_IMG, 'check', '-r', 'leaks', guest.disk)
        if ok and number > 1:
            break
    assert 1 < failed < FLUSHES, 'all flushes of a save have failed once'


# of qcow2's list of snapshots, and of what counts its clusters
EVENTS = 'refblock_update_part', 'write_aio'


@pytest.mark.any_value
@pytest.mark.parametrize('event', EVENTS)
def test_image_has_one_snapshot_of_a_name(tmp_path, fast_accel, saved, event):
    """Whichever write fails once, and in whatever QEMU it is loaded."""
    for number in range(1, WRITES + 1):
        workdir = tmp_path / str(number)
        workdir.mkdir()
        shutil.copy(saved, workdir / 'disk.qcow2')
        with SnapctlGuest(workdir, accel=fast_accel, strategy='stock',
                          blkdebug=failing(event, number, ERRORS['EIO'])
                          ) as guest:
            guest.ask('fill', *AREA, NEW)
            ok = save_by_hmp(guest)
        with SnapctlGuest(workdir, accel=fast_accel, strategy='stock',
                          loadvm='a') as guest:
            guest.sync()
            guest.ask('check-fill', *AREA, NEW if ok else OLD)
            assert tags(guest) == ['1', 'a']


def test_snapshot_whose_name_is_a_number(tmp_path, fast_accel, saved):
    """The old snapshot stays until the new one is complete, here too."""
    shutil.copy(saved, tmp_path / 'disk.qcow2')
    with SnapctlGuest(tmp_path, accel=fast_accel, strategy='stock',
                      blkdebug=failing_flush(1, ERRORS['EIO'])) as guest:
        with pytest.raises(MachineError, match='finish writing the VM state'):
            guest.save('1')
        guest.load('1')
        guest.sync()
        guest.ask('check-fill', *AREA, OLD)


@pytest.mark.parametrize('error', ERRORS)
def test_job_says_that_it_has_failed(tmp_path, fast_accel, error):
    """The job fails even if only the last flush of all writes fails."""
    with SnapctlGuest(tmp_path, accel=fast_accel,
                      blkdebug=failing_flush(1, ERRORS[error])) as guest:
        guest.ask('fill', *AREA, NEW)
        with pytest.raises(MachineError, match='finish writing the VM state'):
            guest.snapshot_job('snapshot-save', 's')
        assert not tags(guest)
        guest.ask('check-fill', *AREA, NEW)
        guest.snapshot_job('snapshot-save', 's')
        guest.ask('set', *AREA, 0)
        guest.load('s', 'qmp')
        guest.sync()
        guest.ask('check-fill', *AREA, NEW)
