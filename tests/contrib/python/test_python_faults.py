# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python package: wrong arguments, guests that die, QEMUs that end."""

# Takes: 15 s

import asyncio
import os
import signal
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
from ram_reset import (Disk, Error, FailedLoadError, GuestError, LostError,
                       Machine, Pool, RefusedError, StartError, UsageError,
                       aio)

from lib import package, products
from lib.machine import run_quietly
from lib.patience import Limit, patience
from lib.vmstate import VMState

# clears the guest's code, its stack and its page tables
SUICIDE = 'set 102000 e000 0\nsum 5000000 1000\n'


def ping(machine, number: int = 7) -> None:
    machine.serial.send(f'\nping {number:x}\n')
    machine.serial.expect(f'pong {number:x}\n', patience(60))


def wait_for(machine, status: str) -> None:
    limit = Limit(60)
    while machine.status() != status:
        assert not limit.over(), machine.status()


@pytest.mark.parametrize('arguments, error, sentence', (
    ({'qemu': '/no/qemu'}, StartError,
     '/no/qemu is no program that can be run; give'),
    ({'args': ['-frobnicate']}, LostError,
     'QEMU has ended with status 1; its last output: '),
    ({'object': 'ram-reset-none,id=x'}, LostError, "'ram-reset-none'"),
    ({'disks': ['/no/image']}, UsageError,
     "the image of disk 'disk0', /no/image, does not exist"),
    ({'disks': [Disk(__file__)]}, StartError, 'not in qcow2 format')))
def test_start(tmp_path, monkeypatch, fast_accel, arguments, error, sentence):
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    with pytest.raises(error) as e:
        Machine.start(**{'args': package.ring3(fast_accel),
                         'qemu': package.QEMU, **arguments})
    assert sentence in str(e.value)
    assert not list(tmp_path.iterdir())


def test_attach_to_nothing(tmp_path):
    with pytest.raises(StartError, match='cannot be connected to'):
        Machine.attach(str(tmp_path / 'qmp'))


def test_attach_to_a_monitor_in_use(start, tmp_path, monkeypatch):
    path = str(tmp_path / 'qmp')
    start('-qmp', f'unix:{path},server=on,wait=off')
    monkeypatch.setattr('ram_reset.monitor.GREETING', 1)
    with Machine.attach(path) as machine:
        with pytest.raises(StartError, match='no greeting'):
            Machine.attach(path)
        assert machine.status() == 'running'


@pytest.mark.parametrize('name', ('a b', '17', 'é', 'a\nquit', '"',
                                  'x' * 256))
def test_names_of_snapshots(start, name):
    machine = start()
    with pytest.raises(UsageError, match='is no name of a snapshot'):
        machine.snapshot(name)
    ping(machine)


@pytest.mark.parametrize('name', ('a b', '', '"', 'a\\', 'a\nb', 'x' * 300))
def test_names_that_are_not_there(start, name):
    """A restore never returns without a load."""
    machine = start()
    with pytest.raises(RefusedError, match='does not exist'):
        machine.restore(machine.find(name))
    for line in 'loadvm a b', 'frobnicate':
        with pytest.raises(RefusedError):
            machine.human(line)
    ping(machine)


def test_name_with_spaces(start):
    """An image may have snapshots that others have saved."""
    machine = start()
    machine.human('savevm "a \\"b\\""')
    machine.restore(machine.find('a "b"'))
    assert machine.last_load().tag == 'a "b"'


def test_errors_pass_qemus_sentence_on(start, tmp_path):
    path = str(tmp_path / 'qmp')
    machine = start('-qmp', f'unix:{path},server=on,wait=off')
    with pytest.raises(RefusedError) as e:
        machine.execute('blockdev-del', {'node-name': 'none'})
    assert e.value.command == 'blockdev-del'
    assert 'none' in e.value.reason and e.value.reason in str(e.value)
    with Machine.attach(path) as attached:
        with pytest.raises(UsageError, match='agent=True or serial=True'):
            attached.run('true')


@pytest.mark.parametrize('serial', (True, False), ids=('serial', 'none'))
@pytest.mark.parametrize('run', (None, False))
def test_guest_that_shuts_down(start, fast_accel, serial, run):
    """A load takes it back, as often as it dies."""
    with Machine.start([*package.ring3(fast_accel), '-no-reboot'],
                       qemu=package.QEMU, serial=serial) as machine:
        if serial:
            machine.serial.expect(package.READY, patience(60))
        clean = machine.snapshot()
        for _ in range(3):
            if serial:
                machine.serial.send(SUICIDE)
            else:
                machine.execute('system_reset')     # -no-reboot: the end
            wait_for(machine, 'shutdown')
            machine.restore(clean, run=run)
            assert (machine.status() == 'running') == (run is None)
            machine.resume()
            if serial:
                ping(machine)


def test_guest_that_dies_during_a_restore(start):
    machine = start('-no-reboot')
    clean = machine.snapshot()
    for number in range(20):
        machine.serial.send(SUICIDE)
        machine.restore(clean)
        assert machine.status() == 'running'
        ping(machine, number)


def test_guest_that_hangs(start):
    """It reads no input: neither what it has not read is there afterwards."""
    machine = start()
    clean = machine.snapshot()
    for number in range(5):
        machine.serial.send('loop 2000000 10 1000 100000\n'
                            + 'ping 99\n' * 2000)
        with pytest.raises(GuestError, match="no 'pong 98'.* it said"):
            machine.serial.expect('pong 98', 0.2)
        machine.restore(clean)
        ping(machine, number)
        assert '99' not in machine.serial.text


def test_output_before_a_load_is_dropped(start):
    machine = start()
    clean = machine.snapshot()
    for _ in range(20):
        machine.serial.send('ping 7\n' * 5)
        machine.serial.expect('pong 7\n', patience(60))
        machine.restore(clean, run=False)
        assert machine.serial.text == ''
        machine.resume()


def test_qemu_that_ends(start):
    machine = start()
    clean = machine.snapshot()
    child, = machine.fork()
    os.kill(machine.pid, signal.SIGKILL)
    for call in (machine.status, machine.snapshot, machine.fork,
                 lambda: machine.restore(machine.find(clean.name)),
                 lambda: machine.serial.expect('x', patience(60)),
                 lambda: machine.run('x')):
        with pytest.raises(LostError, match='has ended with status -9'):
            call()
    ping(child)


def test_fork_that_fails(start, tmp_path, monkeypatch):
    """No child is left, and the machine can be forked again."""
    machine = start()
    enter = aio.Machine._enter

    async def fail_second(self, state):
        await enter(self, state)
        if made:
            raise RuntimeError('second')
        made.append(self.pid)

    made = []
    monkeypatch.setattr(aio.Machine, '_enter', fail_second)
    with pytest.raises(RuntimeError, match='second'):
        machine.fork(2)
    assert made and not Path(f'/proc/{made[0]}').exists()
    monkeypatch.undo()
    child, = machine.fork()
    ping(child)
    ping(machine)
    child.close()


def test_machines_of_a_pool_that_end(start):
    with Pool.of(start(), 3) as pool:
        for left in 2, 1, 0:
            with pytest.raises(LostError):
                with pool.machine() as machine:
                    os.kill(machine.pid, signal.SIGKILL)
                    wait_for(machine, 'never')
            assert len(pool.machines) == left
        with pytest.raises(LostError, match='no machine of the pool is left'):
            with pool.machine():
                pass
    with pytest.raises(UsageError, match='at least 1'):
        Pool.of(start(), 0)


def test_load_that_fails_half_way(start, tmp_path):
    """It does not run until another load succeeds."""
    disk = tmp_path / 'disk.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', disk, '8M')
    machine = start('-blockdev', 'driver=qcow2,node-name=state,'
                    f'file.driver=file,file.filename={disk},file.locking=off',
                    object='')
    machine.execute('blockdev-del', {'node-name': 'ram-reset-state'})
    good, bad = machine.snapshot('good'), machine.snapshot('bad')
    with open(disk, 'r+b') as file, VMState(file, 'bad') as state:
        stream = bytearray(state.stream)
        at = stream.index(b'\x04ps2kbd') if b'\x04ps2kbd' in stream \
            else stream.index(b'timer')
        stream[at:at + 5] = b'wrong'
        state.replace(bytes(stream))
    with pytest.raises(FailedLoadError, match='wrong'):
        machine.restore(bad)
    assert machine.status() != 'running'
    machine.restore(good, run=True)
    ping(machine)


def test_cancelled_restore(fast_accel):
    """A cancelled call does not leave a machine half way."""
    async def work() -> None:
        async with await package.start_ring3(fast_accel) as machine:
            clean = await machine.snapshot()
            for number in range(30):
                call = asyncio.ensure_future(machine.restore(clean))
                await asyncio.sleep(number / 10000)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                await machine.restore(clean)
                assert await machine.status() == 'running'
                await machine.serial.send(f'\nping {number:x}\n')
                await machine.serial.expect(f'pong {number:x}\n', patience(60))

    asyncio.run(work())


LEFT_OPEN = '''
import sys
from ram_reset import Machine
machine = Machine.start(sys.argv[2:], qemu=sys.argv[1])
children = machine.fork(2)
print(*(m.pid for m in (machine, *children)), flush=True)
input()
'''


@pytest.mark.parametrize('how', ('end', 'interrupt'))
def test_python_that_ends(tmp_path, fast_accel, how):
    """Machines that nobody closed end without a word, and leave nothing."""
    process = subprocess.Popen(
        [sys.executable, '-c', LEFT_OPEN, package.QEMU,
         *package.ring3(fast_accel)], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, 'PYTHONPATH': str(package.SOURCE),
             'TMPDIR': str(tmp_path)})
    pids = process.stdout.readline().split()
    assert len(pids) == 3
    if how == 'interrupt':
        process.send_signal(signal.SIGINT)
    _, err = process.communicate('\n', timeout=patience(60))
    assert err == '' if how == 'end' else err.endswith('KeyboardInterrupt\n')
    assert not any(Path(f'/proc/{pid}').exists() for pid in pids)
    assert not list(tmp_path.iterdir())


def in_a_child(call) -> int:
    """The exit status of a process that os.fork() makes."""
    pid = os.fork()
    if not pid:
        signal.alarm(int(patience(30)))
        try:
            call()
            status = 0
        except BaseException:
            status = 1
        # as the end of Python would, but without pytest's own
        weakref.finalize._exitfunc()
        os._exit(status)
    return os.waitpid(pid, 0)[1]


def test_process_that_forks(start):
    """A machine is of one process; others may start their own."""
    machine = start()
    clean = machine.snapshot()

    def use_it() -> None:
        for call in (machine.status, machine.fork, lambda: machine.run('x'),
                     lambda: machine.restore(clean)):
            with pytest.raises(UsageError, match='os.fork'):
                call()
        machine.close()

    assert in_a_child(use_it) == 0
    assert in_a_child(lambda: ping(start())) == 0
    machine.restore(clean)
    ping(machine)
    child, = machine.fork()
    ping(child)
    child.close()


def test_use_after_close(start):
    machine = start()
    clean = machine.snapshot()
    machine.close()
    for call in machine.status, lambda: machine.restore(clean):
        with pytest.raises(LostError, match='has ended with status'):
            call()
    assert machine.log() == ''


def test_all_errors_have_a_base():
    assert all(issubclass(e, Error) for e in (
        FailedLoadError, GuestError, LostError, RefusedError, StartError,
        UsageError))
