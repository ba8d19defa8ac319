# SPDX-License-Identifier: GPL-2.0-or-later
"""Devices that rewind or do not, and those that QEMU cannot save: a table."""

import re
from typing import Iterator, NamedTuple

from ram_reset.domain.arguments import Arguments
from ram_reset.domain.text import Element

# Verdicts, from good to bad
FAST, FINE, NOTE, MONITOR, NO_TEMPLATE, WHOLE, REFUSED = \
    'rewinds', 'fine', 'note', 'monitor', 'no template', 'whole loads', \
    'no savevm'
SAID = FAST, NO_TEMPLATE, WHOLE, REFUSED
ASSIGNED = ('most assigned host devices cannot be saved, and none is rewound; '
            'remove it, or use an emulated one')


class Finding(NamedTuple):
    """
    A verdict on one thing.

    :ivar text: its meaning, and what to change
    """

    thing: str
    verdict: str
    text: str = ''

    def __str__(self) -> str:
        verdict = self.verdict if self.verdict in SAID else ''
        return ': '.join(part for part in (self.thing, verdict, self.text)
                         if part)


class Rule(NamedTuple):
    """
    A rule for each element that matches.

    :ivar path: of the element; '-device' is for an argument's driver
    :ivar attribute: of it, or with a path before the '@' of a descendant
    :ivar value: an expression; the value of a missing attribute is ''
    :ivar thing: what to call the element: {value}, {target} (its directory)
    """

    path: str
    attribute: str
    value: str
    thing: str
    verdict: str
    advice: str


RULES = (
    Rule('devices/filesystem', 'driver@type', 'virtiofs',
         "virtiofs '{target}'", REFUSED, 'QEMU cannot save it; remove it, or '
         'share the files by 9p or over the network'),
    Rule('devices/filesystem', 'driver@type', '(?!virtiofs$).*',
         "9p '{target}'", NOTE, 'savevm is refused while the guest has it '
         'mounted; unmount it before'),
    Rule('devices/vsock', '@model', '.*', '<vsock>', WHOLE,
         "the host's kernel does not log its writes; remove it, or use a "
         'virtio-serial channel'),
    Rule('devices/shmem', '@role', 'master', '<shmem>', WHOLE,
         'its writers are unknown; remove it'),
    Rule('devices/shmem', '@role', '(?!master$).*', '<shmem>', REFUSED,
         'QEMU does not save memory that belongs to another guest as well; '
         'remove it'),
    Rule('devices/hostdev', '@type', 'pci|mdev', 'host device ({value})',
         REFUSED, ASSIGNED),
    Rule('devices/hostdev', '@type', 'scsi_host', 'vhost-scsi', REFUSED,
         'QEMU cannot save it as libvirt starts it; use virtio-scsi'),
    Rule('devices/video', 'model/acceleration@accel3d', 'yes',
         'video with 3D acceleration', REFUSED, "QEMU cannot save it; use "
         "accel3d='no'"),
    Rule('devices/sound', '@model', 'usb|virtio', 'sound ({value})', REFUSED,
         "QEMU cannot save it; use <sound model='ich9'/>"),
    Rule('devices/crypto', '@model', '.*', '<crypto>', REFUSED,
         'QEMU cannot save it; remove it'),
    Rule('devices/tpm', 'backend@type', 'passthrough', "the host's TPM", NOTE,
         'stays as it is at a load, whatever the guest remembers; use '
         "<backend type='emulator'/>"),
    Rule('devices/memory', '@model', 'nvdimm', 'NVDIMM', WHOLE,
         'its file has a name, by which others may write to it; remove it, or '
         'use a DIMM'),
    Rule('devices/memory', '@model', 'virtio-pmem', 'virtio-pmem', NOTE,
         'stays as it is at a load; the guest must not have it mounted when '
         'the snapshot is saved'),
    Rule('devices/memory', '@model', 'virtio-mem', 'virtio-mem', NO_TEMPLATE,
         'loads rewind, but QEMU makes no template of memory that has '
         'unplugged parts; use a DIMM'),
    Rule('devices/input', '@type', 'passthrough', 'input of the host', REFUSED,
         "QEMU cannot save it; use <input type='evdev'>"),
    Rule('devices/channel', '@type', 'qemu-vdagent', 'channel (qemu-vdagent)',
         REFUSED, 'QEMU before 10.1 cannot save it; remove it'),
    Rule('devices/serial', 'target@type', 'usb-serial', 'serial port by USB',
         REFUSED, "QEMU cannot save it; use <target type='isa-serial'/>"),
    Rule('-device', '', 'nvme', '-device {value}', REFUSED,
         'QEMU before 11.1 cannot save an NVMe controller; use virtio-blk'),
    Rule('-device', '', '(virtio-(sound|crypto)|vhost-user-fs|usb-audio).*',
         '-device {value}', REFUSED, 'QEMU cannot save it; remove it'),
)


def of_rule(root: Element, args: Arguments, rule: Rule) -> Iterator[Finding]:
    if rule.path == '-device':
        values = [(name, '') for name in args.devices()]
    else:
        path, _, name = rule.attribute.partition('@')
        values = [(e.get(path, name) if path else e.attributes.get(name, ''),
                   e.get('target', 'dir', '?')) for e in root.all(rule.path)]
    for value, target in values:
        if re.fullmatch(rule.value, value):
            yield Finding(rule.thing.format(value=value, target=target),
                          rule.verdict, rule.advice)


def of_rules(root: Element, args: Arguments) -> Iterator[Finding]:
    for rule in RULES:
        yield from of_rule(root, args, rule)
