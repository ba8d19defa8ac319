# SPDX-License-Identifier: GPL-2.0-or-later
"""The fast parts of a domain, the slow parts, and what to change."""

from typing import Iterator, List

from ram_reset.domain.arguments import Arguments
from ram_reset.domain.facts import (Disk, has_variables, in_files, in_loader,
                                    variables_in_qcow2, writable_disks)
from ram_reset.domain.object import Object
from ram_reset.domain.rules import (ASSIGNED, FAST, FINE, MONITOR, NO_TEMPLATE,
                                    REFUSED, WHOLE, Finding, of_rules)
from ram_reset.domain.text import Element

VARIABLES = 'the UEFI variables'
# Types of interfaces with a tap device, which vhost needs
TAPS = 'network', 'bridge', 'direct', 'ethernet'


def of_memory(root: Element) -> Iterator[Finding]:
    slow = False
    if root.all('memoryBacking/locked'):
        slow = True
        yield Finding('<locked/> memory', WHOLE, 'the rewind copy would be '
                      'locked too; remove <locked/> (--fix locked)')
    if in_files(root):
        slow = True
        yield Finding('memory in files', WHOLE, 'QEMU cannot know that nobody '
                      "else writes to the file; use <source type='memfd'/> "
                      '(--fix memfd)')
    if not slow:
        yield Finding(
            'memory in hugepages' if root.all('memoryBacking/hugepages') else
            'shared memory'
            if root.get('memoryBacking/access', 'mode') == 'shared' else
            'memory', FAST)


def of_disk(disk: Disk, new: Object) -> Iterator[Finding]:
    thing = f"disk '{disk.target}' ({disk.format})"
    if disk.element.get('target', 'bus') == 'nvme':
        yield Finding(thing, REFUSED, 'QEMU before 11.1 cannot save an NVMe '
                      "controller; use <target bus='virtio'>")
    if disk.element.attributes.get('type') == 'nvme':
        yield Finding(thing, WHOLE, "the host's NVMe controller writes to "
                      "memory past QEMU; use its block device, <disk "
                      "type='block'>")
    if disk.name and disk.name in new.kept:
        yield Finding(thing, MONITOR, 'stays as it is at a load (keep-disks); '
                      'the guest must not have it mounted when the snapshot '
                      'is saved')
    elif disk.format == 'qcow2':
        yield Finding(thing, FINE, 'goes back with the guest')
    else:
        yield Finding(thing, REFUSED, 'cannot hold a snapshot; convert it to '
                      'qcow2, make it read-only, or, if loads need not '
                      'restore it, exclude it (--fix keep-disks)')


def of_disks(root: Element, new: Object) -> Iterator[Finding]:
    for disk in writable_disks(root):
        yield from of_disk(disk, new)
    for element in root.all('devices/disk'):
        if element.attributes.get('type') == 'vhostuser':
            yield Finding(
                f"disk '{element.get('target', 'dev', '?')}' (vhost-user)",
                MONITOR, 'memory rewinds, but the disk stays as it is at a '
                'load; the guest must not have it mounted when the snapshot '
                'is saved')


def of_variables(root: Element) -> Iterator[Finding]:
    if not has_variables(root):
        return
    if variables_in_qcow2(root):
        yield Finding(f'{VARIABLES} (qcow2)', FINE, 'go back with the guest')
        return
    where = 'raw'
    if in_loader(root):
        where = "raw, in the loader's file"
    elif not root.all('os/nvram') and root.get('os', 'firmware') != 'efi':
        where = 'raw, which libvirt makes, for there is no <nvram>'
    yield Finding(
        f'{VARIABLES} ({where})', MONITOR, 'go back with the guest; '
        "virsh's snapshots need them in qcow2 (--fix nvram), which libvirt "
        '11.3 supports and 9.0 does not')


def of_interface(root: Element, number: int, nic: Element) -> Finding:
    kind, driver = nic.attributes.get('type'), nic.get('driver', 'name')
    model = nic.get('model', 'type')
    thing = f'interface {number} ({kind})'
    if kind == 'hostdev':
        return Finding(thing, REFUSED, ASSIGNED)
    if kind == 'vdpa':
        return Finding(thing, WHOLE, 'the device writes to memory past QEMU; '
                       'use another kind of interface')
    if model == 'usb-net':
        return Finding(thing, REFUSED, "QEMU cannot save it; use <model "
                       "type='virtio'/>")
    vhost = root.attributes.get('type') == 'kvm' and kind in TAPS and \
        driver != 'qemu' and model.startswith('virtio')
    if (vhost or kind == 'vhostuser') and nic.get('driver', 'iommu') == 'on':
        return Finding(thing, WHOLE, 'vhost behind an IOMMU is not rewound; '
                       "use iommu='off'")
    if kind == 'vhostuser' and nic.get('backend', 'type') == 'passt':
        return Finding(thing, REFUSED, 'passt treats a save as a migration, '
                       "and exits; use <interface type='user'>")
    if kind == 'vhostuser':
        return Finding(thing, FAST, 'if the other side logs its writes; see '
                       "'info ram-reset'")
    return Finding(thing, FAST, 'vhost logs its writes' if vhost else '')


def findings(root: Element, new: Object) -> List[Finding]:
    return [*of_memory(root), *of_disks(root, new), *of_variables(root),
            *(of_interface(root, number, nic) for number, nic
              in enumerate(root.all('devices/interface'), 1)),
            *of_rules(root, Arguments(root))]


def report(found: List[Finding], new: Object) -> List[str]:
    """A line for each thing, and the conclusion."""
    verdicts = {f.verdict for f in found}
    lines = [str(f) for f in found]
    loads = 'are whole: the object has no rewind=on'
    if new.rewinds():
        loads = 'are whole' if WHOLE in verdicts else 'rewind'
    if REFUSED in verdicts:
        return [*lines, 'in all: no snapshot can be saved as it is'
                + (', and loads would be whole' if WHOLE in verdicts else '')]
    lines.append(f'in all: loads in the QEMU that runs {loads}')
    if MONITOR in verdicts:
        what = ' and '.join(sorted({
            'raw UEFI variables' if f.thing.startswith(VARIABLES) else
            'disks that stay as they are'
            for f in found if f.verdict == MONITOR}))
        return [*lines, "in all: snapshots by the monitor's savevm and loadvm "
                f"only, since 'virsh snapshot-create-as' refuses {what}"]
    how = ', and reads all of the snapshot; template-dir= would help'
    if verdicts & {WHOLE, NO_TEMPLATE}:
        how = ', and reads all of the snapshot'
    elif 'template-dir' in new.options:
        how = ', with RAM from a template'
    return [*lines, f"in all: 'virsh snapshot-revert' starts a new QEMU{how}"]


def shared_dir(root: Element, new: Object) -> str:
    """template-dir=, unless the domain's name or UUID is in it."""
    path = new.options.get('template-dir', '')
    own = [e.text.strip() for name in ('name', 'uuid') for e in root.all(name)]
    return '' if any(o and o in path for o in own) else path


def warnings(root: Element, new: Object) -> List[str]:
    """Settings that may not work as expected."""
    fine = {FAST, FINE}
    if not new.rewinds():
        fine.add(WHOLE)
    if 'template-dir' not in new.options:
        fine.add(NO_TEMPLATE)
    found = [str(f) for f in findings(root, new) if f.verdict not in fine]
    if shared_dir(root, new):
        found.append(f'template-dir={shared_dir(root, new)} may be shared '
                     'with other domains: each domain that writes to it can '
                     "change what others load; put the domain's name or UUID "
                     'in the path, or share it only among domains that may do '
                     'this')
    return found
