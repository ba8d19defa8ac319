# SPDX-License-Identifier: GPL-2.0-or-later
"""Documents whose commands are typed on this host; libvirt has its own."""

import pytest

from lib import sandbox
from lib.documents import Document, documents
from lib.typist import Typist

HERE = [d for d in documents() if not d.is_libvirt()]


def sets_hugepages(document: Document) -> bool:
    return any('nr_hugepages' in c.text for c in document.commands())


def type_commands(document: Document) -> None:
    try:
        with sandbox.sandbox() as how, Typist(how) as typist:
            typist.read(document)
    except sandbox.Unavailable as e:
        pytest.skip(str(e))
    commands = document.commands()
    left = [c.text for c in commands if c.left_out()]
    print(f'{document.name}: {len(commands)} commands, {typist.run} run, '
          f'left out: {left}')
    assert typist.run + len(left) == len(commands)
