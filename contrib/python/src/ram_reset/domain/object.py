# SPDX-License-Identifier: GPL-2.0-or-later
"""A ram-reset object, as it stands behind QEMU's -object."""

import re
from typing import Dict, Iterable, List, NamedTuple

from ram_reset.errors import DomainError

DEFAULT = 'ram-reset-auto,id=rr0,rewind=on'

# Forms of values, as expressions, and how messages call them
BOOL, TEXT = 'on|off|yes|no|true|false|y|n', '.+'
SIZE = r'\d+(\.\d+)?[BKMGTPEbkmgtpe]?'
THREADS = r'[1-5]?\d|6[0-4]'
ID = '[A-Za-z][A-Za-z0-9_.-]*'
WORDS = {BOOL: 'on or off', TEXT: 'not empty', SIZE: 'a size such as 512M',
         THREADS: '0 to 64',
         ID: "a letter, then letters, digits, '-', '.' and '_'"}
COMMON = {'id': ID, 'memdev': ID, 'verify': BOOL, 'rewind': BOOL,
          'rewind-limit': SIZE, 'threads': THREADS, 'template-dir': TEXT,
          'template-limit': SIZE, 'new-vmgenid': BOOL,
          'unchanged-devices': BOOL, 'save-kind': 'image|memory',
          'keep-disks': TEXT}
# It may be there more than once
KEEP = 'keep-disks'
TYPES = {
    'ram-reset-auto': dict(COMMON, objective='total|latency|footprint',
                           costs=TEXT),
    'ram-reset-madvise': COMMON,
    'ram-reset-memset': COMMON,
    'ram-reset-remap': COMMON,
    'ram-reset-hugefile': dict(COMMON, unlink='existing|always|never',
                               state=TEXT, **{'clear-on-exit': BOOL}),
}
MENTION = re.compile(f'(?<![a-z])(?:{"|".join(TYPES)})(?![a-z-])')


class Object(NamedTuple):
    """
    :ivar options: without keep-disks
    :ivar kept: the devices that keep-disks names
    """

    type: str
    options: Dict[str, str]
    kept: List[str]

    @property
    def id(self) -> str:
        return self.options['id']

    def rewinds(self) -> bool:
        return self.options.get('rewind') in ('on', 'yes', 'true', 'y')


def split_options(text: str) -> List[str]:
    """Split at commas; two commas in a row are part of a value."""
    return [part.replace('\0', ',')
            for part in text.replace(',,', '\0').split(',')]


def parse_object(text: str) -> Object:
    if re.search(r'[\0-\x1f]', text):
        raise DomainError(f'object {text!r} has control characters; leave '
                          'them out')
    first, *rest = split_options(text)
    if first not in TYPES:
        raise DomainError(f"object '{text}' is of type '{first}'; begin it "
                          f'with one of {", ".join(TYPES)}')
    known, new = TYPES[first], Object(first, {}, [])
    for option in rest:
        key, equals, value = option.partition('=')
        if key not in known or not equals:
            raise DomainError(
                f"object '{text}' has the option '{option}'; {first} has "
                f'{", ".join(f"{k}=" for k in known)}')
        if key in new.options:
            raise DomainError(f"object '{text}' has '{key}=' twice; leave "
                              'one out')
        if not re.fullmatch(known[key], value):
            form = WORDS.get(known[key]) or known[key].replace('|', ' or ')
            raise DomainError(f"object '{text}' has {key}={value}; it has to "
                              f'be {form}')
        if key == KEEP:
            new.kept.append(value)
        else:
            new.options[key] = value
    for key in ('id', 'memdev') if first == 'ram-reset-hugefile' else ('id',):
        if key not in new.options:
            raise DomainError(f"object '{text}' has no '{key}='; add one")
    return new


def with_kept(text: str, names: Iterable[str]) -> str:
    """The object's text, which keeps these disks too."""
    kept = parse_object(text).kept
    return ''.join([text, *(f',{KEEP}={name}'
                            for name in dict.fromkeys(names)
                            if name not in kept)])
