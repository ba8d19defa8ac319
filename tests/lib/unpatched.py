# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU without our patches, of the release that ours is made of."""

import functools
import re
import subprocess
from pathlib import Path

import pytest

from lib import products

PROGRAM = products.BUILD / 'debian-qemu/qemu-system-x86_64'


@functools.cache
def release(qemu: Path) -> str:
    said = subprocess.run([qemu, '--version'], text=True, capture_output=True,
                          check=True).stdout
    return re.search(r'version (\d+\.\d+)', said)[1]


def debian() -> Path:
    """Debian's; the test is skipped if there is none of this release."""
    if not PROGRAM.exists():
        reason = PROGRAM.parent.with_name('debian-qemu.missing')
        pytest.skip(reason.read_text().strip() if reason.exists() else
                    "no QEMU of Debian's: run scripts/fetch-debian-qemu")
    if release(PROGRAM) != release(products.QEMU):
        pytest.skip(f"Debian's QEMU is {release(PROGRAM)}, and ours "
                    f'{release(products.QEMU)}')
    return PROGRAM
