# SPDX-License-Identifier: GPL-2.0-or-later
"""The manual's table of properties has those of the code."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADDED = re.compile(r'object_class_property_add(?:_\w+)?\(oc,\s*"([a-z-]+)"')


def test_the_table_has_each_property():
    """Of all kinds of objects."""
    manual = (ROOT / 'docs/system/ram-reset.rst').read_text()
    table = re.search(r'list-table:: Properties\n((?:   .*\n|\n)+)', manual)
    assert table
    rows = re.findall(r'^   \* - (.*)$', table[1], re.MULTILINE)
    named = re.findall(r'``([a-z-]+)=', ' '.join(rows))
    code = ' '.join(path.read_text() for path in
                    (ROOT / 'system/ram-reset').rglob('*.c'))
    assert sorted(named) == sorted(ADDED.findall(code))
