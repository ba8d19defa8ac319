# SPDX-License-Identifier: GPL-2.0-or-later
"""Inspect's sandboxes, with Inspect itself and its own checks of sandboxes."""

# Takes: 120 s

import asyncio
import time

import pytest

from lib import package, products
from lib.clients import client

CHECKS = client('inspect_ai.util._sandbox.self_check')
inspect_ai = client('inspect_ai')
client('inspect_ai.dataset'), client('inspect_ai.solver')

from ram_reset.adapters.inspect import (  # noqa: E402
    MachineConfig, RamResetSandbox)

SETUP = (
    '/bin/busybox mkdir -p /bin /proc /dev /tmp /etc /usr/bin',
    '/bin/busybox --install -s /bin; ln -s /bin/env /usr/bin',
    'mount -t proc none /proc; mount -t devtmpfs none /dev',
    'echo root:x:0:0:root:/root:/bin/sh >/etc/passwd; touch /etc/group')
AGENT = ('mkdir -p /var/run; set -- /dev/vport*; '
         '/sbin/qemu-ga -d -m virtio-serial -p $1')
UNABLE = {
    'test_exec_as_user': 'the guest has no program that adds users',
    'test_read_file_not_allowed': 'root may read each file',
    'test_write_text_file_without_permissions': 'root may write each file',
    'test_write_binary_file_without_permissions': 'root may write each file'}
# 50 MB take minutes without KVM
SMALL = [name for name in CHECKS.__all__ if 'large' not in name]


def config(**settings) -> MachineConfig:
    return MachineConfig(**{
        'args': package.shell(), 'qemu': package.QEMU, 'ready': '~ # ',
        'setup': SETUP, **settings})


def agent_config(**settings) -> MachineConfig:
    return config(args=package.shell(initramfs=products.agent_initramfs()),
                  setup=(*SETUP, AGENT), agent=True, **settings)


WAYS = {'serial': config, 'agent': agent_config}


@pytest.fixture(scope='module')
def task(request):
    """A runner of coroutines, and the configuration of a task that has begun.
    """
    settings = WAYS[request.param]()
    with asyncio.Runner() as runner:
        runner.run(RamResetSandbox.task_init('task', settings))
        yield runner, settings
        runner.run(RamResetSandbox.task_cleanup('task', settings, True))


@pytest.fixture
def sample(task):
    runner, settings = task
    found = runner.run(RamResetSandbox.sample_init('task', settings, {}))
    yield runner, found['default']
    begin = time.monotonic()
    runner.run(RamResetSandbox.sample_cleanup('task', settings, found, False))
    print(f'the next sample is ready after {time.monotonic() - begin:.3f} s')


def each(names):
    return pytest.mark.parametrize('name', [
        pytest.param(name, marks=[pytest.mark.xfail(
            reason=UNABLE[name], strict=True)] if name in UNABLE else [])
        for name in names])


def own_check(sample, name):
    runner, sandbox = sample
    runner.run(getattr(CHECKS, name)(sandbox))


# by the serial port each takes a second or more, so some are enough
@pytest.mark.each_value
@each(SMALL[::4])
@pytest.mark.parametrize('task', ('serial',), indirect=True)
def test_own_checks_by_serial_port(sample, name):
    own_check(sample, name)


@pytest.mark.each_value
@each(SMALL)
@pytest.mark.parametrize('task', ('agent',), indirect=True)
def test_own_checks_by_agent(sample, name):
    own_check(sample, name)


@pytest.mark.parametrize('task', WAYS, indirect=True)
def test_samples(task):
    """A sample has nothing of the one before it."""
    runner, settings = task

    async def one(number: int) -> str:
        found = await RamResetSandbox.sample_init('task', settings, {})
        sandbox = found['default']
        before = await sandbox.exec(['sh', '-c', 'cat secret /etc/motd; ls'])
        assert (before.returncode, before.stdout) == (0, ''), before
        await sandbox.write_file('secret', f'number {number}')
        await sandbox.exec(['sh', '-c', 'echo new >/etc/motd; sleep 900 &'])
        assert await sandbox.read_file('secret') == f'number {number}'
        running = await sandbox.exec(['ps'])
        await RamResetSandbox.sample_cleanup('task', settings, found, False)
        return str(running.stdout.count('sleep 900'))

    async def all_of_them() -> list[str]:
        return [await one(number) for number in range(3)]

    assert runner.run(all_of_them()) == ['1', '1', '1']


def test_eval(tmp_path):
    """Inspect itself runs a task, with a model that says nothing."""
    secrets = []

    @inspect_ai.solver.solver
    def look():
        async def solve(state, generate):
            sandbox = inspect_ai.util.sandbox()
            found = await sandbox.exec(['cat', 'secret', 'given'])
            secrets.append(found.stdout)
            await sandbox.write_file('secret', 'of a sample')
            return state
        return solve

    settings = config(machines=2)
    spec = inspect_ai.util.SandboxEnvironmentSpec('ram-reset', settings)
    samples = [inspect_ai.dataset.Sample(
        input='?', files={'given': f'{number}'}, setup='#!/bin/sh\necho >>given')
        for number in range(5)]
    log, = inspect_ai.eval(
        inspect_ai.Task(samples, solver=look(), sandbox=spec),
        model='mockllm/model', display='none', log_dir=str(tmp_path))
    assert log.status == 'success', log.error
    assert not [sample.error for sample in log.samples if sample.error]
    assert sorted(secrets) == [f'{number}\n' for number in range(5)]
    assert settings not in RamResetSandbox.pools
