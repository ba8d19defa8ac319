# SPDX-License-Identifier: GPL-2.0-or-later
"""A snapshot of a ring-3 guest, and how to damage it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import products
from lib.guests import PAGE, Ring3
from lib.machine import MIB, kvm_usable, run_quietly
from lib.vmstate import SECTION_FULL, VMState

RAM_SIZE = 64 * MIB
AREA = Ring3.FIRST_FREE, 8 * MIB
OTHER = Ring3.FIRST_FREE + 16 * MIB, 8 * MIB
GARBAGE = b'\xff' * (2 * PAGE + 64)   # reaches a record's header, wherever


def damage_template(file: Path, content: bytes) -> None:
    """The first byte of @content; nothing else shows that it was changed."""
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    with open(file, 'r+b') as f:
        f.seek(f.read().index(content))
        f.write(bytes((content[0] ^ 0x5a,)))
    os.utime(file, ns=times)


def device_section(state: VMState) -> int:
    return state.section(SECTION_FULL, 'serial')


def damage_ram_records(state: VMState) -> None:
    state.write(device_section(state) // 2, GARBAGE)


def damage_device(state: VMState) -> None:
    """The first byte of a device's name: no such device."""
    state.write(device_section(state) + 6, b'?')


@pytest.fixture(scope='module')
def snapshots(tmp_path_factory) -> Path:
    """A disk with two snapshots: "good", and "bad" before it is damaged."""
    workdir = tmp_path_factory.mktemp('snapshots')
    accel = 'kvm' if kvm_usable() else 'tcg'
    with Ring3(workdir, accel=accel, ram=RAM_SIZE) as guest:
        guest.ask('fill', *AREA, 1)
        guest.save('good')
        guest.ask('fill', *AREA, 2)
        guest.ask('fill', *OTHER, 2)
        guest.save('bad')
    return guest.disk


def damaged(snapshots: Path, workdir: Path,
            damage: Callable[[VMState], None]) -> None:
    disk = workdir / 'disk.qcow2'
    shutil.copy(snapshots, disk)
    with VMState(disk, 'bad') as state:
        damage(state)
    # the disk itself is whole, only what the guest has in it is not
    run_quietly(products.QEMU_IMG, 'check', '-q', disk)
