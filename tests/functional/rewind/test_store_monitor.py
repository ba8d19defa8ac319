# SPDX-License-Identifier: GPL-2.0-or-later
"""The monitor's command that stores a snapshot from memory in its image."""

# Takes: 10 s

import re
import socket
import time
from pathlib import Path

import pytest

from lib.machine import MIB, PAGE, MachineError
from lib.patience import Limit, patience
from lib.rewinding import START, Still, full_disk
from lib.storing import MEMORY, check, kinds, snapshots

PROMPT = '(qemu) '
TIMEOUT = 60.0
NAME = 'monitor.sock'
PAGES = 800             # more than full_disk() has room for


class Terminal:
    """A monitor in a terminal, which shows a prompt when it is ready."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(patience(TIMEOUT))
        self._socket.connect(str(path))
        self.answer()

    def send(self, line: str) -> None:
        self._socket.sendall(line.encode() + b'\r')

    def answer(self) -> str:
        """All up to the next prompt, without what draws lines."""
        text = ''
        while not text.endswith(PROMPT):
            data = self._socket.recv(65536)
            assert data, text
            text += data.decode()
            # an echo redraws the line, and begins with the prompt
            text = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', text)
        return text

    def is_silent(self, seconds: float) -> bool:
        self._socket.settimeout(seconds)
        try:
            return PROMPT not in self._socket.recv(65536).decode()
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(patience(TIMEOUT))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def guest(tmp_path):
    args = '-monitor', f'unix:{tmp_path / NAME},server=on,wait=off'
    with Still(tmp_path, MEMORY, args=args) as machine:
        machine.put(0, 1, PAGES)
        machine.save('s')
        yield machine


@pytest.fixture
def terminal(guest, tmp_path):
    opened = Terminal(tmp_path / NAME)
    yield opened
    opened.close()


def wait_for_jobs(guest: Still) -> None:
    """They are dismissed when they have ended."""
    limit = Limit(TIMEOUT)
    while guest.qmp('query-jobs'):
        assert not limit.over()
        time.sleep(0.01)


@pytest.mark.parametrize('command', ('ram_reset_store -d', 'ram_reset_store'))
def test_detached(guest, command):
    """A command through QMP cannot wait."""
    said = guest.hmp(f'{command} s')
    assert ('detached' in said) == ('-d' not in command)
    wait_for_jobs(guest)
    assert kinds(guest) == {'s': 'image'}
    guest.put(0, 2, 10)
    guest.load('s')
    assert guest.last_load()['rewound']
    assert guest.qtest.read(START, 1) == b'\1'
    disk = guest.disk
    guest.close()
    assert snapshots(disk)['s']
    check(disk)


def test_errors_of_a_detached_one(guest):
    with pytest.raises(MachineError, match="'other' is in memory only"):
        guest.hmp('ram_reset_store other')
    with full_disk(guest):
        guest.hmp('ram_reset_store -d s')
        wait_for_jobs(guest)
    assert "Snapshot 's' could not be stored" in guest.log()
    assert kinds(guest) == {'s': 'memory'}
    guest.hmp('ram_reset_store -d s')
    wait_for_jobs(guest)
    assert kinds(guest) == {'s': 'image'}


def test_terminal_waits(guest, terminal):
    """The guest runs, and other monitors answer."""
    terminal.send('ram_reset_store s 2')
    limit = Limit(TIMEOUT)
    while not (jobs := guest.qmp('query-jobs')) or \
            not jobs[0]['current-progress']:
        assert not limit.over()
    assert terminal.is_silent(0.2)
    guest.put(0, 2, 10)
    assert guest.status() == 'running' and guest.qmp('query-jobs')
    assert 'Error' not in terminal.answer()
    assert kinds(guest) == {'s': 'image'} and not guest.qmp('query-jobs')


def test_terminal_shows_errors(guest, terminal):
    terminal.send('ram_reset_store other')
    assert "Error: No snapshot 'other' is in memory only" in terminal.answer()
    with full_disk(guest):
        terminal.send('ram_reset_store s')
        assert "Error: Snapshot 's' could not be stored" in terminal.answer()
    terminal.send('ram_reset_store s')
    terminal.answer()
    assert kinds(guest) == {'s': 'image'}


def test_speed(guest):
    """In MiB per second, or as its suffix says."""
    for speed, bytes_per_second in ('2', 2 * MIB), ('1024k', MIB):
        guest.save('t')
        start = time.monotonic()
        guest.hmp(f'ram_reset_store -d t {speed}')
        wait_for_jobs(guest)
        # the first and the last piece need not be waited for
        assert time.monotonic() - start > \
            (PAGES * PAGE - MIB) / bytes_per_second


def test_quit_while_a_terminal_waits(guest, terminal):
    terminal.send('ram_reset_store s 64k')
    limit = Limit(TIMEOUT)
    while not guest.qmp('query-jobs'):
        assert not limit.over()
    guest.close()
    assert guest.process.returncode == 0
    assert snapshots(guest.disk) == {'s': 0}
    check(guest.disk)
