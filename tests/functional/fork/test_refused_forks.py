# SPDX-License-Identifier: GPL-2.0-or-later
"""What cannot be opened at a snapshot, or loaded from one."""

# Takes: 10 s

import shutil
from pathlib import Path

import pytest

from lib import products
from lib.forks import (LATER, OPTION, SAVED, backing, check_all, digests,
                       fork, machine, overlay, parent, use)
from lib.machine import DISK, MIB, Machine, MachineError, run_quietly
from lib.unpatched import debian

LOCKED = 'Failed to get .* lock'


def test_options(tmp_path, saved_image):
    """The node needs no overlay's header; -drive has the option as well."""
    disk = saved_image / 'disk.qcow2'
    args = ('-blockdev', f'driver=qcow2,node-name=base,{OPTION}=s,'
            f'read-only=on,file.driver=file,file.filename={disk}',
            '-drive', f'if=none,id=old,readonly=on,file={disk},{OPTION}=s')
    folder = tmp_path / 'child'
    folder.mkdir()
    with Machine(folder, accel='qtest', ram=16 * MIB, args=args) as guest:
        for node in 'base', 'old':
            assert guest.hmp(f'qemu-io {node} "read -P {SAVED} 0 128k"') == ''
        assert 'verification failed' not in guest.log()
        nodes = guest.qmp('query-named-block-nodes')
        names = [n['file'] for n in nodes if n['drv'] == 'qcow2'
                 and OPTION in n['file']]
        assert len(names) == 2
        with pytest.raises(MachineError, match='must be read-only'):
            guest.qmp('blockdev-reopen', options=[{
                'driver': 'qcow2', 'node-name': 'base', 'read-only': False,
                OPTION: 's', 'file': next(
                    n['node-name'] for n in nodes if n['drv'] == 'file'
                    and n['file'] == str(disk))}])


def start_fails(folder: Path, match: str, number: int = 1, **kwargs) -> None:
    with pytest.raises(MachineError, match=f'(?s){match}'), \
            machine(folder, number, loadvm='s', **kwargs):
        pass


def test_no_such_snapshot(tmp_path, saved_image):
    with pytest.raises(MachineError, match="no internal snapshot 't'"):
        fork(saved_image, tmp_path / 'none', 't')
    with pytest.raises(MachineError, match='must be a string'):
        fork(saved_image, tmp_path / 'number', 1)
    child = fork(saved_image, tmp_path / 'child', 's')
    run_quietly(products.QEMU_IMG, 'snapshot', '-d', 's',
                saved_image / 'disk.qcow2')
    start_fails(child, "no internal snapshot 's'")


def test_writable(tmp_path, saved_image):
    disk = saved_image / 'disk.qcow2'
    before = digests(saved_image)
    child = fork(saved_image, tmp_path / 'child', 's')
    start_fails(child, 'must be read-only.*to an overlay', args=(
        '-blockdev', f'driver=qcow2,node-name=n,{OPTION}=s,file.driver=file,'
        f'file.filename={disk},file.locking=off'))
    with pytest.raises(MachineError, match='must be read-only'):
        run_quietly(products.QEMU_IMG, 'commit', child / 'disk.qcow2')
    assert digests(saved_image) == before


def test_image_that_is_written_to(tmp_path, saved_image):
    """One that writes could delete the snapshot."""
    child = fork(saved_image, tmp_path / 'child', 's')
    with machine(saved_image):
        start_fails(child, LOCKED)
    with machine(child, loadvm='s') as guest:
        start_fails(saved_image, LOCKED)
        assert guest.holds(SAVED, LATER) == SAVED


def test_deleted_image(tmp_path, saved_image):
    """Who has it open goes on."""
    children = [fork(saved_image, tmp_path / str(n), 's') for n in range(2)]
    with machine(children[0], loadvm='s', options=',rewind=on') as guest:
        shutil.rmtree(saved_image)
        use(guest, 0x40, True)
    for child in children:
        start_fails(child, 'No such file or directory')


def test_plain_overlay(tmp_path, saved_image):
    """Its disk is that of the active layer."""
    child = tmp_path / 'child'
    child.mkdir()
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', '-F', 'qcow2',
                '-b', saved_image / 'disk.qcow2', child / 'disk.qcow2')
    start_fails(child, "in its backing file, which does not show it.*"
                f'{OPTION}')
    with machine(child) as guest, pytest.raises(MachineError,
                                                match='does not exist in one'):
        guest.load('t')


@pytest.mark.parametrize('size', ('8M', '80M'))
def test_resized(tmp_path, saved_image, size):
    """The child's disk is as large as it was; bitmaps are of the new one."""
    disk = saved_image / 'disk.qcow2'
    run_quietly(products.QEMU_IMG, 'resize', *['--shrink'][size != '8M':], disk,
                size)
    run_quietly(products.QEMU_IMG, 'bitmap', '--add', disk, 'b')
    child = fork(saved_image, tmp_path / 'child', 's')
    with machine(child, loadvm='s', options=',rewind=on,verify=on') as guest:
        base = next(n for n in guest.qmp('query-named-block-nodes')
                    if n['drv'] == 'qcow2' and OPTION in n['file'])
        assert base['image']['virtual-size'] == 64 * MIB
        assert 'dirty-bitmaps' not in base
        use(guest, 0x40, True)
        guest.qmp('block_resize', **{'node-name': DISK, 'size': 70 * MIB})
        with pytest.raises(MachineError, match='nothing has been changed: it '
                           'has 73400320 bytes, and had 67108864'):
            guest.load('s')
        guest.cont()
    check_all(saved_image)
    other = tmp_path / 'other'
    other.mkdir()
    overlay(backing(disk, 's'), other / 'disk.qcow2', '65M')
    start_fails(other, 'new overlay, and give no size')


def test_two_disks_of_different_snapshots(tmp_path):
    image = parent(tmp_path / 'parent', 2)
    with machine(image, 2) as guest:
        guest.save('t')
    stranger = parent(tmp_path / 'stranger', 2)
    child = fork(image, tmp_path / 'child', 's')
    second = child / 'disk1.qcow2'
    for base, tag, match in (
            (image, 't', "'s' does not exist in 'disk1', but in its backing"),
            (stranger, 's', "'s' of 'disk1' was not made together with"),
            (image, 's', '')):
        overlay(backing(base / 'disk1.qcow2', tag), second)
        if match:
            start_fails(child, match, 2)
    with machine(child, 2, loadvm='s') as guest:
        assert guest.holds(SAVED, LATER) == SAVED


def test_stock_qemu_refuses_the_overlay(tmp_path, saved_image):
    """It would show another disk."""
    child = fork(saved_image, tmp_path / 'child', 's')
    with pytest.raises(MachineError, match=f"option '{OPTION}'"), \
            Machine(child, accel='tcg', ram=16 * MIB, qemu=debian()):
        pass
