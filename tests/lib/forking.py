# SPDX-License-Identifier: GPL-2.0-or-later
"""
Forks of a running machine, by QMP alone: a migration writes RAM and devices to
a file.  It waits, with the machine paused, until each disk has an overlay.
"""

from dataclasses import dataclass
from pathlib import Path

from lib.forks import overlay
from lib.machine import DISK, Machine
from lib.migrating import set_capabilities, wait_migration

INCOMING = '-incoming', 'defer'


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

    CAPABILITIES = 'mapped-ram', 'pause-before-switchover'

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

    def begin(self) -> Fork:
        """The machine is paused from then on."""
        self._forks += 1
        fork = Fork(self._folder / f'state{self._forks}', dict(self._disks))
        overlays = self._add_overlays()
        set_capabilities(self._guest, *self.CAPABILITIES)
        self._guest.qmp('migrate-set-parameters', **{
            'max-bandwidth': 1 << 62, 'downtime-limit': 20})
        self._guest.qmp('migrate', uri=f'file:{fork.state}')
        wait_migration(self._guest, 'pre-switchover')
        self._guest.qmp('transaction', actions=[
            {'type': 'blockdev-snapshot',
             'data': {'node': self._tops[disk], 'overlay': node}}
            for disk, (node, _) in overlays.items()])
        for disk, (node, file) in overlays.items():
            self._tops[disk], self._disks[disk] = node, file
        return fork

    def end(self) -> None:
        """The machine goes on."""
        self._guest.qmp('migrate-continue', state='pre-switchover')
        wait_migration(self._guest)
        self._guest.qmp('cont')
        set_capabilities(self._guest, *self.CAPABILITIES, state=False)

    def fork(self) -> Fork:
        fork = self.begin()
        self.end()
        return fork
