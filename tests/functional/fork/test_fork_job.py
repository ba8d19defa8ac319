# SPDX-License-Identifier: GPL-2.0-or-later
"""
The job that forks a machine: whatever happens meanwhile, the machine goes on as
it was, or ends; a refused fork leaves no trace.
"""

# Takes: 40 s

import contextlib
import signal
import socket
import time
from pathlib import Path

import pytest

from lib import products
from lib.dma import QtestMachine
from lib.effort import rounds
from lib.forking import INCOMING, JOB, Fork, Forker
from lib.forks import check_all
from lib.machine import (
    DISK, MIB, PAGE, Machine, MachineError, run_quietly)
from lib.migrating import set_capabilities
from lib.patience import Limit

RAM = 192 * MIB
FULL = 160 * MIB                # takes a while to be written
DATA = 'data'                   # a disk, too
PM_BASE = 0xb000


class Forked(QtestMachine):
    """With two disks and two drives without a medium."""

    def __init__(self, folder: Path, *args: str, **kwargs):
        folder.mkdir(exist_ok=True)
        self.data = folder / f'{DATA}.qcow2'
        if not self.data.exists():
            run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                        self.data, '1M')
        super().__init__(folder, ram=RAM, strategy='auto', args=(
            '-blockdev', f'driver=qcow2,node-name={DATA},file.driver=file,'
                         f'file.filename={self.data}',
            '-device', f'virtio-blk-pci,share-rw=on,drive={DISK}',
            '-device', f'virtio-blk-pci,share-rw=on,drive={DATA}',
            '-device', 'virtio-scsi-pci', '-device', 'scsi-cd,id=cd',
            '-drive', 'if=none,id=empty',
            '-device', 'scsi-hd,drive=empty,id=stick,removable=on', *args),
            **kwargs)

    def fill(self, byte: int = 1) -> None:
        for at in range(2 * MIB, FULL, MIB):
            self.qtest.ask(f'memset {at:#x} {MIB:#x} {byte + at // MIB % 99}')

    def sample(self) -> list[str]:
        return self.qtest.ask_all([f'read {at:#x} 16'
                                   for at in range(2 * MIB, FULL, MIB)])

    def write(self, node: str, byte: int) -> None:
        assert self.hmp(f'qemu-io {node} "write -P {byte} 0 64k"') == ''

    def has(self, node: str, byte: int) -> bool:
        before = self.log().count('verification failed')
        self.hmp(f'qemu-io {node} "read -P {byte} 0 64k"')
        return self.log().count('verification failed') == before

    def suspend(self) -> None:
        """What firmware and an operating system do."""
        for register, value in (0x40, PM_BASE | 1), (0x80, 1):
            self.qtest.out('l', 0xcf8, 0x80000b00 | register)
            self.qtest.out('l', 0xcfc, value)
        self.qtest.out('w', PM_BASE + 4, 1 << 13 | 1 << 10)

    def settings(self) -> tuple:
        return (self.qmp('query-migrate-capabilities'),
                self.qmp('query-migrate-parameters'))

    def tops(self) -> dict[str, str]:
        """The nodes to which devices write."""
        return {device['qdev']: device['inserted']['node-name'] for device in
                self.qmp('query-block') if 'inserted' in device}


@pytest.fixture
def parent(tmp_path):
    with Forked(tmp_path / 'parent') as guest:
        guest.fill()
        yield guest


def new_forker(guest: Forked, folder: Path) -> Forker:
    return Forker(guest, folder, {DISK: guest.disk, DATA: guest.data})


@pytest.fixture
def forker(tmp_path, parent) -> Forker:
    return new_forker(parent, tmp_path / 'forks')


@contextlib.contextmanager
def child(fork: Fork, folder: Path, *args: str):
    fork.make_disks(folder)
    with Forked(folder, *INCOMING, *args) as guest:
        fork.enter(guest)
        yield guest
    check_all(folder)


def hold(guest: Machine) -> None:
    """The job's migration does not end, since it is slow."""
    guest.qmp('migrate-set-parameters', **{'max-bandwidth': 1})
    assert guest.qmp('query-migrate')['status'] in ('setup', 'active')


def let_go(guest: Machine) -> None:
    guest.qmp('migrate-set-parameters', **{'max-bandwidth': 1 << 40})


def left(fork: Fork) -> list[Path]:
    """Files of a fork, finished or not."""
    return list(fork.state.parent.glob(f'{fork.state.name}*'))


def assert_forks(guest: Forked, forker: Forker, folder: Path) -> None:
    """The machine can be forked, and its child is what it was."""
    nodes = list(guest.tops().values())
    for node in nodes:
        guest.write(node, 0x11)
    status = guest.qmp('query-status')['status']
    image = guest.sample()
    fork = forker.fork()
    assert guest.qmp('query-status')['status'] == status
    assert guest.sample() == image
    for node in guest.tops().values():
        assert node not in nodes and guest.has(node, 0x11)
        guest.write(node, 0x22)
    guest.qtest.ask(f'memset {2 * MIB:#x} {PAGE:#x} 0xff')
    with child(fork, folder) as other:
        assert other.sample() == image
        for node in other.tops().values():
            assert other.has(node, 0x11)


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
            assert 'rror' not in guest.log()
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


def node(guest: Forked, file: Path, name: str = 'other', **options) -> str:
    guest.qmp('blockdev-add', **{
        'driver': 'qcow2', 'node-name': name, 'backing': None,
        'file': {'driver': 'file', 'filename': str(file)}, **options})
    return name


def new_image(guest: Forked, size: str) -> Path:
    file = guest.workdir / 'other.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', file, size)
    return file


def export(guest: Forked) -> None:
    guest.qmp('nbd-server-start', addr={
        'type': 'unix', 'data': {'path': str(guest.workdir / 'nbd')}})
    guest.qmp('block-export-add', **{
        'type': 'nbd', 'id': 'nbd', 'node-name': DATA, 'writable': True})


def mirror(guest: Forked) -> None:
    target = node(guest, new_image(guest, '1M'))
    guest.qmp('blockdev-mirror', **{
        'job-id': 'mirror', 'device': DATA, 'target': target, 'sync': 'full'})
    guest.event('BLOCK_JOB_READY')


def other_overlay(file, **options):
    def change(guest: Forked, disks: list) -> None:
        disks[1]['overlay'] = node(guest, file(guest), **options)
    return change


def set_mode(guest: Forked, mode: str) -> None:
    guest.qmp('migrate-set-parameters', mode=mode)


def capability(name: str, *more: str) -> tuple:
    def change(guest: Forked, _) -> None:
        set_capabilities(guest, name, *more)

    def undo(guest: Forked) -> None:
        set_capabilities(guest, name, *more, state=False)
    return change, undo


# By reason: a change of the machine or of the disks named, and how it is undone
REFUSALS = {
    "no overlay for disk .*'data'": (lambda guest, disks: disks.pop(), None),
    "no block node 'nobody'": (
        lambda guest, disks: disks[1].update(overlay='nobody'), None),
    "no block node 'nowhere'": (
        lambda guest, disks: disks.append({'node': 'nowhere', 'overlay': DISK}),
        None),
    'does not have the 1048576 bytes': (
        other_overlay(lambda guest: new_image(guest, '2M')), None),
    'already in use': (
        lambda guest, disks: disks[1].update(overlay=DATA), None),
    "Node 'data' is busy": (
        lambda guest, disks: disks[1].update(overlay=node(
            guest, new_image(guest, '1M'), backing=DATA)),
        lambda guest: guest.qmp('blockdev-del', **{'node-name': 'other'})),
    "An export or a block job can write to node 'data'": (
        lambda guest, disks: export(guest),
        lambda guest: guest.qmp('nbd-server-stop')),
    'has a filter|An export or a block job': (
        lambda guest, disks: mirror(guest),
        lambda guest: guest.qmp('block-job-cancel', device='mirror')),
    "'x-ignore-shared' is on": capability('x-ignore-shared'),
    "'return-path' is on": capability('return-path', 'switchover-ack'),
    "'x-colo' is on": capability('x-colo'),
    'mode is cpr-reboot, set it to normal': (
        lambda guest, _: set_mode(guest, 'cpr-reboot'),
        lambda guest: set_mode(guest, 'normal')),
}



@pytest.mark.parametrize('why', REFUSALS)
def test_refused(tmp_path, parent, forker, why):
    change, undo = REFUSALS[why]
    disks = forker.pairs()
    change(parent, disks)
    before, tops = parent.settings(), parent.tops()
    file = tmp_path / 'file'
    file.write_text('of the user')
    forker.begin(disks=disks, file=str(file))
    with pytest.raises(MachineError, match=why):
        forker.end()
    assert file.read_text() == 'of the user'
    assert not [*tmp_path.glob('*.part')]
    assert parent.qmp('query-status')['status'] == 'running'
    assert parent.settings() == before
    assert parent.tops() == tops
    if undo:
        undo(parent)
    assert_forks(parent, forker, tmp_path / 'child')


FILTERS = {
    'throttle': ('-object', 'throttle-group,id=group', '-blockdev',
                 'driver=throttle,node-name=top,throttle-group=group,file=low',
                 '-device', 'virtio-blk-pci,drive=top'),
    'copy-on-read': ('-drive', 'if=virtio,copy-on-read=on,file=LOW,id=top'),
}


@pytest.mark.parametrize('kind', FILTERS)
def test_filter(tmp_path, kind):
    """A base below it would not be free for the children."""
    image = tmp_path / 'low.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', image, '1M')
    args = [arg.replace('LOW', str(image)) for arg in FILTERS[kind]]
    if kind == 'throttle':
        args = ['-blockdev', 'driver=qcow2,node-name=low,file.driver=file,'
                f'file.filename={image}', *args]
    with Forked(tmp_path / 'parent', *args) as guest:
        forker = new_forker(guest, tmp_path / 'forks')
        forker.begin()
        with pytest.raises(MachineError, match=f"has a filter, '{kind}'"):
            forker.end()
        assert guest.qmp('query-status')['status'] == 'running'


@pytest.mark.parametrize('file, why', (
    ('nowhere/file', 'No such file'), ('a,offset=4096', 'must not contain'),
    ('full', 'failed to truncate'), ('folder', 'cannot become')))
def test_file(tmp_path, parent, forker, file, why):
    """What is there and is no file stays."""
    before = parent.settings()
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'full.part').symlink_to('/dev/full')
    with pytest.raises(MachineError, match=why):
        forker.begin(file=str(tmp_path / file))
        forker.end()
    assert (tmp_path / 'full.part').is_symlink()
    assert not (tmp_path / 'folder.part').exists()
    assert parent.settings() == before
    assert parent.qmp('query-status')['status'] == 'running'
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
    forker.begin()
    hold(parent)
    with pytest.raises(MachineError, match='a migration is running'):
        if how == 'hmp':
            parent.hmp(f'loadvm {tag}')
        else:
            parent.snapshot_job('snapshot-load', tag, tops[0], tops)
    let_go(parent)
    forker.end()
    assert parent.sample() == image
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
        forker.fork()
        assert guest.status() == 'paused'
        guest.cont()
