# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset feed reads a guest's console."""

import contextlib
from pathlib import Path

import pytest
from ram_reset.cli import console as feed_console
from ram_reset.errors import UsageError


def test_console_text_belongs_to_an_input(tmp_path):
    path = tmp_path / 'console'
    path.write_bytes(b'boot ')

    def say(text: bytes) -> None:
        with path.open('ab') as f:
            f.write(text)
    with contextlib.closing(feed_console.Console(path)) as console:
        say(b'one ')
        console.look()
        say(b'two ')
        # the first has ended between two looks, and so long ago at most
        console.look()
        console.next_input()
        assert console.text() == b'two '
        console.look()
        assert console.text() == b'two '
        say(bytes(feed_console.LONGEST) + b'end')
        assert len(console.text()) == feed_console.LONGEST
        assert console.text().endswith(b'\0end')
        path.write_bytes(b'x')
        assert console.text() == b'x'
    for bad in (tmp_path / 'none', Path('/dev/null')):
        with pytest.raises(UsageError, match='logfile='):
            feed_console.Console(bad)
