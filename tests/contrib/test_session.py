# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset run, fork and tree: commands in a Linux guest with a shell."""

# Takes: 90 s

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep

import pytest
from ram_reset import Machine

from lib import products
from lib.machine import run_quietly
from lib.package import QEMU, set_up_shell, shell
from lib.patience import patience

COMMAND = sys.executable, str(products.REPO / 'contrib/python/ram-reset')
INSTALL = ('/bin/busybox mkdir -p /bin /run /proc; '
           '/bin/busybox --install -s /bin')
READY = '--ready', '~ # ', '--setup', INSTALL, '--timeout', str(patience(60))
GUEST = '--', QEMU, *shell()


def call(*args: object, status: int = 0) -> 'subprocess.CompletedProcess[str]':
    done = subprocess.run([*COMMAND, *map(str, args)], text=True, check=False,
                          capture_output=True, timeout=patience(300))
    print(done.stdout, done.stderr)
    assert done.returncode == status and 'Traceback' not in done.stderr
    return done


def dos(*commands: str) -> list[str]:
    return [word for command in commands for word in ('--do', command)]


def headings(text: str) -> list[str]:
    return re.findall(r'^--- (.*, )[\d.]+ s$', text, re.M)


def test_run_each_in_a_clean_guest(tmp_path):
    done = call('run', *READY, '--json', tmp_path / 'out', *dos(
        'echo one; touch /was', 'ls /was 2>&1; exit 7', 'cd /run; pwd', 'pwd'),
        *GUEST, status=7)
    assert headings(done.stdout) == [
        'echo one; touch /was: status 0, ', 'ls /was 2>&1; exit 7: status 7, ',
        'cd /run; pwd: status 0, ', 'pwd: status 0, ']
    found = json.loads((tmp_path / 'out').read_text())['results']
    assert [result['output'] for result in found] == [
        'one\n', 'ls: /was: No such file or directory\n', '/run\n', '/\n']
    assert [result['status'] for result in found] == [0, 7, 0, 0]


def test_run_one():
    """Only its output."""
    done = call('run', *READY, *dos("printf '%s' \"it's\"; exit 3"), *GUEST,
                status=3)
    assert done.stdout == "it's" and not done.stderr


def test_run_in_a_guest_that_runs_already(tmp_path):
    """It is afterwards as it was, and so is the image of its disk."""
    disk, sock, serial = (tmp_path / name for name in ('d', 'qmp', 'serial'))
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', disk, '16M')
    with Machine.start(
            [*shell(), '-drive', f'file={disk},if=virtio', '-chardev',
             f'socket,id=s,path={serial},server=on,wait=off', '-qmp',
             f'unix:{sock},server=on,wait=off', '-serial', 'chardev:s'],
            qemu=QEMU) as machine:
        there = '--connect', sock, '--serial', serial
        with Machine.attach(str(sock), serial=serial) as attached:
            attached.serial.send('\n')
            set_up_shell(attached)
            attached.run('echo here >/state', patience(60))
        done = call('run', *there, *dos('cat /state; rm /state',
                                        'cat /state'))
        assert done.stdout.count('\nhere\n') == 2
        assert 'ram-reset-run' not in machine.human('info snapshots')
        with Machine.attach(str(sock), serial=serial) as attached:
            assert attached.run('cat /state', patience(60)).output == 'here\n'
            attached.snapshot('kept')
            attached.run('rm /state', patience(60))
        done = call('run', *there, '--snapshot', 'kept', *dos('cat /state'))
        assert done.stdout == 'here\n'
        assert ' kept ' in machine.human('info snapshots')
        done = call('run', *there, '--snapshot', 'other', *dos('true'),
                    status=1)
        assert "'other'" in done.stderr


def test_fork(tmp_path):
    """Each has the parent's files, and none of the others'."""
    done = call('fork', *READY, '--setup', 'echo both >/both', '--json',
                tmp_path / 'out', *dos(
                    *(f'echo {n} >/own{n}; sleep 1; cat /both /own*; exit {n}'
                      for n in range(3))), *GUEST, status=1)
    found = json.loads((tmp_path / 'out').read_text())
    assert [(result['status'], result['output'])
            for result in found['results']] == [
        (n, f'both\n{n}\n') for n in range(3)]
    assert len(headings(done.stdout)) == 3 and found['fork_seconds'] > 0
    assert re.search(r'3 forks were made in [\d.]+ s\n$', done.stderr)


def paths(node: dict, before: tuple = ()) -> list[tuple]:
    here = *before, (node['command'], node['score'])
    return [here, *(path for child in node['children'] if child['best']
                    for path in paths(child, here))]


def test_tree(tmp_path):
    """Worse, equal, failing and better commands."""
    add = 'echo $(($(cat /n) + {})) >/n'
    done = call('tree', *READY, '--setup', 'echo 5 >/n', '--score',
                'echo score: $(cat /n)', '--levels', 2, '--json',
                tmp_path / 'out', *dos(add.format(-4), ':', 'exit 9',
                                       add.format(2)), *GUEST)
    root = json.loads((tmp_path / 'out').read_text())
    best = add.format(2)
    assert paths(root)[-1] == (('', 5.0), (best, 7.0), (best, 9.0))
    assert [child['score'] for child in root['children']] == [1, 5, None, 7]
    assert [child['score'] for child in root['children'][3]['children']] == \
        [3, 7, None, 9]
    lines = done.stdout.splitlines()
    assert lines[0] == 'score 5 at the beginning' and len(lines) == 9
    assert [line for line in lines if line.lstrip().startswith('*')] == [
        line for line in lines if f'{best}: score ' in line]
    assert lines[3].startswith('  - exit 9: no score, status 9, ')


def test_tree_in_which_nothing_is_better():
    """The search ends at the first level."""
    done = call('tree', *READY, '--score', 'echo 1', *dos('', 'exit 1'),
                *GUEST, status=1)
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and lines[1].startswith('  - : score 1, ')
    done = call('tree', *READY, '--score', 'echo none', *dos(':'), *GUEST,
                status=1)
    assert "--score 'echo none' ends with status 0 and says 'none'; it must " \
        'print a number' in done.stderr


@pytest.mark.parametrize('command', ('run', 'fork'))
def test_a_guest_that_does_not_answer(command):
    done = call(command, *READY[:4], '--timeout', 1, *dos('sleep 99', ':'),
                *GUEST, status=1)
    assert 'from the guest in 1 s' in done.stderr
    assert done.stderr.count('\n') == 1


def test_a_guest_that_is_not_ready():
    done = call('run', '--ready', 'never', '--ready-timeout', 1, *dos(':'),
                *GUEST, status=1)
    assert "no 'never' from the guest in 1 s" in done.stderr


def wait_for_qemus(process: subprocess.Popen, count: int) -> list[str]:
    children = Path(f'/proc/{process.pid}/task/{process.pid}/children')
    found = []
    while len(found) < count:
        assert process.poll() is None
        found = []
        for pid in children.read_text().split():
            with suppress(OSError):     # qemu-img has ended
                if b'ram-reset-qmp' in Path('/proc', pid,
                                            'cmdline').read_bytes():
                    found.append(pid)
    return found


@pytest.mark.parametrize('command', ('run', 'fork'))
def test_interrupted(command):
    """No QEMU stays."""
    number = {'run': 1, 'fork': 3}[command]
    with subprocess.Popen(
            [*COMMAND, command, *READY, *dos('sleep 99', 'sleep 99'), *GUEST],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as process:
        found = wait_for_qemus(process, number)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=patience(60))
    assert process.returncode == 130 and errors.endswith(': interrupted\n')
    assert not any(Path('/proc', pid).exists() for pid in found)


@pytest.mark.parametrize('ready', ((), ('--ready', 'never')))
def test_a_qemu_that_ends_early(ready):
    """Its end is noticed at once."""
    with subprocess.Popen([*COMMAND, 'run', *ready, *dos(':'), *GUEST],
                          stderr=subprocess.PIPE, text=True) as process:
        found = wait_for_qemus(process, 1)
        sleep(0.5)      # rather not before the monitor is connected
        os.kill(int(found[0]), signal.SIGKILL)
        _, errors = process.communicate(timeout=patience(60))
    assert process.returncode == 1 and errors.count('\n') == 1
    assert 'QEMU has ended with status -9' in errors


@pytest.mark.parametrize('args,message', (
    (('run', '--do', 'x'), '--connect SOCKET, and not both'),
    (('fork', '--do', 'x'), "give QEMU's command line"),
    (('run', '--', 'qemu'), '--do'),
    (('run', '--do', 'x', '--connect', 'y'), '--agent-port SOCKET'),
    (('run', '--do', 'x', '--timeout', '0', '--', 'q'), 'must be above 0'),
    (('run', '--do', 'x', '--timeout', 'nan', '--', 'q'), 'must be above 0'),
    (('run', '--do', 'x', '--ready', '[', '--', 'q'), 'regular expression'),
    (('run', '--do', '\udcff', '--', 'q'), 'must be UTF-8'),
    (('run', '--do', 'x', '--snapshot', 'y', '--', 'q'), 'needs --connect'),
    (('tree', '--do', 'x', '--score', 'y', '--levels', '0', '--', 'q'),
     '--levels must be 1 or more'),
    (('tree', '--do', 'x', '--', 'q'), '--score')))
def test_wrong_usage(args, message):
    assert message in call(*args, status=2).stderr


@pytest.mark.parametrize('args,message', (
    (('--do', 'x', '--', '/nowhere/qemu'), '/nowhere/qemu'),
    (('--do', 'x', '--json', '/nowhere/x', '--', QEMU), '--json'),
    (('--do', 'x', '--disk', '/nowhere', '--', QEMU), '/nowhere'),
    (('--do', 'x', '--connect', '/nowhere', '--serial', 'y'), '/nowhere')))
def test_failures(args, message):
    done = call('run', *args, status=1)
    assert message in done.stderr and done.stderr.count('\n') == 1
