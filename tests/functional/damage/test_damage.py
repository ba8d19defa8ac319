# SPDX-License-Identifier: GPL-2.0-or-later
"""A snapshot that is damaged does not run, and does no harm to a good one."""

# Takes: 40 s

import pytest

from lib.damage import (AREA, GARBAGE, OTHER, RAM_SIZE, damage_device,
                        damage_ram_records, damaged, device_section)
from lib.guests import PAGE, Corrupt, Ring3
from lib.machine import RAM, MachineError
from lib.vmstate import SECTION_START, VMState


def damage_magic(state: VMState) -> None:
    state.write(0, b'\0\0\0\0')


def damage_section_name(state: VMState) -> None:
    state.write(state.section(SECTION_START, 'ram') + 6, b'?')


def damage_ram_size(state: VMState) -> None:
    at = state.stream.index(bytes((len(RAM),)) + RAM.encode())
    state.write(at + 1 + len(RAM), (2 * RAM_SIZE).to_bytes(8, 'big'))


def damage_first_ram_records(state: VMState) -> None:
    state.write(state.section(SECTION_START, 'ram') + 4 * PAGE, GARBAGE)


def damage_device_version(state: VMState) -> None:
    at = device_section(state) + 6 + len('serial') + 4
    state.write(at, b'\xff\xff\xff\xff')


def cut_in_ram_blocks(state: VMState) -> None:
    """QEMU reads zeros behind the end of a VM state, without end."""
    at = state.stream.index(bytes((len(RAM),)) + RAM.encode())
    state.truncate(at + 1 + len(RAM) + 8)


def cut_in_ram(state: VMState) -> None:
    state.truncate(device_section(state) // 3)


def cut_in_devices(state: VMState) -> None:
    state.truncate(device_section(state) + 20)


# The first of a strategy is stock's, which finds none of REFUSED in ./test
DAMAGES = (damage_section_name, damage_magic, damage_ram_size,
           damage_first_ram_records, damage_ram_records, damage_device,
           damage_device_version, cut_in_ram_blocks, cut_in_ram,
           cut_in_devices)

# With a ram-reset object these are found before anything has been changed.
REFUSED = (damage_magic, damage_ram_size, cut_in_ram_blocks)


def is_good(guest: Ring3) -> bool:
    try:
        guest.ask('check-fill', *AREA, 1)
        guest.ask('check-set', *OTHER, 0)
    except Corrupt:
        return False
    return True


@pytest.mark.each_value
def test_undamaged(tmp_path, fast_accel, memory, strategy, snapshots):
    """The undamaged snapshot of the tests below loads."""
    damaged(snapshots, tmp_path, lambda state: None)
    with Ring3(tmp_path, accel=fast_accel, memory=memory, strategy=strategy,
               ram=RAM_SIZE, loadvm='bad') as guest:
        guest.sync()
        guest.ask('check-fill', *AREA, 2)
        guest.ask('check-fill', *OTHER, 2)
        guest.load('good')
        assert is_good(guest)


def check_refused(guest: Ring3, seed: int) -> None:
    """A load that was refused has changed nothing, the guest could go on."""
    guest.cont()
    guest.ask('check-fill', *AREA, seed)
    guest.ask('check-fill', *OTHER, seed)


@pytest.mark.each_value
@pytest.mark.parametrize('damage', DAMAGES)
def test_damaged(tmp_path, fast_accel, memory, strategy, snapshots, damage):
    damaged(snapshots, tmp_path, damage)
    with Ring3(tmp_path, accel=fast_accel, memory=memory, strategy=strategy,
               ram=RAM_SIZE, loadvm='good') as guest:
        guest.sync()
        assert is_good(guest)
        failed = 0
        for how in ('hmp', 'qmp'):
            guest.ask('fill', *AREA, 3)
            guest.ask('fill', *OTHER, 3)
            with pytest.raises(MachineError) as error:
                guest.load('bad', how)
            assert 'no answer' not in str(error.value)
            assert guest.process.poll() is None
            assert guest.status() != 'running'
            guest.serial.send('ping 0\n')
            assert guest.silent(0.1)

            before, failed = failed, guest.qmp('query-ram-reset')['failed-loads']
            if failed == before:
                check_refused(guest, 3)
            if damage in REFUSED and strategy != 'stock':
                assert failed == 0
            elif damage not in REFUSED:
                assert failed == before + 1

            guest.load('good', how)
            guest.cont()
            guest.sync()
            assert is_good(guest)
        assert guest.qmp('query-ram-reset')['loads'] == 3


@pytest.mark.each_value
@pytest.mark.parametrize('damage', (damage_ram_records, damage_device))
def test_damaged_at_start(tmp_path, fast_accel, strategy, snapshots, damage):
    """-loadvm of it ends QEMU, with a message and no crash."""
    damaged(snapshots, tmp_path, damage)
    with pytest.raises(MachineError, match='QEMU ends with status 1: '):
        Ring3(tmp_path, accel=fast_accel, strategy=strategy, ram=RAM_SIZE,
              loadvm='bad')
