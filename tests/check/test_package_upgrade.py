# SPDX-License-Identifier: GPL-2.0-or-later
"""The packages' prerm: QEMUs that run can load modules after an upgrade, and
nothing is left behind.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib.products import REPO

sys.path.insert(0, str(REPO / 'tests/package'))

import upgraderun   # noqa: E402

PACKAGING = REPO / 'packaging/debian'
VERSION = '10.0.13+20260102.73351fa~deb13'
PROGRAM = 'usr/bin/qemu-ram-reset-system-x86_64'
needs_root = pytest.mark.skipif(os.geteuid() != 0,
                                reason='only root can mount')


class Root:
    """Files that both packages install, below a folder."""

    def __init__(self, path: Path):
        self.path = path
        self.modules = path / 'usr/lib/qemu-ram-reset' / VERSION / 'qemu'
        self.saved = path / 'run/qemu' / f'qemu-ram-reset_{VERSION}'
        for folder in (self.modules, path / 'usr/bin', path / 'run'):
            folder.mkdir(parents=True)
        for name in ('hw-usb-host', 'block-curl'):
            (self.modules / f'{name}.so').write_text(name)
        shutil.copy('/bin/sleep', path / PROGRAM)
        query = path / 'bin/dpkg-query'
        query.parent.mkdir()
        query.write_text(f'#!/bin/sh\nprintf %s {VERSION}\n')
        query.chmod(0o755)
        self.env = dict(
            os.environ, DPKG_ROOT=str(path), PATH=f'{query.parent}:'
            f'{os.environ["PATH"]}', DPKG_MAINTSCRIPT_PACKAGE='qemu-ram-reset')

    def run(self, script: str, action: str) -> str:
        done = subprocess.run(
            ['sh', PACKAGING / script, action],
            env=self.env, text=True, check=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        return done.stdout

    def names(self) -> set[str]:
        return {p.name for p in self.saved.glob('*')}


@pytest.fixture(name='root')
def fixture_root(tmp_path):
    return Root(tmp_path)


@pytest.fixture(name='vm')
def fixture_vm(root):
    with subprocess.Popen([root.path / PROGRAM, '600']) as process:
        program = Path(f'/proc/{process.pid}/exe')
        while program.resolve() != root.path / PROGRAM:
            time.sleep(0.01)
        yield process
        process.kill()


@pytest.mark.parametrize('package', ('', '-modules'))
def test_modules_are_saved_while_a_qemu_runs(root, vm, package):
    script = f'qemu-ram-reset{package}.prerm'
    assert root.run(script, 'upgrade') == ''
    assert root.names() == {'hw-usb-host.so', 'block-curl.so'}
    assert root.saved.stat().st_mode & 0o777 == 0o755


def test_modules_of_the_second_package_are_saved_too(root, vm):
    """When the first has been unpacked, the QEMU that runs has no name."""
    other = root.modules / 'block-curl.so'
    other.unlink()
    root.run('qemu-ram-reset.prerm', 'upgrade')
    assert root.names() == {'hw-usb-host.so'}
    inode = (root.saved / 'hw-usb-host.so').stat().st_ino
    other.write_text('')
    new = root.path / 'new'
    shutil.copy('/bin/sleep', new)
    new.rename(root.path / PROGRAM)
    root.run('qemu-ram-reset-modules.prerm', 'upgrade')
    assert root.names() == {'hw-usb-host.so', 'block-curl.so'}
    # it may be in use
    assert (root.saved / 'hw-usb-host.so').stat().st_ino == inode


def test_nothing_is_saved_for_none(root):
    root.run('qemu-ram-reset.prerm', 'upgrade')
    assert not root.saved.exists()


def test_nothing_is_saved_at_removal(root, vm):
    root.run('qemu-ram-reset.prerm', 'remove')
    assert not root.saved.exists()


def test_what_cannot_be_saved_stops_no_upgrade(root, vm):
    (root.path / 'run/qemu').write_text('')
    assert 'QEMUs that run can load no more modules' in root.run(
        'qemu-ram-reset.prerm', 'upgrade')


@needs_root
def test_run_may_be_noexec(root, vm):
    """As it is in Debian; the mounts end with the namespace."""
    run = root.path / 'run'
    run.rmdir()
    run.mkdir()
    script = PACKAGING / 'qemu-ram-reset.prerm'
    said = subprocess.run(
        ['unshare', '--mount', 'sh', '-ec', f'''
         mount -t tmpfs -o noexec,nosuid,nodev tmpfs {run}
         sh {script} upgrade
         sh {script} upgrade
         grep -c " {root.saved} " /proc/self/mounts
         findmnt -n -o OPTIONS {root.saved}
         cp /bin/true {root.saved}/true; {root.saved}/true && echo runs
         sh {PACKAGING / "qemu-ram-reset.postrm"} purge
         ls {run}; grep -c {root.saved} /proc/self/mounts || echo all is gone
         '''], env=root.env, text=True, check=True,
        stdout=subprocess.PIPE).stdout.splitlines()
    assert said[0] == '1'
    assert {'nosuid', 'nodev'} <= set(said[1].split(','))
    assert said[2:] == ['runs', '0', 'all is gone']


@needs_root
def test_a_mount_that_is_refused_is_none(root, vm):
    """As in a container, where /run stays noexec; and purge succeeds."""
    mount = root.path / 'bin/mount'
    mount.write_text('#!/bin/sh\ncase $* in *remount*) exit 1 ;; esac\n'
                     'exec /bin/mount "$@"\n')
    mount.chmod(0o755)
    said = subprocess.run(
        ['unshare', '--mount', 'sh', '-ec', f'''
         /bin/mount -t tmpfs -o noexec,nosuid,nodev tmpfs {root.path / "run"}
         for package in qemu-ram-reset qemu-ram-reset-modules; do
             sh {PACKAGING}/$package.prerm upgrade 2>&1
         done
         grep -c " {root.saved} " /proc/self/mounts || :
         sh {PACKAGING / "qemu-ram-reset.postrm"} purge
         ls {root.path / "run"}'''], env=root.env, text=True, check=True,
        stdout=subprocess.PIPE).stdout.splitlines()
    assert [line for line in said if 'can load no more' not in line] == ['0']
    assert len(said) == 3


def test_purge_removes_what_was_saved(root):
    for version in (VERSION, '1.0'):
        saved = root.saved.with_name(f'qemu-ram-reset_{version}')
        saved.mkdir(parents=True)
        (saved / 'block-curl.so').write_text('')
    debians = root.path / 'run/qemu/Debian_1_10.0'
    debians.mkdir()
    root.run('qemu-ram-reset.postrm', 'remove')
    assert root.saved.exists()
    root.run('qemu-ram-reset.postrm', 'purge')
    assert [p.name for p in (root.path / 'run/qemu').iterdir()] == \
        [debians.name]


@pytest.mark.parametrize('action', ('remove', 'upgrade'))
def test_bytecode_is_removed(root, action):
    programs = root.path / 'usr/share/qemu-ram-reset/programs'
    for folder in (programs, programs / 'qemu/qmp'):
        (folder / '__pycache__').mkdir(parents=True)
        (folder / '__pycache__/a.pyc').write_text('')
        (folder / 'a.py').write_text('')
    root.run('qemu-ram-reset.prerm', action)
    assert {p.name for p in programs.rglob('*')} == {'a.py', 'qemu', 'qmp'}


def test_qemu_looks_where_prerm_saves():
    """It calls the folder what it calls itself, with _ for what is strange."""
    rules = (PACKAGING / 'rules').read_text()
    name, = re.findall(r'--with-pkgversion="(.*?)"', rules)
    name = name.replace('$(DEB_VERSION)', '$version')
    saved, = re.findall('saved=(.*)', (
        PACKAGING / 'qemu-ram-reset.prerm').read_text())
    assert saved == '$DPKG_ROOT/run/qemu/' + name.replace(' ', '_')
    assert re.fullmatch(r'[\w+.~-]*', VERSION)
    assert '--enable-module-upgrades' in rules
    module = (REPO / 'build/stock-src/util/module.c').read_text()
    assert '"/var/run/qemu/%s"' in module and '"+-.~"' in module


def test_each_version_has_a_folder_of_modules():
    """A QEMU that runs would abort if it found modules of another build."""
    rules = (PACKAGING / 'rules').read_text()
    folder, = re.findall(r'--libdir=\$\((\w+)\)', rules)
    assert re.search(rf'^{folder} = \$\(HOME_DIR\)/\$\(DEB_VERSION\)$', rules,
                     re.M)
    modules, = re.findall('modules=(.*)', (
        PACKAGING / 'qemu-ram-reset.prerm').read_text())
    assert modules == '$DPKG_ROOT/usr/lib/qemu-ram-reset/$version/qemu'


def test_the_trial_makes_a_newer_package_of_another_build(tmp_path,
                                                          monkeypatch):
    tree, stamp = tmp_path / 'made', '0123456789abcdef' * 2 + '01234567'
    folder = tree / 'usr/lib' / VERSION / 'qemu'
    for path in (folder, tree / 'DEBIAN'):
        path.mkdir(parents=True)
    (tree / 'DEBIAN/control').write_text(
        f'Package: x\nVersion: {VERSION}\nArchitecture: all\n'
        f'Maintainer: A <a@example.org>\nDepends: y (= {VERSION})\n'
        'Description: x\n')
    (folder / 'a.so').write_bytes(b'\0qemu_stamp_%s\0' % stamp.encode())
    deb = tmp_path / f'x_{VERSION}_all.deb'
    subprocess.run(['dpkg-deb', '--root-owner-group', '-b', tree, deb],
                   check=True)
    monkeypatch.setattr(upgraderun, 'WORK', tmp_path)
    path, old, new = upgraderun.repack(str(deb))
    assert old == VERSION
    subprocess.run(['dpkg', '--compare-versions', new, 'gt', old], check=True)
    out = tmp_path / 'out'
    subprocess.run(['dpkg-deb', '-R', path, out], check=True)
    assert f'Depends: y (= {new})' in (out / 'DEBIAN/control').read_text()
    assert (out / 'usr/lib' / new / 'qemu/a.so').read_bytes() == \
        b'\0qemu_stamp_%s\0' % stamp[::-1].encode()
