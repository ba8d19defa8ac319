# SPDX-License-Identifier: GPL-2.0-or-later
"""What README.md says, typed as it is by somebody who has just built it."""

import json
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from lib import products
from lib.machine import MachineError, run_quietly

README = (products.REPO / 'README.md').read_text()
PROGRAM = 'qemu-system-x86_64'
COMMANDS = re.findall(rf'^    ({PROGRAM} \.\.\. (?:.*\\\n)*.*)$', README,
                      re.MULTILINE)
MONITOR = re.findall(r'^    \(qemu\) (.*)$', README, re.MULTILINE)
FIRST = '-object ram-reset-madvise,id=rr0'
TIMEOUT = 60


def id_of(command: str) -> str:
    return re.sub(r'[^\w=-]+', ' ', command.partition('...')[2]).strip()


class Qemu:
    """A context: @command of README.md, and what its "..." stands for."""

    def __init__(self, workdir: Path, program: Path, command: str):
        self.bios = workdir / 'bios.log'
        disk = workdir / 'disk.qcow2'
        run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', disk,
                    '64M')
        dots = ['-display', 'none', '-qmp', 'stdio', '-hda', str(disk),
                '-chardev', f'file,id=bios,path={self.bios}',
                '-device', 'isa-debugcon,iobase=0x402,chardev=bios']
        if 'memdev=mem0' in command and 'id=mem0' not in command:
            dots += ['-object', 'memory-backend-ram,id=mem0,size=64M',
                     '-m', '64M', '-machine', 'memory-backend=mem0']
        words = shlex.split(command.replace('\\\n', ' '))
        words[0:2] = [str(program), *dots]
        # somewhere else than where it was built, and with no help from outside
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=workdir, env={})

    def __enter__(self) -> 'Qemu':
        assert 'QMP' in self._read()
        self.qmp('qmp_capabilities')
        return self

    def __exit__(self, *unused) -> None:
        self.process.terminate()
        self.process.communicate(timeout=TIMEOUT)

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise MachineError(self.process.communicate()[1])
        return json.loads(line)

    def qmp(self, command: str, **arguments):
        print(json.dumps({'execute': command, 'arguments': arguments}),
              file=self.process.stdin, flush=True)
        while True:
            answer = self._read()
            if 'event' not in answer:
                return answer['return']

    def hmp(self, line: str) -> str:
        return self.qmp('human-monitor-command', **{'command-line': line})

    def wait_for_bios(self) -> None:
        """Until it has found its devices, and looks for something to boot."""
        for _ in range(TIMEOUT * 10):
            text = self.bios.read_text()
            if 'Booting from' in text:
                assert text.startswith('SeaBIOS (version ')
                return
            assert self.qmp('query-status')['status'] == 'running'
            time.sleep(0.1)
        raise AssertionError(f'the BIOS has got as far as {text[-300:]!r}')


def test_the_readme_has_commands():
    assert any(command.endswith(FIRST) for command in COMMANDS)
    assert len(COMMANDS) >= 6 and MONITOR[0].startswith('savevm')


@pytest.mark.parametrize('command', COMMANDS, ids=id_of)
def test_command_runs_from_anywhere(tmp_path, command, request):
    text = command.replace('4G', '64M').replace('/dev/shm', str(tmp_path))
    if '/dev/hugepages' in text:
        mount = request.getfixturevalue('huge_mount')
        text = text.replace('/dev/hugepages', str(mount))
    (tmp_path / 'templates').mkdir(mode=0o700)
    with Qemu(tmp_path, products.QEMU, text) as qemu:
        qemu.wait_for_bios()
        for line in MONITOR:
            answer = qemu.hmp(line)
            assert 'Error' not in answer
        info = qemu.qmp('query-ram-reset')
        assert info['loads'] == 1 and info['last-load']['success']
        assert qemu.qmp('query-status')['status'] == 'running'


def test_link_to_it_runs_from_anywhere(tmp_path):
    link = tmp_path / 'bin' / 'qemu'
    link.parent.mkdir()
    link.symlink_to(products.QEMU)
    with Qemu(tmp_path, link, f'{PROGRAM} ... {FIRST}') as qemu:
        qemu.wait_for_bios()


def test_build_folder_can_be_moved(tmp_path):
    """Firmware is found by where the program is now."""
    moved = tmp_path / 'moved'
    (moved / 'qemu').mkdir(parents=True)
    run_quietly('cp', '-a', products.BUILD / 'firmware', moved)
    run_quietly('cp', '-a', products.BUILD / 'qemu/qemu-bundle', products.QEMU,
                moved / 'qemu')
    with Qemu(tmp_path, moved / 'qemu' / products.QEMU.name,
              f'{PROGRAM} ... {FIRST}') as qemu:
        qemu.wait_for_bios()
        assert str(moved) in subprocess.run(
            [moved / 'qemu' / products.QEMU.name, '-L', 'help'],
            capture_output=True, text=True, check=True).stdout
