# SPDX-License-Identifier: GPL-2.0-or-later
"""Abilities of the host's kernel, and a QEMU that lacks them."""

import ctypes
import fcntl
import os
import platform
import struct
import sys
from pathlib import Path

import pytest

from lib import products

USERFAULTFD = {'x86_64': 323, 'aarch64': 282, 's390x': 355}
USER_MODE_ONLY = 1
UFFDIO_API = 0xc018aa3f
API, WP_ASYNC = 0xaa, 1 << 15

# A program that its arguments become, with one system call refused
REFUSER = '''\
#!{python}
import ctypes, os, struct, sys
LOAD, EQUAL, RETURN, ALLOW, EPERM = 0x20, 0x15, 0x06, 0x7fff0000, 0x50001
code = ((LOAD, 0, 0, 0), (EQUAL, 0, 1, {number}), (RETURN, 0, 0, EPERM),
        (RETURN, 0, 0, ALLOW))
rules = ctypes.create_string_buffer(b''.join(
    struct.pack('HBBI', *c) for c in code))
program = ctypes.create_string_buffer(
    struct.pack('HxxxxxxQ', len(code), ctypes.addressof(rules)))
libc = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
assert libc.prctl(SECCOMP, FILTER, program) == 0
os.execv({program!r}, [{program!r}, *sys.argv[1:]])
'''


def tells_what_is_written() -> bool:
    """With a userfaultfd that waits for nobody, as from Linux 6.7 on."""
    number = USERFAULTFD.get(platform.machine())
    if number is None:
        return False
    fd = ctypes.CDLL(None).syscall(number, os.O_CLOEXEC | USER_MODE_ONLY)
    if fd < 0:
        return False
    try:
        fcntl.ioctl(fd, UFFDIO_API, struct.pack('QQQ', API, WP_ASYNC, 0))
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


needs_kernel = pytest.mark.skipif(
    not tells_what_is_written(),
    reason='this kernel does not tell what is written (Linux 6.7 does)')


def without_userfaultfd(folder: Path) -> Path:
    """QEMU, as seen by who may not use it."""
    path = folder / 'qemu-without-userfaultfd'
    path.write_text(REFUSER.format(
        python=sys.executable, program=str(products.QEMU),
        number=USERFAULTFD[platform.machine()]))
    path.chmod(0o755)
    return path
