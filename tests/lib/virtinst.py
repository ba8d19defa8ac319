# SPDX-License-Identifier: GPL-2.0-or-later
"""virt-install, run beside a libvirtd, and what its domains are changed to."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lib import products
from lib.libvirtd import Libvirtd, Unavailable

# By the libvirt of the same Debian, or of the same age
VERSIONS = {'9.0': '4.1', '11.3': '5.0'}
FOLDER = products.BUILD / 'virt-install'
TIMEOUT = 120.0
EDITOR = products.REPO / 'contrib/ram-reset/ram-reset-xml'


class Refused(Exception):
    """What virt-install has said."""


def programs(generation: str) -> list[Path]:
    """What a libvirtd is to find besides its own."""
    found = [FOLDER / VERSIONS[generation], FOLDER / 'programs']
    for folder in found:
        if not (folder / '.complete').exists():
            reason = folder.with_name(f'{folder.name}.missing')
            raise Unavailable(
                reason.read_text().strip() if reason.exists() else
                f'{folder} is missing: run scripts/fetch-virt-install, which '
                'fetches it')
    return found


def print_xml(daemon: Libvirtd, options: Sequence[str]) -> str:
    """Of a domain that it does not define."""
    # mounts of the daemon's, so that all is where a package would put it
    command = daemon.inside('env', f'PATH={daemon.path}',
                            f'HOME={daemon.work}', 'LC_ALL=C.UTF-8',
                            '/usr/bin/python3', '-B', '/usr/bin/virt-install',
                            '--connect', 'qemu:///system', *options,
                            '--print-xml')
    run = subprocess.run(command, stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=TIMEOUT,
                         check=False)
    if run.returncode:
        raise Refused(run.stderr.strip().removeprefix('ERROR').strip())
    return run.stdout


def add_object(xml: str, value: str) -> str:
    run = subprocess.run([EDITOR, '--object', value, '-'], input=xml,
                         capture_output=True, text=True, timeout=TIMEOUT,
                         check=False, env=dict(os.environ, LC_ALL='C'))
    if run.returncode:
        raise Refused(run.stderr.strip())
    return run.stdout
