# SPDX-License-Identifier: GPL-2.0-or-later
"""Migration capability mapped-ram where QEMU cannot have snapshots with it.

tests/patches/mapped_ram.py tests newer releases, which can.
"""

import pytest

from lib.dma import QtestMachine
from lib.machine import MIB, PAGE, MachineError
from lib.vmstate import VMState

START = 4 * MIB


def start(tmp_path, capability: str) -> QtestMachine:
    machine = QtestMachine(tmp_path, ram=16 * MIB, strategy='memset',
                           args=('-S',))
    machine.qmp('migrate-set-capabilities', capabilities=[
        {'capability': capability, 'state': True}])
    return machine


def test_is_refused_before_anything_changes(tmp_path):
    with start(tmp_path, 'x-ignore-shared') as machine:
        if machine.release() >= (10, 2):
            pytest.skip('QEMU can load such snapshots since 10.2')
        machine.save('s')
    with VMState(machine.disk, 's') as state:
        assert state.stream.count(b'\x0fx-ignore-shared') == 1
        state.replace(state.stream.replace(b'\x0fx-ignore-shared',
                                           b'\x0amapped-ram'))
    with start(tmp_path, 'mapped-ram') as machine:
        machine.qtest.write(START, b'1' * PAGE)
        image = machine.ram_image()
        with pytest.raises(MachineError, match='nothing has been changed.*'
                           "'mapped-ram' is on"):
            machine.load('s')
        assert machine.ram_image() == image
        with pytest.raises(MachineError, match="'mapped-ram' is on"):
            machine.save('t')
        assert ' t ' not in machine.hmp('info snapshots')
        machine.cont()
