# SPDX-License-Identifier: GPL-2.0-or-later
"""
Snapshots of QEMU machines: save, restore, fork.

>>> from ram_reset import Machine
>>> with Machine.start(['-m', '1G'], disks=['debian.qcow2']) as machine:
...     clean = machine.snapshot()
...     machine.restore(clean)

The module aio has the same for asyncio.
"""

from ram_reset.channel import Result
from ram_reset.disks import Disk
from ram_reset.errors import (Error, FailedLoadError, GuestError, LostError,
                              RefusedError, StartError, UsageError)
from ram_reset.ring import Answer
from ram_reset.spec import OBJECT, Snapshot
from ram_reset.statistics import Blocker, Load, Statistics
from ram_reset.sync import Agent, Channel, Machine, Pool, Region, Serial

__all__ = ['Agent', 'Answer', 'Blocker', 'Channel', 'Disk', 'Error',
           'FailedLoadError', 'GuestError', 'Load', 'LostError', 'Machine',
           'OBJECT', 'Pool', 'RefusedError', 'Region', 'Result', 'Serial',
           'Snapshot', 'StartError', 'Statistics', 'UsageError']
