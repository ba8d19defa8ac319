# SPDX-License-Identifier: GPL-2.0-or-later
"""Fixtures for the tests of programs for users."""

from lib.fixtures import (accel, built, each_linux_accel,   # noqa: F401
                          fast_accel, no_linux_kvm)
