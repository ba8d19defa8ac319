# SPDX-License-Identifier: GPL-2.0-or-later
"""The command ram-reset of contrib/python, from its source, and its loop."""

import os
import subprocess
import sys
from pathlib import Path

from lib import products
from lib.machine import run_quietly, start_line
from lib.patience import patience

COMMAND = sys.executable, '-m', 'ram_reset'
ENVIRONMENT = dict(os.environ,
                   PYTHONPATH=str(products.REPO / 'contrib/python/src'))
OBJECT = 'ram-reset-auto,id=rr0,rewind=on'
# to the end of the line, or the rest of it comes after each load
READY = ('--ready', r'^ready 3 \w+\n')
PING = ('--send', r'ping 7\n', '--until', '^pong 7\n')


def command(*args: object, status: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([*COMMAND, *(str(a) for a in args)], text=True,
                          capture_output=True, check=False, env=ENVIRONMENT,
                          timeout=patience(120))
    print(done.stdout, done.stderr)
    assert done.returncode == status
    assert 'Traceback' not in done.stderr
    return done


def qemu(workdir: Path, accel: str, *args: str, obj: str = OBJECT) -> list:
    disk = workdir / 'disk.qcow2'
    if not disk.exists():
        run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', disk,
                    '64M')
    return [str(arg) for arg in (
        *start_line(products.QEMU, accel), '-m', '128M',
        '-bios', 'qboot.rom', '-kernel', products.ring3_image(),
        '-pidfile', workdir / 'pid', '-blockdev',
        f'qcow2,node-name=disk0,file.driver=file,file.filename={disk}',
        *(('-object', obj) if obj else ()), *args)]


def loop(*args, status: int = 0) -> subprocess.CompletedProcess:
    return command('loop', *args, status=status)
