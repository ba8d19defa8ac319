# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks that cannot have snapshots, beside one that can."""

# Takes: 20 s

import re
from pathlib import Path

import pytest

from lib import products
from lib.content import check_state, dirty, write_state
from lib.guests import Ring3
from lib.machine import DISK, MIB, Machine, MachineError, run_quietly
from lib.snapctl_guest import LOAD, LOADED, SAVE, SAVED, SnapctlGuest
from lib.uefi import Shell, flash_args

SIZE = 4 * MIB
RAW = 'data.raw'
RAW_ARGS = ('-blockdev', 'driver=file,node-name=data-file,filename={raw}',
            '-blockdev', 'driver=raw,node-name=data,file=data-file',
            '-device', 'virtio-blk-pci,drive=data,id=data-device,share-rw=on')
QCOW2 = ('-device', f'virtio-blk-pci,drive={DISK},share-rw=on')
# a -drive has an id besides
DRIVE = ('-drive', 'if=none,id=data-drive,format=raw,file={raw}',
         '-device', 'virtio-blk-pci,drive=data-drive,share-rw=on')
NAMES = {'data': RAW_ARGS, 'data-file': RAW_ARGS, 'data-device': RAW_ARGS,
         'data-drive': DRIVE}
KEEP = ',rewind=on,verify=on,keep-disks='


def raw_disk(folder: Path) -> Path:
    path = folder / RAW
    path.write_bytes(bytes(SIZE))
    return path


def with_raw(folder: Path, args: tuple = RAW_ARGS) -> tuple:
    raw = raw_disk(folder)
    return (*QCOW2, *(arg.format(raw=raw) for arg in args))


def write(guest: Machine, disk: str, byte: int) -> None:
    """As a device does it."""
    assert guest.hmp(f'qemu-io {disk} "write -P {byte} 0 64k"') == ''
    assert guest.hmp(f'qemu-io {disk} flush') == ''


def first_byte(image: Path) -> int:
    copy = image.with_suffix('.copy')
    run_quietly(products.QEMU_IMG, 'dd', '-U', '-O', 'raw', 'bs=64k',
                'count=1', f'if={image}', f'of={copy}')
    byte, = set(copy.read_bytes())
    return byte


def tags(guest: Machine) -> list[str]:
    return re.findall(r'^-- +(\S+)', guest.hmp('info snapshots'), re.M)


def tags_of(image: Path) -> list[str]:
    listing = run_quietly(products.QEMU_IMG, 'snapshot', '-U', '-l', image)
    return re.findall(r'^\d+ +(\S+)', listing, re.M)


def idle(folder: Path, *args, **kwargs) -> Machine:
    """For what needs no guest."""
    return Machine(folder, accel='qtest', ram=16 * MIB, machine='q35',
                   args=(*QCOW2, *args), **kwargs)


@pytest.mark.long('a boot; libvirt\'s test_uefi.py has it, too')
def test_uefi_variables_go_back(tmp_path, templates):
    """In RAM and in their raw file; also by -loadvm, with a template."""
    options = f',rewind=on,verify=on,template-dir={templates}'
    with Shell(tmp_path, strategy='auto', options=options) as guest:
        guest.set(0x1111)
        saved = guest.variables.read_bytes()
        guest.save('s')
        assert tags(guest) == ['s']
        for value in 0x2222, 0x3333:
            guest.set(value)
            assert guest.variables.read_bytes() != saved
            guest.load('s')
            assert guest.last_load()['rewound']
            assert guest.variables.read_bytes() == saved
            assert guest.get() == 0x1111
        guest.set(0x4444)
    assert guest.variables.read_bytes() != saved
    with Shell(tmp_path, strategy='auto', options=options, loadvm='s') as guest:
        assert guest.last_load()['template']
        assert guest.get() == 0x1111
        assert guest.variables.read_bytes() == saved
        guest.hmp('delvm s')
        assert tags(guest) == []


def test_without_an_object_flash_is_a_disk_as_any_other(tmp_path):
    variables = raw_disk(tmp_path)
    with idle(tmp_path, *flash_args(variables)) as guest, \
            pytest.raises(MachineError, match="'pflash1' is writable but does "
                          r'not support snapshots\s*$'):
        guest.save('s')


def test_flash_leaves_the_vm_state_to_disks(tmp_path):
    """It comes first, and QEMU would look for the VM state there."""
    variables = tmp_path / 'vars.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', variables,
                str(SIZE))
    flash = flash_args(variables, 'driver=qcow2,node-name=flash')
    with idle(tmp_path, *flash, strategy='auto') as guest:
        # as libvirt does: all disks by their names, the VM state in this one
        guest.qmp('snapshot-save', **{'job-id': 'j', 'tag': 'all', 'vmstate':
                                      DISK, 'devices': [DISK, 'flash']})
        while guest.event('JOB_STATUS_CHANGE')['status'] != 'concluded':
            pass
        assert tags_of(variables) == ['all']
        guest.load('all')
        guest.save('s')
        assert tags(guest) == ['all', 's']
    assert (tags_of(variables), tags_of(guest.disk)) == (['all'], ['all', 's'])


def test_flash_that_has_the_vm_state_is_still_read(tmp_path):
    """As it was saved without an object."""
    variables = tmp_path / 'vars.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', variables,
                str(SIZE))
    flash = flash_args(variables, 'format=qcow2')
    with idle(tmp_path, *flash) as guest:
        guest.save('old')
        assert tags_of(variables) == ['old']
    with idle(tmp_path, *flash, strategy='auto') as guest:
        guest.load('old')
        assert tags(guest) == ['old']
        guest.hmp('delvm old')
        guest.save('new')
    assert (tags_of(variables), tags_of(guest.disk)) == ([], ['new'])


def test_raw_disk_is_named_with_what_helps(tmp_path):
    with idle(tmp_path, *with_raw(tmp_path)[2:], strategy='auto') as guest, \
            pytest.raises(MachineError, match=r"(?s)'data' is writable but does "
                          r'not support snapshots.*qcow2.*read-only.*'
                          r'keep-disks='):
        guest.save('s')


@pytest.mark.parametrize('name', NAMES)
def test_kept_disk_stays_as_it_is(tmp_path, fast_accel, name):
    """All else goes back; it can be named in any way."""
    disk = 'data-drive' if name == 'data-drive' else 'data'
    args = with_raw(tmp_path, NAMES[name])
    with Ring3(tmp_path, accel=fast_accel, ram=64 * MIB, strategy='auto',
               options=KEEP + name, args=args) as guest:
        write_state(guest)
        for node in disk, DISK:
            write(guest, node, 1)
        guest.save('s')
        assert tags(guest) == ['s']
        for _ in range(2):
            dirty(guest, 2)
            for node in disk, DISK:
                write(guest, node, 2)
            guest.load('s')
            assert guest.last_load()['rewound']
            check_state(guest)
            found = first_byte(guest.disk), first_byte(tmp_path / RAW)
            assert found == (1, 2)
        guest.hmp('delvm s')
        assert tags(guest) == []


def test_loadvm_and_snapctl_keep_it_as_well(tmp_path, fast_accel):
    args = ('-object', 'ram-reset-auto,id=rr0,verify=on,keep-disks=data',
            *with_raw(tmp_path))
    with SnapctlGuest(tmp_path, accel=fast_accel, strategy='stock',
                      args=args) as guest:
        write_state(guest)
        assert guest.snap(0, SAVE) == (SAVED, 0, 0)
        dirty(guest, 2)
        write(guest, 'data', 2)
        assert guest.snap(0, LOAD) == (LOADED, 0, 1)
        check_state(guest)
        guest.save('s')
    with SnapctlGuest(tmp_path, accel=fast_accel, strategy='stock',
                      args=args, loadvm='s') as guest:
        guest.sync()
        check_state(guest)
    assert first_byte(tmp_path / RAW) == 2


def test_kept_qcow2_disk_keeps_its_own_snapshots(tmp_path):
    """A snapshot of the same name is neither overwritten nor deleted."""
    other = tmp_path / 'other.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', other, '8M')
    run_quietly(products.QEMU_IMG, 'snapshot', '-c', 's', other)
    args = ('-blockdev', 'driver=qcow2,node-name=other,file.driver=file,'
            f'file.filename={other}', '-device', 'virtio-blk-pci,drive=other')
    with idle(tmp_path, *args, strategy='auto', options=KEEP + 'other'
              ) as guest:
        guest.save('s')
        guest.save('s')
        guest.save('t')
        guest.load('t')
        guest.hmp('delvm s')
        assert tags(guest) == ['t']
        # by name it is a disk as any other
        guest.snapshot_job('snapshot-save', 'named', 'other')
    assert tags_of(other) == ['s', 'named']


def test_names_are_checked(tmp_path):
    unknown = "keep-disks names 'nobody', but there is no such disk"
    with pytest.raises(MachineError, match=f'{unknown}\\s.*node-name=.*id='), \
            idle(tmp_path, strategy='auto', options=KEEP + 'nobody'):
        pass
    with idle(tmp_path) as guest:
        add = {'qom-type': 'ram-reset-auto', 'id': 'rr0'}
        with pytest.raises(MachineError, match=unknown):
            guest.qmp('object-add', **add, **{'keep-disks': ['nobody']})
        guest.qmp('object-add', **add, **{'keep-disks': [DISK]})
        where = {'path': '/objects/rr0', 'property': 'keep-disks'}
        with pytest.raises(MachineError, match=unknown):
            guest.qmp('qom-set', **where, value=[DISK, 'nobody'])
        assert guest.qmp('qom-get', **where) == [DISK]
        with pytest.raises(MachineError, match='no block device can store'):
            guest.save('s')
        guest.qmp('qom-set', **where, value=[])
        guest.save('s')
