# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts of a host that make its loads fast or slow."""

import ctypes
import errno
import fcntl
import getpass
import grp
import os
import platform
import re
import shutil
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import List, Optional

from ram_reset.cli.check_report import NO, OK, SLOW, Finding
from ram_reset.process import SHM

KVM = '/dev/kvm'
KVM_CHECK_EXTENSION = 0xae03
KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 = 168

USERFAULTFD = {'x86_64': 323, 'aarch64': 282, 's390x': 355}
UFFD_USER_MODE_ONLY = 1
UFFDIO_API = 0xc018aa3f
UFFD_API, WP_UNPOPULATED, WP_ASYNC = 0xaa, 1 << 13, 1 << 15
PAGEMAP_SCAN = 0xc0606610
SCAN_ARGUMENT = struct.Struct('12Q')

GIB = 1 << 30
GUEST = GIB             # RAM of a guest that the host should have room for


def size(count: int) -> str:
    return f'{count / GIB:.1f} GiB' if count >= GIB else \
        f'{count >> 20} MiB'


# KVM

def is_virtual() -> bool:
    """Whether this host is a virtual machine itself."""
    with suppress(OSError):
        return bool(re.search(r'^flags\s*:.* hypervisor\b',
                              Path('/proc/cpuinfo').read_text(), re.M))
    return False


def kvm_missing() -> str:
    """How to get /dev/kvm."""
    there = 'switch on nested virtualization for this virtual machine' \
        if is_virtual() else "switch on virtualization in the host's firmware"
    return (f'{there}, and load the module kvm_intel or kvm_amd; give a '
            f'container the device (--device {KVM})')


def kvm_refused() -> str:
    """How to get the right to open /dev/kvm."""
    found = os.stat(KVM)
    if found.st_gid and found.st_mode & 0o060 == 0o060:
        with suppress(KeyError, OSError):   # Python 3.13's without a name
            name = grp.getgrgid(found.st_gid).gr_name
            return (f'add your user to its group (usermod -aG {name} '
                    f'{getpass.getuser()}), and log in again')
    return (f'let a group use it (chgrp kvm {KVM}; chmod 660 {KVM}), and add '
            'your user to the group')


def open_kvm() -> int:
    """A file descriptor of it; raises OSError."""
    return os.open(KVM, os.O_RDWR | os.O_CLOEXEC)


def kvm() -> Finding:
    if platform.machine() != 'x86_64':
        return Finding(NO, 'KVM', f'it runs no x86-64 guest on a host that is '
                       f'{platform.machine()}', 'use an x86-64 host')
    try:
        fd = open_kvm()
    except FileNotFoundError:
        return Finding(NO, 'KVM', f'there is no {KVM}', kvm_missing())
    except OSError as e:
        refused = e.errno in (errno.EACCES, errno.EPERM)
        exists = stat.S_ISCHR(os.stat(KVM).st_mode)
        return Finding(NO, 'KVM', f'{KVM} cannot be opened ({e.strerror})',
                       kvm_refused() if refused and exists else kvm_missing())
    is_device = stat.S_ISCHR(os.fstat(fd).st_mode)
    os.close(fd)
    if not is_device:
        return Finding(NO, 'KVM', f'{KVM} is no device', kvm_missing())
    where = 'nested, since this host is a virtual machine' if is_virtual() \
        else 'on the hardware'
    return Finding(OK, 'KVM', f'{KVM} can be opened; it is {where}')


def dirty_log() -> Finding:
    """QEMU spares pages of the log only with this; see dirty_kvm_spare()."""
    fd = open_kvm()
    try:
        manual = fcntl.ioctl(fd, KVM_CHECK_EXTENSION,
                             KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2)
    finally:
        os.close(fd)
    if manual > 0:
        return Finding(OK, 'dirty log', 'pages that are written load after '
                       'load can be left writable')
    return Finding(SLOW, 'dirty log', 'KVM has no manual dirty log, so a page '
                   'that is written load after load costs a page fault each '
                   'time', 'use Linux 5.2 or later')


# Memory of devices

def watching() -> Optional[OSError]:
    """
    Why the kernel does not report what QEMU writes.  These are the system
    calls of QEMU's own watch, on no memory.
    """
    number = USERFAULTFD.get(platform.machine())
    if number is None:
        return OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK |
                      UFFD_USER_MODE_ONLY)
    if fd < 0:
        return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        fcntl.ioctl(fd, UFFDIO_API, struct.pack(
            'QQQ', UFFD_API, WP_UNPOPULATED | WP_ASYNC, 0))
        with open('/proc/self/pagemap', 'rb') as pagemap:
            fcntl.ioctl(pagemap, PAGEMAP_SCAN, SCAN_ARGUMENT.pack(
                SCAN_ARGUMENT.size, *[0] * 11))
    except OSError as e:
        return e
    finally:
        os.close(fd)
    return None


def memory_of_devices() -> Finding:
    name = 'memory of devices'
    problem = watching()
    if not problem:
        return Finding(OK, name, 'the kernel reports what QEMU has written '
                       'there')
    fact = ('the kernel does not report what QEMU has written there '
            f'({problem.strerror}), so QEMU compares all of it: 1.5 ms for '
            'each 16 MiB')
    refused = problem.errno in (errno.EPERM, errno.EACCES)
    return Finding(SLOW, name, fact, 'allow the system call userfaultfd; '
                   'some containers refuse it (seccomp)' if refused else
                   'use Linux 6.7 or later')


# Room

def available_memory() -> int:
    found = re.search(r'^MemAvailable: *(\d+) kB',
                      Path('/proc/meminfo').read_text(), re.M)
    return int(found[1]) << 10 if found else 0


def memory() -> Finding:
    there = available_memory()
    fact = f'{size(there)} are available'
    if there >= 2 * GUEST:
        return Finding(OK, 'memory', fact)
    return Finding(SLOW, 'memory', f'{fact}: a guest of {size(GUEST)} and the '
                   "copy of its RAM may not fit, and loads are whole then",
                   'use less RAM for guests, a lower rewind-limit=, or a '
                   'larger host')


def shared_memory() -> Finding:
    """Forks, and templates as the manual has them, use it."""
    if not os.access(SHM, os.W_OK):
        return Finding(SLOW, SHM, 'it is not there, or cannot be written to, '
                       'so that RAM of forks goes to a disk',
                       f'mount -t tmpfs tmpfs {SHM}')
    there = shutil.disk_usage(SHM).free
    fact = f'room for {size(there)} of templates and forks'
    if there >= GUEST:
        return Finding(OK, SHM, fact)
    return Finding(SLOW, SHM, f'{fact}: RAM of larger forks goes to a disk',
                   f'mount -o remount,size=50% {SHM}; give a container more '
                   '(--shm-size)')


def all_but_kvm() -> List[Finding]:
    return [memory_of_devices(), memory(), shared_memory()]
