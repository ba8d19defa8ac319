# SPDX-License-Identifier: GPL-2.0-or-later
"""
The job that forks a machine: whatever happens meanwhile, the machine goes on as
it was, or ends.
"""

# Takes: 40 s

import re
import signal
import socket
import time

import pytest

from lib import products
from lib.effort import rounds
from lib.forked import (RAM, Forked, assert_forks, child, hold, left, let_go,
                        new_forker, set_mode)
from lib.forking import INCOMING, JOB, Forker
from lib.forks import check_all
from lib.machine import DISK, MIB, PAGE, Machine, MachineError, run_quietly
from lib.patience import Limit


def become(guest: Forked, status: str) -> None:
    {'running': lambda: None, 'paused': guest.stop,
     'suspended': guest.suspend}[status]()
    assert guest.qmp('query-status')['status'] == status


@pytest.mark.parametrize('status', ('running', 'paused', 'suspended'))
def test_state(tmp_path, parent, forker, status):
    become(parent, status)
    for n in range(2):
        assert_forks(parent, forker, tmp_path / f'child{n}')
    tops = list(parent.tops().values())
    parent.snapshot_job('snapshot-save', 's', tops[0], tops)
    image = parent.sample()
    parent.qtest.ask(f'memset {2 * MIB:#x} {PAGE:#x} 0x77')
    parent.snapshot_job('snapshot-load', 's', tops[0], tops)
    assert parent.sample() == image


def test_not_begun(tmp_path):
    """A machine that has not run yet."""
    with Forked(tmp_path / 'parent', '-S') as guest:
        guest.fill()
        assert_forks(guest, new_forker(guest, tmp_path / 'forks'),
                     tmp_path / 'child')
        assert guest.qmp('query-status')['status'] == 'prelaunch'
        guest.cont()


@pytest.mark.parametrize('status', ('paused', 'suspended'))
def test_state_changes_meanwhile(tmp_path, parent, forker, status):
    before = parent.settings()
    forker.begin()
    hold(parent)
    become(parent, status)
    let_go(parent)
    forker.end()
    assert parent.qmp('query-status')['status'] == status
    caps, parameters = parent.settings()
    assert caps == before[0]
    assert parameters == {**before[1], 'max-bandwidth': 1 << 40}
    assert_forks(parent, forker, tmp_path / 'child')


def test_reset_meanwhile(tmp_path, parent, forker):
    forker.begin()
    hold(parent)
    parent.qmp('system_reset')
    parent.event('RESET')
    let_go(parent)
    forker.end()
    assert parent.qmp('query-status')['status'] == 'running'
    assert_forks(parent, forker, tmp_path / 'child')


@pytest.mark.parametrize('how', ('job-cancel', 'migrate_cancel'))
def test_cancelled(tmp_path, parent, forker, how):
    before, tops = parent.settings(), parent.tops()
    fork = forker.begin()
    hold(parent)
    parent.qmp(how, **({'id': JOB} if how == 'job-cancel' else {}))
    with pytest.raises(MachineError, match='cancel'):
        forker.end()
    assert not left(fork)
    assert parent.qmp('query-status')['status'] == 'running'
    assert parent.tops() == tops
    parent.qmp('migrate-set-parameters', **{
        'max-bandwidth': before[1]['max-bandwidth']})
    assert parent.settings() == before
    assert_forks(parent, forker, tmp_path / 'child')


@pytest.mark.parametrize('how', ('quit', 'signal'))
def test_quit(tmp_path, how, rng):
    """QEMU ends, at whichever instant it is told to."""
    for n in range(rounds(8, 3)):
        with Forked(tmp_path / f'parent{n}') as guest:
            guest.fill()
            new_forker(guest, tmp_path / f'forks{n}').begin()
            if n == 0:
                hold(guest)
            else:
                time.sleep(rng.random() * 0.5)
            if how == 'quit':
                guest.qmp('quit')
            else:
                guest.process.send_signal(signal.SIGTERM)
            limit = Limit(60)
            while guest.process.poll() is None:
                assert not limit.over()
                time.sleep(0.01)
            assert guest.process.returncode == 0
            # QEMU's migration reports the file that its cancel has shut
            assert 'rror' not in re.sub('.*: Input/output error$', '',
                                        guest.log(), flags=re.M)
        check_all(tmp_path / f'forks{n}')
        assert not [*(tmp_path / f'forks{n}').glob('*.part')]


def test_two_at_once(tmp_path, parent, forker):
    forker.begin()
    hold(parent)
    with pytest.raises(MachineError, match=f"'{JOB}' forks the machine alre"):
        parent.qmp('ram-reset-fork', **{
            'job-id': 'second', 'file': str(tmp_path / 'second'), 'disks': []})
    with pytest.raises(MachineError, match='migration'):
        parent.qmp('migrate', uri=f'file:{tmp_path / "second"}')
    assert not (tmp_path / 'second').exists()
    let_go(parent)
    forker.end()
    assert_forks(parent, forker, tmp_path / 'child')


def test_medium_inserted_meanwhile(tmp_path, parent, forker):
    """A disk without an overlay, when it is too late: no disk gets any."""
    overlay_file = tmp_path / 'stick.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', overlay_file,
                '1M')
    parent.qmp('blockdev-add', **{
        'driver': 'qcow2', 'node-name': 'stick',
        'file': {'driver': 'file', 'filename': str(overlay_file)}})
    tops = parent.tops()
    fork = forker.begin()
    hold(parent)
    parent.qmp('blockdev-open-tray', id='stick')
    parent.qmp('blockdev-insert-medium', id='stick', **{'node-name': 'stick'})
    let_go(parent)
    with pytest.raises(MachineError, match="no overlay for disk .*'stick'"):
        forker.end()
    assert not left(fork)
    assert parent.tops() == {**tops, 'stick': 'stick'}
    assert parent.qmp('query-status')['status'] == 'running'
    parent.qmp('blockdev-remove-medium', id='stick')
    assert_forks(parent, forker, tmp_path / 'child')


def test_same_file_again(tmp_path, parent, forker):
    """A child maps the old one, and goes on to; what a kill has left goes."""
    file = tmp_path / 'state'
    (tmp_path / 'state.part').write_text('unfinished')
    fork = forker.begin(file=str(file))
    forker.end()
    fork.state = file
    image = parent.sample()
    with child(fork, tmp_path / 'child') as guest:
        guest.process.send_signal(signal.SIGSTOP)
        parent.fill(50)
        forker.begin(file=str(file))
        forker.end()
        guest.process.send_signal(signal.SIGCONT)
        assert guest.sample() == image
    assert not (tmp_path / 'state.part').exists()


@pytest.mark.parametrize('tag', ('s', 'typo'))
@pytest.mark.parametrize('how', ('hmp', 'job'))
def test_load_meanwhile(tmp_path, parent, forker, how, tag):
    """It is refused, which stops the guest, and the fork goes on."""
    tops = list(parent.tops().values())
    parent.snapshot_job('snapshot-save', 's', tops[0], tops)
    parent.fill(33)
    image = parent.sample()
    fork = forker.begin()
    hold(parent)
    with pytest.raises(MachineError, match='a migration is running'):
        if how == 'hmp':
            parent.hmp(f'loadvm {tag}')
        else:
            parent.snapshot_job('snapshot-load', tag, tops[0], tops)
    let_go(parent)
    forker.end()
    assert parent.sample() == image
    with child(fork, tmp_path / 'meanwhile') as other:
        assert other.status() == 'paused'
        assert other.sample() == image
    parent.cont()
    assert_forks(parent, forker, tmp_path / 'child')


def test_mode_changes_meanwhile(tmp_path, parent, forker):
    """In mode cpr-reboot the guest runs when disks would get overlays."""
    tops = parent.tops()
    fork = forker.begin()
    hold(parent)
    set_mode(parent, 'cpr-reboot')
    let_go(parent)
    with pytest.raises(MachineError, match='has not paused the guest'):
        forker.end()
    assert parent.qmp('query-status')['status'] == 'running'
    assert parent.tops() == tops
    assert not left(fork)
    set_mode(parent, 'normal')
    assert_forks(parent, forker, tmp_path / 'child')


def test_debugger(tmp_path):
    """It has stopped the guest, and the fork fails when it is late."""
    folder, path = tmp_path / 'parent', tmp_path / 'gdb'
    folder.mkdir()
    with Machine(folder, accel='tcg', ram=RAM, strategy='auto', args=(
            '-device', f'virtio-blk-pci,drive={DISK}')) as guest, \
            socket.socket(socket.AF_UNIX) as debugger:
        guest.hmp(f'gdbserver unix:{path},server=on,wait=off')
        debugger.connect(str(path))
        debugger.sendall(b'+$s#73')
        limit = Limit(60)
        while guest.status() != 'debug':
            assert not limit.over()
        forker = Forker(guest, tmp_path / 'forks', {DISK: guest.disk})
        overlay = forker.pairs()
        forker.begin(disks=overlay)
        hold(guest)
        guest.qmp('blockdev-del', **{'node-name': overlay[0]['overlay']})
        let_go(guest)
        with pytest.raises(MachineError, match='no block node'):
            forker.end()
        assert guest.status() == 'paused'
        debugger.sendall(b'+$s#73')
        limit = Limit(60)
        while guest.status() != 'debug':
            assert not limit.over()
        fork = forker.fork()
        assert guest.status() == 'paused'
        guest.cont()
    folder = tmp_path / 'child'
    fork.make_disks(folder)
    with Machine(folder, accel='tcg', ram=RAM, strategy='auto', args=(
            '-device', f'virtio-blk-pci,drive={DISK}', *INCOMING)) as guest:
        fork.enter(guest)
        assert guest.status() == 'paused'
