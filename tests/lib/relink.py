# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMUs in which a source file of the build that is tested is another one."""

import json
import shlex
import subprocess
from pathlib import Path

from lib import products

# The build that is tested
BUILD = products.QEMU.parent
PROGRAM = products.QEMU.name


def relinked(folder: Path, name: str, text: str) -> Path:
    """A QEMU with @text in place of the source file that ends with @name."""
    source = folder / Path(name).name
    source.write_text(text)
    words = _compiler(name)
    old, new = words[words.index('-o') + 1], str(source.with_suffix('.o'))
    _call([*words[:words.index('-MD')], '-o', new, '-c', source])
    words = [new if word == old else word for word in _linker()]
    assert new in words
    words[words.index('-o') + 1] = str(folder / PROGRAM)
    _call(words)
    return folder / PROGRAM


def _compiler(name: str) -> list[str]:
    entries = json.loads((BUILD / 'compile_commands.json').read_text())
    return shlex.split(next(e for e in entries
                            if e['file'].endswith(name))['command'])


def _linker() -> list[str]:
    """With what is in its response file."""
    text = subprocess.run(
        ['ninja', '-C', BUILD, '-t', 'compdb', '-x', 'c_LINKER',
         'c_LINKER_RSP'], stdout=subprocess.PIPE, text=True, check=True).stdout
    entries = json.loads(text[text.index('['):])
    return shlex.split(next(e for e in entries
                            if e['output'] == PROGRAM)['command'])


def _call(words: list) -> None:
    done = subprocess.run(words, cwd=BUILD, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
