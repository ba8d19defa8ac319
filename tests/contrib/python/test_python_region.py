# SPDX-License-Identifier: GPL-2.0-or-later
"""The region of a snapctl device as a way to a guest, which loads renew."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from struct import unpack

import pytest
from ram_reset import GuestError, Machine, UsageError
from ram_reset.ring import EXITED, LARGEST, SIGNAL, TIMEOUT

from lib.package import QEMU, options, set_up_shell, shell
from lib.patience import patience

SIZE = 1 << 20
FIRST = 'snapctl-harness --no-load --timeout 3 -- sh &'


def start() -> Machine:
    """Linux, with a harness whose program is a shell."""
    machine = Machine.start(shell(), qemu=QEMU, serial=True, region=SIZE)
    try:
        set_up_shell(machine)
        done = machine.serial.run(
            'mkdir -p /sys && mount -t proc none /proc && mount -t sysfs none '
            '/sys && mount -t devtmpfs none /dev', patience(60))
        assert done.status == 0, done.output
        machine.serial.run(FIRST, patience(60))
        assert machine.region.run('echo $0', patience(60)).output == 'sh\n'
    except BaseException:
        machine.close()
        raise
    return machine


def restart(machine: Machine) -> None:
    """The harness serves one input, then waits to be loaded."""
    machine.serial.run(f'killall snapctl-harness; {FIRST}', patience(60))


@pytest.fixture(scope='module')
def machine():
    with start() as machine:
        restart(machine)
        yield machine


def test_inputs_each_after_a_load(machine):
    clean = machine.snapshot()
    for number in range(5):
        done = machine.region.run(
            f'[ ! -e /was ] && touch /was && echo {number}; exit {number}',
            patience(60))
        assert (done.status, done.output) == (number, f'{number}\n')
        machine.restore(clean)
    assert machine.last_load().rewound
    machine.restore(clean)
    answer = machine.region.send(b'kill -11 $$', patience(60))
    assert (answer.kind, answer.code) == (SIGNAL, 11)
    machine.restore(clean)
    assert machine.region.run('kill -9 $$', patience(60)).status == 137
    machine.restore(clean)
    big = b'#' * (SIZE // 3) + b'\nyes | head -c 300000'
    answer = machine.region.send(big, patience(60))
    assert (answer.kind, answer.code) == (EXITED, 0)
    assert answer.output == b'y\n' * 150000 and answer.total == 300000
    machine.restore(clean)
    with pytest.raises(GuestError, match='no status in the guest: timeout'):
        machine.region.run('sleep 99', patience(60))
    machine.restore(clean)
    assert machine.region.send(b'sleep 99', patience(60)).kind == TIMEOUT
    machine.restore(clean)


def test_a_load_drops_an_input(machine):
    """It neither gets an answer, nor is it given to the new guest."""
    clean = machine.snapshot()
    with ThreadPoolExecutor() as threads:
        asked = threads.submit(machine.region.run, 'sleep 1; echo late')
        while not machine.serial.run('pidof sleep; true', patience(60)).output:
            pass
        machine.restore(clean)
        with pytest.raises(GuestError, match='a load has dropped the answer'):
            asked.result()
    assert machine.region.run('echo new', patience(60)).output == 'new\n'
    machine.restore(clean)


def test_an_input_without_an_answer_is_taken_back(machine):
    clean = machine.snapshot()
    machine.pause()
    with pytest.raises(GuestError, match='no answer from the guest in 0.2 s'):
        machine.region.run('echo old', 0.2)
    machine.resume()
    assert machine.region.run('echo next', patience(60)).output == 'next\n'
    machine.restore(clean)


def test_a_harness_that_has_exited(machine):
    clean = machine.snapshot()
    machine.serial.run('killall snapctl-harness; snapctl-harness true',
                       patience(60))
    with pytest.raises(GuestError, match='snapctl-harness has exited'):
        machine.region.run('true')
    machine.restore(clean)
    assert machine.region.run('true', patience(60)).status == 0
    machine.restore(clean)


def test_forks_have_regions_of_their_own(machine):
    children = machine.fork(2)
    try:
        with ThreadPoolExecutor() as threads:
            done = threads.map(
                lambda pair: pair[1].region.run(f'echo {pair[0]}',
                                                patience(90)),
                enumerate(children))
            assert [result.output for result in done] == ['0\n', '1\n']
    finally:
        for child in children:
            child.close()
    assert machine.region.run('echo parent', patience(60)).output == 'parent\n'
    restart(machine)


def test_attached(tmp_path, accel):
    """No guest answers; the file is what it is about."""
    file, sock = tmp_path / 'region', tmp_path / 'qmp'
    with Machine.start(
            [*options(accel, 64 << 20), '-S', '-object',
             f'memory-backend-file,id=r,size={SIZE},mem-path={file},share=on',
             '-device', 'snapctl,memdev=r',
             '-qmp', f'unix:{sock},server=on,wait=off'], qemu=QEMU):
        with Machine.attach(str(sock), region=file) as machine:
            with pytest.raises(GuestError, match='no answer from the guest'):
                machine.region.run('true', 0.1)
            with pytest.raises(UsageError, match='make the region larger'):
                machine.region.send(bytes(SIZE))
        huge = tmp_path / 'huge'
        with huge.open('wb') as f:
            f.truncate(32 << 30)
        with Machine.attach(str(sock), region=huge) as machine:
            with pytest.raises(GuestError, match='no answer from the guest'):
                machine.region.run('true', 0.1)
        with huge.open('rb') as f:      # no longer than a harness takes
            *_, inputs, outputs = unpack('<Q4I', f.read(24))
        assert inputs == outputs == LARGEST
        for bad, message in ((tmp_path / 'none', 'cannot be used as a region'),
                             (Path('/dev/null'), 'has 0 bytes only')):
            with pytest.raises(UsageError, match=message):
                Machine.attach(str(sock), region=bad)


@pytest.mark.parametrize('size', (-1, 100, 5000))
def test_sizes(size):
    with pytest.raises(UsageError, match='give a power of two from 4096'):
        Machine.start(qemu=QEMU, region=size)
