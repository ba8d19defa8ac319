# SPDX-License-Identifier: GPL-2.0-or-later
"""
How long a test waits on this host for what is to come.

A limit is written as on the reference host when that is idle.  It is
multiplied by how much slower this host is now, of which there are two parts:

    speed       the CPU time of a fixed piece of work, in that of the reference
                host; measured once in a process
    crowding    how many there are for each CPU: the load average in that of
                CPUs, or the elapsed time of that work in its CPU time

Both are at least 1, and their product is at most MOST.  When a limit is about
to be over the host is measured anew, since others may have come meanwhile.

Run as a program it prints for ./test by how much to multiply meson's limits;
with --slow its status says whether this host is slow.
"""

import os
import sys
import time
from dataclasses import dataclass
from statistics import median

STEPS = 1_000_000
NOMINAL = 0.030         # seconds of CPU for STEPS on the reference host
MOST = 10.0
SLOW = 2.0              # times the reference host's CPU time
AGAIN = 1.0             # second; no more often is the host measured anew


def work(steps: int = STEPS) -> tuple[float, float]:
    """Its elapsed time, and its CPU time."""
    begin, number = (time.monotonic(), time.thread_time()), 0
    for i in range(steps):
        number = (number * 31 + i) & 0xffff
    return time.monotonic() - begin[0], time.thread_time() - begin[1]


def load() -> float:
    """Threads that run or wait for a CPU, for each CPU that there is."""
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


@dataclass
class Host:
    speed: float = 0.0          # not measured
    crowding: float = 1.0
    measured: float = -AGAIN    # when

    def measure(self) -> None:
        if time.monotonic() < self.measured + AGAIN:
            return
        elapsed, cpu = work()
        self.measured = time.monotonic()
        self.speed = self.speed or max(cpu / NOMINAL, 1.0)
        self.crowding = max(elapsed / cpu, 1.0)

    def slowness(self) -> float:
        if not self.speed:
            self.measure()
        return min(self.speed * max(self.crowding, load()), MOST)


HOST = Host()


def patience(seconds: float) -> float:
    """The limit of something that begins now, for who cannot ask again."""
    return seconds * HOST.slowness()


class Limit:
    """The limit of an operation that begins now."""

    def __init__(self, seconds: float):
        self._nominal = seconds
        self._begin = time.monotonic()
        self._slowness = 1.0

    def seconds(self) -> float:
        """In all, on the slowest that this host has been meanwhile."""
        self._slowness = max(self._slowness, HOST.slowness())
        return self._nominal * self._slowness

    def left(self) -> float:
        if self._left() <= 0:
            HOST.measure()
        return self._left()

    def _left(self) -> float:
        return self._begin + self.seconds() - time.monotonic()

    def over(self) -> bool:
        return self.left() <= 0


def speed() -> float:
    """How much slower this host is than the reference host, both idle."""
    return median(work()[1] for _ in range(9)) / NOMINAL


if __name__ == '__main__':
    if sys.argv[1:] == ['--slow']:
        sys.exit(speed() < SLOW)
    # twice, since a host may become busier
    print(f'{2 * HOST.slowness():.1f}')
