# SPDX-License-Identifier: GPL-2.0-or-later
"""include/system/ram-reset-compat.h: which release a version number is of."""

import re
import subprocess

import pytest

from common import ROOT

HEADER = ROOT / 'include/system/ram-reset-compat.h'
RELEASES = '10.0', '10.1', '10.2', '11.0', '11.1', '11.2', '12.0'


def since(version: str, release: str) -> bool:
    parts = zip(('MAJOR', 'MINOR', 'MICRO'), version.split('.'))
    macros = re.findall(r'^#define RAM_RESET_QEMU_.*?[^\\]\n',
                        HEADER.read_text(), re.MULTILINE | re.DOTALL)
    source = (''.join(f'#define QEMU_VERSION_{name} {value}\n'
                      for name, value in parts) + ''.join(macros) +
              f'#if RAM_RESET_QEMU_SINCE({release.replace(".", ", ")})\n'
              'yes\n#endif\n')
    run = subprocess.run(['cc', '-E', '-P', '-'], input=source, text=True,
                         stdout=subprocess.PIPE, check=True)
    return run.stdout.strip() == 'yes'


@pytest.mark.parametrize('version,release', (
    ('10.0.13', '10.0'), ('10.0.50', '10.1'), ('10.1.92', '10.2'),
    ('10.2.2', '10.2'), ('10.2.50', '11.0'), ('10.2.91', '11.0'),
    ('11.0.0', '11.0'), ('11.0.50', '11.1'), ('11.0.92', '11.1'),
    ('11.2.50', '12.0')))
def test_development_versions_are_of_the_next_release(version, release):
    told = [r for r in RELEASES if since(version, r)]
    assert told == list(RELEASES[:RELEASES.index(release) + 1])
