# SPDX-License-Identifier: GPL-2.0-or-later
"""Disks of a machine, each with an overlay that the machine writes to."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import List, Mapping, Sequence, Union

from ram_reset.errors import StartError, UsageError

STATE_NODE = 'ram-reset-state'


@dataclass(frozen=True)
class Disk:
    """
    An image that the machine reads.  Its writes go to an overlay, and are gone
    when the machine is killed.

    :ivar image: the file, or None for a disk that is empty at first
    :ivar format: of the image; QEMU does not guess it
    :ivar device: of QEMU, to which ``drive=`` is added; '' for none: an option
        of QEMU has the disk's name as its ``drive=``
    :ivar size: of an empty disk, as qemu-img writes it
    """

    image: Union[str, Path, None]
    format: str = 'qcow2'
    device: str = 'virtio-blk-pci'
    size: str = '1G'


def quoted(value: Union[str, Path]) -> str:
    """A value of QEMU's options, where a comma begins the next one."""
    return str(value).replace(',', ',,')


def image_tool(qemu: str) -> str:
    """The qemu-img that came with a QEMU, else that of PATH."""
    program = shutil.which(qemu)
    if not program:
        raise StartError(f'{qemu} is no program that can be run; give the path '
                         'of a QEMU with RAM reset, qemu=PATH')
    beside = Path(program).resolve().with_name('qemu-img')
    return str(beside) if beside.exists() else 'qemu-img'


class Disks:
    """The disks of one machine: by node, the file that it writes to."""

    def __init__(self, disks: Mapping[str, Disk], files: Mapping[str, Path],
                 tool: str):
        self._disks = dict(disks)
        self._tool = tool
        self.files = dict(files)

    @classmethod
    def create(cls, disks: Mapping[str, Disk], folder: Path, tool: str
               ) -> 'Disks':
        """
        New overlays in a folder.  A snapshot needs a disk: there is one
        without a device if there is no other.
        """
        new = cls(disks or {STATE_NODE: Disk(None, device='', size='1M')}, {},
                  tool)
        for node, disk in new._disks.items():
            file = folder / f'{node}.qcow2'
            if disk.image is None:
                new._run('create', '-q', '-f', 'qcow2', str(file), disk.size)
            else:
                base = Path(disk.image).resolve()
                if not base.exists():
                    raise UsageError(f"the image of disk '{node}', {base}, "
                                     'does not exist; name a file that does')
                new._overlay(base, disk.format, file)
            new.files[node] = file
        return new

    def of_guest(self) -> List[str]:
        """The nodes that the guest may write to."""
        return [node for node in self._disks if node != STATE_NODE]

    def fork(self, folder: Path, parent: bool = False) -> 'Disks':
        """
        Overlays over the files that are written to now.

        :param parent: keep the disk that no guest has, with its snapshots
        """
        new = Disks(self._disks, {}, self._tool)
        for node, base in self.files.items():
            file = new.files[node] = folder / f'{node}.qcow2'
            if node in self.of_guest():
                new._overlay(base, 'qcow2', file)
            elif parent:
                new.files[node] = base
            else:
                new._run('create', '-q', '-f', 'qcow2', str(file),
                         self._disks[node].size)
        return new

    def _overlay(self, base: Path, base_format: str, file: Path) -> None:
        # in JSON, since a name with a colon would be a protocol
        name = 'json:' + json.dumps({
            'driver': base_format,
            'file': {'driver': 'file', 'filename': str(base)}})
        self._run('create', '-q', '-f', 'qcow2', '-F', base_format, '-b', name,
                  str(file))

    def _run(self, *arguments: str) -> None:
        try:
            done = subprocess.run([self._tool, *arguments], text=True,
                                  capture_output=True, check=False)
        except OSError as e:
            raise StartError(f'{self._tool} cannot be run ({e.strerror}); '
                             'install it beside QEMU') from e
        if done.returncode:
            raise StartError(done.stderr.strip())

    def options(self) -> List[str]:
        """Of QEMU's command line."""
        found: List[str] = []
        for node, disk in self._disks.items():
            found += ['-blockdev', f'driver=qcow2,node-name={node},'
                      'file.driver=file,'
                      f'file.filename={quoted(self.files[node])}']
            if disk.device:
                found += ['-device', f'{disk.device},drive={node}']
        return found


def find_disks(disks: Union[Mapping[str, Union[Disk, str, Path]],
                            Sequence[Union[Disk, str, Path]], None]
               ) -> Mapping[str, Disk]:
    """With names, disk0 and so on, and as Disk."""
    if disks is None:
        return {}
    if not isinstance(disks, Mapping):
        disks = {f'disk{i}': disk for i, disk in enumerate(disks)}
    return {node: disk if isinstance(disk, Disk) else Disk(disk)
            for node, disk in disks.items()}
