# SPDX-License-Identifier: GPL-2.0-or-later
"""snapctl-feed reads a guest's console."""

import contextlib
from pathlib import Path

import feedlib
import pytest


def test_console_text_belongs_to_an_input(tmp_path):
    path = tmp_path / 'console'
    path.write_bytes(b'boot ')

    def say(text: bytes) -> None:
        with path.open('ab') as f:
            f.write(text)
    with contextlib.closing(feedlib.Console(path)) as console:
        say(b'one ')
        console.look()
        say(b'two ')
        # the first has ended between two looks, and so long ago at most
        console.look()
        console.next_input()
        assert console.text() == b'two '
        console.look()
        assert console.text() == b'two '
        say(bytes(feedlib.LONGEST) + b'end')
        assert len(console.text()) == feedlib.LONGEST
        assert console.text().endswith(b'\0end')
        path.write_bytes(b'x')
        assert console.text() == b'x'
    for bad in (tmp_path / 'none', Path('/dev/null')):
        with pytest.raises(feedlib.Failure, match='logfile='):
            feedlib.Console(bad)
