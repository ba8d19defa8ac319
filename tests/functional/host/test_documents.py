# SPDX-License-Identifier: GPL-2.0-or-later
"""
Each command of README.md, of the manual and of contrib, typed as it is; one
document is that of test_document_of_hugepages.py.
"""

# Takes: 70 s

import pytest

from lib import effort
from lib.documents import (LEFT_OUT, PYTHON, QMP, SHELL, SHOWN, XML,
                           documents)
from lib.typed import HERE, sets_hugepages, type_commands

ALL = documents()
# Three guests boot, save and load, as other pages have them do; or a harness
# runs, as in snapctl.rst
LONG = 'docs/system/ram-reset-many.rst', 'contrib/snapctl/README.rst'


def test_every_block_has_a_kind():
    for document in ALL:
        for block in document.blocks:
            assert block.language in (SHELL, QMP, XML, PYTHON, 'ini',
                                      *SHOWN), \
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


@pytest.mark.parametrize('document', [
    d for d in HERE if not sets_hugepages(d)
    and (effort.ALL or d.name not in LONG)], ids=lambda d: d.name)
def test_commands(document):
    type_commands(document)
