# SPDX-License-Identifier: GPL-2.0-or-later
"""
Loads again and again in one process: what has grown in the end, and whether it
is as fast as it was.

Other work on the host makes rates of two times incomparable.  So there is a
witness, a second QEMU that is started with the first one: the two take turns
at the beginning, then the witness is frozen until the two take turns again.
The change of the ratio of the two decides, of their rates and of the CPU time
of a load; the latter depends less on others, but has no waiting in it.
"""

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from lib.loopers import PATIENCE, Looper
from lib.machine import MachineError
from lib.patience import Limit

WINDOW = 0.5
DRAWS = 1000
# Growth that is allowed, which does not come with each load: QEMU's pool
# for I/O keeps as many threads as ever had to wait, up to 64, each with a stack
# and some with an arena; malloc() finds its size.  Memory in KiB
MAY_GROW = {'anonymous': 1536, 'shared': 0, 'heap': 1536, 'threads': 16,
            'mappings': 72, 'descriptors': 0, 'log': 0, 'log blocks': 0,
            'image': 0, 'image blocks': 0}


@dataclass(frozen=True)
class Plan:
    loads: int          # with warm-up and turns there are some more
    warm_up: int
    parts: int          # after each of which it is looked what has grown
    turns: int
    turn: float         # seconds


class Meter:
    """How often, in which time, with how much of CPU."""

    def __init__(self, looper: Looper):
        self._looper = looper
        self._last = self._now()

    def _now(self) -> tuple[int, float, float]:
        return (self._looper.count(), time.monotonic(), self._looper.cpu())

    def take(self) -> dict[str, float]:
        last, self._last = self._last, self._now()
        loads, seconds, cpu = (a - b for a, b in zip(self._last, last))
        return {'loads': loads, 'rate': loads / seconds,
                'cpu': cpu / loads * 1e3 if loads else 0.0}


def wait_for(looper: Looper, count: int,
             each_window: Callable[[], None] = lambda: None) -> None:
    seen, limit = -1, Limit(PATIENCE)
    while (now := looper.count()) < count:
        looper.check()
        if now > seen:
            seen, limit = now, Limit(PATIENCE)
        elif limit.over():
            raise MachineError(f'no load for {limit.seconds():.0f} s after '
                               f'{now}: {looper.guest.log()}')
        time.sleep(WINDOW)
        each_window()


def one_turn(looper: Looper, seconds: float) -> dict[str, float]:
    looper.thaw()
    meter = Meter(looper)
    time.sleep(seconds)
    found = meter.take()
    looper.check()
    looper.freeze()
    return found


def take_turns(both: tuple[Looper, Looper], plan: Plan
               ) -> list[list[dict[str, float]]]:
    """Measurements of each of the two, by turn."""
    found: list[list[dict[str, float]]] = [[], []]
    for looper in both:
        looper.freeze()
    for turn in range(plan.turns):
        for i in (0, 1) if turn % 2 else (1, 0):
            found[i].append(one_turn(both[i], plan.turn))
    return found


def soak(looper: Looper, witness: Looper | None, plan: Plan,
         tell: Callable[[int, float], None] = lambda *_: None) -> dict:
    """
    All that was measured; without a @witness, not whether the rate lasts.
    @tell how many loads there were, and the rate.
    """
    for each in filter(None, (looper, witness)):
        each.begin()
        wait_for(each, plan.warm_up)
        each.freeze()
    looper.thaw()
    listed, sizes = looper.snapshots(), [looper.rest()]
    turns = {}
    if witness:
        turns['first'] = take_turns((looper, witness), plan)
        looper.thaw()
    first, windows = looper.count(), []
    for part in range(1, plan.parts + 1):
        meter = Meter(looper)
        wait_for(looper, first + plan.loads * part // plan.parts,
                 lambda: windows.append(meter.take()))
        if windows:
            tell(looper.count(), windows[-1]['rate'])
        sizes.append(looper.rest())
    if witness:
        turns['last'] = take_turns((looper, witness), plan)
        looper.thaw()
    counted = looper.end()
    return {'loads': looper.count(), 'counted': counted, 'sizes': sizes,
            'windows': windows, 'turns': turns,
            'snapshots': [listed, looper.snapshots()]}


def grown(found: dict) -> dict[str, int]:
    first, *_, last = found['sizes']
    return {what: last[what] - first[what] for what in last}


def at_best(found: list[dict[str, float]], what: str) -> float:
    """
    The tenth best: other work on the host makes a window worse, and never
    better.
    """
    values = sorted((f[what] for f in found if f['loads']),
                    reverse=what == 'rate')
    if not values:
        raise MachineError('no load in any window')
    return values[len(values) // 10]


def ratio(turns: dict, what: str) -> float:
    """
    The figure at the end divided by the figure at the start, both relative to
    the witness; the inverse for CPU time.
    """
    first, last = (at_best(ours, what) / at_best(witness, what)
                   for ours, witness in (turns['first'], turns['last']))
    return last / first if what == 'rate' else first / last


def lasting(found: dict, what: str) -> tuple[float, float, float]:
    """ratio(), and between what nine of ten are if turns are drawn by lot."""
    lots = random.Random(0)
    drawn = []
    for _ in range(DRAWS):
        turns = {}
        for when, both in found['turns'].items():
            pairs = lots.choices(list(zip(*both)), k=len(both[0]))
            turns[when] = list(zip(*pairs))
        drawn.append(ratio(turns, what))
    low, *_, high = statistics.quantiles(drawn, n=20)
    return ratio(found['turns'], what), low, high


def tenths(found: dict, what: str) -> list[dict[str, float]]:
    """At best, and median, of the windows of the first and the last tenth."""
    windows = [w for w in found['windows'] if w['loads']]
    count = max(len(windows) // 10, 1)
    return [{'best': at_best(part, what),
             'median': statistics.median(w[what] for w in part)}
            for part in (windows[:count], windows[-count:])]


def complaints(found: dict) -> list[str]:
    """Complaints about all figures except the rate."""
    said = [f'{what} has grown by {by}, which is more than {MAY_GROW[what]}'
            for what, by in grown(found).items() if by > MAY_GROW[what]]
    if len({*found['counted'].values()}) > 1:
        said.append(f'not each load was a rewind: {found["counted"]}')
    first, last = found['snapshots']
    if first != last:
        said.append(f'snapshots were {first}, and are {last}')
    return said
