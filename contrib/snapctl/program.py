# SPDX-License-Identifier: GPL-2.0-or-later
"""The frame of snapctl-feed: its errors, its end, its Python."""

import os
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True

# scripts/bootstrap installs it here
PYTHON = Path(os.path.normpath(Path(__file__).resolve().parent /
                               '../../build/venv/bin/python3'))
# Events of a dead guest
CRASHES = {'SHUTDOWN': 'the guest shut down or reset',
           'GUEST_PANICKED': 'the guest panicked'}


class Failure(Exception):
    """Something the user can act on: one sentence, no traceback."""


def say(text):
    print(text, flush=True)


def main(function):
    prog = Path(sys.argv[0]).name
    try:
        sys.exit(function())
    except Failure as e:
        print(f'{prog}: {e}', file=sys.stderr)
    except KeyboardInterrupt:
        print(f'{prog}: interrupted', file=sys.stderr)
        sys.exit(130)
    except OSError as e:
        print(f'{prog}: {e.filename or ""}: {e.strerror}', file=sys.stderr)
    sys.exit(1)


def need_qmp():
    """Starts the program again with a Python that has qemu.qmp."""
    try:
        import qemu.qmp     # noqa: F401
    except ImportError:
        if not PYTHON.exists() or Path(sys.prefix) == PYTHON.parent.parent:
            raise Failure('the Python library qemu.qmp is missing; run '
                          'scripts/bootstrap, or pip install qemu.qmp')
        os.execv(PYTHON, [str(PYTHON), *sys.argv])


def check_snapshot(parser, name):
    if not re.fullmatch(r'[\w.-]*[A-Za-z_][\w.-]*', name):
        parser.error(f"--snapshot '{name}' is not a name for savevm; use "
                     'letters, digits and - _ . but not digits only')
