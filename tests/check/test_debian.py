# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/prepare-tree says what to do if apt cannot fetch the source."""

import os
import shutil
import subprocess

import pytest

from lib.products import REPO

SCRIPTS = 'common.py', 'debian.py', 'prepare-tree'
# apt's lists name versions whose files a mirror need not have
APT = '''#!/bin/sh
case "$*" in
*indextargets*) echo "file:/mirror stable main" ;;
*showsrc*) echo "Version: 1:11.1.3+ds-1" ;;
*download-only*) echo "E: Failed to fetch qemu_11.1.3.dsc  {error}" >&2
    exit 100 ;;
esac
'''


@pytest.fixture
def said(tmp_path):
    """The message that a clone's user reads when apt fails with @error."""
    def run(error: str, source: str) -> str:
        scripts, programs = tmp_path / 'clone/scripts', tmp_path / 'bin'
        scripts.mkdir(parents=True)
        programs.mkdir()
        for name in SCRIPTS:
            shutil.copy(REPO / 'scripts' / name, scripts)
        for name in ('apt-get', 'apt-cache'):
            (programs / name).write_text(APT.format(error=error))
            (programs / name).chmod(0o755)
        done = subprocess.run(
            [scripts / 'prepare-tree', '--stock', '--place',
             tmp_path / 'place', '--qemu-src', source], text=True,
            capture_output=True, check=False,
            env=os.environ | {'PATH': f'{programs}:{os.environ["PATH"]}'})
        assert done.returncode == 1
        return done.stderr

    return run


@pytest.mark.parametrize('source', ('debian', 'debian:11.1'))
def test_a_file_that_the_mirror_lacks(said, source):
    text = said('404  Not Found [IP: 192.0.2.1 80]', source)
    assert '404 Not Found' in text and 'network' not in text
    assert text.endswith(', which the mirror lacks; give --qemu-src '
                         'DIR|TARBALL with the source\n')


@pytest.mark.parametrize('source', ('debian', 'debian:11.1'))
def test_a_network_that_fails(said, source):
    text = said('Could not resolve the mirror', source)
    assert text.endswith('; check the network and run it again\n')
