# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshots with the capability mapped-ram, which QEMU 10.2 and later can have;
test_release_qtests.py runs these tests.

QEMU loads such snapshots by a way of its own, with no call for a page.  Pages
that are not stored are zero; QEMU makes them so only if the guest was running
when it was told to load.
"""

import re
import struct
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.dma import QtestMachine
from lib.fixtures import accel, built, fast_accel   # noqa: F401
from lib.guests import Ring3
from lib.machine import (MEMORIES, MIB, PAGE, RAM, STRATEGIES, Machine,
                         MachineError)

RAM_SIZE = 128 * MIB
KEPT = Ring3.FIRST_FREE, 8 * MIB
# Zero when it is saved
LATER = Ring3.FIRST_FREE + 16 * MIB, 32 * MIB

# A machine without a vCPU has a part of RAM that the host sees as a file: its
# name, its size, and where it begins
DIMM, DIMM_SIZE, DIMM_START = 'mem1', 16 * MIB, 4 << 30
SMALL = 32 * MIB
CAPABILITIES = 'mapped-ram', 'x-ignore-shared'
ON = ('-global', 'migration.mapped-ram=on', '-S')


def mapped_ram(guest: Machine, *names: str) -> None:
    guest.qmp('migrate-set-capabilities', capabilities=[
        {'capability': name, 'state': True}
        for name in names or ('mapped-ram',)])


def save(guest: Ring3) -> bytes:
    guest.ask('fill', *KEPT, 1)
    guest.stop()
    guest.save('s')
    image = guest.ram_image()
    guest.cont()
    return image


@pytest.mark.parametrize('memory', MEMORIES)
@pytest.mark.parametrize('strategy', STRATEGIES[1:])
def test_mapped_ram(tmp_path, fast_accel, strategy, memory):
    with Ring3(tmp_path, accel=fast_accel, strategy=strategy, memory=memory,
               ram=RAM_SIZE, options=',rewind=on') as guest:
        mapped_ram(guest)
        image, before = save(guest), guest.rss()
        for seed in range(2, 4):
            guest.ask('fill', *KEPT, seed)
            guest.ask('fill', *LATER, seed)
            guest.stop()
            guest.load('s')
            assert guest.ram_image() == image
            load = guest.last_load()
            assert not load['rewound'] and 'mapped-ram' in load['blocker']
            rewind = guest.qmp('query-ram-reset')['rewind']
            assert 'mapped-ram' in rewind['blocker']
            block, = (b for b in load['blocks'] if b['name'] == RAM)
            assert not block['fallback']
            if block['strategy'] in ('madvise', 'remap'):
                assert guest.rss() < before + LATER[1] // 2
            guest.cont()
            guest.ask('check-fill', *KEPT, 1)


def test_mapped_ram_in_a_new_process(tmp_path, fast_accel):
    """Without a template, which would need what QEMU does not tell."""
    directory = tmp_path / 'templates'
    directory.mkdir(mode=0o700)
    settings = dict(accel=fast_accel, strategy='auto', memory='private',
                    ram=RAM_SIZE, options=f',template-dir={directory}')
    with Ring3(tmp_path, **settings) as guest:
        mapped_ram(guest)
        image = save(guest)
    assert not list(directory.iterdir())
    with Ring3(tmp_path, **settings, loadvm='s',
               args=('-global', 'migration.mapped-ram=on', '-S')) as guest:
        assert guest.ram_image() == image
    assert not list(directory.iterdir())


def test_mapped_ram_is_verified(tmp_path, fast_accel):
    with Ring3(tmp_path, accel=fast_accel, strategy='memset', memory='private',
               ram=RAM_SIZE, options=',verify=on') as guest:
        mapped_ram(guest)
        save(guest)
        guest.ask('fill', *LATER, 2)
        guest.load('s')
        assert guest.status() == 'running'
        # the capability has to be what it was
        guest.qmp('migrate-set-capabilities',
                  capabilities=[{'capability': 'mapped-ram', 'state': False}])
        with pytest.raises(MachineError, match='mapped-ram'):
            guest.load('s')


class TwoDimms(QtestMachine):
    """@share: of the second one"""

    def __init__(self, workdir: Path, *, strategy: str = 'memset',
                 share: str = 'on', args: tuple = (), **kwargs):
        super().__init__(workdir, strategy=strategy, ram=SMALL, args=(
            '-m', f'{SMALL // MIB}M,slots=1,maxmem=1G', '-object',
            f'memory-backend-file,id={DIMM},size={DIMM_SIZE},share={share},'
            f'mem-path={workdir / "dimm"}',
            '-device', f'pc-dimm,memdev={DIMM}', *args), **kwargs)

    def write(self, *bytes_: int) -> None:
        """The first bytes of some pages of each, from 1 MiB on."""
        for start in (0, DIMM_START):
            for i, byte in enumerate(bytes_):
                if byte is not None:
                    self.qtest.write(start + MIB + i * PAGE,
                                     bytes((byte,)) * PAGE)

    def image(self) -> bytes:
        file = self.workdir / 'dimm-image'
        self.qmp('pmemsave', val=DIMM_START, size=DIMM_SIZE,
                 filename=str(file))
        return self.ram_image() + file.read_bytes()


@pytest.mark.parametrize('covers', ('', f',memdev={RAM}', f',memdev={DIMM}'))
@pytest.mark.parametrize('state', ('running', 'stopped', 'new process'))
def test_what_is_not_stored_is_zero(tmp_path, state, covers):
    """Whether or not an object covers it."""
    with TwoDimms(tmp_path, options=covers) as machine:
        mapped_ram(machine)
        machine.write(1, 0, None, 4)
        machine.save('s')
        image = machine.image()
        machine.write(5, 6, 7, 8)
        if state != 'running':
            machine.stop()
        if state != 'new process':
            machine.load('s')
            assert_same_ram(machine.image(), image)
    if state == 'new process':
        with TwoDimms(tmp_path, options=covers, args=ON,
                      loadvm='s') as machine:
            assert_same_ram(machine.image(), image)


@pytest.mark.parametrize('state', ('running', 'stopped'))
@pytest.mark.parametrize('covers', ('', f',memdev={DIMM}'))
def test_device_before_ram(tmp_path, state, covers):
    """virtio-mem is loaded before RAM, and what is unplugged gets no pages."""
    file = tmp_path / 'vmem'
    with TwoDimms(tmp_path, options=covers, args=(
            '-object', f'memory-backend-file,id=vmem,size=64M,share=on,'
                       f'mem-path={file}',
            '-device', 'virtio-mem-pci,memdev=vmem,requested-size=0,'
                       'block-size=2M')) as machine:
        mapped_ram(machine)
        machine.write(1, 0)
        machine.save('s')
        image = machine.image()
        machine.write(5, 6)
        if state == 'stopped':
            machine.stop()
        machine.load('s')
        assert_same_ram(machine.image(), image)
        assert file.stat().st_blocks == 0


@pytest.mark.parametrize('state', ('running', 'stopped'))
@pytest.mark.parametrize('covers', ('', ',memdev=mem2'))
def test_two_dimms_on_one_file(tmp_path, state, covers):
    """A DIMM sees pages that the other loads, and hides them if zero."""
    backend = (f'memory-backend-file,id=mem2,size={DIMM_SIZE},share=on,'
               f'mem-path={tmp_path / "dimm"}')
    with TwoDimms(tmp_path, share='off', strategy='madvise',
                  options=covers, args=(
            '-m', f'{SMALL // MIB}M,slots=2,maxmem=1G', '-object', backend,
            '-device', 'pc-dimm,memdev=mem2')) as machine:
        mapped_ram(machine)
        shared = DIMM_START + DIMM_SIZE
        machine.qtest.write(DIMM_START + MIB, bytes(PAGE))
        machine.qtest.write(shared + MIB, b'1' * PAGE)
        machine.save('s')
        machine.qtest.write(DIMM_START + MIB, b'2' * PAGE)
        machine.qtest.write(shared + MIB, bytes(PAGE))
        if state == 'stopped':
            machine.stop()
        machine.load('s')
        assert machine.qtest.read(shared + MIB, PAGE) == b'1' * PAGE
        assert machine.qtest.read(DIMM_START + MIB, PAGE) == bytes(PAGE)


def test_with_ignored_memory(tmp_path):
    """Since 11.1; before, what is saved cannot be loaded."""
    with TwoDimms(tmp_path) as machine:
        works = machine.release() >= (11, 1)
    with TwoDimms(tmp_path, strategy='stock',
                  share='on' if works else 'off') as machine:
        mapped_ram(machine, *CAPABILITIES)
        machine.write(1, 0)
        machine.save('s')
        saved = machine.image()
    with TwoDimms(tmp_path) as machine:
        mapped_ram(machine, *CAPABILITIES)
        machine.stop()
        for byte in range(5, 7):
            machine.write(byte, byte, byte)
            before = machine.image()
            if works:
                machine.load('s')
                assert_same_ram(machine.image(),
                                saved[:SMALL] + before[SMALL:])
                continue
            with pytest.raises(MachineError, match='nothing has been changed.*'
                               "'x-ignore-shared'"):
                machine.load('s')
            with pytest.raises(MachineError, match="'x-ignore-shared'"):
                machine.save('t')
            assert_same_ram(machine.image(), before)


HEADER = '>IQQQ'


def damaged(disk: Path, block: str, **changes: int) -> None:
    """The list of RAM blocks, which is at the beginning of the VM state."""
    data = bytearray(disk.read_bytes())
    name = bytes((len(block),)) + block.encode()
    found, = re.finditer(re.escape(name) + b'.{8}\0\0\0\1', data, re.DOTALL)
    at = found.start() + len(name)
    length, = struct.unpack_from('>Q', data, at)
    version, *fields = struct.unpack_from(HEADER, data, at + 8)
    names = 'page_size', 'bitmap', 'pages'
    struct.pack_into(HEADER, data, at + 8, version, *(
        field + changes.pop(name, 0) for name, field in zip(names, fields)))
    struct.pack_into('>Q', data, at, length + changes.get('length', 0))
    # the sum comes first
    first, = re.finditer(re.escape(bytes((len(RAM),)) + RAM.encode()) +
                         b'.{8}\0\0\0\1', data, re.DOTALL)
    total, = struct.unpack_from('>Q', data, first.start() - 8)
    struct.pack_into('>Q', data, first.start() - 8,
                     total + changes.pop('length', 0))
    assert not changes
    disk.write_bytes(data)


@pytest.mark.parametrize('block,changes,message', (
    # QEMU does not resize it, and would leave the rest as it is
    ('/rom@etc/acpi/tables', {'length': -0x10000,
                              'pages': 0x10000}, '65536 bytes in the'),
    (RAM, {'page_size': PAGE}, '8192 bytes in the'),
    ('/rom@etc/acpi/tables', {'bitmap': -1}, 'damaged'),
    (RAM, {'pages': -MIB}, 'damaged'),
    (RAM, {'pages': 1}, 'damaged')))
def test_damage_is_found_before(tmp_path, block, changes, message):
    with TwoDimms(tmp_path) as machine:
        mapped_ram(machine)
        machine.write(1, 0)
        machine.save('s')
    damaged(machine.disk, block, **changes)
    with TwoDimms(tmp_path, args=ON) as machine:
        machine.write(5, 6, 7)
        image = machine.image()
        with pytest.raises(MachineError,
                           match=f'nothing has been changed.*{message}'):
            machine.load('s')
        assert machine.image() == image
        machine.save('t')
