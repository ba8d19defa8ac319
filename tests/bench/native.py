# SPDX-License-Identifier: GPL-2.0-or-later
"""mem-bench and what else is built from C: one call, one round."""

import json
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from lib.hugepages import Lacking
from report import Failure

LACKING = 77


def call(program: Path, *args: str | int | Path, **env: str) -> list[dict]:
    """The lines of JSON that @program prints."""
    command = [str(program), *map(str, args)]
    try:
        run = subprocess.run(command, capture_output=True, text=True,
                             stdin=subprocess.DEVNULL, env=os.environ | env)
    except FileNotFoundError as e:
        raise Failure(f'{program.name} is not built; run ./bench, which '
                      'builds it') from e
    said = '; '.join(run.stderr.splitlines()[-3:])
    if run.returncode == LACKING:
        raise Lacking(said)
    if run.returncode:
        raise Failure(f'{program.name} {command[1]} ends with status '
                      f'{run.returncode}: {said}')
    return [json.loads(line) for line in run.stdout.splitlines()
            if line.startswith('{')]


def collect(rows: Iterable[dict], keys: Sequence[str]) -> list[dict]:
    """Rows that are alike in @keys as one, with lists of the other values."""
    merged: dict[tuple, dict] = {}
    for row in rows:
        key = tuple(row[k] for k in keys)
        into = merged.setdefault(key, {k: row[k] for k in keys})
        for name, value in row.items():
            if name not in keys:
                into.setdefault(name, []).append(value)
    return list(merged.values())
