# SPDX-License-Identifier: GPL-2.0-or-later
"""How much each suite in Python tries, see lib/effort.py."""

import subprocess

from lib.effort import (pytest_collection_modifyitems,  # noqa: F401
                        pytest_configure)

# A child of vfork() reads the environment where this process has it.  pytest
# changes it with each test, and a thread's execve() fails with EFAULT if the
# environment becomes shorter meanwhile.
subprocess._USE_VFORK = False
