# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python package restores domains of libvirt, by libvirt-python."""

import os
import subprocess
import sys

import pytest

from lib.domains import OBJECTS, TAG, Config, saved
from lib.package import SOURCE
from lib.patience import patience
from lib.products import REPO

CLIENT = REPO / 'tests/lib/libvirt_client.py'
LIBRARIES = 'usr/lib/x86_64-linux-gnu'


@pytest.fixture
def environment(daemon) -> dict[str, str]:
    tops = daemon.root, daemon.root / 'extra'
    modules = [path.parent for top in tops for path in top.glob(
        'usr/lib/python3/dist-packages/libvirtmod.cpython-'
        f'{sys.version_info[0]}{sys.version_info[1]}-*')]
    if not modules:
        pytest.skip("Debian's python3-libvirt is not for Python "
                    f'{sys.version_info[0]}.{sys.version_info[1]}')
    return {**os.environ, 'PYTHONPATH': f'{SOURCE}:{modules[0]}',
            'LD_LIBRARY_PATH': ':'.join(f'{top}/{LIBRARIES}' for top in tops)}


def test_restore(daemon, environment):
    with saved(daemon, Config(objects=OBJECTS['rewind'])) as guest:
        uri = f'qemu+unix:///system?socket={daemon.work}/run/libvirt-sock'
        done = subprocess.run(
            [sys.executable, CLIENT, uri, guest.name, TAG], text=True,
            capture_output=True, check=False, timeout=patience(60),
            env=environment)
    assert done.returncode == 0 and done.stdout.startswith('ok, '), \
        done.stdout + done.stderr
    assert not done.stderr
