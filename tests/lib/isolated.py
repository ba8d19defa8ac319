# SPDX-License-Identifier: GPL-2.0-or-later
"""The first process in namespaces of its own, until its standard input ends.

    isolated.py FOLDER, which becomes a hugetlbfs
"""

import fcntl
import socket
import struct
import subprocess
import sys

SIOCSIFFLAGS, IFF_UP = 0x8914, 1

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
    fcntl.ioctl(end, SIOCSIFFLAGS, struct.pack('16sH14x', b'lo', IFF_UP))
subprocess.run(['mount', '-t', 'hugetlbfs', '-o', 'pagesize=2M', 'hugetlbfs',
                sys.argv[1]], check=True)
print('ready', flush=True)
sys.stdin.buffer.read()
