# SPDX-License-Identifier: GPL-2.0-or-later
"""lib/documents.py: code that nobody would type is an error."""

import pytest

from lib.documents import markdown_blocks

GOOD = ['Text', '', '```shell', 'ls', '```', '', '- a list', '  goes on', '',
        '```none', 'said', '```']


def test_blocks_are_found():
    assert [(b.language, b.text, b.line) for b in markdown_blocks(GOOD)] == [
        ('shell', 'ls\n', 4), ('none', 'said\n', 11)]


@pytest.mark.parametrize('fence', (
    ' ```shell', '   ```shell', '    ```shell', '\t```shell', '- ```shell',
    '1. ```shell', '> ```shell', '~~~shell', '  ~~~'))
def test_other_fences_are_errors(fence):
    for lines in ([fence, 'ls', '```'], [*GOOD, fence, 'ls', '```'],
                  ['- a list', '', fence, '  ls', fence[:-5]]):
        with pytest.raises(AssertionError, match='at the begin of a line'):
            list(markdown_blocks(lines))


@pytest.mark.parametrize('end', (4, 11))
def test_no_end_is_an_error(end):
    lines = GOOD[:end]
    with pytest.raises(AssertionError, match='without an end'):
        list(markdown_blocks(lines))


def test_an_indented_end_is_an_error():
    with pytest.raises(AssertionError, match='at the begin of a line'):
        list(markdown_blocks(['```shell', 'ls', ' ```', 'more', '```']))
