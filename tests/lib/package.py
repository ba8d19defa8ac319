# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests of tests that use the Python package, not lib/machine.py."""

from pathlib import Path

from ram_reset import aio

from lib import products
from lib.machine import MIB, start_line
from lib.patience import patience

SOURCE = products.REPO / 'contrib/python/src'
QEMU = str(products.QEMU)
RAM = 64 * MIB
READY = r'^ready 3 [^\n]*\n'


def options(accel: str, ram: int) -> list[str]:
    return [*map(str, start_line(products.QEMU, accel)[1:]),
            '-m', f'{ram // MIB}M']


def ring3(accel: str, ram: int = RAM) -> list[str]:
    """Options of a guest that answers "ping 7" on its serial port."""
    return [*options(accel, ram), '-bios', 'qboot.rom', '-kernel',
            str(products.ring3_image())]


def shell(accel: str = 'tcg', initramfs: Path | None = None) -> list[str]:
    """Options of a Linux guest with a shell on its serial port."""
    return [*options(accel, 192 * MIB), '-kernel', str(products.kernel()),
            '-initrd', str(initramfs or products.initramfs()), '-append',
            'console=ttyS0 loglevel=1 edd=off no_timer_check '
            'rdinit=/bin/busybox -- sh']


async def start_ring3(accel: str) -> aio.Machine:
    """Such a guest, which waits for commands."""
    machine = await aio.Machine.start(ring3(accel), qemu=QEMU, serial=True)
    await machine.serial.expect(READY, patience(60))
    return machine


def set_up_shell(machine) -> None:
    """@machine: of ram_reset; its shell has prompted, and knows commands."""
    machine.serial.expect('~ # ', patience(90))
    machine.serial.run('/bin/busybox mkdir -p /bin /run /proc && '
                       '/bin/busybox --install -s /bin', patience(60))
