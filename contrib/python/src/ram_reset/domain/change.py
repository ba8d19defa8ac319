# SPDX-License-Identifier: GPL-2.0-or-later
"""The change of a domain: its object, its emulator, and its fixes."""

from typing import List, NamedTuple, Optional, Tuple

from ram_reset.domain import check
from ram_reset.domain.arguments import Arguments
from ram_reset.domain.edit import (Edit, append, apply, before_space, cut,
                                   escape, put_child, set_attribute,
                                   space_before)
from ram_reset.domain.facts import writable_disks
from ram_reset.domain.fixes import fix
from ram_reset.domain.object import (DEFAULT, Object, parse_object,
                                     split_options, with_kept)
from ram_reset.domain.rules import REFUSED
from ram_reset.domain.text import NAMESPACE, Element, parse
from ram_reset.errors import DomainError


def check_domain(root: Element) -> None:
    if root.name != 'domain' or root.qemu or root.foreign:
        raise DomainError(f'its root is <{root.name}>; give the XML of a '
                          "domain, as 'virsh dumpxml --inactive' prints it")
    kind = root.attributes.get('type', '')
    if kind not in ('kvm', 'qemu'):
        raise DomainError(f"the domain is of type '{kind}'; only kvm and qemu "
                          'have a QEMU')
    arch = root.get('os/type', 'arch', 'x86_64')
    if arch != 'x86_64':
        raise DomainError(f'the guest is {arch}; only x86_64 guests are '
                          'supported')


def check_memory(root: Element, args: Arguments, new: Object) -> None:
    """Of an object that needs memory in a file."""
    memdev = new.options['memdev']
    if not any(value.startswith('memory-backend-file,')
               and f'id={memdev}' in split_options(value)
               for value in args.values):
        raise DomainError(
            f"{new.type} needs a memory-backend-file '{memdev}' with a "
            'mem-path that is a file, which libvirt never makes; add one to '
            '<qemu:commandline>, or use another type')
    if root.all('memoryBacking/locked'):
        raise DomainError(f'{new.type} does not work with <locked/> memory; '
                          'remove <locked/>, or use another type')


def check_object(root: Element, args: Arguments, new: Object) -> None:
    """Refuse one with which QEMU would not start, or save no snapshot."""
    if new.id in args.other_ids:
        raise DomainError(f"another object has the id '{new.id}'; choose one "
                          'that is free')
    for ours in args.ours:
        if ours.object.id != new.id:
            raise DomainError(
                f'it has a {ours.object.type} object with the id '
                f"'{ours.object.id}'; use that id, or take it out with "
                '--remove first')
    if len(args.ours) > 1:
        raise DomainError(f"it has two objects with the id '{new.id}'; take "
                          'them out with --remove first')
    if root.all('launchSecurity'):
        raise DomainError('<launchSecurity> makes a confidential guest, which '
                          'cannot be saved; remove it')
    if not any(disk.format == 'qcow2' for disk in writable_disks(root)) and \
            not any('qcow2' in value for value in args.values):
        raise DomainError('it has no writable disk of type qcow2, and only '
                          'that can hold a snapshot of RAM; add one')
    if new.type == 'ram-reset-hugefile':
        check_memory(root, args, new)


def declaration(prefix: str) -> bytes:
    return f" xmlns:{prefix}='{NAMESPACE}'".encode()


def add_edits(data: bytes, root: Element, args: Arguments, text: str
              ) -> List[Edit]:
    if args.ours:
        return [set_attribute(data, args.ours[0].argument, 'value', text)] \
            if args.ours[0].text != text else []

    def pair(prefix: str) -> List[bytes]:
        colon = ':' if prefix else ''
        return [f"<{prefix}{colon}arg value='".encode() + value + b"'/>"
                for value in (b'-object', escape(text))]

    old = args.element
    if old:
        return [append(data, root, old, args.args[-1] if args.args else None,
                       pair(old.prefix))]
    edits: List[Edit] = []
    prefix = next((p for p, uri in root.prefixes.items() if uri == NAMESPACE),
                  None)
    if prefix is None:
        prefix = next(p for p in ['qemu'] + [f'qemu{i}' for i in range(99)]
                      if p not in root.prefixes)
        at = before_space(data, root.tag_end - 1)
        edits.append((at, at, declaration(prefix)))
    return [*edits, put_child(data, root, before_space(data, root.close),
                              f'{prefix}:commandline', pair(prefix))]


def remove_edits(data: bytes, root: Element, args: Arguments) -> List[Edit]:
    old = args.element
    if not args.ours or not old:
        return []
    gone = [e for ours in args.ours for e in (ours.option, ours.argument)]
    edits = [cut(data, element) for element in gone]
    aliases = [cut(data, alias) for alias in root.all('devices/disk/alias')
               if alias.attributes.get('name') in args.kept()]
    inner = apply([(a - old.tag_end, b - old.tag_end, c) for a, b, c in edits],
                  data[old.tag_end:old.close])
    used = len(gone)
    if not inner.strip():
        edits = [cut(data, old)]
        used += 1
    # only a declaration that this program adds; another one was there before
    at = before_space(data, root.tag_end - 1)
    ours = next((declaration(p) for p in root.prefixes
                 if data[:at].endswith(declaration(p))), b'')
    if ours and root.uses_of_qemu() == used:
        edits.append((at - len(ours), at, b''))
    return edits + aliases


def emulator_edits(data: bytes, root: Element, path: str) -> List[Edit]:
    devices = root.all('devices')
    if not path.startswith('/'):
        raise DomainError(f"the emulator '{path}' is not an absolute path")
    if len(devices) != 1 or not devices[0].children:
        raise DomainError('it has no <devices>, where the emulator is named')
    new = b'<emulator>' + escape(path) + b'</emulator>'
    old = devices[0].all('emulator')
    if not old:
        at = devices[0].tag_end
        return [(at, at,
                 space_before(data, devices[0].children[0].start) + new)]
    if old[0].text.strip() == path:
        return []
    return [(old[0].start, old[0].end, new)]


class Wish(NamedTuple):
    """The requested change of a domain."""

    object: Optional[str] = None
    emulator: Optional[str] = None
    fixes: Tuple[str, ...] = ()
    remove: bool = False

    def text(self, root: Element, args: Arguments) -> str:
        """
        The object, by default the existing one; another one keeps the disks
        that the program has named.
        """
        if self.object is None:
            return args.ours[0].text if len(args.ours) == 1 else DEFAULT
        there = [alias.attributes.get('name')
                 for alias in root.all('devices/disk/alias')]
        return with_kept(self.object,
                         [name for name in args.kept() if name in there])


def change(data: bytes, wish: Wish) -> Tuple[bytes, List[str]]:
    """Return the new XML, and warnings."""
    root = parse(data)
    check_domain(root)
    args = Arguments(root)
    notes: List[str] = []
    if wish.remove:
        edits = remove_edits(data, root, args)
    else:
        fixed = fix(data, root, wish.fixes)
        text = with_kept(wish.text(root, args), fixed.kept)
        new = parse_object(text)
        check_object(root, args, new)
        edits = add_edits(data, root, args, text) + fixed.edits
        notes = check.warnings(parse(apply(edits, data)), new) + fixed.notes
    if wish.emulator:
        edits += emulator_edits(data, root, wish.emulator)
    return apply(edits, data), notes


def checked(data: bytes, wish: Wish) -> Tuple[List[str], bool]:
    """
    Return the report for the result of change(), and whether a snapshot can
    be saved.
    """
    root = parse(change(data, wish)[0])
    new = Arguments(root).ours[0].object
    found = check.findings(root, new)
    return check.report(found, new), all(f.verdict != REFUSED for f in found)
