# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains that virt-install makes, each changed by ram-reset xml alone."""

import contextlib
import itertools
import json
import os
import re
import select
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from lib import products
from lib.libvirtd import Libvirtd, Unavailable
from lib.machine import VERIFY, Serial, run_quietly
from lib.patience import Limit, patience
from lib.xmltool import run as change_xml

# By the libvirt of the same Debian, or of the same age
VERSIONS = {'9.0': '4.1', '11.3': '5.0'}
FOLDER = products.BUILD / 'virt-install'
TIMEOUT = 120.0
FIRMWARE_TIME = 5.0
TAG = 'clean'
# Options of an ordinary user, whose network is QEMU's own; TCG, since not
# every host's KVM can run Linux
COMMON = ('--virt-type', 'qemu', '--import', '--network', 'user')
SCRIPT = Path(__file__).with_name('installer.py')


class Refused(Exception):
    """An error message of virt-install."""


def programs(generation: str) -> list[Path]:
    """Programs that a libvirtd must find besides its own."""
    found = [FOLDER / VERSIONS[generation], FOLDER / 'programs']
    for folder in found:
        if not (folder / '.complete').exists():
            reason = folder.with_name(f'{folder.name}.missing')
            raise Unavailable(
                reason.read_text().strip() if reason.exists() else
                f'{folder} is missing: run scripts/fetch-virt-install, which '
                'fetches it')
    return found


class Installer:
    """A context: virt-install, ready to run where the daemon is."""

    def __init__(self, daemon: Libvirtd):
        if os.geteuid():
            raise Unavailable("domains of virt-install have root's terminals "
                              'and templates here: run the tests as root')
        self._lock = threading.Lock()
        # mounts of the daemon's, so that all is where a package would put it
        self._process = subprocess.Popen(
            daemon.inside('env', f'PATH={daemon.path}', f'HOME={daemon.work}',
                          'LC_ALL=C.UTF-8', '/usr/bin/python3', '-B', SCRIPT,
                          '/usr/share/virt-manager'),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> 'Installer':
        return self

    def __exit__(self, *unused) -> None:
        self._process.communicate(timeout=patience(TIMEOUT))

    def xml(self, options: Sequence[str]) -> str:
        """The XML of a domain that it does not define."""
        arguments = ['--connect', 'qemu:///system', *options, '--print-xml']
        with self._lock:
            self._process.stdin.write(json.dumps(arguments) + '\n')
            self._process.stdin.flush()
            out, err, status = json.loads(self._process.stdout.readline())
        if status:
            raise Refused(err.strip().removeprefix('ERROR').strip())
        return out


def add_object(xml: str, value: str) -> str:
    done = change_xml('--object', value, '-', data=xml.encode(), LC_ALL='C')
    if done.returncode:
        raise Refused(done.stderr.decode().strip())
    return done.stdout.decode()


class Terminal:
    """A console, as Serial wants it."""

    def __init__(self, path: str):
        self._fd = os.open(path, os.O_RDWR | os.O_NOCTTY)

    def recv(self, most: int) -> bytes:
        # a read would not end when the terminal is closed
        while not select.select([self._fd], [], [], 0.2)[0]:
            pass
        return os.read(self._fd, most)

    def sendall(self, data: bytes) -> None:
        os.write(self._fd, data)

    def close(self) -> None:
        os.close(self._fd)


class Installed:
    """A context: defined inside of it, and gone with all its files after."""

    _numbers = itertools.count(1)

    def __init__(self, daemon: Libvirtd, installer: Installer,
                 options: Sequence[str], rewind: str = 'on'):
        """@options: DIR in them is a folder that the domain has for itself"""
        self._daemon = daemon
        self._installer = installer
        self.name = f'installed{next(self._numbers)}'
        self.numbers = itertools.count(1)
        self.folder = daemon.work / 'images' / self.name
        self.folder.mkdir()
        (self.folder / 'templates').mkdir(mode=0o700)
        options = ['--name', self.name, '--disk', 'DIR/disk.qcow2', *COMMON,
                   *defaults(options), *options]
        for name in re.findall(r'DIR/([\w.]+)', ' '.join(options)):
            make_disk(self.folder / name)
        self.options = [option.replace('DIR', str(self.folder))
                        for option in options]
        self._object = (f'ram-reset-auto,id=rr0,rewind={rewind},'
                        f'template-dir={self.folder}/templates'
                        + ',verify=on' * VERIFY)

    def __enter__(self) -> 'Installed':
        return self

    def __exit__(self, *unused) -> None:
        self._daemon.virsh('destroy', self.name, check=False)
        self._daemon.virsh('undefine', self.name, '--nvram',
                           '--snapshots-metadata', check=False)
        shutil.rmtree(self.folder)

    def start(self) -> None:
        path = self.folder / 'domain.xml'
        path.write_text(add_object(self._installer.xml(self.options),
                                   self._object))
        self._daemon.virsh('define', '--validate', path)
        self.virsh('start')

    def virsh(self, verb: str, *args: str) -> str:
        return self._daemon.virsh(verb, self.name, *args).stdout.strip()

    def hmp(self, line: str) -> str:
        return self.virsh('qemu-monitor-command', '--hmp', line)

    @contextlib.contextmanager
    def console(self) -> Iterator[Serial]:
        """The serial port of the QEMU that runs now."""
        serial = Serial(Terminal(self.virsh('ttyconsole')))
        try:
            yield serial
        finally:
            serial.close()

    def query(self) -> dict:
        text = self.virsh('qemu-monitor-command',
                          '{"execute": "query-ram-reset"}')
        return json.loads(text)['return']

    def wait_firmware(self) -> None:
        """Until it has set up the devices and waits, or will not."""
        limit = Limit(FIRMWARE_TIME)
        while 'HLT=0' in self.hmp('info registers') and \
                not limit.over():
            time.sleep(0.2)


def make_disk(path: Path) -> None:
    kind = path.suffix.removeprefix('.')
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', kind, path, '64M')


def defaults(options: Sequence[str]) -> list[str]:
    """Options that virt-install needs, unless @options have them."""
    found = {'--osinfo': 'debian11', '--memory': '256'}
    return [text for option, value in found.items()
            if option not in options for text in (option, value)]
