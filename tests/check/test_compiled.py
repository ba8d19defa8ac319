# SPDX-License-Identifier: GPL-2.0-or-later
"""lib/compiled.py: a warning is found, long after it was said."""

import json
from pathlib import Path

import pytest

from lib.compiled import complaints

QUIET = 'int f(int x);\nint f(int x)\n{\n    return x;\n}\n'
LOUD = 'int f(int x);\nint f(int x)\n{\n    int y;\n    return x;\n}\n'


@pytest.fixture
def tree(tmp_path):
    """Makes a build of {name: code} as QEMU's is."""
    def make(sources: dict[str, str]) -> tuple[Path, Path]:
        source, build = tmp_path / 'source', tmp_path / 'build'
        build.mkdir()
        entries = []
        for name, code in sources.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            # a link, as the files of the overlay are
            real = tmp_path / name.replace('/', '_')
            real.write_text(code)
            (source / name).symlink_to(real)
            out = real.with_suffix('.o').name
            (build / out).write_text('as it was')
            entries.append({
                'directory': str(build), 'file': f'../source/{name}',
                'output': out, 'command': f'cc -Wall -MD -MF {out}.d -o {out} '
                                          f'-c ../source/{name}'})
        (build / 'compile_commands.json').write_text(json.dumps(entries))
        return build, source
    return make


def test_a_warning_and_an_error_are_found(tree):
    build, source = tree({'system/quiet.c': QUIET, 'system/loud.c': LOUD,
                          'system/wrong.c': 'int f(\n', 'block.c': LOUD})
    names = {'system/quiet.c', 'system/loud.c', 'system/wrong.c'}
    compiled, bad = complaints(build, source, names)
    assert compiled == names
    loud, wrong = sorted(bad)
    assert loud.startswith('system/loud.c: ') and 'warning: unused' in loud
    assert wrong.startswith('system/wrong.c: ') and 'error: ' in wrong
    assert (build / 'system_quiet.o').read_text() == 'as it was'
    assert not (build / 'system_quiet.o.d').exists()


def test_what_was_not_built_is_left_out(tree):
    build, source = tree({'system/loud.c': LOUD})
    (build / 'system_loud.o').unlink()
    assert complaints(build, source, {'system/loud.c'}) == (set(), [])
