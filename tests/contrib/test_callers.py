# SPDX-License-Identifier: GPL-2.0-or-later
"""
The commands with which other programs save and load, as the page on callers
has them in its tables: each row is typed, in its order and by its monitor.
"""

# Takes: 30 s

import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from qemu.qmp.legacy import QEMUMonitorProtocol

from lib import products
from lib.content import check_state, dirty, write_state
from lib.documents import Document
from lib.guests import Ring3
from lib.machine import DISK, MIB, MachineError
from lib.migrating import wait_migration
from lib.patience import Limit, patience
from lib.shm import in_memory

PAGE = products.REPO / 'docs/system/ram-reset-callers.rst'
FOLDER = '/dev/shm/templates'       # as the page has it
READ = 'only read'
# Longer commands have a test of their own
ELSEWHERE = {'openQA': 'tests/functional/template/test_openqa.py'}
# What these have beside the disk
DEVICES = {'syzkaller': (
    '-object', 'memory-backend-file,id=shm,size=1M,share=on,mem-path=shm',
    '-device', 'ivshmem-plain,memdev=shm,master=on')}
LOADS = 3


@dataclass(frozen=True)
class Row:
    section: str
    callers: str
    setting: str
    monitor: str
    saves: list[str]
    loads: list[str]
    kind: str

    def __str__(self) -> str:
        return self.callers


def cells(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The rows of all tables, each with the title of its section."""
    title, row = '', []
    for above, line in zip(['', *lines], [*lines, '']):
        if line.startswith('---'):
            title = above
        item = re.match(r'   (\*| ) - (.*)', line)
        if item and item[1] == ' ':
            row.append(item[2])
        elif row and line.startswith('       '):
            row[-1] += ' ' + line.strip()
        else:
            if row:
                yield title, row
            row = [item[2]] if item else []


def rows() -> list[Row]:
    found = []
    for title, row in cells(PAGE.read_text().splitlines()):
        saves, loads = (re.findall(r'``([^`]+)``', cell) for cell in row[3:5])
        found.append(Row(title, *row[:3], saves, loads, row[5]))
    return [row for row in found if row.setting != 'setting']


def scripts() -> dict[str, str]:
    """Those that start QEMU with an object."""
    return {block.caption: block.text for block in Document(PAGE).blocks
            if block.text.startswith('#!')}


class Hmp:
    """A human monitor, on a socket."""

    def __init__(self, path: Path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(patience(60))
        self._socket.connect(str(path))
        self._read()

    def _read(self) -> str:
        text = b''
        while not re.search(rb'\r\n(\(qemu\) )$', text):
            data = self._socket.recv(65536)
            if not data:
                raise MachineError(f'the monitor is closed after {text!r}')
            text += data
        return text.decode()

    def say(self, line: str) -> str:
        self._socket.sendall(line.encode() + b'\n')
        # after the echo
        return self._read().partition('\r\n')[2].rpartition('\r\n')[0]

    def close(self) -> None:
        self._socket.close()


class Qmp:
    """QMP, by a path or a port."""

    def __init__(self, address):
        self._client = QEMUMonitorProtocol(address)
        self._client.connect()
        self._client.settimeout(patience(60))

    def ask(self, command: str, **arguments) -> object:
        return self._client.cmd(command, **arguments)

    def say(self, line: str) -> str:
        return self.ask('human-monitor-command', **{'command-line': line})

    def close(self) -> None:
        self._client.close()


class Started(Ring3):
    """One of QEMUs that follow each other; only the first guest boots."""

    def wait_ready(self) -> None:
        pass


class Caller:
    """A context: a program that does what a row says."""

    def __init__(self, folder: Path, accel: str, row: Row, qemu: Path):
        self.folder = folder
        self.row = row
        self.processes = 0
        self._start = {'accel': accel, 'ram': 64 * MIB, 'qemu': qemu}
        self.guest = None
        try:
            self.run()
            Ring3.wait_ready(self.guest)
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> 'Caller':
        return self

    def __exit__(self, *unused) -> None:
        self.end()

    def run(self, *args: str) -> None:
        """A new QEMU, in place of that before."""
        self.end()
        copy = self.folder / 'copy.qcow2'
        work = self.folder
        if copy.exists():
            work = self.folder / f'run{self.processes}'
            work.mkdir()
            subprocess.run(['cp', '--reflink=auto', copy, work / 'disk.qcow2'],
                           check=True)
        if '-incoming' in args:
            # qemu.qmp expects no event while it connects
            args = (*args, '-S')
        port = free_port()
        paths = self.folder / 'hmp', self.folder / 'qmp'
        self.guest = Started(work, **self._start, args=(
            '-monitor', f'unix:{paths[0]},server=on,wait=off',
            '-qmp', f'unix:{paths[1]},server=on,wait=off',
            '-qmp', f'tcp:127.0.0.1:{port},server=on,wait=off',
            *DEVICES.get(self.row.callers, ()), *args))
        self.processes += 1
        ways = {'HMP': lambda: Hmp(paths[0]),
                'QMP': lambda: Qmp(str(paths[1])),
                'HMP by QMP': lambda: Qmp(str(paths[1])),
                'HMP by QMP on TCP': lambda: Qmp(('127.0.0.1', port))}
        self.monitor = ways[self.row.monitor]()

    def end(self) -> None:
        if self.guest:
            self.monitor.close()
            self.guest.process.kill()
            self.guest.process.wait()
            self.guest.close()

    def do(self, steps: list[str]) -> None:
        for step in steps:
            if step.startswith('-'):
                self.run(*shlex.split(step))
            elif step.startswith('cp '):
                subprocess.run(shlex.split(step), cwd=self.folder, check=True)
            elif step.startswith('snapshot-'):
                self.job(*step.split())
            elif self.row.monitor == 'QMP':
                self.monitor.ask(step)
            else:
                said = self.monitor.say(step)
                assert said == '', f'{step}: {said}'

    def job(self, command: str, tag: str) -> None:
        self.monitor.ask(command, **{
            'job-id': 'job', 'tag': tag, 'vmstate': DISK, 'devices': [DISK]})
        limit = Limit(60)
        while True:
            job, = self.monitor.ask('query-jobs')
            if job['status'] == 'concluded':
                break
            assert not limit.over()
        assert 'error' not in job, job
        self.monitor.ask('job-dismiss', id='job')


def free_port() -> int:
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


@pytest.fixture
def script(tmp_path, monkeypatch):
    """Makes the program with which a section's callers start QEMU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('PATH', str(products.QEMU.parent), prepend=':')
    with in_memory('callers') as folder:
        def make(row: Row) -> Path:
            name, = re.findall(rf'{row.section}\n-+\n.*?``(qemu-\w+)``',
                               PAGE.read_text(), re.S)
            path = tmp_path / name
            path.write_text(scripts()[name].replace(FOLDER, str(folder)))
            path.chmod(0o755)
            return path
        yield make


def assert_kind(guest: Ring3, kind: str, loads: int) -> None:
    info = guest.qmp('query-ram-reset')
    if kind == 'rewind':
        assert info['loads'] == info['rewinds'] == loads
    elif kind == 'from a template':
        assert info['loads'] == 1 and 'template' in info['last-load']
    else:
        assert kind in ('read', 'first read, then mapped')
        assert info['incoming']['mapped'] == (kind != 'read' and loads > 1)


def disk(guest: Ring3, command: str) -> bool:
    """Whether qemu-io found what it should."""
    before = guest.log().count('verification failed')
    guest.hmp(f'qemu-io {DISK} "{command} 0 64k"')
    return guest.log().count('verification failed') == before


REPLAYED = [row for row in rows()
            if row.kind != READ and row.callers not in ELSEWHERE]


@pytest.mark.parametrize('row', REPLAYED, ids=str)
def test_replay(row, script, tmp_path, fast_accel):
    migrates = any(step.startswith('migrate ') for step in row.saves)
    with Caller(tmp_path, fast_accel, row, script(row)) as caller:
        write_state(caller.guest)
        assert disk(caller.guest, 'write -P 1')
        caller.do(row.saves)
        if migrates:
            wait_migration(caller.guest)
        elif 'system_reset' in row.saves:
            Ring3.wait_ready(caller.guest)
        else:
            dirty(caller.guest, 2)
        first = caller.guest.process.pid
        for number in range(1, LOADS + 1):
            if not migrates:
                disk(caller.guest, 'write -P 2')
                assert not disk(caller.guest, 'read -P 1')
            caller.do(row.loads)
            if migrates:
                wait_migration(caller.guest)
                caller.guest.cont()
            assert disk(caller.guest, 'read -P 1')
            caller.guest.sync()
            check_state(caller.guest)
            assert_kind(caller.guest, row.kind, number)
            assert (caller.guest.process.pid == first) == \
                (row.kind == 'rewind')
            dirty(caller.guest, 2 + number)
        assert caller.processes == (1 if row.kind == 'rewind' else LOADS + 1)


def test_shared_memory_of_syzkaller(script, tmp_path, fast_accel):
    """Programs come by it, so loads leave it alone."""
    row, = (row for row in REPLAYED if row.callers == 'syzkaller')
    with Caller(tmp_path, fast_accel, row, script(row)) as caller:
        caller.do(row.saves)
        for program in b'first', b'second':
            with open('shm', 'r+b') as f:
                f.write(program)
            caller.do(row.loads)
            assert Path('shm').read_bytes().startswith(program)


def test_savevm_is_no_command_of_qmp(script, tmp_path, fast_accel):
    """As cua-sandbox sends it."""
    row = next(row for row in REPLAYED if row.monitor == 'HMP by QMP')
    with Caller(tmp_path, fast_accel, row, script(row)) as caller:
        with pytest.raises(Exception, match='savevm has not been found'):
            caller.monitor.ask('savevm', name='a')
        assert 'no snapshot available' in caller.monitor.say('info snapshots')


def test_refusals_are_text(script, tmp_path, fast_accel):
    """Programs take the empty string for success, and must see others."""
    row = next(row for row in REPLAYED if row.monitor == 'HMP by QMP')
    with Caller(tmp_path, fast_accel, row, script(row)) as caller:
        assert "'none' does not exist" in caller.monitor.say('loadvm none')


def test_each_row_is_replayed_or_says_that_it_is_not():
    found = rows()
    callers = [name for row in found for name in row.callers.split(', ')]
    assert len(callers) == len(set(callers)) >= 12
    for row in found:
        assert row.kind == READ or row in REPLAYED or \
            (products.REPO / ELSEWHERE[row.callers]).exists()
        assert row.loads or row.kind == READ
    assert set(ELSEWHERE) <= set(callers)
    assert len(scripts()) == 2
