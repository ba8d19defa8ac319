# SPDX-License-Identifier: GPL-2.0-or-later
"""Notes on each class of devices that a load may leave alone."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_class_has_a_line():
    """The line says what its reset and load do outside of it."""
    code = (ROOT / 'system/ram-reset/devices/kinds.c').read_text()
    table = re.search(r'^static const DeviceKind kinds\[\] = \{\n(.*?)^\};',
                      code, re.MULTILINE | re.DOTALL)[1]
    kinds = re.findall(r'^    \{ "([^"]+)"', table, re.MULTILINE)
    manual = (ROOT / 'docs/devel/ram-reset/devices.rst').read_text()
    rows = re.search(r'csv-table:: Outside of the instance\n(?:\s+:.*\n)+\n'
                     r'((?:   .*\n)+)', manual)[1]
    named = re.findall(r'^   ``([^`]+)``, ".+", ".+"$', rows, re.MULTILINE)
    assert len(kinds) > 10
    assert named == kinds
    assert len(named) == len(rows.splitlines())
