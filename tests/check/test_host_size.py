# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's meson refuses a host that is too small, and no other."""

import shutil
import subprocess

import pytest

from lib.products import REPO

PROJECT = '''\
project('host', 'c')
cc = meson.get_compiler('c')
host_os = '{os}'
have_system = {system}
genh = []
python = import('python').find_installation()
block_ss = import('sourceset').source_set()
system_ss = import('sourceset').source_set()
specific_ss = import('sourceset').source_set()
subdir('system/ram-reset')
'''
# compiles, and links nothing: a 32-bit libc need not be here
CROSS = '''\
[binaries]
c = ['cc', '{option}']
[properties]
needs_exe_wrapper = true
[host_machine]
system = 'linux'
cpu_family = '{family}'
cpu = '{family}'
endian = 'little'
'''


def configure(tmp_path, option, family, os='linux', system='true'):
    for folder in ('system/ram-reset', 'migration'):
        shutil.copytree(REPO / folder, tmp_path / folder)
    (tmp_path / 'meson.build').write_text(
        PROJECT.format(os=os, system=system))
    cross = tmp_path / 'cross.ini'
    cross.write_text(CROSS.format(option=option, family=family))
    return subprocess.run(
        [REPO / 'build/venv/bin/meson', 'setup', '--cross-file', cross,
         tmp_path / 'build', tmp_path], capture_output=True, text=True)


def test_a_32_bit_host_is_refused(tmp_path):
    run = configure(tmp_path, '-m32', 'x86')
    assert run.returncode
    assert 'encountered: RAM reset counts bytes and pages' in run.stdout
    assert 'build QEMU for a 64-bit host' in run.stdout


@pytest.mark.parametrize('option,family,os,system', [
    ('-m64', 'x86_64', 'linux', 'true'),
    # tools and user emulation alone; a host without the primitives
    ('-m32', 'x86', 'linux', 'false'),
    ('-m32', 'x86', 'windows', 'true'),
])
def test_others_are_not(tmp_path, option, family, os, system):
    run = configure(tmp_path, option, family, os, system)
    assert run.returncode == 0, run.stdout
