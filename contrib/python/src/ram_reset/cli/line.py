# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages, and below them a line on a terminal that says what is going on."""

import os
import sys
from typing import Optional, TextIO

CLEAR = '\r\x1b[K'


class Line:
    """:param stream: gets messages; the line too, if it is a terminal"""

    def __init__(self, prog: str, stream: Optional[TextIO] = None):
        self._prog = prog
        self._stream = stream or sys.stderr
        self.draws = self._stream.isatty()
        self._line = ''

    def say(self, message: str) -> None:
        """A message above the line."""
        clear = CLEAR if self._line else ''
        print(f'{clear}{self._prog}: {message}\n{self._line}', end='',
              file=self._stream, flush=True)

    def show(self, text: str) -> None:
        """The line has another text from now on."""
        line = f'{self._prog}: {text}'[:self._width()]
        if self.draws and line != self._line:
            self._line = line
            print(CLEAR + line, end='', file=self._stream, flush=True)

    @property
    def drawn(self) -> bool:
        return bool(self._line)

    def hide(self) -> None:
        """Until it is shown again."""
        if self._line:
            print(CLEAR, end='', file=self._stream, flush=True)
        self._line = ''

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            columns = 0
        return (columns or 80) - 1
