# SPDX-License-Identifier: GPL-2.0-or-later
"""A libvirtd in namespaces of its own, and virsh to talk to it."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from lib import products
from lib.patience import Limit, patience

GENERATIONS = ('9.0', '11.3')
FOLDER = products.BUILD / 'libvirt'
START_TIMEOUT = 30.0
COMMAND_TIMEOUT = 60.0
INSIDE = Path(__file__).with_name('inside.py')
ISOLATE = ('unshare', '--mount', '--pid', '--fork', '--kill-child',
           '--mount-proc')

LIBVIRTD_CONF = '''\
host_uuid = "{uuid}"
auth_unix_ro = "none"
auth_unix_rw = "none"
unix_sock_rw_perms = "0777"
'''
QEMU_CONF = '''\
user = "{user}"
group = "{user}"
dynamic_ownership = {own}
namespaces = {namespaces}
remember_owner = 0
security_driver = "none"
stdio_handler = "file"
swtpm_user = "root"
swtpm_group = "root"
hugetlbfs_mount = "/run/hugepages"
'''
# The authority that signs TPMs' certificates makes itself
LOCALCA_CONF = '''\
statedir = {work}/ca
signingkey = {work}/ca/signkey.pem
issuercert = {work}/ca/issuercert.pem
certserial = {work}/ca/certserial
'''

# Debian's, for QEMU
USER = 'libvirt-qemu'
USER_ID = 64055


def as_root() -> tuple[str, ...]:
    return () if os.geteuid() == 0 else ('sudo', '-n')


class Unavailable(Exception):
    """There is no such libvirt here, or no right to run it."""


class LibvirtError(Exception):
    """An error message of virsh or of the daemon."""


class Libvirtd:
    """
    A context: the daemon runs inside of it, and is gone with its domains,
    mounts and files after; also if this process is killed, since the other end
    of the pipe that is its standard input then is closed.
    """

    def __init__(self, generation: str, user: str = 'root',
                 more: Sequence[Path] = (), settings: str = ''):
        """
        @user: whose the domains' QEMUs and disks are
        @more: programs that are to be found in there
        @settings: further lines of qemu.conf
        """
        self._user = user
        self._settings = settings
        self._more = more
        self.path = f'{products.QEMU_IMG.parent}:/usr/sbin:/usr/bin:/sbin:/bin'
        self.root = FOLDER / generation
        if not (self.root / '.complete').exists():
            reason = self.root.with_name(f'{generation}.missing')
            raise Unavailable(reason.read_text().strip() if reason.exists()
                              else f'libvirt {generation} is missing: run '
                              'scripts/fetch-libvirt, which fetches it')
        self.work = Path(tempfile.mkdtemp(prefix='libvirt-'))
        try:
            self._configure()
            self._start()
        except BaseException:
            self.close()
            raise

    def _configure(self) -> None:
        for name in ('config', 'etc', 'run', 'images', 'ca'):
            (self.work / name).mkdir()
        (self.work / 'config/libvirtd.conf').write_text(
            LIBVIRTD_CONF.format(uuid=uuid.uuid4()))
        (self.work / 'config/qemu.conf').write_text(QEMU_CONF.format(
            user=self._user, own=int(self._user != 'root'),
            # a /dev of the domain's own would not have what a test mounts
            namespaces='["mount"]' if self._user == 'root' else '[]') +
            self._settings)
        (self.work / 'etc/swtpm-localca.conf').write_text(
            LOCALCA_CONF.format(work=self.work))
        self.log = self.work / 'daemon.log'

    def _start(self) -> None:
        with open(self.log, 'wb') as log:
            try:
                self._process = subprocess.Popen(
                    [*as_root(), *ISOLATE, sys.executable, '-B', INSIDE,
                     self.root, self.work, self.path, *self._more],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                    start_new_session=True)
            except FileNotFoundError as e:
                raise Unavailable('libvirtd has to be run as root, and there '
                                  f'is no {e.filename} here') from e
        if self._process.stdout.readline() != b'ready\n':
            self._process.wait()
            raise Unavailable('libvirtd needs mount and PID namespaces, made '
                              f'as root or by sudo -n: {self._said()}')
        self._wait_socket()

    def _said(self) -> str:
        return self.log.read_text(errors='replace').strip()[-2000:]

    def _wait_socket(self) -> None:
        limit = Limit(START_TIMEOUT)
        while self.virsh('uri', check=False).returncode:
            if self._process.poll() is not None or \
                    limit.over():
                raise LibvirtError(f'libvirtd does not answer: {self._said()}')
            time.sleep(0.05)

    def __enter__(self) -> 'Libvirtd':
        return self

    def __exit__(self, *unused) -> None:
        self.close()

    def close(self) -> None:
        process = getattr(self, '_process', None)
        if process:
            process.stdin.close()
            process.wait(patience(30))
            process.stdout.close()
        # what the process has not removed, not having got that far
        shutil.rmtree(self.work, ignore_errors=True)

    def virsh(self, *args: str | Path, check: bool = True
              ) -> subprocess.CompletedProcess:
        socket = self.work / 'run/libvirt-sock'
        libraries = ':'.join(f'{top}/usr/lib/x86_64-linux-gnu'
                             for top in (self.root, self.root / 'extra'))
        run = subprocess.run(
            [self.root / 'usr/bin/virsh', '-q', '-c',
             f'qemu+unix:///system?socket={socket}', *args],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=patience(COMMAND_TIMEOUT), check=False,
            env=dict(os.environ, LC_ALL='C', LD_LIBRARY_PATH=libraries))
        if check and run.returncode:
            raise LibvirtError(f'virsh {args[0]}: {run.stderr.strip()}')
        return run

    def inside(self, *command: str | Path) -> list[str | Path]:
        """The command that runs this one where the daemon is."""
        return [*as_root(), 'nsenter', '--mount', '--pid', '--target',
                str(self.host_pid(1)), *command]

    @property
    def pid(self) -> int:
        """The process that has made the namespaces."""
        return self._process.pid

    def host_pid(self, pid: int) -> int:
        """The same process as this host's own /proc has it."""
        for status in Path('/proc').glob('[0-9]*/status'):
            try:
                fields = read_status(status)
            except OSError:
                continue    # it has just ended
            if fields['NSpid'].split()[1:] == [str(pid)] and \
                    self._is_inside(int(fields['PPid'])):
                return int(status.parent.name)
        raise LibvirtError(f'no process is {pid} for libvirtd')

    def _is_inside(self, parent: int) -> bool:
        """QEMUs are children of inside.py, and that is one of unshare."""
        while parent > 1:
            if parent == self._process.pid:
                return True
            parent = int(read_status(Path(f'/proc/{parent}/status'))['PPid'])
        return False


def read_status(path: Path) -> dict[str, str]:
    return {key: value.strip() for key, _, value in
            (line.partition(':') for line in path.read_text().splitlines())}
