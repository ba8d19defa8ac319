# SPDX-License-Identifier: GPL-2.0-or-later
"""What libvirt makes of a domain: its memory, its disks, its firmware."""

from typing import List, NamedTuple

from ram_reset.domain.text import Element


class Disk(NamedTuple):
    """
    :ivar name: the alias that the user has given, which is the device's id
    """

    element: Element
    target: str
    format: str
    name: str


def _is_empty(disk: Element) -> bool:
    return disk.attributes.get('device') == 'floppy' and not any(
        value for source in disk.all('source')
        for name, value in source.attributes.items()
        if name != 'startupPolicy')


def writable_disks(root: Element) -> List[Disk]:
    """
    All except CD-ROMs, empty floppy drives, and disks that QEMU does not
    access itself.
    """
    found = []
    for disk in root.all('devices/disk'):
        if disk.attributes.get('device') == 'cdrom' or \
                disk.attributes.get('type') == 'vhostuser' or \
                disk.all('readonly') or _is_empty(disk):
            continue
        alias = disk.get('alias', 'name')
        found.append(Disk(disk, disk.get('target', 'dev', '?'),
                          disk.get('driver', 'type', 'raw'),
                          alias if alias.startswith('ua-') else ''))
    return found


def in_files(root: Element) -> bool:
    """Whether libvirt makes files for memory that others can open."""
    source = root.get('memoryBacking/source', 'type')
    if source == 'memfd' or root.all('memoryBacking/hugepages'):
        return False
    # whether it is shared or private
    return source == 'file' or any(
        attribute in element.attributes for path, attribute in (
            ('memoryBacking/access', 'mode'), ('cpu/numa/cell', 'memAccess'),
            ('devices/memory', 'access'))
        for element in root.all(path)
        if element.attributes.get('model') not in ('nvdimm', 'virtio-pmem'))


def has_variables(root: Element) -> bool:
    """With a loader that is flash, libvirt makes them if none are named."""
    return root.get('os/loader', 'stateless') != 'yes' and (
        root.get('os', 'firmware') == 'efi' or bool(root.all('os/nvram'))
        or root.get('os/loader', 'type') == 'pflash')


def in_loader(root: Element) -> bool:
    """Whether UEFI and its variables are one file."""
    return not root.all('os/nvram') and \
        root.get('os', 'firmware') != 'efi' and \
        root.get('os/loader', 'readonly') == 'no'


def variables_in_qcow2(root: Element) -> bool:
    return root.get('os/loader' if in_loader(root) else 'os/nvram',
                    'format') == 'qcow2'
