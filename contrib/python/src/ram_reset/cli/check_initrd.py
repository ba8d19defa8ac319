# SPDX-License-Identifier: GPL-2.0-or-later
"""An initial RAM disk with this host's own shell, and nothing else."""

import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Dict, List

SHELL = '/bin/sh'


def files_of_shell() -> List[Path]:
    """The shell, and the libraries that its loader names."""
    try:
        said = subprocess.run(['ldd', SHELL], text=True, capture_output=True,
                              check=False).stdout
    except OSError:
        said = ''       # a shell that is static needs none
    found = re.findall(r'(/\S+)(?= \(0x)', said)
    return [Path(SHELL), *(Path(name) for name in found)]


def entry(name: str, mode: int, data: bytes = b'') -> bytes:
    """A member of a cpio archive of the kind "newc"."""
    path = name.encode() + b'\0'
    numbers = [0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0]
    head = b'070701' + b''.join(b'%08X' % n for n in numbers) + path
    return padded(head) + padded(data)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def image() -> bytes:
    """Raises OSError if a file cannot be read."""
    members: Dict[str, bytes] = {'dev': entry('dev', stat.S_IFDIR | 0o755)}
    for file in files_of_shell():
        for folder in reversed(file.parents[:-1]):
            name = str(folder)[1:]
            members.setdefault(name, entry(name, stat.S_IFDIR | 0o755))
        name = os.fspath(file)[1:]
        members[name] = entry(name, stat.S_IFREG | 0o755, file.read_bytes())
    return b''.join(members.values()) + entry('TRAILER!!!', 0)
