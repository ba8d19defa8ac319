# SPDX-License-Identifier: GPL-2.0-or-later
"""The Pythons of this host that the Python package is for."""

import os
import sys
from pathlib import Path

from lib import effort

OLDEST = 3, 9


def pythons() -> list[Path]:
    """
    The newest; with ./test --all the oldest that it is for, too, if this host
    has that.
    """
    found = {}
    folders = [*os.get_exec_path(),
               *Path.home().glob('.pyenv/versions/*/bin')]
    for folder in folders:
        for minor in range(OLDEST[1], 20):
            path = Path(folder) / f'python3.{minor}'
            if path.exists() and not path.read_bytes()[:2] == b'#!':
                found.setdefault(minor, path)
    found.setdefault(sys.version_info[1], Path(sys.executable))
    wanted = {min(found), max(found)} if effort.ALL else {max(found)}
    return [found[minor] for minor in sorted(wanted)]
