# SPDX-License-Identifier: GPL-2.0-or-later
"""
Other processes that do the work of a guest's devices in the guest's memory.

Each is a context.  @device is what QEMU is to be given.
"""

import hashlib
import os
import socket
import struct
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from lib import products
from lib.io.guest import Churning
from lib.machine import MIB
from lib.patience import Limit

BLOCK, SECTOR = 16384, 512      # as in guest/churn.c
TESTPMD = products.BUILD / 'vhost/testpmd'
LIBRARIES = TESTPMD / 'usr/lib/x86_64-linux-gnu'
PLUGINS = ('net_vhost', 'mempool_ring', 'bus_vdev')
TIMEOUT = 60.0


def stamped(size: int) -> bytes:
    """A disk for churn, each sector of which says where it belongs."""
    return b''.join(
        struct.pack('<QQQ', at // BLOCK + 1, at // BLOCK,
                    at % BLOCK // SECTOR).ljust(SECTOR, b'\0')
        for at in range(0, size, SECTOR))


class Backend:
    """Another process, and what it says."""

    RECONNECT = {False: '', True: ',reconnect-ms=100'}

    def __init__(self, workdir: Path, name: str):
        self._log = workdir / f'{name}.log'

    def start(self, *command: object, fds: Iterable[int] = (), **env: str
              ) -> None:
        with open(self._log, 'ab') as log:
            self._process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, pass_fds=tuple(fds),
                env=os.environ | env)

    def await_file(self, path: Path) -> None:
        limit = Limit(TIMEOUT)
        while not path.exists():
            assert self._process.poll() is None and \
                not limit.over(), self.log()
            time.sleep(0.02)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors='replace')

    def __enter__(self):
        return self

    def __exit__(self, *unused) -> None:
        self.kill()
        print(self.log()[-2000:])


class StorageDaemon(Backend):
    """
    qemu-storage-daemon, which does a disk's I/O in guest RAM.  @iops: no more
    requests than that in a second, so that there are always some that wait.
    """

    REGION = False          # it reports to QEMU what it has under way

    def __init__(self, workdir: Path, content: bytes, *, name: str = 'served',
                 iops: int = 0, queues: int = 1, kind: str = 'vhost-user-blk',
                 reconnect: bool = False):
        products.require(products.QSD)
        super().__init__(workdir, name)
        self.image = workdir / f'{name}.raw'
        self.image.write_bytes(content)
        self._listener = socket.socket(socket.AF_UNIX)
        # a name that Linux chooses, in no file system: paths can be long
        self._listener.bind('')
        self._listener.listen()
        path = self._listener.getsockname()[1:].decode()
        limit = ('--object', f'throttle-group,id=limit,limits.iops-total={iops}',
                 '--blockdev', 'driver=throttle,node-name=slow,file=file,'
                               'throttle-group=limit') if iops else ()
        self._command = (
            products.QSD, '--blockdev',
            f'driver=file,node-name=file,filename={self.image}', *limit,
            '--export', 'vhost-user-blk,id=export,writable=on,'
                        f'node-name={"slow" if iops else "file"},'
                        f'num-queues={queues},addr.type=fd,'
                        f'addr.str={self._listener.fileno()}')
        self.again()
        self.device = (
            '-chardev', f'socket,id={name},path={path},abstract=on'
                        f'{self.RECONNECT[reconnect]}',
            '-device', f'{kind}-pci,chardev={name},id={name}-disk')

    def again(self) -> None:
        """With the same socket, after it was killed."""
        self.start(*self._command, fds=(self._listener.fileno(),))

    def transferred(self) -> int:
        """Bytes from and to the disk; the guest need not be asked."""
        lines = Path(f'/proc/{self._process.pid}/io').read_text().split()
        return sum(int(lines[lines.index(what) + 1])
                   for what in ('rchar:', 'wchar:'))

    def sha256(self, first: int, count: int) -> str:
        with open(self.image, 'rb') as f:
            f.seek(first * MIB)
            return hashlib.sha256(f.read(count * MIB)).hexdigest()

    def __exit__(self, *unused) -> None:
        super().__exit__(*unused)
        self._listener.close()


class SampleDaemon(Backend):
    """QEMU's sample of such a process, which has an in-flight region."""

    REGION = True

    def __init__(self, workdir: Path, content: bytes, *, name: str = 'served',
                 reconnect: bool = False):
        products.require(products.VHOST_USER_BLK)
        super().__init__(workdir, name)
        image, path = workdir / f'{name}.raw', workdir / f'{name}.socket'
        image.write_bytes(content)
        self.start(products.VHOST_USER_BLK, '-b', image, '-s', path)
        self.await_file(path)
        self.device = (
            '-chardev', f'socket,id={name},path={path}{self.RECONNECT[reconnect]}',
            '-device', f'vhost-user-blk-pci,chardev={name},id={name}-disk')


BACKENDS = {'daemon': StorageDaemon, 'sample': SampleDaemon}


class Echo(Backend):
    """
    DPDK's testpmd: a network that sends back what the guest sends, as fast as
    one processor can.
    """

    def __init__(self, workdir: Path):
        if not (TESTPMD / '.complete').exists():
            reason = TESTPMD.with_name('testpmd.missing')
            pytest.skip(reason.read_text().strip() if reason.exists() else
                        'no testpmd: run scripts/fetch-vhost')
        super().__init__(workdir, 'testpmd')
        path = workdir / 'net'
        plugins = [next(LIBRARIES.glob(f'dpdk/pmds-*/librte_{name}.so.*'))
                   for name in PLUGINS]
        processors = sorted(os.sched_getaffinity(0))
        self.start(
            '/lib64/ld-linux-x86-64.so.2', '--library-path', LIBRARIES,
            TESTPMD / 'usr/bin/dpdk-testpmd', '--lcores',
            f'0@{processors[0]},1@{processors[-1]}', '-m', '128', '--no-huge',
            '--no-pci', '--no-telemetry', '--no-shconf', '--file-prefix',
            f'ram-reset-{os.getpid()}',
            *(word for plugin in plugins for word in ('-d', plugin)),
            '--vdev', f'net_vhost0,iface={path}', '--',
            '--total-num-mbufs=2048', '--forward-mode=macswap', '--auto-start',
            '--stats-period=3600', '--no-lsc-interrupt',
            # or it leaves a folder on the host
            RUNTIME_DIRECTORY=str(workdir))
        self.await_file(path)
        self.device = (
            '-chardev', f'socket,id=net0,path={path}',
            '-netdev', 'vhost-user,id=net0,chardev=net0',
            '-device', 'virtio-net-pci,netdev=net0,romfile=')


class Served(Churning):
    """A guest whose @disks are those of storage daemons, each stamped()."""

    MODULES = ('drivers/block/virtio_blk', 'net/core/failover',
               'drivers/net/net_failover', 'drivers/net/virtio_net')

    def __init__(self, workdir: Path, backends: Iterable[Backend], *,
                 disks: dict[str, str], args: tuple = (), **kwargs):
        self.disks = disks
        super().__init__(
            workdir, initrd=products.io_initramfs(), memory='shared',
            args=(*args, *(word for b in backends for word in b.device),
                  '-trace', 'ram_reset_vhost_wait'), **kwargs)

    def churn(self) -> None:
        for name, device in self.disks.items():
            self.run(f'churn {device} 12 /run/churn.{name} stamped & '
                     f'churn_{name}=$!')
        for name in self.disks:
            self.until(f'[ -s /run/churn.{name} ]')

    def check_progress(self) -> None:
        """Each disk has got what is right, and gets more."""
        before = self.churned()
        self.wait_for(lambda: {
            name: done for name, (done, _) in self.churned().items()
            if done == before[name][0]})

    def received(self) -> int:
        """Packets from the network."""
        return int(self.run('cat /sys/class/net/eth0/statistics/rx_packets'))

    def waits(self) -> int:
        """How often QEMU has waited for requests."""
        return self.log().count('ram_reset_vhost_wait')
