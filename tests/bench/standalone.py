# SPDX-License-Identifier: GPL-2.0-or-later
"""
For a section that is run by itself, without ./bench, which would set

    PYTHONPATH=tests:contrib/python/src
"""

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from context import Context
from lib import products
from lib.machine import MachineError
from report import Failure, Section


def context(quick: bool) -> Context:
    return Context(Path(sys.argv[0]).stem, quick, products.BUILD)


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
