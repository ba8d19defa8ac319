# SPDX-License-Identifier: GPL-2.0-or-later
"""What a build of QEMU knows of its device classes."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from common import ROOT
from lib.relink import BUILD

SCRIPT = ROOT / 'system/ram-reset/devices/layouts.py'
RECORD = SCRIPT.with_name('layouts.txt')
TABLE = 'device-layouts.c'



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


def planted_table(folder: Path, record: Path) -> str:
    """The table in C that comes from another record."""
    run(BUILD, '--record', record, '--output', folder / TABLE)
    return (folder / TABLE).read_text()
