# SPDX-License-Identifier: GPL-2.0-or-later
"""The settings of a machine, and handles of its snapshots."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Mapping, Optional, Sequence, Tuple, Union

from ram_reset.channel import chardev
from ram_reset.disks import Disk, Disks
from ram_reset.region import device

NAME = re.compile(r'[\w.-]*[A-Za-z_][\w.-]*', re.ASCII)     # of a snapshot
OBJECT = 'ram-reset-auto,id=rr0,rewind=on'
AGENT_PORT = 'org.qemu.guest_agent.0'
AnyDisks = Union[Mapping[str, Union[Disk, str, Path]],
                 Sequence[Union[Disk, str, Path]], None]


@dataclass(frozen=True)
class Snapshot:
    """
    A handle.  A snapshot belongs to one machine; its forks do not have it.

    :ivar name: as in QEMU's "info snapshots"
    :ivar machine: the name of the machine
    :ivar forks: how often the machine had been forked
    """

    name: str
    machine: str
    forks: int


@dataclass(frozen=True)
class Spec:
    """The settings that QEMU is started with, also for forks."""

    qemu: str
    args: Tuple[str, ...]
    object: str
    serial: bool
    agent: bool
    region: int     # bytes

    def command(self, folder: Path, disks: Disks, region: Optional[Path]
                ) -> List[str]:
        """:param region: the file for it, if there is one"""
        command = [self.qemu, *self.args, *disks.options(),
                   '-action', 'shutdown=pause,panic=pause']
        if self.object:
            command += ['-object', self.object]
        if self.serial:
            command += [*chardev('ram-reset-serial', folder / 'serial'),
                        '-serial', 'chardev:ram-reset-serial']
        if self.agent:
            command += [*chardev('ram-reset-agent', folder / 'agent'),
                        '-device', 'virtio-serial', '-device',
                        'virtserialport,chardev=ram-reset-agent,'
                        f'name={AGENT_PORT}']
        if region:
            command += device(region, self.region)
        return command
