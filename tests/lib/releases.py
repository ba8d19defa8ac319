# SPDX-License-Identifier: GPL-2.0-or-later
"""Other releases of QEMU, built once for all that tests them.

./test --all compiles our files and the patched ones; ./test patches builds each
QEMU, and runs it.
"""

import re
import subprocess
from functools import cache

import pytest

from common import (BUILD, RELEASES, ROOT, prepared, qemu_version,
                    release_of)

PLACE = BUILD / 'releases'
SCRIPT = ROOT / 'scripts/build-qemu'
OTHERS = RELEASES[1:]
# How scripts/prepare-tree says that there is no source to be had
MISSING = re.compile(r'prepare-tree: (Debian no longer offers .*|'
                     r'apt could not fetch qemu=.*)')


@cache
def tried(release: str, whole: bool) -> subprocess.CompletedProcess:
    """A build, once whatever comes of it; quick if nothing has changed."""
    stock = prepared(PLACE / release)
    had = stock and release_of(qemu_version(stock)) == release
    run = subprocess.run(
        [SCRIPT, '--minimal', *([] if whole else ['--ours']), '--place',
         PLACE / release,
         *([] if had else ['--qemu-src', f'debian:{release}'])],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, text=True)
    (PLACE / f'{release}.log').write_text(run.stdout)
    return run


def build(release: str, whole: bool = True) -> None:
    """
    Skips the test if the source cannot be had.

    :param whole: all of QEMU, or our files and the patched ones
    """
    run = tried(release, whole)
    if missing := MISSING.search(run.stdout):
        pytest.skip(missing[1])
    assert run.returncode == 0, run.stdout[-3000:]
