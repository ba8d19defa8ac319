# SPDX-License-Identifier: GPL-2.0-or-later
"""Of every suite in Python: what it tries, see lib/effort.py."""

from lib.effort import (pytest_collection_modifyitems,  # noqa: F401
                        pytest_configure)
