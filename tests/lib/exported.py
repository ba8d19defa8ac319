# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/export-series, and git am of what it writes."""

import shutil
import subprocess
from pathlib import Path

from common import ROOT, overlay_files, series

LISTS = {'MAINTAINERS', 'docs/system/index.rst', 'docs/specs/index.rst',
         'docs/devel/index-internals.rst'}


def git(tree: Path, *arguments) -> str:
    return subprocess.run(['git', '-C', tree, '-c', 'user.name=Somebody',
                           '-c', 'user.email=somebody@example.org',
                           *arguments], check=True, capture_output=True,
                          text=True).stdout


def check_series(tmp_path: Path, release: str, stock: Path,
                 built: Path) -> None:
    """git am of it makes of @stock's files what was @built."""
    subprocess.run([ROOT / 'scripts/export-series', tmp_path / 'out', release],
                   check=True)
    mails = sorted((tmp_path / 'out' / release).glob('*.patch'))
    hooked = {f for p in series() for f in p.files}
    tree = tmp_path / 'tree'
    for name in hooked | LISTS:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(stock / name, tree / name)
    git(tree, 'init', '-q')
    git(tree, 'add', '-A')
    git(tree, 'commit', '-q', '-m', 'stock')
    git(tree, 'am', '-q', '--whitespace=error', *mails)
    assert len(git(tree, 'log', '--format=%h').split()) == len(mails) + 1
    assert 'Signed-off-by' not in git(tree, 'log')
    for name in hooked | set(overlay_files()):
        assert (tree / name).read_bytes() == (built / name).read_bytes(), name
    index = (tree / 'docs/system/index.rst').read_text()
    assert '   ram-reset\n' in index and '   snapctl\n' in index
    internals = (tree / 'docs/devel/index-internals.rst').read_text()
    assert internals.endswith('   ram-reset/index\n')
    assert 'F: system/ram-reset/\n' in (tree / 'MAINTAINERS').read_text()
