# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/devel names each file of the house, and no file that is not there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / 'docs/devel/ram-reset'
PAGE_LINES = 400
TOPS = ('hw', 'migration', 'system')
QEMU = ROOT / 'build/stock-src'


def listed() -> dict[str, list[str]]:
    """Folder: names of its files"""
    rooms: dict[str, list[str]] = {}
    names: list[str] = []
    for line in (PAGES / 'house.rst').read_text().splitlines():
        if found := re.match(r'\*\*([a-z/-]+)/\*\* ', line):
            names = rooms.setdefault(found[1], [])
        elif found := re.match(r'- ``([a-z0-9-]+)``: ', line):
            names.append(found[1])
    return rooms


def test_each_file_is_listed_in_its_room():
    rooms: dict[str, list[str]] = {}
    for path in (p for top in TOPS for p in (ROOT / top).rglob('*.c')):
        folder = str(path.parent.relative_to(ROOT))
        rooms.setdefault(folder, []).append(path.stem)
    found = listed()
    assert found.keys() == rooms.keys()
    for folder, names in rooms.items():
        assert sorted(found[folder]) == sorted(names), folder


def ours() -> list[str]:
    tops = (*TOPS, 'include', 'qapi', 'scripts', 'tests', 'contrib')
    return [str(p.relative_to(ROOT)) for top in tops
            for p in (ROOT / top).rglob('*') if p.is_file()]


def qemus() -> list[str]:
    return [str(p.relative_to(QEMU)) for p in QEMU.rglob('*.[ch]')]


def test_files_that_pages_name_are_there():
    files = ['/' + name for name in (*ours(), *qemus())]
    for page in PAGES.glob('*.rst'):
        named = re.findall(r'``([a-z][\w/.-]*\.(?:c|h|py|supp))``',
                           page.read_text())
        for name in set(named):
            assert any(f.endswith('/' + name) for f in files), (page, name)


def test_pages_are_short():
    for page in PAGES.glob('*.rst'):
        assert page.read_text().count('\n') <= PAGE_LINES, page


def test_each_page_is_in_the_table_of_contents():
    index = (PAGES / 'index.rst').read_text()
    tree = re.search(r'toctree::\n(?:   :.*\n)*\n((?:   .*\n)+)', index)
    assert tree
    assert sorted([*tree[1].split(), 'index']) == sorted(
        p.stem for p in PAGES.glob('*.rst'))


def test_functions_that_pages_name_are_there():
    """Those that have a prefix of ours."""
    code = ' '.join(path.read_text() for top in ('system', 'migration', 'hw',
                                                 'include', 'patches')
                    for path in (ROOT / top).rglob('*') if path.is_file())
    for page in PAGES.glob('*.rst'):
        for name in set(re.findall(r'``([a-z]\w+)\(\)``', page.read_text())):
            ours_too = name.startswith((
                'ram_reset_', 'load_plan_', 'vmstate_cache_', 'vmdesc_',
                'prim_', 'policy_', 'translated_', 'mappings_', 'rewind_',
                'device_renew_', 'template_'))
            if ours_too:
                assert re.search(rf'\b{name}\b', code), (page, name)
