# SPDX-License-Identifier: GPL-2.0-or-later
"""What the tests of programs for users share."""

from lib.fixtures import accel, built, fast_accel   # noqa: F401
