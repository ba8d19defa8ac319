# SPDX-License-Identifier: GPL-2.0-or-later
"""python -m ram_reset is the command ram-reset."""

import sys

from ram_reset.cli import main

sys.exit(main())
