# SPDX-License-Identifier: GPL-2.0-or-later
"""Memory that must stay where it is, as if a device were assigned."""

import subprocess
from pathlib import Path

from lib import products
from lib.machine import Machine

COUNTER = 'ram_block_discard_disabled_cnt'


def pin(vm: Machine) -> None:
    """
    Do what ram_block_discard_disable(true) does: VFIO calls it, and there is
    no device to assign on a test machine.
    """
    symbols = subprocess.run(['nm', products.QEMU], capture_output=True,
                             text=True, check=True).stdout.splitlines()
    address, = (int(line.split()[0], 16) for line in symbols
                if line.endswith(f' {COUNTER}'))
    maps = Path(f'/proc/{vm.process.pid}/maps').read_text().splitlines()
    base = min(int(line.split('-')[0], 16) for line in maps
               if line.endswith(f' {products.QEMU}'))
    with open(f'/proc/{vm.process.pid}/mem', 'r+b', buffering=0) as memory:
        memory.seek(base + address)
        assert int.from_bytes(memory.read(4), 'little') == 0
        memory.seek(base + address)
        memory.write((1).to_bytes(4, 'little'))
