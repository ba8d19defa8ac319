# SPDX-License-Identifier: GPL-2.0-or-later
"""The results of ram-reset loop."""

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Counter as Counts, Dict, List, Optional, Sequence

from ram_reset.statistics import Blocker, Statistics

FORMAT = 'ram-reset-loop'
VERSION = 1
NO_REWIND = Blocker('no ram-reset object has rewind=on', '',
                    'start QEMU with -object '
                    'ram-reset-auto,id=rr0,rewind=on')
NO_QUERY = Blocker('this QEMU has no query-ram-reset', '',
                   'use a QEMU with RAM reset')


@dataclass
class Iteration:
    """
    One load and the guest's work after it.

    :ivar load: seconds that the load took
    :ivar whole: seconds of the iteration, or None if it was not completed
    :ivar inside: seconds of the load that QEMU reports
    """

    load: float
    whole: Optional[float] = None
    rewound: bool = False
    inside: Optional[float] = None
    dirty_pages: Optional[int] = None
    copied_pages: Optional[int] = None
    reason: str = ''


@dataclass(frozen=True)
class Problem:
    """An iteration that failed."""

    iteration: int
    kind: str
    text: str


@dataclass
class Results:
    snapshot: str
    source: Dict[str, Any]      # QEMU's command line, or its monitor
    iterations: List[Iteration] = field(default_factory=list)
    problems: List[Problem] = field(default_factory=list)
    kinds: Counts[str] = field(default_factory=Counter)
    reasons: Counts[str] = field(default_factory=Counter)
    blockers: Dict[str, Blocker] = field(default_factory=dict)  # by reason
    rewinds: int = 0
    seconds: float = 0.0
    interrupted: bool = False
    failure: Optional[str] = None

    def note_load(self, seconds: float, account: Optional[Statistics]
                  ) -> Iteration:
        """:param account: None if QEMU gives none"""
        new = Iteration(seconds)
        self.iterations.append(new)
        blocker: Optional[Blocker] = NO_REWIND if account else NO_QUERY
        if account and account.last_load:
            last = account.last_load
            new.rewound, new.inside = last.rewound, last.seconds
            new.dirty_pages = last.dirty_pages
            new.copied_pages = last.copied_pages
            blocker = None if last.rewound else last.blocker or blocker
        if blocker:
            new.reason = blocker.reason
            self.reasons[blocker.reason] += 1
            self.blockers[blocker.reason] = blocker
        else:
            self.rewinds += 1
        return new

    def note_problem(self, number: int, kind: str, text: str) -> None:
        self.problems.append(Problem(number, kind, text))
        self.kinds[kind] += 1

    def summary(self) -> str:
        n = len(self.iterations)
        if not n:
            return 'No load was made.'
        loads = [i.load for i in self.iterations]
        wholes = [i.whole for i in self.iterations if i.whole is not None]
        lines = [f'{n} loads in {self.seconds:.1f} s: '
                 f'{n / self.seconds:.1f} per second, '
                 f'{n / sum(loads):.1f} in the time of loads alone',
                 f'load:      {spread(loads)}',
                 f'iteration: {spread(wholes)}',
                 f'rewinds:   {self.rewinds} of {n}']
        lines += [f'  not {times}: {reason}'
                  for reason, times in self.reasons.most_common()]
        lines.append(f'errors:    {len(self.problems)}')
        lines += [f'  {kind}: {times}' for kind, times in
                  self.kinds.most_common()]
        return '\n'.join(lines)

    def data(self) -> Dict[str, Any]:
        """The same for a JSON file."""
        return {
            'format': FORMAT, 'version': VERSION, **self.source,
            'snapshot': self.snapshot, 'seconds': self.seconds,
            'interrupted': self.interrupted, 'failure': self.failure,
            'rewinds': self.rewinds,
            'loads': [load_data(i) for i in self.iterations],
            'reasons': [reason_data(self.blockers[reason], times)
                        for reason, times in self.reasons.most_common()],
            'errors': [vars(p) for p in self.problems]}


def load_data(iteration: Iteration) -> Dict[str, Any]:
    return {'seconds': iteration.load, 'iteration-seconds': iteration.whole,
            'rewound': iteration.rewound, 'qemu-seconds': iteration.inside,
            'dirty-pages': iteration.dirty_pages,
            'copied-pages': iteration.copied_pages,
            'reason': iteration.reason or None}


def reason_data(blocker: Blocker, times: int) -> Dict[str, Any]:
    return {'reason': blocker.reason, 'id': blocker.id or None,
            'remedy': blocker.remedy or None, 'times': times}


def percentile(seconds: Sequence[float], part: float) -> float:
    """In milliseconds."""
    return sorted(seconds)[math.ceil(part * len(seconds)) - 1] * 1000


def spread(seconds: Sequence[float]) -> str:
    if not seconds:
        return 'none was completed'
    return (f'median {percentile(seconds, .5):.2f} ms, '
            f'99th percentile {percentile(seconds, .99):.2f} ms')
