# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines for programs of others; each module needs that program."""
