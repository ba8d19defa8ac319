# SPDX-License-Identifier: GPL-2.0-or-later
"""Notes on each class of devices that a load may leave alone."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def classes() -> list[str]:
    code = (ROOT / 'system/ram-reset/devices/kinds.c').read_text()
    table = re.search(r'^static const DeviceKind kinds\[\] = \{\n(.*?)^\};',
                      code, re.MULTILINE | re.DOTALL)[1]
    return re.findall(r'^    \{ "([^"]+)"', table, re.MULTILINE)


def test_each_class_is_compared_with_what_was_read():
    script = (ROOT / 'system/ram-reset/devices/layouts.py').read_text()
    table = re.search(r'^CLASSES = \{\n(.*?)^\}', script,
                      re.MULTILINE | re.DOTALL)[1]
    assert re.findall(r"^    '([^']+)':", table, re.MULTILINE) == classes()


def test_each_class_has_a_line():
    """The line says what its reset and load do outside of it."""
    kinds = classes()
    manual = (ROOT / 'docs/devel/ram-reset/devices.rst').read_text()
    rows = re.search(r'csv-table:: Outside of the instance\n(?:\s+:.*\n)+\n'
                     r'((?:   .*\n)+)', manual)[1]
    named = re.findall(r'^   ``([^`]+)``, ".+", ".+"$', rows, re.MULTILINE)
    assert len(kinds) > 10
    assert named == kinds
    assert len(named) == len(rows.splitlines())
