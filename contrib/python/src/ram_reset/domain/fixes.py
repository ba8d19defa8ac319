# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes to a domain that make it fast, or its snapshots possible."""

import re
import shlex
from typing import Iterable, List, NamedTuple, Tuple

from ram_reset.domain.arguments import OUR_ALIAS
from ram_reset.domain.edit import (Edit, append, cut, escape, put_behind,
                                   put_child, set_attribute, set_text)
from ram_reset.domain.facts import (has_variables, in_files, in_loader,
                                    variables_in_qcow2, writable_disks)
from ram_reset.domain.text import Element
from ram_reset.errors import DomainError

MEMFD = b"<source type='memfd'/>"


class Fix(NamedTuple):
    """
    :ivar kept: names of disks, for keep-disks
    :ivar notes: what is left to do
    """

    edits: List[Edit]
    kept: List[str]
    notes: List[str]


def fix_disks(data: bytes, root: Element) -> Fix:
    """Names for disks that have none."""
    edits, kept = [], []
    for disk in writable_disks(root):
        if disk.format == 'qcow2':
            continue
        name = disk.name or OUR_ALIAS + disk.target
        kept.append(name)
        old, target = disk.element.all('alias'), disk.element.all('target')
        if disk.name:
            continue
        if not disk.target:
            raise DomainError('it has a disk whose <target> has no name; give '
                              "it one, as in dev='vdb'")
        if old:
            edits.append(set_attribute(data, old[0], 'name', name))
        elif target:
            edits.append(put_behind(
                data, target[0], b"<alias name='" + escape(name) + b"'/>"))
        else:
            raise DomainError('it has a disk without a <target>; give it one')
    return Fix(edits, kept, [])


def fix_locked(data: bytes, root: Element) -> Fix:
    return Fix([cut(data, e) for e in root.all('memoryBacking/locked')],
               [], [])


def fix_memory(data: bytes, root: Element) -> Fix:
    source = root.all('memoryBacking/source')
    backing = root.all('memoryBacking')
    if not in_files(root):
        return Fix([], [], [])
    if source:
        edit = set_attribute(data, source[0], 'type', 'memfd')
    elif backing:
        last = backing[0].children[-1] if backing[0].children else None
        edit = append(data, root, backing[0], last, [MEMFD])
    else:
        before = root.all('currentMemory') or root.all('memory')
        edit = put_child(data, root, before[0].end if before else root.tag_end,
                         'memoryBacking', [MEMFD])
    return Fix([edit], [], [])


def qcow2_path(old: str) -> str:
    """The path of the converted file; the old file does not change."""
    if old.endswith('.qcow2'):
        return old[:-len('.qcow2')] + '.converted.qcow2'
    return re.sub(r'\.(fd|img|raw)$', '', old) + '.qcow2'


def fix_variables(data: bytes, root: Element) -> Fix:
    if not has_variables(root) or variables_in_qcow2(root):
        return Fix([], [], [])
    if in_loader(root):
        raise DomainError("its UEFI variables are in the loader's file; use a "
                          "<loader readonly='yes'> with an <nvram>")
    found, source = root.all('os/nvram'), root.all('os/nvram/source')
    if found and found[0].attributes.get('type', 'file') != 'file':
        raise DomainError('its <nvram> is no file; convert it, and say '
                          "format='qcow2' there")
    old = source[0].attributes.get('file', '') if source else \
        found[0].text.strip() if found else ''
    if not old:
        raise DomainError('its <nvram> has no path, so that the file to '
                          'convert is unknown; start it once, then use '
                          '--domain')
    new = qcow2_path(old)
    return Fix(
        [set_attribute(data, found[0], 'format', 'qcow2'),
         set_attribute(data, source[0], 'file', new) if source else
         set_text(found[0], new)], [],
        ['before the next start, run: qemu-img convert -f raw -O qcow2 '
         f'{shlex.quote(old)} {shlex.quote(new)}'])


# By name: the function, and its help
FIXES = {
    'keep-disks': (fix_disks, 'writable disks that are not qcow2 stay as they '
                              'are at a load'),
    'locked': (fix_locked, '<locked/> goes'),
    'memfd': (fix_memory, "memory in files gets <source type='memfd'/>"),
    'nvram': (fix_variables, 'UEFI variables in qcow2; says how to convert '
                             'the file'),
}


def split_names(text: str) -> Tuple[str, ...]:
    return tuple(name.strip() for name in text.split(',') if name.strip())


def fix(data: bytes, root: Element, names: Iterable[str]) -> Fix:
    done = Fix([], [], [])
    for name in dict.fromkeys(names):
        if name not in FIXES:
            raise DomainError(f"unknown fix '{name}'; there are "
                              f'{", ".join(FIXES)}')
        function, _ = FIXES[name]
        edits, kept, notes = function(data, root)
        done.edits.extend(edits)
        done.kept.extend(kept)
        done.notes.extend(notes)
    return done
