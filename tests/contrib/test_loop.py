# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset loop, with a guest that answers, hangs, crashes, dies."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib import products
from lib.machine import MIB, run_quietly
from lib.patience import Limit, patience
from lib.ramreset import (COMMAND, ENVIRONMENT, OBJECT, PING, READY, loop,
                           qemu)

START = 16 * MIB
# clears the guest's code, its stack and its page tables
SUICIDE = r'set 102000 e000 0\nsum 5000000 1000\n'
CLIENT = '''
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["RAM_RESET_SERIAL"])
number = int(os.environ["RAM_RESET_ITERATION"])
s.sendall({second} if number == 2 else b"ping %x\\n" % number)
heard = b""
while not heard.endswith(b"pong %x\\n" % number):
    heard += s.recv(99)
'''


def gone(workdir: Path) -> bool:
    """QEMU removes its pidfile when it ends in order."""
    return not (workdir / 'pid').exists()


def snapshots(workdir: Path) -> str:
    return run_quietly(products.QEMU_IMG, 'snapshot', '-l',
                       workdir / 'disk.qcow2')


def collected(folder: Path) -> list[str]:
    files = sorted(folder.iterdir())
    assert [f.name for f in files] == \
        [f'{i:04}.txt' for i in range(1, len(files) + 1)]
    return [f.read_text() for f in files]


def test_each_iteration_begins_at_the_snapshot(tmp_path, accel):
    folder = tmp_path / 'out' / 'new'
    region = f'{START:x} {MIB:x}'
    done = loop(*READY, '--iterations', 30, '--collect', folder, '--send',
                rf'sum {region}\ntag {START:x} 40 1000 5\nsum {region}\n',
                '--until', r'ok \w+\nok\nok \w+\n', '--', *qemu(tmp_path, accel))
    texts = collected(folder)
    assert len(texts) == 30 and len(set(texts)) == 1
    before, _, after = texts[0].splitlines()
    assert before != after
    assert re.match(r'30 loads in .* s: [\d.]+ per second', done.stdout)
    assert re.search(r'^load: +median [\d.]+ ms, 99th', done.stdout, re.M)
    assert re.search(r'^rewinds: +30 of 30\nerrors: +0\n', done.stdout, re.M)
    assert gone(tmp_path) and 'ram-reset-loop' not in snapshots(tmp_path)


def test_why_loads_are_not_rewound(tmp_path, fast_accel):
    done = loop(*READY, *PING, '--iterations', 4, '--',
                *qemu(tmp_path, fast_accel, obj='ram-reset-memset,id=rr0'))
    assert '0 of 4\n  not 4: no ram-reset object has rewind=on' in done.stdout
    done = loop(*READY, *PING, '--iterations', 4, '--', *qemu(
        tmp_path, fast_accel, obj=OBJECT + ',rewind-limit=4096'))
    assert re.search('0 of 4\n  not 4: .*rewind-limit', done.stdout)


def texts_with_a_client(tmp_path: Path, accel: str, second: str
                        ) -> list[str]:
    """:param second: Python of what it sends in the second iteration"""
    client = tmp_path / 'client.py'
    client.write_text(CLIENT.replace('{second}', second))
    done = loop(*READY, '--iterations', 5, '--collect', tmp_path / 'out',
                '--timeout', 2, '--run', f'{sys.executable} {client}',
                '--', *qemu(tmp_path, accel))
    assert 'rewinds:   5 of 5\nerrors:    1\n  hang: 1\n' in done.stdout
    assert 'iteration 2: hang: no end of ' in done.stderr
    assert done.stderr.count('\n') == 1
    texts = collected(tmp_path / 'out')
    assert texts[:1] + texts[2:] == [f'pong {i}\n' for i in (1, 3, 4, 5)]
    return texts


@pytest.mark.any_value
def test_hang_and_a_client_of_the_serial_port(tmp_path, accel):
    texts = texts_with_a_client(tmp_path, accel,
                                repr(b'loop 2000000 10 1000 100000\n'))
    assert 'pong' not in texts[1]


@pytest.mark.any_value
def test_client_that_sends_more_than_the_guest_reads(tmp_path, accel):
    """More than the sockets between them hold, so that a send waits."""
    texts_with_a_client(tmp_path, accel,
                        r'b"sum 20000000 10000000\n" + b"ping 9\n" * 300000')


@pytest.mark.any_value
def test_input_of_a_hung_guest_is_forgotten(tmp_path, accel):
    """Reading where no memory is, it is busy for long, and input waits."""
    late = r'sum 20000000 10000000\n' + r'ping 9\n' * 300
    done = loop(*READY, '--iterations', 3, '--collect', tmp_path / 'out',
                '--timeout', 0.4, '--send', late, '--until', 'never',
                '--', *qemu(tmp_path, accel))
    assert '  hang: 3\n' in done.stdout
    assert collected(tmp_path / 'out') == ['', '', '']


@pytest.mark.any_value
def test_crash(tmp_path, accel):
    """A guest that has lost its mind does not always do the same."""
    done = loop(*READY, '--iterations', 8, '--timeout', 1, '--send',
                SUICIDE + r'ping 7\n', *PING[2:], '--collect',
                tmp_path / 'out', '--', *qemu(tmp_path, accel))
    assert not any('pong' in text for text in collected(tmp_path / 'out'))
    assert 'rewinds:   8 of 8\nerrors:    8\n' in done.stdout
    assert re.search(r'^  crash: \d', done.stdout, re.M)
    assert 'crash: the guest shut down or reset' in done.stderr


def test_failed_command(tmp_path, fast_accel):
    done = loop(*READY, '--iterations', 4, '--run',
                'exit $((RAM_RESET_ITERATION / 3))', '--',
                *qemu(tmp_path, fast_accel))
    assert 'failed command: 2\n' in done.stdout
    assert 'iteration 4: failed command: ' in done.stderr


def test_qemu_that_dies(tmp_path, fast_accel):
    done = loop(*READY, '--run', '[ $RAM_RESET_ITERATION != 3 ] || '
                f'kill -9 $(cat {tmp_path}/pid)', '--until', 'never',
                '--timeout', 0.2, '--', *qemu(tmp_path, fast_accel), status=1)
    assert 'QEMU has ended with status -9; its last output: ' in done.stderr
    assert done.stdout.startswith('3 loads in ')
    assert '  hang: 2\n' in done.stdout


@pytest.mark.parametrize('more, reason', (
    (('-frobnicate',), 'frobnicate: invalid option'),
    (('-object', OBJECT), 'ended with status 1'),
    (('-drive', 'if=virtio,format=raw,file=/dev/zero,read-only=off'),
     "refuses 'savevm ram-reset-loop'")))
def test_qemu_that_refuses(tmp_path, fast_accel, more, reason):
    done = loop(*READY, '--', *qemu(tmp_path, fast_accel, *more), status=1)
    assert reason in done.stderr and done.stdout == ''


def test_guest_that_does_not_get_ready(tmp_path, fast_accel):
    done = loop('--ready', 'login:', '--ready-timeout', 1, '--',
                *qemu(tmp_path, fast_accel), status=1)
    assert "no 'login:' from the guest within 1 s, but 'ready 3" in done.stderr
    assert gone(tmp_path)


def test_named_disks_and_a_kept_snapshot(tmp_path, fast_accel):
    command = qemu(tmp_path, fast_accel)
    loop(*READY, *PING, '--disk', 'disk0', '--keep', '--snapshot', 'mine',
         '--iterations', 5, '--', *command)
    assert 'mine' in snapshots(tmp_path)
    done = loop(*PING, '--no-save', '--snapshot', 'mine', '--iterations', 5,
                '--', *command)
    assert '4 of 5' in done.stdout and 'errors:    0' in done.stdout
    assert 'mine' in snapshots(tmp_path)
    done = loop('--no-save', '--snapshot', 'other', '--', *command, status=1)
    assert "refuses 'loadvm other'" in done.stderr


def test_connect(tmp_path, fast_accel):
    monitor, serial = tmp_path / 'qmp', tmp_path / 'serial'
    process = subprocess.Popen(qemu(
        tmp_path, fast_accel,
        '-qmp', f'unix:{monitor},server=on,wait=off',
        '-serial', f'unix:{serial},server=on,wait=off'))
    try:
        while not (tmp_path / 'pid').exists():
            time.sleep(0.05)
        args = ('--connect', monitor, '--serial', serial, *PING)
        for _ in range(2):      # the second finds it as it was
            done = loop('--ready-after', 0.5, *args, '--iterations', 10)
            assert '10 of 10' in done.stdout and 'errors:    0' in done.stdout
            assert process.poll() is None
        assert 'ram-reset-loop' not in snapshots_of_running(tmp_path)
        process.kill()
        process.wait()
        done = loop(*args, status=1)
        assert f'{monitor} cannot be connected to' in done.stderr
    finally:
        process.kill()
        process.wait()


def snapshots_of_running(workdir: Path) -> str:
    return run_quietly(products.QEMU_IMG, 'snapshot', '-U', '-l',
                       workdir / 'disk.qcow2')


def test_interrupt(tmp_path, fast_accel):
    process = subprocess.Popen(
        [*COMMAND, 'loop', *READY, *PING, '--iterations', '0', '--collect',
         tmp_path / 'out', '--json', tmp_path / 'out.json', '--',
         *qemu(tmp_path, fast_accel)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=ENVIRONMENT)
    limit = Limit(60)
    while not (tmp_path / 'out/0005.txt').exists():
        assert not limit.over() and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=patience(30))
    assert process.returncode == 130 and err == ''
    loads = int(re.match(r'(\d+) loads in ', out)[1])
    data = json.loads((tmp_path / 'out.json').read_text())
    assert data['interrupted'] and len(data['loads']) == loads >= 5
    assert gone(tmp_path) and 'ram-reset-loop' not in snapshots(tmp_path)


@pytest.mark.parametrize('args, reason', (
    ((), 'give either QEMU'),
    (('--connect', 'x', '--', 'qemu'), 'give either QEMU'),
    (('--', 'qemu'), 'give --ready'),
    (('--connect', 'x', '--until', 'y'), 'need --serial'),
    (('--ready', '(', '--', 'qemu'), '--ready is not a regular expression'),
    (('--ready', 'x', '--iterations', '-1', '--', 'qemu'), 'negative'),
    (('--ready', 'x', '--timeout', '0', '--', 'qemu'), '--timeout'),
    (('--ready', 'x', '--snapshot', 'a b', '--', 'qemu'), "'a b' is not a name"),
    (('--ready', 'x', '--snapshot', '17', '--', 'qemu'), "'17' is not a name")))
def test_usage(args, reason):
    assert reason in loop(*args, status=2).stderr


def test_missing_qemu(tmp_path):
    done = loop(*READY, '--', tmp_path / 'qemu', status=1)
    assert f'{tmp_path}/qemu cannot be started (No such file' in done.stderr
