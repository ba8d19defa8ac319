# SPDX-License-Identifier: GPL-2.0-or-later
"""The XML of a domain as bytes, and the position of each element in it."""

import re
import xml.parsers.expat as expat
from typing import Dict, List

from ram_reset.errors import DomainError

NAMESPACE = 'http://libvirt.org/schemas/domain/qemu/1.0'
TAG = re.compile(rb'<[^\s/>]+(?:"[^"]*"|\'[^\']*\'|[^>"\'])*>')
Strings = Dict[str, str]


class Element:
    """
    The position of an element, and its properties.

    :ivar qemu: its namespace is that of QEMU's arguments
    :ivar foreign: it has another namespace
    :ivar prefixes: the namespaces that it declares, by prefix
    :ivar start: of '<'
    :ivar tag_end: behind the start tag's '>'
    :ivar close: of '</'
    :ivar end: behind the element
    """

    def __init__(self, name: str, attributes: Strings, prefixes: Strings,
                 start: int, tag_end: int):
        # expat's names are "name", "URI name" and "URI name prefix"
        uri, self.name, self.prefix = (*name.split(' '), '', '')[:3] \
            if ' ' in name else ('', name, '')
        self.qemu = uri == NAMESPACE
        self.foreign = bool(uri) and not self.qemu
        self.attributes = attributes
        self.prefixes = prefixes
        self.start = start
        self.tag_end = self.close = self.end = tag_end
        self.text = ''
        self.children: List['Element'] = []

    @property
    def tag(self) -> str:
        return f'{self.prefix}:{self.name}' if self.prefix else self.name

    def all(self, path: str) -> List['Element']:
        """Descendants without a namespace; the path is a/b/c."""
        found = [self]
        for name in path.split('/'):
            found = [child for element in found for child in element.children
                     if child.name == name and not child.qemu
                     and not child.foreign]
        return found

    def get(self, path: str, attribute: str, default: str = '') -> str:
        found = self.all(path)
        return found[0].attributes.get(attribute, default) if found \
            else default

    def of_qemu(self, name: str) -> List['Element']:
        """Its children in the namespace of QEMU's arguments."""
        return [child for child in self.children
                if child.qemu and child.name == name]

    def uses_of_qemu(self) -> int:
        """The names in that namespace, here and below."""
        count, left = 0, [self]
        while left:
            element = left.pop()
            count += element.qemu + sum(NAMESPACE in name
                                        for name in element.attributes)
            left += element.children
        return count


class _Parser:
    """Builds a tree of elements from expat's events."""

    def __init__(self, data: bytes):
        self.top = Element('', {}, {}, 0, 0)
        self._data = data
        self._open = [self.top]
        self._prefixes: Strings = {}
        self._expat = expat.ParserCreate(namespace_separator=' ')
        self._expat.namespace_prefixes = True
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.CharacterDataHandler = self._text
        self._expat.StartDoctypeDeclHandler = self._doctype
        self._expat.StartNamespaceDeclHandler = self._namespace

    def parse(self) -> None:
        self._expat.Parse(self._data, True)

    def _start(self, name: str, attributes: Strings) -> None:
        at = self._expat.CurrentByteIndex
        tag = TAG.match(self._data, at)
        assert tag      # expat has seen it
        element = Element(name, attributes, self._prefixes, at, tag.end())
        self._prefixes = {}
        self._open[-1].children.append(element)
        self._open.append(element)

    def _end(self, _: str) -> None:
        element = self._open.pop()
        if self._data[element.tag_end - 2:element.tag_end] != b'/>':
            element.close = self._expat.CurrentByteIndex
            element.end = self._data.index(b'>', element.close) + 1

    def _text(self, value: str) -> None:
        self._open[-1].text += value

    def _namespace(self, prefix: str, uri: str) -> None:
        self._prefixes[prefix or ''] = uri

    def _doctype(self, *_: object) -> None:
        raise DomainError('it has a DTD, which no domain needs; remove the '
                          'DOCTYPE')


def parse(data: bytes) -> Element:
    """Return the root."""
    if not data.strip():
        raise DomainError('it is empty; give the XML of a domain')
    if b'\0' in data:
        raise DomainError('it is binary, or in UTF-16; convert it to UTF-8')
    parser = _Parser(data)
    try:
        parser.parse()
    except expat.ExpatError as e:
        raise DomainError(f'it is not well-formed XML ({e}); correct it'
                          ) from e
    except (ValueError, LookupError) as e:
        raise DomainError(f'its encoding is not known ({e}); convert it to '
                          'UTF-8') from e
    return parser.top.children[0]
