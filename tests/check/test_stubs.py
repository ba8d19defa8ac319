# SPDX-License-Identifier: GPL-2.0-or-later
"""On hosts other than Linux stub.c stands for all that only Linux has."""

import json
import re
import shlex
import subprocess
from pathlib import Path

from common import ROOT
from layers import built_objects, nm

from lib.products import BUILD

QEMU = BUILD / 'qemu'
SOURCE = BUILD / 'qemu-src'
ENGINE = 'system/ram-reset'
STUB = f'{ENGINE}/stub.c'


def linux_only() -> set[str]:
    """Files of meson.build's block for Linux."""
    text = (ROOT / ENGINE / 'meson.build').read_text()
    block = re.search(r"^if host_os == 'linux'\n(.*?)^else\n"
                      r"  system_ss.add\(files\('stub.c'\)\)", text,
                      re.M | re.S)
    assert block
    names = re.findall(r"'([\w./-]+\.c)'", block[1])
    return {str((ROOT / ENGINE / name).resolve().relative_to(ROOT))
            for name in names}


def stubs(tmp_path) -> set[str]:
    """The symbols of stub.c, compiled as its neighbour is."""
    commands = json.loads((QEMU / 'compile_commands.json').read_text())
    command = next(c for c in commands
                   if c['file'].endswith(f'{ENGINE}/report.c'))
    words = shlex.split(command['command'])
    obj = tmp_path / 'stub.o'
    words[words.index('-o') + 1] = str(obj)
    words[-1] = str(SOURCE / STUB)
    subprocess.run(words, cwd=command['directory'], check=True)
    return nm(obj)[0]


def missing(tmp_path, left_out: str = '') -> set[str]:
    objects = built_objects(QEMU, SOURCE, ROOT)
    linux = linux_only()
    assert linux and linux - {f'{ENGINE}/device-layouts.c'} <= set(objects) | {
        str(p.relative_to(ROOT)) for p in (ROOT / ENGINE).rglob('*-stub.c')}
    only = set.union(*(nm(objects[name])[0] for name in linux
                       if name in objects))
    others = [Path(c['directory'], c['output'])
              for c in json.loads((QEMU / 'compile_commands.json').read_text())]
    mine = {objects[name] for name in linux if name in objects}
    out = subprocess.run(['nm', '--format=posix', '-u',
                          *(p for p in others if p.exists() and p not in mine)],
                         capture_output=True, text=True, check=True).stdout
    needed = {line.split()[0] for line in out.splitlines() if ' U' in line}
    return only & needed - (stubs(tmp_path) - {left_out})


def test_no_stub_is_missing(tmp_path):
    assert not missing(tmp_path)


def test_a_missing_stub_is_found(tmp_path):
    assert missing(tmp_path, 'ram_reset_covers') == {'ram_reset_covers'}
