# SPDX-License-Identifier: GPL-2.0-or-later
"""
Edits of bytes, which change nothing else and keep the indentation.

An edit is a begin, an end, and the bytes to put there.
"""

import re
from typing import Iterable, Optional, Tuple

from ram_reset.domain.text import Element

ATTRIBUTE = re.compile(rb'\s+([^\s=]+)\s*=\s*("[^"]*"|\'[^\']*\')')
Edit = Tuple[int, int, bytes]


def apply(edits: Iterable[Edit], data: bytes) -> bytes:
    for start, end, new in sorted(edits, reverse=True):
        data = data[:start] + new + data[end:]
    return data


def escape(text: str) -> bytes:
    for char, entity in ('&', '&amp;'), ('<', '&lt;'), ("'", '&apos;'):
        text = text.replace(char, entity)
    return text.encode('ascii', 'xmlcharrefreplace')


def before_space(data: bytes, at: int) -> int:
    return len(data[:at].rstrip())


def space_before(data: bytes, at: int) -> bytes:
    return data[before_space(data, at):at]


def indents(data: bytes, root: Element) -> Tuple[bytes, bytes]:
    """The indentation of a child of the root, and of its children."""
    if not root.children:
        return b'', b''
    line = space_before(data, root.children[0].start)
    if b'\n' not in line:
        return b'', b''
    for child in root.children:
        if child.children:
            inner = space_before(data, child.children[0].start)
            if b'\n' in inner:
                return line, inner
    return line, line + b'  '


def cut(data: bytes, element: Element) -> Edit:
    return before_space(data, element.start), element.end, b''


def set_attribute(data: bytes, element: Element, name: str, value: str
                  ) -> Edit:
    begin = data.index(element.tag.encode(), element.start) + \
        len(element.tag.encode())
    new = b"'" + escape(value) + b"'"
    for m in ATTRIBUTE.finditer(data, begin, element.tag_end):
        if m[1] == name.encode():
            return (*m.span(2), new)
    return begin, begin, b' ' + name.encode() + b'=' + new


def set_text(element: Element, text: str) -> Edit:
    return element.tag_end, element.close, escape(text)


def put_behind(data: bytes, element: Element, tag: bytes) -> Edit:
    return element.end, element.end, space_before(data, element.start) + tag


def put_child(data: bytes, root: Element, at: int, name: str,
              tags: Iterable[bytes]) -> Edit:
    """A new child of the root, which has empty elements."""
    line, inner = indents(data, root)
    return at, at, b''.join([
        line, b'<', name.encode(), b'>', *(inner + tag for tag in tags),
        line, b'</', name.encode(), b'>'])


def append(data: bytes, root: Element, parent: Element,
           last: Optional[Element], tags: Iterable[bytes]) -> Edit:
    """
    Empty elements for a child of the root.

    :param last: the element in it behind which they go, if there is one
    """
    line, inner = indents(data, root)
    if last:
        inner = space_before(data, last.start)
    new = b''.join(inner + tag for tag in tags)
    if last:
        return last.end, last.end, new
    if parent.end == parent.tag_end:
        return (before_space(data, parent.end - 2), parent.end,
                b'>' + new + line + f'</{parent.tag}>'.encode())
    if data[parent.tag_end:parent.close].strip():
        return parent.tag_end, parent.tag_end, new
    return parent.tag_end, parent.close, new + line
