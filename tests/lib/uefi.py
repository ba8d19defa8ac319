# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest that is OVMF with its shell, which reads and writes variables."""

import re
import shutil
from pathlib import Path

from lib import products
from lib.machine import DISK, MIB, Machine

CODE, VARS = 'OVMF_CODE_4M.fd', 'OVMF_VARS_4M.fd'
GUID = '7c1d3a52-5b0e-4a4c-9d43-0c6f5a2e8b11'


def flash_args(variables: Path, options: str = 'format=raw') -> tuple:
    """For QEMU, with a file of variables that the guest can write to."""
    code = products.FIRMWARE / CODE
    return ('-drive', f'if=pflash,format=raw,readonly=on,file={code}',
            '-drive', f'if=pflash,file={variables},{options}')


class Shell(Machine):
    """It has booted, or it is where a snapshot was."""

    PROMPT = 'Shell> '
    BOOT_TIMEOUT = 180.0
    TIMEOUT = 60.0

    def __init__(self, workdir: Path, args: tuple = (), **kwargs):
        self.variables = workdir / 'vars.fd'
        if not self.variables.exists():
            shutil.copyfile(products.FIRMWARE / VARS, self.variables)
        super().__init__(workdir, accel='tcg', ram=128 * MIB, machine='q35',
                         args=(*flash_args(self.variables), '-device',
                               f'virtio-blk-pci,drive={DISK}', *args), **kwargs)
        if not kwargs.get('loadvm'):
            self.serial.wait(self.PROMPT, self.BOOT_TIMEOUT)

    def enter(self, line: str) -> str:
        self.serial.send(line + '\r')
        # the shell draws the line again, and the prompt, after what it prints
        return self.serial.wait(rf'\n.*?{self.PROMPT}', self.TIMEOUT
                                )[0].decode(errors='replace')

    def set(self, value: int) -> None:
        self.enter(f'setvar kept -guid {GUID} -bs -nv =0x{value:04x}')

    def get(self) -> int:
        said = self.enter(f'setvar kept -guid {GUID}')
        return int(''.join(re.search(r'Bytes\s+(\w\w) (\w\w)', said
                                     ).group(2, 1)), 16)
