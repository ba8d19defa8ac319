# SPDX-License-Identifier: GPL-2.0-or-later
"""All blockers are in one file, and the manual and QAPI have the same ones."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / 'system/ram-reset/rewind/blockers.c'
STRINGS = r'((?:\s*"[^"\n]*")+)'


def joined(strings):
    return ''.join(re.findall(r'"([^"\n]*)"', strings))


def in_code():
    """[(id, sentence, remedy)]"""
    found = re.findall(rf'BLOCKER\((\w+),{STRINGS},{STRINGS}\)',
                       FILE.read_text())
    return [(name.lower().replace('_', '-'), joined(sentence), joined(remedy))
            for name, sentence, remedy in found]


def in_manual():
    text = (ROOT / 'docs/system/ram-reset.rst').read_text()
    rows = re.search(r'csv-table:: Blockers\n(?:\s+:.*\n)+\n((?:   .*\n)+)',
                     text)[1]
    table = csv.reader(rows.splitlines(), skipinitialspace=True)
    return [(row[0].strip().strip('`'), *row[1:]) for row in table]


def in_qapi():
    text = (ROOT / 'qapi/ram-reset.json').read_text()
    data = re.search(r"'enum': 'RamResetBlockerId',.*?'data': \[(.*?)\]", text,
                     re.DOTALL)[1]
    return re.findall(r"'([\w-]+)'", data)


def test_manual_has_each_blocker():
    assert len(in_code()) > 20
    assert in_manual() == in_code()


def test_qapi_has_each_blocker():
    assert in_qapi() == [name for name, *_ in in_code()]


@pytest.mark.parametrize('name', in_qapi())
def test_something_raises_it(name):
    symbol = 'RAM_RESET_BLOCKER_' + name.upper().replace('-', '_')
    files = [*(ROOT / 'system/ram-reset').rglob('*.c'),
             *(ROOT / 'migration').rglob('*.c')]
    assert any(re.search(rf'\b{symbol}\b', f.read_text()) for f in files
               if f != FILE)


def test_no_two_are_alike():
    for column in zip(*(entry[:2] for entry in in_code())):
        assert len(set(column)) == len(column)
