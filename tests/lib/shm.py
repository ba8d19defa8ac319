# SPDX-License-Identifier: GPL-2.0-or-later
"""Folders in memory, where it takes no time to write a file."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

SHM = Path('/dev/shm')


@contextlib.contextmanager
def in_memory(name: str) -> Iterator[Path]:
    """This user's alone, as what ours loads from has to be."""
    folder = SHM / f'ram-reset-{os.getpid()}-{name}'
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
