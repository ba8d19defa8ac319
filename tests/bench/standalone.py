# SPDX-License-Identifier: GPL-2.0-or-later
"""For a section that is run by itself, without ./bench."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lib import products
from lib.machine import MachineError
from report import Failure, Section


class Context:
    """Like that of ./bench."""

    def __init__(self, quick: bool):
        self.quick = quick
        self.build = products.BUILD
        self._start = time.monotonic()
        self._done = self._count = 0

    def expect(self, cells: int) -> None:
        self._count = cells

    def step(self, cell: str) -> None:
        self._done += 1
        print(f'[{time.monotonic() - self._start:6.1f} s] {self._done}/'
              f'{self._count} {cell}', file=sys.stderr, flush=True)


def parser(description: str | None, rounds: int = 0) -> argparse.ArgumentParser:
    """With what all sections take."""
    p = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--quick', action='store_true', help='few and small cells')
    p.add_argument('--rounds', type=int, default=rounds)
    p.add_argument('--json', type=Path, help='write all samples to this file')
    return p


def deliver(program: str, file: Path | None, measure: Callable[[], Section]
            ) -> int:
    """Print what is measured, and write all samples to @file."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        section = measure()
    except (AssertionError, Failure, MachineError, OSError) as e:
        print(f'{program}: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'{program}: interrupted', file=sys.stderr)
        return 130
    if file:
        file.write_text(json.dumps(section.json(), indent=1) + '\n')
    print(section.markdown())
    return 0
