# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts of a QEMU, from its own answers."""

import re
import shutil
import subprocess
from typing import Iterator, List

from ram_reset.cli.check_report import NO, OK, Finding
from ram_reset.disks import image_tool
from ram_reset.errors import StartError

DEFAULT = 'qemu-system-x86_64'
PACKAGED = 'qemu-ram-reset-system-x86_64'
PATIENCE = 30.0         # seconds
GET = ('build one with ./demo in the repository of RAM reset, or install the '
       'package qemu-ram-reset that ./package builds; name it with --qemu')


def where_to_get() -> str:
    return f'name the package\'s one: --qemu {PACKAGED}' \
        if shutil.which(PACKAGED) else GET


def output(*command: str) -> str:
    """Raises StartError with the reason."""
    try:
        done = subprocess.run(command, text=True, errors='replace',
                              stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=PATIENCE, check=False)
    except OSError as e:
        raise StartError(f'{command[0]} cannot be run ({e.strerror})') from e
    except subprocess.TimeoutExpired:
        raise StartError(f'{command[0]} gives no answer in {PATIENCE:g} s'
                         ) from None
    if done.returncode:
        last = (done.stderr.strip() or 'it says nothing').splitlines()[-1]
        raise StartError(f"'{' '.join(command)}' ends with status "
                         f'{done.returncode}: {last}')
    return done.stdout


def version(text: str) -> str:
    """Of the first line that a program of QEMU says of itself."""
    found = re.search(r'version (\S+)', text)
    return found[1] if found else 'of an unknown version'


def words(text: str) -> List[str]:
    return re.findall(r'^\s*([\w.-]+)', text, re.M)


def findings(qemu: str) -> Iterator[Finding]:
    """One NO among them says that no machine can be started."""
    program = shutil.which(qemu)
    if not program:
        yield Finding(NO, 'QEMU', f'{qemu} is no program that can be run',
                      where_to_get())
        return
    try:
        said = version(output(program, '--version'))
        if 'q35' not in words(output(program, '-machine', 'help')):
            yield Finding(NO, 'QEMU', f'{program} has no PC to run guests in',
                          'name a qemu-system-x86_64 with --qemu')
            return
        yield Finding(OK, 'QEMU', f'{program}, {said}')
        objects = output(program, '-object', 'help')
    except StartError as e:
        yield Finding(NO, 'QEMU', str(e), where_to_get())
        return
    types = [name for name in words(objects) if name.startswith('ram-reset-')]
    if 'ram-reset-auto' not in types:
        yield Finding(NO, 'RAM reset', f'{program} has no such objects',
                      where_to_get())
        return
    yield Finding(OK, 'RAM reset', ', '.join(types))
    tool = image_tool(qemu)
    try:
        yield Finding(OK, 'qemu-img', f'{shutil.which(tool) or tool}, '
                      f'{version(output(tool, "--version"))}')
    except StartError as e:
        yield Finding(NO, 'qemu-img', str(e),
                      'put the one of the same build beside QEMU, or into '
                      'PATH')


def has_kvm(qemu: str) -> bool:
    return 'kvm' in words(output(qemu, '-accel', 'help'))
