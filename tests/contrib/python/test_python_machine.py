# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python package: save, restore, fork, and what a guest does meanwhile."""

# Takes: 20 s

import asyncio
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from ram_reset import (Disk, GuestError, Machine, Pool, RefusedError, Result,
                       UsageError)

from lib import package, products
from lib.machine import MIB, run_quietly
from lib.patience import Limit, patience

START, STORED = 16 * MIB, 4 * MIB


def ask(machine, *words) -> str:
    machine.serial.send(' '.join(f'{word:x}' if isinstance(word, int) else word
                                 for word in words) + '\n')
    return machine.serial.expect(r'^(ok|bad|error|trap|!)([^\n]*)\n',
                                 patience(60))[0]


def holds(machine, seed: int) -> bool:
    return ask(machine, 'check-fill', START, STORED, seed).startswith('ok')


def test_snapshots(start):
    """Of one machine, in any order; each load but none is a rewind."""
    machine = start()
    found = []
    for seed in 1, 2, 3:
        ask(machine, 'fill', START, STORED, seed)
        found.append(machine.snapshot())
    assert len({snapshot.name for snapshot in found}) == 3
    for number in 0, 2, 1, 1, 0:
        machine.restore(found[number])
        assert holds(machine, number + 1)
        last = machine.last_load()
        assert last.rewound and last.tag == found[number].name
        assert 0 < last.seconds and not last.blocker
    statistics = machine.statistics()
    assert (statistics.loads, statistics.rewinds) == (5, 5)
    assert statistics.slowest_seconds >= statistics.mean_seconds > 0
    machine.delete(found[1])
    with pytest.raises(RefusedError, match='does not exist') as e:
        machine.restore(found[1])
    assert e.value.command == f"'loadvm {found[1].name}'"
    # it has gone on, as it was
    assert machine.status() == 'running' and holds(machine, 1)


def test_dirty_pages(start):
    machine = start()
    ask(machine, 'fill', START, STORED, 1)
    clean = machine.snapshot()
    machine.restore(clean)
    ask(machine, 'fill', START, MIB, 2)
    machine.restore(clean)
    last = machine.last_load()
    assert 256 <= last.dirty_pages < 512 and last.copied_pages >= 256
    assert last.raw['success'] and last.template is None


def test_two_long_sends_at_once(start):
    """Neither is cut by the other, nor lost, unless a load drops both."""
    machine = start()
    end = machine.serial._channel._socket
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    saved = machine.snapshot()
    with ThreadPoolExecutor() as threads:
        machine.pause()
        sends = [threads.submit(machine.serial.send, 'ping 1\n' * 2000)
                 for _ in range(2)]
        time.sleep(0.5)     # both have begun
        machine.resume()
        for send in sends:
            send.result(patience(120))
        machine.serial.send('ping 2\n')
        said = machine.serial.expect(r'pong 2\n', patience(120)).string
        assert said.split('\n')[:-1] == ['pong 1'] * 4000 + ['pong 2']
        machine.pause()
        sends = [threads.submit(machine.serial.send, 'x' * 300000)
                 for _ in range(2)]
        time.sleep(0.5)
        machine.restore(saved)
        for send in sends:
            with pytest.raises(GuestError, match='send it again'):
                send.result(patience(60))


@pytest.mark.parametrize('before', ('running', 'paused'))
@pytest.mark.parametrize('run', (None, True, False))
@pytest.mark.parametrize('serial', (True, False), ids=('serial', 'none'))
def test_whether_it_runs(start, fast_accel, before, run, serial):
    args = package.ring3(fast_accel)
    with Machine.start(args, qemu=package.QEMU, serial=serial) as machine:
        clean = machine.snapshot()
        assert machine.status() == 'running'
        for _ in range(2):
            if before == 'paused':
                machine.pause()
            machine.restore(clean, run=run)
            wanted = before == 'running' if run is None else run
            assert machine.status() == ('running' if wanted else 'paused')
            machine.resume()


def test_shell(shell):
    child, = shell.fork()
    with child:
        assert child.run('echo $0; false').status == 1
        assert child.run('echo one; echo two >&2').output == 'one\ntwo\n'
        assert child.run('printf "\\303\\251x"').output == 'éx'
        assert child.run('echo a # b').output == 'a\n'
        assert child.run("echo 'a  b'; (exit 3)").status == 3
        with pytest.raises(GuestError):
            child.run('echo "', 1)
        assert child.run('echo whole').output == 'whole\n'
        child.run('state=before; echo before >/run/file')
        clean = child.snapshot()
        child.run('state=after; echo after >/run/file')
        child.restore(clean)
        said = child.run('echo $state; cat /run/file').output
        assert said == 'before\nbefore\n'


def test_answers(shell):
    """A command may say anything, and a load ends it."""
    child, = shell.fork()
    with child, ThreadPoolExecutor(1) as thread:
        assert child.run('echo ramreset end 5; false') == \
            Result(1, 'ramreset end 5\n')
        clean = child.snapshot()
        call = thread.submit(child.run, 'echo begun; sleep 1000',
                             patience(60))
        limit = Limit(60)
        while not re.search('^begun', child.serial.text, re.MULTILINE):
            assert not limit.over()
        child.restore(clean)
        with pytest.raises(GuestError, match='a load has dropped the answer'):
            call.result()
        assert child.run('echo next').output == 'next\n'


def test_fork(shell):
    """Children, and children of those, differ from then on."""
    shell.run('n=1')
    children = shell.fork(3)
    shell.run('n=parent')
    for number, child in enumerate(children):
        assert child.run('echo $n').output == '1\n'
        child.run(f'n=child{number}')
    grandchild, = children[1].fork()
    own = grandchild.snapshot()
    grandchild.run('n=none')
    grandchild.restore(own)
    assert grandchild.run('echo $n').output == 'child1\n'
    for number, child in enumerate(children):
        assert child.run('echo $n').output == f'child{number}\n'
        child.close()
    # its disks and its RAM do not go with the machine it came from
    assert grandchild.run('echo $n').output == 'child1\n'
    grandchild.close()
    assert shell.run('echo $n').output == 'parent\n'


def test_disks(start, tmp_path):
    """The image stays as it is; a machine and its forks have their own."""
    image = tmp_path / 'a,b:c.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', image, '8M')
    before = image.read_bytes()
    # the tests write to it beside the guest
    machine = start(disks={
        'root': Disk(image, device='virtio-blk-pci,share-rw=on'),
        'new': Disk(None, size='4M')})
    clean = machine.snapshot()

    def write(where, byte: int) -> None:
        assert where.human(f'qemu-io {top(where)} "write -P {byte} 0 64k"'
                           ) == ''

    def has(where, byte: int) -> bool:
        before = where.log().count('verification failed')
        where.human(f'qemu-io {top(where)} "read -P {byte} 0 64k"')
        return where.log().count('verification failed') == before

    def top(where) -> str:
        return where.execute('query-block')[0]['inserted']['node-name']

    write(machine, 1)
    machine.restore(clean)
    assert has(machine, 0)
    write(machine, 2)
    child, = machine.fork()
    write(machine, 3)
    assert has(child, 2) and has(machine, 3)
    assert len(child.execute('query-block')) == 2
    with pytest.raises(UsageError, match='frozen since; save another'):
        machine.restore(clean)
    with pytest.raises(UsageError, match='is of machine'):
        child.restore(machine.snapshot())
    child.close()
    assert image.read_bytes() == before


def test_pool(shell):
    child, = shell.fork()
    child.run('n=0')
    with Pool.of(child, 3) as pool:
        assert len(pool.machines) == 3

        def work(machine: Machine, item: int) -> str:
            if item == 7:
                raise KeyError(item)
            return machine.run(f'n=$((n + {item})); echo $n').output

        assert pool.map(work, [1, 2, 3, 4, 5, 6]) == [
            f'{n}\n' for n in range(1, 7)]
        with pytest.raises(KeyError):
            pool.map(work, [1, 7, 2])
        with pool.machine() as machine:
            assert machine.run('echo $n').output == '0\n'
        assert len(pool.machines) == 3


def test_attach(start, tmp_path, fast_accel):
    """To a QEMU that others have started, and that stays."""
    disk = tmp_path / 'disk.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', disk, '8M')
    qmp, serial = tmp_path / 'qmp', tmp_path / 'serial'
    process = subprocess.Popen([
        package.QEMU, *package.ring3(fast_accel), '-qmp',
        f'unix:{qmp},server=on,wait=off', '-serial',
        f'unix:{serial},server=on,wait=off', '-blockdev',
        f'driver=qcow2,node-name=d,file.driver=file,file.filename={disk}'])
    try:
        limit = Limit(60)
        while not serial.exists():
            assert not limit.over() and process.poll() is None
        for _ in range(2):
            with Machine.attach(str(qmp), serial=serial) as machine:
                machine.serial.send('\nping 7\n')
                machine.serial.expect('pong 7\n', patience(60))
                machine.snapshot('mine')
                ask(machine, 'fill', START, STORED, 1)
                machine.restore(machine.find('mine'))
                assert not holds(machine, 1)
                assert machine.pid is None and machine.log() == ''
                with pytest.raises(UsageError, match='use start'):
                    machine.fork()
            assert process.poll() is None
        machine = Machine.attach(str(qmp))
        machine.kill()
        process.wait(patience(20))
    finally:
        process.kill()
        process.wait()


def test_asyncio(fast_accel):
    """Ten machines side by side, in one loop."""
    async def one() -> None:
        async with await package.start_ring3(fast_accel) as machine:
            clean = await machine.snapshot()
            for number in range(20):
                await machine.serial.send(f'ping {number:x}\n')
                await machine.serial.expect(f'pong {number:x}\n', patience(60))
                await machine.restore(clean)
            assert (await machine.statistics()).rewinds == 20

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(10)))

    asyncio.run(all_of_them())


def test_nothing_is_left(start, tmp_path, monkeypatch):
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    monkeypatch.setattr('ram_reset.process.SHM', str(tmp_path))
    machine = start()
    child, = machine.fork()
    pids = [machine.pid, child.pid]
    machine.close()
    machine.close()
    assert child.status() == 'running'
    child.close()
    assert not list(tmp_path.iterdir())
    assert not any(Path(f'/proc/{pid}').exists() for pid in pids)
