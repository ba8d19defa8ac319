# SPDX-License-Identifier: GPL-2.0-or-later
"""The file of --json."""

import json
from pathlib import Path
from typing import Optional

from ram_reset.errors import UsageError


def claim(path: Optional[Path]) -> None:
    """A file that cannot be written fails now, rather than at the end."""
    if path:
        try:
            path.write_text('')
        except OSError as e:
            raise UsageError(f'{path} cannot be written ({e.strerror}); give '
                             '--json another file') from e


def write(path: Optional[Path], data: object) -> None:
    if path:
        path.write_text(json.dumps(data, indent=1) + '\n')
