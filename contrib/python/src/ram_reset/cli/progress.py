# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages of ram-reset loop, and a line on a terminal with its progress."""

import asyncio
import time
from typing import Optional, Set, TextIO

from ram_reset.cli.line import Line
from ram_reset.cli.results import Results

INTERVAL = 0.5          # seconds


class Progress:
    """:param stream: gets messages; the line too, if it is a terminal"""

    def __init__(self, prog: str, results: Results,
                 stream: Optional[TextIO] = None):
        self._results = results
        self._line = Line(prog, stream)
        self._shown: Set[str] = set()       # reasons
        self._last = 0, time.monotonic()
        self.doing = 'waits until the guest is ready'
        self.say = self._line.say

    async def draw_always(self) -> None:
        """Until it is cancelled."""
        while self._line.draws:
            self.draw()
            await asyncio.sleep(INTERVAL)

    def draw(self) -> None:
        if not self._line.draws:
            return
        for reason in self._results.reasons.keys() - self._shown:
            self._shown.add(reason)
            remedy = self._results.blockers[reason].remedy
            self.say('; '.join(filter(None, (f'no rewind: {reason}',
                                             remedy))))
        self._line.show(self._state())

    def _state(self) -> str:
        results, loads = self._results, len(self._results.iterations)
        if not loads:
            return self.doing
        (before, then), now = self._last, time.monotonic()
        self._last = loads, now
        rate = (loads - before) / max(now - then, 1e-9)
        return (f'{loads} loads, {rate:.1f} a second, rewinds: '
                f'{results.rewinds}, errors: {len(results.problems)}')

    def end(self) -> None:
        """Show what is new, and remove the line."""
        if self._line.drawn:
            self.draw()
        self._line.hide()
        self._line.draws = False
