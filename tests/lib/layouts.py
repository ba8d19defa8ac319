# SPDX-License-Identifier: GPL-2.0-or-later
"""What a build of QEMU knows of its device classes, and QEMUs that are linked
with another table of them."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from common import ROOT
from lib import products

SCRIPT = ROOT / 'system/ram-reset/devices/layouts.py'
RECORD = SCRIPT.with_name('layouts.txt')
TABLE = 'device-layouts.c'


# The build that is tested
BUILD = products.QEMU.parent


def source() -> Path:
    about = json.loads((BUILD / 'meson-info/meson-info.json').read_text())
    return Path(about['directories']['source'])


def run(build: Path, *args: str | Path) -> str:
    return subprocess.run([sys.executable, SCRIPT, '--build', build, *args],
                          stdout=subprocess.PIPE, text=True, check=True).stdout


def classes(build: Path, *args: str | Path) -> dict[str, str]:
    """{class: why it is not known, or 'known'}"""
    return dict(line.split(': ', 1) for line in run(build, *args).splitlines()
                if not line.startswith('RAM reset'))


def planted_record(path: Path, structure: str, old: str, new: str) -> Path:
    """A record in which one member of a structure was another one."""
    text = (path if path.exists() else RECORD).read_text()
    planted = re.sub(rf'^(?P<before>{structure} \d+ .*\n(?:    .*\n)*?    )'
                     rf'(?P<at>\d+) {old}$', rf'\g<before>{new}', text,
                     flags=re.MULTILINE)
    assert planted != text
    path.write_text(planted)
    return path


def planted_build(folder: Path, header: Path) -> Path:
    """The same build, to be compiled with what is below @header."""
    shutil.copytree(BUILD / 'meson-info', folder / 'meson-info')
    commands = json.loads((BUILD / 'compile_commands.json').read_text())
    for command in commands:
        command['command'] = re.sub(
            ' -', f' -iquote {shlex.quote(str(header))} -',
            command['command'], count=1)
    (folder / 'compile_commands.json').write_text(json.dumps(commands))
    return folder


def relinked(folder: Path, record: Path) -> Path:
    """A QEMU whose table comes from another record."""
    table, object_file = folder / TABLE, folder / 'table.o'
    run(BUILD, '--record', record, '--output', table)
    words = _words('c_COMPILER', lambda e: e['output'].endswith(
        f'{TABLE}.o'))
    old = words[words.index('-o') + 1]
    words = words[:words.index('-MD')]
    _call([*words, '-o', object_file, '-c', table])
    words = _words('c_LINKER',
                   lambda e: e['output'] == 'qemu-system-x86_64')
    words = [str(object_file) if w == old else w for w in words]
    words[words.index('-o') + 1] = str(folder / 'qemu-system-x86_64')
    _call(words)
    return folder / 'qemu-system-x86_64'


def _words(rule: str, wanted) -> list[str]:
    text = subprocess.run(
        ['ninja', '-C', BUILD, '-t', 'compdb', '-x', rule, f'{rule}_RSP'],
        stdout=subprocess.PIPE, text=True, check=True).stdout
    entries = json.loads(text[text.index('['):])
    return shlex.split(next(e for e in entries if wanted(e))['command'])


def _call(words: list) -> None:
    done = subprocess.run(words, cwd=BUILD, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
