# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines on other hosts, which are this one, by SSH: the manual's file."""

# Takes: 50 s

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ram_reset import Machine

from lib import package, products
from lib.clients import client
from lib.documents import PYTHON, Document
from lib.machine import run_quietly
from lib.patience import Limit, patience

SSH = Path(client('asyncssh').__file__).parents[1]
SERVER = products.REPO / 'tests/lib/sshd.py'
PAGES = [Document(products.REPO / f'docs/system/ram-reset-{name}.rst')
         for name in ('python', 'agents')]


@pytest.fixture
def home(tmp_path) -> Iterator[Path]:
    """Of a user on each of the hosts, and here."""
    run_quietly(products.REPO / 'scripts/make-guest', tmp_path / 'guest')
    (tmp_path / 'tmp').mkdir()
    for page in PAGES:
        for block in page.blocks:
            if block.language == PYTHON:
                (tmp_path / block.caption).write_text(block.text)
    with subprocess.Popen(
            [sys.executable, SERVER, tmp_path, 'one two'], cwd=tmp_path,
            env=environment(tmp_path), stdout=subprocess.PIPE) as server:
        assert server.stdout.readline() == b'ready\n'
        yield tmp_path
        server.terminate()


def environment(home: Path) -> dict[str, str]:
    return {'HOME': str(home), 'TMPDIR': str(home / 'tmp'),
            'PATH': f'{products.QEMU.parent}:{os.environ["PATH"]}',
            'PYTHONPATH': f'{package.SOURCE}:{SSH}'}


def run(home: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, 'hosts.py'], cwd=home, env=environment(home),
        text=True, capture_output=True, check=False, timeout=patience(240))


def test_two_hosts(home):
    done = run(home)
    assert done.returncode == 0 and done.stderr == '', done.stderr
    print(done.stdout)
    counts = dict(re.findall(r'(\w+) (\d+) tasks\n', done.stdout))
    assert set(counts) == {'one', 'two'}
    assert sum(map(int, counts.values())) == 50
    # QEMUs have gone with their folders
    assert not list((home / 'tmp').iterdir())


@pytest.mark.skipif(not shutil.which('ssh'), reason='there is no ssh here')
def test_by_openssh(home, fast_accel):
    """Its client forwards sockets as well, as the manual has it."""
    there, here = home / 'vm/qmp', home / 'qmp'
    there.parent.mkdir()
    command, = (b.text for b in PAGES[1].blocks
                if b.text.startswith('ssh '))
    words = command.replace('/run/vm', str(there.parent)).split()[1:]
    with subprocess.Popen(
            [package.QEMU, *package.ring3(fast_accel), '-qmp',
             f'unix:{there},server=on,wait=off']) as qemu, subprocess.Popen(
            ['ssh', '-F', home / '.ssh/config', *words], cwd=home) as ssh:
        try:
            limit = Limit(60)
            while not (here.exists() and there.exists()):
                assert not limit.over() and ssh.poll() is None
                time.sleep(0.01)
            machine = Machine.attach(str(here))
            assert machine.status() == 'running'
            machine.kill()
            qemu.wait(patience(20))
        finally:
            ssh.kill()
            qemu.kill()


def test_a_client_that_is_killed(home):
    """Its connections end, and so do the QEMUs."""
    def disks() -> int:
        return len(list((home / 'tmp').glob('*/disk.qcow2')))

    with subprocess.Popen([sys.executable, 'hosts.py'], cwd=home,
                          env=environment(home)) as process:
        limit = Limit(60)
        while disks() < 2:
            assert not limit.over() and process.poll() is None
            time.sleep(0.01)
        process.kill()
    limit = Limit(60)
    while disks():
        assert not limit.over()
        time.sleep(0.01)


def test_a_host_without_the_guest(home):
    """QEMU's own sentence arrives, and nothing is left."""
    (home / 'guest/vmlinuz').unlink()
    done = run(home)
    assert done.returncode and 'could not open kernel file' in done.stderr
