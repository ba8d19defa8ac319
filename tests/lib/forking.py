# SPDX-License-Identifier: GPL-2.0-or-later
"""
Forks of a running machine: a file with RAM and devices, and disks that are
frozen and have overlays.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from lib.forks import overlay
from lib.machine import DISK, Machine, MachineError
from lib.migrating import set_capabilities, wait_migration
from lib.patience import Limit

INCOMING = '-incoming', 'defer'
JOB = 'fork'


@dataclass
class Fork:
    """@state: the file of the migration; @bases: by node, a frozen disk."""

    state: Path
    bases: dict[str, Path]

    def make_disks(self, folder: Path) -> None:
        """Overlays in a new folder, with the names that Machine gives them."""
        folder.mkdir()
        for node, base in self.bases.items():
            name = 'disk' if node == DISK else node
            overlay(base, folder / f'{name}.qcow2')

    def enter(self, child: Machine) -> None:
        """@child was started with INCOMING and these disks."""
        set_capabilities(child, 'mapped-ram')
        child.qmp('migrate-incoming', uri=f'file:{self.state}')
        wait_migration(child)
        set_capabilities(child, 'mapped-ram', state=False)


class Forker:
    """Makes forks of @guest; @disks: by node, the file that it writes to."""

    def __init__(self, guest: Machine, folder: Path, disks: dict[str, Path]):
        folder.mkdir()
        self._guest = guest
        self._folder = folder
        self._disks = dict(disks)
        self._tops = {node: node for node in disks}
        self._forks = 0

    def _add_overlays(self) -> dict[str, tuple[str, Path]]:
        """By disk: the new node and its file.  Nothing uses them yet."""
        found = {}
        for number, (disk, base) in enumerate(self._disks.items()):
            node = f'fork{self._forks}-{number}'
            file = self._folder / f'{node}.qcow2'
            overlay(base, file)
            self._guest.qmp('blockdev-add', **{
                'driver': 'qcow2', 'node-name': node, 'backing': None,
                'file': {'driver': 'file', 'filename': str(file)}})
            found[disk] = node, file
        return found

    def pairs(self) -> list[dict[str, str]]:
        """The argument 'disks' of the job; the overlays are new."""
        self._overlays = self._add_overlays()
        return [{'node': self._tops[disk], 'overlay': node}
                for disk, (node, _) in self._overlays.items()]

    def begin(self, **arguments) -> Fork:
        """The job has begun; end() waits for it."""
        self._forks += 1
        fork = Fork(self._folder / f'state{self._forks}', dict(self._disks))
        arguments.setdefault('disks', self.pairs())
        self._guest.qmp('ram-reset-fork', **{
            'job-id': JOB, 'file': str(fork.state), **arguments})
        return fork

    def end(self) -> None:
        limit = Limit(120)
        while (job := self.job())['status'] != 'concluded':
            assert not limit.over(), job
            time.sleep(0.002)
        self._guest.qmp('job-dismiss', id=JOB)
        if self._are_used():
            for disk, (node, file) in self._overlays.items():
                self._tops[disk], self._disks[disk] = node, file
        if 'error' in job:
            raise MachineError(job['error'])

    def job(self) -> dict:
        job, = (job for job in self._guest.qmp('query-jobs')
                if job['id'] == JOB)
        return job

    def _are_used(self) -> bool:
        """Also a job that fails may have given disks their overlays."""
        used = {device['inserted']['node-name'] for device in
                self._guest.qmp('query-block') if 'inserted' in device}
        return bool({node for node, _ in self._overlays.values()} & used)

    def fork(self) -> Fork:
        fork = self.begin()
        self.end()
        return fork
