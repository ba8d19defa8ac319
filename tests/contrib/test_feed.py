# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset feed and snapctl-harness without QEMU.

The device is a folder of ordinary files, and a load ends the harness and starts
it anew: like a guest that was taken back, it knows nothing but the region.
"""

import contextlib
import json
import mmap
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ram_reset import ring

from lib import products
from lib.snapctl_guest import DENIED, LOAD, PENDING, REFUSED, Register

PROGRAMS = products.REPO / 'contrib/snapctl'
FILE = PROGRAMS / 'snapctl-tool.c'     # some input
FEED = sys.executable, str(products.REPO / 'contrib/python/ram-reset'), 'feed'
SIZE = 1 << 20
MAGIC, VERSION, FEATURES, SLOTS, COMMAND, STATUS, ERROR, GENERATION = (
    register // 4 for register in (
        Register.MAGIC, Register.VERSION, Register.FEATURES, Register.SLOTS,
        Register.COMMAND, Register.STATUS, Register.ERROR,
        Register.GENERATION))
CAN_LOAD, REGION = 2, 4     # features


@pytest.fixture(scope='session')
def programs(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp('programs')
    subprocess.run(['make', '-s', '-C', PROGRAMS, f'OUT={out}',
                    'CFLAGS=-O1 -Werror'], check=True)
    return out


class Device:
    """Takes the harness back whenever it asks for that."""

    def __init__(self, folder: Path, command: list, features: int):
        self._command = [str(part) for part in command]
        folder.mkdir()
        for name, size in (('enable', 0), ('resource0', 4096),
                           ('resource2', SIZE)):
            (folder / name).write_bytes(bytes(size))
        self.region = folder / 'resource2'
        with (folder / 'resource0').open('r+b') as f:
            self._map = mmap.mmap(f.fileno(), 4096)
        self.regs = memoryview(self._map).cast('I')
        self.regs[MAGIC], self.regs[VERSION] = 0x50414e53, 1
        self.regs[FEATURES], self.regs[SLOTS] = features | REGION, 1
        # a command is pending at once, which a file cannot see to
        self.regs[STATUS] = PENDING
        self._lock = threading.Lock()
        self._ended = False
        self.harness = self._start()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _start(self) -> subprocess.Popen:
        return subprocess.Popen(self._command, stderr=subprocess.PIPE,
                                text=True, stdin=subprocess.DEVNULL)

    def _end(self) -> None:
        self.harness.kill()
        self.harness.communicate()

    def load(self) -> None:
        with self._lock:
            self._end()
            self.regs[COMMAND] = 0
            self.regs[GENERATION] += 1
            self.harness = self._start()

    def _serve(self) -> None:
        while not self._ended:
            if self.regs[COMMAND] == LOAD:
                self.load()
            time.sleep(0.0005)

    def close(self) -> None:
        self._ended = True
        self._thread.join()
        self._end()
        self.regs.release()
        self._map.close()


@pytest.fixture
def start(tmp_path, programs) -> Iterator[Callable[..., Device]]:
    with contextlib.ExitStack() as stack:
        def start_device(*target, features: int = CAN_LOAD) -> Device:
            folder = tmp_path / 'device'
            return stack.enter_context(contextlib.closing(Device(
                folder, [programs / 'snapctl-harness', '--device', folder,
                         *target], features)))
        yield start_device


def feed(region: Path, *args, status: int = 0, **kwargs) -> tuple[str, str]:
    done = subprocess.run([*FEED, '--region', region,
                           '--ready-timeout', '20', *(str(a) for a in args)],
                          capture_output=True, text=True, timeout=120,
                          check=False, **kwargs)
    print(done.stdout, done.stderr)
    assert done.returncode == status
    assert 'Traceback' not in done.stderr
    if status == 1:
        assert done.stderr.count('\n') == 1
    return done.stdout, done.stderr


def write(folder: Path, inputs: list[bytes]) -> Path:
    folder.mkdir(exist_ok=True)
    for i, data in enumerate(inputs):
        (folder / f'{i:04}').write_bytes(data)
    return folder


def statuses(folder: Path) -> list[str]:
    return [line[7:line.index(';')] for line in
            (folder / 'results.txt').read_text().splitlines()]


def test_inputs_come_back(start, tmp_path):
    """More than the ring has room for, of all sizes, once and in order."""
    rng = random.Random(0)
    sizes = [0, 1, 63, 64, 65, 4096, 70000, *(rng.randrange(9000)
                                              for _ in range(93))]
    inputs = [rng.randbytes(size) for size in sizes]
    device = start('cat')
    out, _ = feed(device.region, '--results', tmp_path / 'out',
                  '--output-size', 66000, write(tmp_path / 'in', inputs))
    assert out.startswith('100 results in ')
    assert '  exit 0: 100\n' in out
    assert statuses(tmp_path / 'out') == ['exit 0'] * 100
    for i, data in enumerate(inputs):
        assert (tmp_path / f'out/{i + 1:06}.out').read_bytes() == data[:66000]
    lines = (tmp_path / 'out/results.txt').read_text().splitlines()
    assert [int(line.split('generation ')[1].split(',')[0])
            for line in lines] == list(range(100))


def test_ends(start, tmp_path):
    cases = {b'exit 3': 'exit 3', b'kill -11 $$': 'signal 11',
             b'sleep 99': 'timeout', b'sleep 99 & exit 0': 'exit 0',
             b'exec /nowhere 2>&-': 'exit 127',
             b'yes | head -c 200000': 'exit 0'}
    device = start('--timeout', '0.7', 'sh')
    feed(device.region, '--results', tmp_path / 'out', '--entries', 1,
         write(tmp_path / 'in', list(cases)))
    assert statuses(tmp_path / 'out') == list(cases.values())
    assert (tmp_path / 'out/000006.out').read_bytes() == b'y\n' * 2048


def test_target_that_is_not_there(start, tmp_path):
    device = start('/nowhere/target')
    feed(device.region, '--results', tmp_path / 'out', '--repeat', 3, FILE)
    assert statuses(tmp_path / 'out') == \
        ['error (No such file or directory)'] * 3


def test_fed_again(start, tmp_path):
    """Another ring, of other sizes, in the same region."""
    device = start('wc', '-c')
    for size in (10, 50000, 300):
        folder = write(tmp_path / f'in{size}', [bytes(size)] * 20)
        feed(device.region, '--results', tmp_path / 'out', folder)
        assert {(tmp_path / f'out/{i:06}.out').read_text().strip()
                for i in range(1, 21)} == {str(size)}


def test_late_result_of_another_feed(start, tmp_path):
    """The input of a feed that has ended does not answer the next one's."""
    device = start('--', 'sh', '-c', 'read x; sleep $x; echo $x')
    folder = write(tmp_path / 'in', [b'1.5\n'])
    first = subprocess.Popen([*FEED, '--region', device.region,
                              folder], stderr=subprocess.PIPE)
    time.sleep(0.8)
    first.send_signal(signal.SIGINT)
    first.communicate()
    assert first.returncode == 130
    feed(device.region, '--results', tmp_path / 'out',
         write(tmp_path / 'in2', [b'0\n', b'0.1\n']))
    assert (tmp_path / 'out/000001.out').read_text() == '0\n'
    assert (tmp_path / 'out/000002.out').read_text() == '0.1\n'


def test_the_guest_is_not_trusted(start, tmp_path):
    device = start('cat')
    with device.region.open('r+b') as f, \
            contextlib.closing(mmap.mmap(f.fileno(), SIZE)) as region, \
            memoryview(region).cast('Q') as words:
        def damage() -> None:
            while not words[ring.HEAD]:
                time.sleep(0.001)
            time.sleep(0.5)
            words[ring.TAIL] = (1 << 64) - 1
        thread = threading.Thread(target=damage)
        thread.start()
        _, err = feed(device.region, '--repeat', 1000000, FILE, status=1)
        thread.join()
    assert 'damaged the ring' in err


def test_nobody_answers(tmp_path, start):
    device = start('sleep', '99')
    _, err = feed(device.region, '--timeout', 0.5, FILE, status=1)
    assert 'no answer from the guest to ' in err
    region = tmp_path / 'region'
    region.write_bytes(bytes(SIZE))
    _, err = feed(region, '--ready-timeout', 0.2, FILE, status=1)
    assert 'no snapctl-harness in the guest' in err


def test_harness_gives_up(start):
    device = start('cat')
    # what refuses the load
    device.regs[STATUS], device.regs[ERROR] = REFUSED, DENIED
    _, err = feed(device.region, '--repeat', 9, FILE, status=1)
    assert 'snapctl-harness has exited' in err


@pytest.mark.parametrize('args,message', (
    (('--region', '/nowhere', FILE), '/nowhere cannot be mapped'),
    (('--region', '/dev/null', FILE), 'has 0 bytes only'),
    (('--region', FILE, '--output-size', 1 << 20, FILE), 'has room for 0'),
    (('--region', FILE, '--entries', 2000, FILE), 'make it larger'),
))
def test_bad_region(tmp_path, args, message):
    copy = tmp_path / 'region'
    shutil.copy(FILE, copy)
    done = subprocess.run([*FEED, *(
        str(copy if i == 1 and a == FILE else a) for i, a in enumerate(args))],
        capture_output=True, text=True, check=False)
    assert done.returncode == 1 and message in done.stderr
    assert done.stderr.count('\n') == 1


@pytest.mark.parametrize('args', (
    ('/nowhere',), ('--repeat', '0', FILE), ('--timeout', 'nan', FILE),
    ('--qmp', '/x', FILE), ('--snapshot', 'a', FILE), ('--save', FILE),
    ('--entries', '-1', FILE), ('--console', FILE, FILE), ('.',)))
def test_bad_usage(tmp_path, args):
    feed(tmp_path / 'region', *args, status=2, cwd=tmp_path)


def test_harness_refuses(programs, tmp_path, start):
    device = start('cat')
    for features, args, status, message in (
            (REGION, ['cat'], 1, 'does not allow loads'),
            (CAN_LOAD, ['cat'], 1, 'no persistent region'),
            (CAN_LOAD | REGION, [], 2, 'TARGET is missing'),
            (CAN_LOAD | REGION, ['--slot', 'x', 'cat'], 2,
             'not a value for --slot'),
            (CAN_LOAD | REGION, ['--timeout', '-1', 'cat'], 2, '--timeout')):
        device.regs[FEATURES] = features
        done = subprocess.run(
            [programs / 'snapctl-harness', '--device', tmp_path / 'device',
             *args], capture_output=True, text=True, check=False)
        assert done.returncode == status and message in done.stderr
        assert done.stderr.count('\n') == 1


class Monitor:
    """A QMP server whose loadvm takes the harness of @device back."""

    def __init__(self, path: Path, device: Device, broken: bool = False):
        self._device = device
        self._broken = broken
        self.commands: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        end, _ = self._socket.accept()
        with end:
            def say(**what) -> None:
                end.sendall(json.dumps(what).encode() + b'\n')
            say(QMP={'version': {}, 'capabilities': []})
            decoder, text = json.JSONDecoder(), ''
            while data := end.recv(4096):
                text = (text + data.decode()).lstrip()
                # nothing separates one from the next
                while text.endswith('}'):
                    asked, length = decoder.raw_decode(text)
                    text = text[length:].lstrip()
                    number = {'id': asked['id']} if 'id' in asked else {}
                    say(**{'return': self._do(asked['execute'],
                                              asked.get('arguments', {}))},
                        **number)

    def _do(self, name: str, arguments: dict) -> object:
        if name == 'query-status':
            return {'status': 'paused'}
        name = arguments.get('command-line', name)
        self.commands.append(name)
        if name.startswith('loadvm'):
            if self._broken:
                return 'Error: it is not there\r\n'
            self._device.load()
        return '' if ' ' in name else {}

    def close(self) -> None:
        self._socket.close()


def test_hang(start, tmp_path):
    pytest.importorskip('qemu.qmp')
    device = start('--timeout', '0', 'sh')
    with contextlib.closing(Monitor(tmp_path / 'qmp', device)) as monitor:
        _, err = feed(device.region, '--qmp', tmp_path / 'qmp', '--snapshot',
                      's', '--timeout', 0.6, '--results', tmp_path / 'out',
                      write(tmp_path / 'in', [b'exit 1', b'sleep 99',
                                              b'kill -STOP $PPID', b'exit 2']))
        assert statuses(tmp_path / 'out') == ['exit 1', 'hang', 'hang',
                                              'exit 2']
        assert err.count('no answer within 0.6 s') == 2
        assert monitor.commands.count('loadvm s') == 2
        assert monitor.commands[-3:] == ['stop', 'loadvm s', 'cont']


def test_what_the_console_says(start, tmp_path):
    """The console of the input that does not answer, without those before."""
    pytest.importorskip('qemu.qmp')
    console, results = tmp_path / 'console', tmp_path / 'out'
    console.write_text('Kernel panic - not syncing: an old one\n')
    results.mkdir()
    (results / '000001.console').write_text('of an earlier feed')
    device = start('--timeout', '0', 'sh')
    says = f'exec >>{console}; echo %s'
    inputs = [says % '"Oops: this is no panic"', 'sleep 0.2',
              says % '"Kernel panic - not syncing: a\tb"; sleep 99',
              says % '"BUG: of sorts"; sleep 99', 'sleep 99',
              says % 'nothing; kill -STOP $PPID', 'exit 3']
    with contextlib.closing(Monitor(tmp_path / 'qmp', device)):
        _, err = feed(device.region, '--qmp', tmp_path / 'qmp', '--snapshot',
                      's', '--timeout', 0.6, '--results', results, '--console',
                      console, write(tmp_path / 'in',
                                     [text.encode() for text in inputs]))
    assert statuses(results) == ['exit 0', 'exit 0', 'panic', 'hang', 'hang',
                                 'hang', 'exit 3']
    assert err.count("; its console says '") == 2
    assert "says 'Kernel panic - not syncing: a'" in err
    assert "says 'BUG: of sorts'" in err
    assert {path.name: path.read_text() for path in
            results.glob('*.console')} == {
        '000003.console': 'Kernel panic - not syncing: a\tb\n',
        '000004.console': 'BUG: of sorts\n', '000005.console': '',
        '000006.console': 'nothing\n'}


def test_hang_and_no_snapshot(start, tmp_path):
    pytest.importorskip('qemu.qmp')
    device = start('--timeout', '0', 'sh')
    with contextlib.closing(Monitor(tmp_path / 'qmp', device, True)):
        done = subprocess.run(
            [*FEED, '--region', device.region, '--qmp',
             tmp_path / 'qmp', '--snapshot', 's', '--timeout', '0.5',
             write(tmp_path / 'in', [b'sleep 99'])], capture_output=True,
            text=True, check=False, timeout=60)
    assert done.returncode == 1 and 'Traceback' not in done.stderr
    assert "QEMU refuses 'loadvm s': Error: it is not there" in done.stderr


def test_monitor_that_is_taken(start, tmp_path):
    """QEMU lets a second client wait."""
    pytest.importorskip('qemu.qmp')
    device = start('cat')
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / 'qmp'))
        silent.listen()
        _, err = feed(device.region, '--qmp', tmp_path / 'qmp', '--snapshot',
                      's', FILE, status=1)
        assert 'give the address of a QMP monitor that nobody else uses' in err
