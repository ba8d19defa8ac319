# SPDX-License-Identifier: GPL-2.0-or-later
"""The compiler's messages about our files in a build of QEMU.

They are compiled once more, as a build says it only when it compiles; with a
ccache that is warm this takes seconds, since it keeps what was said.
"""

import os
import shlex
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import ROOT, compiled, ours


def commands(build: Path, source: Path, names: set[str]):
    """(name, folder, words) of all that has been built of @names."""
    for name, entry in compiled(build, source):
        folder = Path(entry['directory'])
        if name in names and (folder / entry['output']).exists():
            yield name, folder, shlex.split(entry['command'])


def said(folder: Path, words: list[str]) -> str:
    with tempfile.TemporaryDirectory() as place:
        words = list(words)
        for option, file in (('-o', 'out.o'), ('-MF', 'out.d')):
            if option in words:
                words[words.index(option) + 1] = f'{place}/{file}'
        # as scripts/build-qemu has it, so that ccache knows the file
        env = {'CCACHE_BASEDIR': str(ROOT), 'CCACHE_NOHASHDIR': '1'}
        run = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False,
                             env=env | os.environ)
    return run.stdout if run.stdout or not run.returncode else \
        f'status {run.returncode}'


def complaints(build: Path, source: Path,
               names: set[str] | None = None) -> tuple[set[str], list[str]]:
    """The files that were compiled, and whatever was said of one."""
    found = list(commands(build, source, names or ours()))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        texts = list(pool.map(lambda each: said(*each[1:]), found))
    return ({name for name, *_ in found},
            [f'{name}: {text}' for (name, *_), text in zip(found, texts)
             if text])


def check_quiet(build: Path, source: Path) -> None:
    names, bad = complaints(build, source)
    print(f'{len(names)} files compiled, {len(bad)} with a warning')
    assert not bad, '\n'.join(bad)
    # what is a file of its own, QEMU's with a hook, and a test
    assert {'system/ram-reset/strategy/madvise.c', 'migration/savevm.c',
            'tests/qtest/ram-reset-test.c'} <= names
