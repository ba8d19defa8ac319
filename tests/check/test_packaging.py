# SPDX-License-Identifier: GPL-2.0-or-later
"""The packaging agrees with Debian's of the same QEMU, and with its page."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / 'packaging/debian'
DEBIANS = ROOT / 'build/stock-src/debian'
sys.path.insert(0, str(ROOT / 'tests/package'))

import features     # noqa: E402
import trial        # noqa: E402


def rules() -> str:
    return (PACKAGING / 'rules').read_text().replace('\\\n', ' ')


@pytest.fixture
def debians():
    if not DEBIANS.is_dir():
        pytest.skip("build/stock-src is not Debian's source package; "
                    'scripts/prepare-tree --qemu-src debian fetches it')
    return DEBIANS


def test_what_debian_enables_is_enabled(debians):
    theirs = set(subprocess.run(
        ['sh', debians / 'extract-config-opts', 'linux-amd64',
         debians / 'control'], capture_output=True, text=True,
        check=True).stdout.split())
    lists = re.findall(r'addprefix --enable-,([^)]*)\)', rules())
    ours = {f'--enable-{word}' for text in lists
            for word in re.split(r'[,\s]+', text) if word}
    ours |= set(re.findall(r'--[\w-]+(?:=[\w,-]+)?', rules()))
    ours |= {f'--enable-{name}' for name in
             re.findall(r'call has,(\w+)\)', rules())}
    assert theirs - ours == set()


def test_libraries_are_debians(debians):
    def needs(text):
        block = re.search(r'Build-Depends:(.*?)\n[A-Z]\S+:', text, re.S)[1]
        lines = [line for line in block.splitlines()
                 if not line.startswith('#')]
        return set(re.findall(r'\b(?:lib[\w.+-]+|[\w]+)-dev\b',
                              '\n'.join(lines)))

    ours = needs((PACKAGING / 'control').read_text())
    theirs = (debians / 'control').read_text()
    assert 'libslirp-dev' in ours
    assert {name for name in ours if name not in theirs} == set()


def test_modules_are_in_one_package_each():
    def modules(name):
        text = (PACKAGING / name).read_text()
        return re.findall(r'^usr/lib/qemu-ram-reset/\*/qemu/(\S+)', text, re.M)

    main, more = (modules(f'{name}.install') for name in
                  ('qemu-ram-reset', 'qemu-ram-reset-modules'))
    assert main and more
    assert not set(main) & set(more)


def test_tests_are_not_built():
    """In the tests' own build, as that has most of what the package has."""
    targets = subprocess.run(
        [PACKAGING / 'installed', ROOT / 'build/qemu'], check=True,
        capture_output=True, text=True).stdout.split()
    assert {'qemu-system-x86_64', 'qemu-img', 'qemu-bridge-helper',
            'trace/trace-events-all'} <= set(targets)

    def objects_of_tests(*names):
        commands = subprocess.run(
            ['ninja', '-C', ROOT / 'build/qemu', '-t', 'commands', *names],
            check=True, capture_output=True, text=True).stdout
        return set(re.findall(r' -o (tests/\S+\.o) ', commands))

    assert len(objects_of_tests('all')) > 100
    assert objects_of_tests(*targets) == set()
    assert '&& ninja -C $(OUT) -j$(JOBS) $$targets' in rules()
    assert '--no-rebuild' in rules()


def test_exceptions_are_in_the_manual():
    page = (ROOT / 'docs/system/ram-reset-package.rst').read_text()
    for exceptions in (features.MORE, *features.LESS.values()):
        for names in exceptions.values():
            for name in names:
                assert name in page


LINE = 'include if exists <abstractions/libvirt-qemu.d/qemu-ram-reset>'


class AppArmor:
    """The files of Debian 12's /etc/apparmor.d, below a folder."""

    def __init__(self, root: Path):
        self._root = root
        self.local = root / 'etc/apparmor.d/local/abstractions/libvirt-qemu'
        old = root / 'etc/apparmor.d/abstractions/libvirt-qemu'
        old.parent.mkdir(parents=True)
        old.write_text('  include if exists <local/abstractions/libvirt-qemu>\n')

    def run(self, script: str, action: str) -> None:
        text = (PACKAGING / f'qemu-ram-reset.{script}').read_text()
        assert text.startswith('#!/bin/sh\n')
        subprocess.run(['sh', '-s', action], input=text, text=True, check=True,
                       env=dict(os.environ, DPKG_ROOT=str(self._root)))

    def install(self) -> None:
        for action in ('configure', 'triggered', 'configure'):
            self.run('postinst', action)
            assert self.local.read_text().splitlines().count(LINE) == 1

    def purge(self) -> None:
        for action in ('remove', 'purge'):
            self.run('postrm', action)


@pytest.fixture(name='aa')
def fixture_apparmor(tmp_path):
    return AppArmor(tmp_path)


@pytest.mark.parametrize('rules_before', (
    '', '  /srv/** r,\n', '  /srv/** r,', '# mine\n\n  /srv/** r,\n\n'))
@pytest.mark.parametrize('linked', (False, True))
def test_local_rules_are_as_they_were(aa, tmp_path, rules_before, linked):
    """An administrator's file, without a newline at its end or behind a link."""
    file = aa.local
    file.parent.mkdir(parents=True)
    if linked:
        file = tmp_path / 'srv' / 'rules'
        file.parent.mkdir()
        aa.local.symlink_to(file)
    file.write_text(rules_before)
    file.chmod(0o640)
    aa.install()
    assert file.read_text() == f'{LINE}\n{rules_before}'
    aa.purge()
    assert file.read_text() == rules_before
    assert file.stat().st_mode & 0o777 == 0o640
    assert aa.local.is_symlink() == linked


def test_local_rules_that_the_package_made_go_with_it(aa):
    aa.install()
    aa.purge()
    assert not aa.local.exists() and not aa.local.parent.exists()


def test_rules_added_to_what_the_package_made_stay(aa):
    aa.install()
    with aa.local.open('a') as file:
        file.write('  /srv/** r,\n')
    aa.purge()
    assert aa.local.read_text() == '  /srv/** r,\n'


@pytest.mark.parametrize('upgraded', (False, True))
def test_a_line_that_was_joined_to_another_is_parted(aa, upgraded):
    """As older releases left it if the last line had no newline."""
    aa.local.parent.mkdir(parents=True)
    aa.local.write_text(f'# mine\n  /srv/** r,{LINE}\n')
    if upgraded:
        aa.install()
        assert aa.local.read_text() == f'{LINE}\n# mine\n  /srv/** r,\n'
    aa.purge()
    assert aa.local.read_text() == '# mine\n  /srv/** r,\n'


def last_line_of_a_trial(release, monkeypatch, capsys, found=(), known=False):
    """With @found packages of Debian 13, and its features @known or not."""
    monkeypatch.setattr(trial, 'LEFT_OUT', [])
    monkeypatch.setattr(trial.sys, 'argv', ['trial.py', release])
    for name in ('install', 'apparmor', 'boots', 'loops', 'harness',
                 'reverts', 'upgrades', 'remove'):
        monkeypatch.setattr(trial, name, lambda *unused: None)
    monkeypatch.setattr(trial, 'debs', lambda folder='': list(found))
    monkeypatch.setattr(trial, 'apt', lambda *words, **unused: 'Depends: it')
    same = {what: ['it'] for what in features.QUESTIONS}
    monkeypatch.setattr(features, 'ask', lambda binary: same)
    monkeypatch.setattr(features, 'surprises', lambda *unused: [])
    monkeypatch.setattr(trial.Path, 'exists', lambda path: known)
    monkeypatch.setattr(trial.Path, 'write_text', lambda *unused: None)
    monkeypatch.setattr(trial.Path, 'read_text', lambda path: json.dumps(same))
    trial.main()
    return capsys.readouterr().out.splitlines()[-1]


def test_a_whole_trial_says_so(monkeypatch, capsys):
    for release in ('12', '13'):
        assert last_line_of_a_trial(
            release, monkeypatch, capsys, found=['/x.deb'],
            known=True).startswith('All went as it should, in ')


def test_a_trial_says_what_it_has_not_tried(monkeypatch, capsys):
    last = last_line_of_a_trial('12', monkeypatch, capsys)
    assert last.startswith('What was tried went as it should, in ')
    assert last.endswith("; not tried: apt's refusal of packages for Debian "
                         "13, comparison with Debian 13's features")
