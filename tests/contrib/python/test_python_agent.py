# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python package and QEMU's own guest agent."""

# Takes: 20 s

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from ram_reset import GuestError, Machine, Pool, Result

from lib import package, products
from lib.patience import patience

START = ('mount -t devtmpfs none /dev; mkdir -p /var/run; '
         'set -- /dev/vport*; /sbin/qemu-ga -d -m virtio-serial -p $1')


@pytest.fixture(scope='module')
def agent() -> Iterator[Machine]:
    with Machine.start(package.shell(initramfs=products.agent_initramfs()),
                       qemu=package.QEMU, serial=True, agent=True) as machine:
        package.set_up_shell(machine)
        said = machine.serial.run(START, patience(20))
        assert said.status == 0, said.output
        assert machine.agent.execute('guest-ping', timeout=patience(20)) == {}
        yield machine


def test_commands(agent):
    assert agent.run('echo one; echo two >&2; exit 3', patience(20)) == \
        Result(3, 'one\ntwo\n')
    assert agent.run('kill -9 $$', patience(20)).status == 128 + 9
    with pytest.raises(GuestError, match='refuses guest-none: .*guest-none'):
        agent.agent.execute('guest-none')
    # a large answer comes in many parts
    said = agent.run('head -c 1000000 /dev/zero | tr "\\0" x', patience(20))
    assert said.output == 'x' * 1000000


def test_threads(agent):
    """Each gets the answer to its own question."""
    def ask(number: int) -> str:
        return agent.run(f'echo {number}', patience(20)).output

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(24))) == [
            f'{number}\n' for number in range(24)]


def test_question_that_nobody_reads(agent):
    child, = agent.fork()
    with child:
        child.agent.execute('guest-ping', timeout=patience(20))
        child.pause()
        with pytest.raises(GuestError, match='takes no input'):
            child.agent.execute('guest-ping', {'x': 'x' * 3000000}, 0.5)


def test_restores(agent):
    """In whatever state the agent is: no answer to an older question comes."""
    agent.run('echo 0 >/run/n', patience(20))
    clean = agent.snapshot()
    missed = 0
    for number in range(1, 11):
        agent.run(f'echo {number} >/run/n', patience(20))
        try:
            agent.agent.execute('guest-exec', {
                'path': '/bin/sh', 'arg': ['-c', 'exit 9'],
                'capture-output': True}, timeout=0.0005 * number)
        except GuestError:
            missed += 1
        agent.restore(clean)
        assert agent.run('cat /run/n', patience(20)).output == '0\n'
    assert missed


def test_saved_in_the_middle(agent):
    """The guest is saved when it has half of a question."""
    agent.agent.send('{"execute": "guest-exec", "argum')
    clean = agent.snapshot()
    for _ in range(5):
        agent.restore(clean)
        assert agent.run('echo ok', patience(20)).output == 'ok\n'


def test_pool(agent):
    child, = agent.fork()
    with Pool.of(child, 2) as pool:
        def work(machine: Machine, item: int) -> str:
            machine.run(f'echo {item} >>/run/items', patience(20))
            return machine.run('cat /run/items', patience(20)).output

        assert pool.map(work, range(6)) == [f'{n}\n' for n in range(6)]
