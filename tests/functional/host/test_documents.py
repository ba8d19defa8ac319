# SPDX-License-Identifier: GPL-2.0-or-later
"""Each command of README.md, of the manual and of contrib, typed as it is."""

# Alone: one command sets the number of hugepages
# Takes: 30 s

import pytest

from lib import hugepages, sandbox
from lib.documents import LEFT_OUT, SHELL, SHOWN, XML, documents
from lib.typist import Typist

ALL = documents()
# libvirt's are typed by tests/libvirt
HERE = [d for d in ALL if not d.is_libvirt()]


@pytest.fixture
def pool():
    """At most as it was; a document reserves pages by itself."""
    had = hugepages.pool('nr_hugepages')
    yield
    hugepages.restore(had)


def test_every_block_has_a_kind():
    for document in ALL:
        for block in document.blocks:
            assert block.language in (SHELL, XML, 'ini', *SHOWN), \
                f'{document.name}:{block.line}: nobody tests this'
            assert block.language not in (XML, 'ini') or block.caption or \
                document.is_libvirt(), f'{document.name}:{block.line}'


def test_what_is_left_out_is_there():
    texts = [c.text for d in ALL for c in d.commands()]
    print(f'{len(texts)} commands in {len(ALL)} documents')
    for begin in LEFT_OUT:
        assert any(text.startswith(begin) for text in texts)
    assert len([t for t in texts if t.startswith('qemu-system')]) >= 15
    assert not any('...' in text for text in texts)


@pytest.mark.parametrize('document', HERE, ids=lambda d: d.name)
def test_commands(document, pool):
    commands = document.commands()
    if any('nr_hugepages' in c.text for c in commands) and \
            not hugepages.POOL.exists():
        pytest.skip('this kernel has no 2 MiB hugepages')
    try:
        with sandbox.sandbox() as how, Typist(how) as typist:
            typist.read(document)
    except sandbox.Unavailable as e:
        pytest.skip(str(e))
    left = [c.text for c in commands if c.left_out()]
    print(f'{document.name}: {len(commands)} commands, {typist.run} run, '
          f'left out: {left}')
    assert typist.run + len(left) == len(commands)
