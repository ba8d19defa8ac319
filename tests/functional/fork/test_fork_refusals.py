# SPDX-License-Identifier: GPL-2.0-or-later
"""A fork that is refused leaves no trace, and the machine goes on."""

# Takes: 40 s

from pathlib import Path

import pytest

from lib import products
from lib.forked import DATA, Forked, assert_forks, new_forker, set_mode
from lib.machine import DISK, MachineError, run_quietly
from lib.migrating import set_capabilities


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
