# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset check, with QEMU as it is, as Debian has it, and broken ones."""

# Takes: 45 s

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from ram_reset.cli import check_trial
from ram_reset.errors import GuestError

from lib import products, unpatched
from lib.machine import kvm_usable
from lib.patience import Limit, patience
from lib.ramreset import COMMAND, ENVIRONMENT, command

LINE = re.compile(r'^(ok|slow|no) +([^:]+): (.+)$')
LINUX = '--kernel', str(products.kernel())
APPEND = 'console=ttyS0 loglevel=1 no_timer_check rdinit=/bin/busybox -- sh'


def findings(text: str) -> dict[str, tuple[str, str]]:
    """Of each name its state and the rest of its line."""
    lines = [LINE.match(line) for line in text.splitlines()]
    assert lines and all(lines), text
    found = {line[2]: (line[1], line[3]) for line in lines}
    for state, rest in found.values():
        assert state == 'ok' or '; ' in rest, rest
    return found


def check(*args: object, status: int = 0, before: tuple = (),
          qemu: Path | str = products.QEMU, **env: str
          ) -> dict[str, tuple[str, str]]:
    """:param before: a program that runs the command"""
    done = subprocess.run(
        [*before, *COMMAND, 'check', '--qemu', str(qemu),
         *(str(a) for a in args)], text=True, capture_output=True,
        env={**ENVIRONMENT, **env}, timeout=patience(240), check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == status and done.stderr == ''
    return findings(done.stdout)


def refused(call: str, error: str, path: str = '') -> tuple:
    """The same program without a system call, or without a file."""
    return ('strace', '-o', '/dev/null', *(('-P', path) if path else ()),
            '-e', f'inject={call}:error={error}')


def test_what_is_found(tmp_path):
    file = tmp_path / 'out.json'
    found = check('--tiny', '--loads', 20, '--json', file)
    assert str(products.QEMU) in found['QEMU'][1]
    assert 'ram-reset-auto' in found['RAM reset'][1]
    assert str(products.QEMU_IMG) in found['qemu-img'][1]
    assert found['loads'][0] == 'ok'
    assert found['loads'][1].startswith('20 in ')
    assert found['loads'][1].endswith('each was verified')
    assert found['rewinds'] == ('ok', '20 of 20')
    assert found['time of a load'][1].count('median') == 2
    assert found['KVM'][0] == ('ok' if kvm_usable() else 'no')

    data = json.loads(file.read_text())
    assert {f['name']: f['state'] for f in data['findings']} == \
        {name: state for name, (state, _) in found.items()}
    trial = data['trial']
    assert trial['accel'].upper() in found['guest'][1]
    assert trial['asked'] == trial['verified'] == len(trial['loads']) == 20
    assert all(0 < load['verify-seconds'] < load['seconds'] and
               load['rewound'] and load['dirty-pages'] >= 64
               for load in trial['loads'])


@pytest.mark.parametrize('own', (True, pytest.param(
    False, marks=pytest.mark.long('a second boot'))))
def test_linux(own):
    """With an initrd of this host's shell; under KVM if it boots Linux."""
    found = check('--loads', 5, *LINUX, *(() if own else (
        '--initrd', products.initramfs(), '--append', APPEND)))
    kvm = found.get('guests under KVM', ('no', ''))[0] == 'ok'
    assert found['guest'][0] == ('ok' if kvm else 'slow')
    assert found['guest'][1].startswith(
        f'Linux, {products.kernel()}, runs under {"KVM" if kvm else "TCG"}')
    assert found['loads'][1].startswith('5 in ')
    assert found['rewinds'] == ('ok', '5 of 5')


def test_linux_that_does_not_boot(tmp_path):
    """The tiny guest takes its place."""
    kernel, file = tmp_path / 'vmlinuz', tmp_path / 'out.json'
    kernel.write_bytes(b'no kernel' * 1000)
    check('--loads', 1, '--kernel', kernel, '--json', file)
    data = json.loads(file.read_text())
    first, second = [f for f in data['findings'] if f['name'] == 'guest']
    assert first['state'] == 'no' and f'Linux, {kernel}, does not start' in \
        first['fact']
    assert data['trial']['guest'] in second['fact']
    assert data['trial']['verified'] == 1


def test_time_limit():
    found = check('--tiny', '--loads', 1000000, '--seconds', 0.5)
    made = re.match(r'([\d,]+) in .* s, of 1,000,000 when the time was over; '
                    'each was verified', found['loads'][1])
    assert int(made[1].replace(',', '')) >= 1


@pytest.mark.skipif(not kvm_usable(), reason='/dev/kvm cannot be opened')
@pytest.mark.parametrize('error, fact, remedy', (
    ('EACCES', '/dev/kvm cannot be opened (Permission denied)',
     'add your user to'),
    ('ENOENT', 'there is no /dev/kvm', '--device /dev/kvm')))
def test_without_kvm(error, fact, remedy):
    found = check('--tiny', '--loads', 5, before=refused('openat', error, '/dev/kvm'))
    assert found['KVM'][0] == 'no'
    assert found['KVM'][1].startswith(fact) and remedy in found['KVM'][1]
    assert 'guests under KVM' not in found and 'dirty log' not in found
    assert found['guest'][0] == 'slow' and 'TCG' in found['guest'][1]
    assert found['rewinds'] == ('ok', '5 of 5')


@pytest.mark.skipif(os.geteuid() != 0 or not kvm_usable(),
                    reason='only root may mount')
def test_a_file_in_the_place_of_kvm(tmp_path):
    (tmp_path / 'kvm').touch()
    found = check('--tiny', '--loads', 1, before=(
        'unshare', '--mount', 'sh', '-c', f'mount --bind {tmp_path}/kvm '
        '/dev/kvm && exec "$@"', 'sh'))
    assert found['KVM'][0] == 'no'
    assert found['KVM'][1].startswith('/dev/kvm is no device; ')


@pytest.mark.parametrize('error, remedy', (
    ('EPERM', 'allow the system call userfaultfd'),
    ('ENOSYS', 'use Linux 6.7 or later')))
def test_kernel_that_does_not_report(error, remedy):
    state, rest = check('--tiny', '--loads', 1, before=refused(
        'userfaultfd', error))['memory of devices']
    assert state == 'slow' and remedy in rest


@pytest.mark.skipif(os.geteuid() != 0, reason='only root may mount')
def test_container_with_a_small_dev_shm():
    small = ('unshare', '--mount', 'sh', '-c', 'mount -t tmpfs -o size=64M '
             'tmpfs /dev/shm && exec "$@"', 'sh')
    state, rest = check('--tiny', '--loads', 1, before=small)['/dev/shm']
    assert state == 'slow' and rest.startswith('room for 64 MiB of ')
    assert '--shm-size' in rest


def test_stock_qemu():
    found = check(status=1, qemu=unpatched.debian())
    assert found['QEMU'][0] == 'ok'
    assert found['RAM reset'][0] == 'no' and './package' in \
        found['RAM reset'][1]
    assert len(found) == 2


def program(path: Path, text: str) -> Path:
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
    return path


def test_no_qemu(tmp_path):
    path = tmp_path / 'qemu'
    state, rest = check(status=1, qemu=path)['QEMU']
    assert state == 'no'
    assert rest.startswith(f'{path} is no program that can be run; build one')
    program(path, 'echo it has no library >&2; exit 127')
    state, rest = check(status=1, qemu=path)['QEMU']
    assert state == 'no' and '127: it has no library; ' in rest


def test_no_qemu_img(tmp_path):
    path = program(tmp_path / 'qemu', f'exec {products.QEMU} "$@"')
    found = check(status=1, qemu=path, PATH=str(tmp_path))
    assert found['qemu-img'] == (
        'no', 'qemu-img cannot be run (No such file or directory); put the '
        'one of the same build beside QEMU, or into PATH')


def test_qemu_that_starts_no_guest(tmp_path):
    path = program(tmp_path / 'qemu', 'case "$*" in\n'
                   '*-bios*) echo the host is full >&2; exit 3;;\n'
                   f'*) exec {products.QEMU} "$@";; esac')
    found = check('--tiny', status=1, qemu=path,
                  PATH=f'{products.QEMU_IMG.parent}:{os.environ["PATH"]}')
    assert found['guest'][0] == 'no'
    assert 'under TCG: QEMU has ended with status 3' in found['guest'][1]
    assert 'the host is full' in found['guest'][1]


class Running:
    """The command until its guest makes loads."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.popen = subprocess.Popen(
            [*COMMAND, 'check', '--qemu', str(products.QEMU), '--tiny',
             '--loads', '1000000', '--seconds', '1000000',
             '--json', folder / 'out.json'],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**ENVIRONMENT, 'TMPDIR': str(folder)},
            # nohup, for the tests, would have it ignored
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
        self.text = ''
        while 'guest: ' not in self.text:
            line = self.popen.stdout.readline()
            assert line, f'{self.text} {self.popen.stderr.read()}'
            self.text += line

    def qemu(self) -> int:
        """Its process."""
        tasks = Path(f'/proc/{self.popen.pid}/task').glob('*/children')
        (pid,) = ' '.join(task.read_text() for task in tasks).split()
        return int(pid)

    def end(self, status: int) -> str:
        out, err = self.popen.communicate(timeout=patience(60))
        print(self.text, out, err)
        assert self.popen.returncode == status
        assert json.loads((self.folder / 'out.json').read_text())['findings']
        assert list(self.folder.iterdir()) == [self.folder / 'out.json']
        self.text += out
        return err


@pytest.fixture
def running(tmp_path):
    this = Running(tmp_path)
    yield this
    this.popen.kill()
    this.popen.wait()


def test_wrong_load(running):
    """Somebody changes the snapshot in the image that QEMU verifies with."""
    (image,) = running.folder.glob('ram-reset-*/*/ram-reset-state.qcow2')
    limit = Limit(30)
    while b'py-' not in image.read_bytes():     # its name is written last
        assert not limit.over()
        time.sleep(0.01)
    # where RAM is, behind the tables
    with image.open('r+b') as f:
        f.seek(6 << 16)
        f.write(os.urandom(1 << 16))
    assert running.end(1) == ''
    state, rest = findings(running.text)['loads']
    assert state == 'no' and 'QEMU refuses ' in rest


def test_qemu_that_dies(running):
    os.kill(running.qemu(), signal.SIGKILL)
    assert running.end(1) == ''
    state, rest = findings(running.text)['loads']
    assert state == 'no' and 'QEMU has ended with status -9' in rest


@pytest.mark.parametrize('number', (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP), ids=lambda n: n.name)
def test_interrupt(running, number):
    pid = running.qemu()
    running.popen.send_signal(number)
    assert running.end(130) == 'ram-reset check: interrupted\n'
    assert not Path(f'/proc/{pid}').exists()


def test_qemu_that_hangs(tmp_path, monkeypatch):
    """It is started, and never answers."""
    path = program(tmp_path / 'qemu', 'exec sleep 1000')
    monkeypatch.setenv('PATH', str(products.QEMU_IMG.parent), prepend=':')
    monkeypatch.setattr(check_trial, 'ANSWER', 1)
    with pytest.raises(GuestError, match='QEMU gives no answer in 1 s'), \
            check_trial.limit(0):
        check_trial.tiny(tmp_path).start(str(path), 'tcg')


@pytest.mark.parametrize('args, reason', (
    (('--loads', 0), '--loads must be at least 1'),
    (('--seconds', 0), '--seconds above 0'),
    (('--seconds', 'nan'), '--seconds above 0'),
    (('--initrd', 'x'), '--initrd and --append need --kernel'),
    (('--kernel', 'x'), 'x cannot be read'),
    (('--kernel', '/dev/null'), '/dev/null cannot be read'),
    (('--append', 'x'), '--initrd and --append need --kernel'),
    (('--tiny', '--kernel', products.QEMU), 'either --kernel or --tiny'),
    (('--load', 5), 'unrecognized arguments'),
    (('x',), 'unrecognized arguments')))
def test_usage(args, reason):
    assert reason in command('check', *args, status=2).stderr


def test_results_that_cannot_be_written(tmp_path):
    done = command('check', '--json', tmp_path / 'no/out', status=1)
    assert 'give --json another file' in done.stderr and done.stdout == ''


def test_the_hosts_own_kernel(tmp_path):
    boot, modules = tmp_path / 'boot', tmp_path / 'modules'
    boot.mkdir()
    modules.mkdir()
    (boot / 'vmlinuz-6.0').touch()
    for folder, name in ((modules, 'vmlinuz'), (boot, 'vmlinuz-6.1')):
        (folder / name).touch()
        assert check_trial.find_kernel('6.1', boot, modules) == folder / name
    assert check_trial.find_kernel('6.1', tmp_path) is None
