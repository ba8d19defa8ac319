# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages of ram-reset loop, and a line on a terminal with its progress."""

import asyncio
import os
import sys
import time
from typing import Optional, Set, TextIO

from ram_reset.cli.results import Results

INTERVAL = 0.5          # seconds
CLEAR = '\r\x1b[K'


class Progress:
    """:param stream: gets messages; the line too, if it is a terminal"""

    def __init__(self, prog: str, results: Results,
                 stream: Optional[TextIO] = None):
        self._prog = prog
        self._results = results
        self._stream = stream or sys.stderr
        self._draws = self._stream.isatty()
        self._shown: Set[str] = set()       # reasons
        self._last = 0, time.monotonic()
        self._line = ''
        self.doing = 'waits until the guest is ready'

    def say(self, message: str) -> None:
        """A message above the line."""
        clear = CLEAR if self._line else ''
        print(f'{clear}{self._prog}: {message}\n{self._line}', end='',
              file=self._stream, flush=True)

    async def draw_always(self) -> None:
        """Until it is cancelled."""
        while self._draws:
            self.draw()
            await asyncio.sleep(INTERVAL)

    def draw(self) -> None:
        if not self._draws:
            return
        for reason in self._results.reasons.keys() - self._shown:
            self._shown.add(reason)
            remedy = self._results.blockers[reason].remedy
            self.say('; '.join(filter(None, (f'no rewind: {reason}',
                                             remedy))))
        line = f'{self._prog}: {self._state()}'[:self._width()]
        if line != self._line:
            self._line = line
            print(CLEAR + line, end='', file=self._stream, flush=True)

    def _state(self) -> str:
        results, loads = self._results, len(self._results.iterations)
        if not loads:
            return self.doing
        (before, then), now = self._last, time.monotonic()
        self._last = loads, now
        rate = (loads - before) / max(now - then, 1e-9)
        return (f'{loads} loads, {rate:.1f} a second, rewinds: '
                f'{results.rewinds}, errors: {len(results.problems)}')

    def _width(self) -> int:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            columns = 0
        return (columns or 80) - 1

    def end(self) -> None:
        """Show what is new, and remove the line."""
        if self._line:
            self.draw()
            print(CLEAR, end='', file=self._stream, flush=True)
        self._draws, self._line = False, ''
