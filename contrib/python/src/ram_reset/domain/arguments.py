# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments that <qemu:commandline> gives to QEMU."""

import re
from typing import Iterator, List, NamedTuple, Optional, Set

from ram_reset.domain.object import (DEFAULT, MENTION, TYPES, Object,
                                     parse_object, split_options)
from ram_reset.domain.text import Element
from ram_reset.errors import DomainError

OPTIONS = '-object', '--object'
# The name that this program gives to a disk without one
OUR_ALIAS = 'ua-keep-'


class Ours(NamedTuple):
    """A ram-reset object: its '-object', the argument behind it, and both."""

    option: Element
    argument: Element
    object: Object

    @property
    def text(self) -> str:
        return self.argument.attributes['value']


class Arguments:
    """
    :ivar element: the <qemu:commandline>, if there is one
    :ivar args: its <qemu:arg>
    :ivar ours: the ram-reset objects
    :ivar other_ids: of other objects
    """

    def __init__(self, root: Element):
        found = root.of_qemu('commandline')
        if len(found) > 1:
            raise DomainError('it has two <qemu:commandline>; merge them into '
                              'one')
        self.element: Optional[Element] = found[0] if found else None
        self.args = found[0].of_qemu('arg') if found else []
        self.values = [arg.attributes.get('value', '') for arg in self.args]
        self.ours: List[Ours] = []
        self.other_ids: Set[str] = set()
        for i, value in enumerate(self.values):
            self._read(i, value)
        if self.values and self.values[-1] in OPTIONS:
            raise DomainError("the last <qemu:arg> is a '-object' with "
                              'nothing behind it; remove it')

    def _read(self, i: int, value: str) -> None:
        is_object = i > 0 and self.values[i - 1] in OPTIONS
        if not MENTION.search(value):
            if is_object:
                self.other_ids |= {option[3:] for option
                                   in split_options(value)
                                   if option.startswith('id=')}
        elif not is_object:
            raise DomainError(
                f"<qemu:arg value='{value}'> names a ram-reset type but does "
                "not follow a '-object'; remove it")
        elif value.split(',')[0] not in TYPES:
            raise DomainError(
                f"the object in <qemu:arg value='{value}'> is not written as "
                f"'{DEFAULT}' is; rewrite or remove it")
        else:
            self.ours.append(Ours(self.args[i - 1], self.args[i],
                                  parse_object(value)))

    def devices(self) -> Iterator[str]:
        """The drivers of each '-device'."""
        for option, value in zip(self.values, self.values[1:]):
            if option not in ('-device', '--device'):
                continue
            if value.startswith('{'):
                named = re.search(r'"driver"\s*:\s*"([^"]*)"', value)
            else:
                named = re.match(r'(?:driver=)?([^,]*)', value)
            if named:
                yield named[1]

    def kept(self) -> List[str]:
        """The names that the program has made, and that objects keep."""
        return [name for ours in self.ours for name in ours.object.kept
                if name.startswith(OUR_ALIAS)]
