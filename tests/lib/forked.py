# SPDX-License-Identifier: GPL-2.0-or-later
"""A machine without a guest that is forked by the job, and its children."""

import contextlib
from pathlib import Path

from lib import products
from lib.dma import QtestMachine
from lib.forking import INCOMING, Fork, Forker
from lib.forks import check_all
from lib.machine import DISK, MIB, PAGE, Machine, run_quietly

RAM = 192 * MIB
FULL = 160 * MIB                # takes a while to be written
DATA = 'data'                   # a disk, too
PM_BASE = 0xb000


class Forked(QtestMachine):
    """With two disks and two drives without a medium."""

    def __init__(self, folder: Path, *args: str, **kwargs):
        folder.mkdir(exist_ok=True)
        self.data = folder / f'{DATA}.qcow2'
        if not self.data.exists():
            run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                        self.data, '1M')
        super().__init__(folder, ram=RAM, strategy='auto', args=(
            '-blockdev', f'driver=qcow2,node-name={DATA},file.driver=file,'
                         f'file.filename={self.data}',
            '-device', f'virtio-blk-pci,share-rw=on,drive={DISK}',
            '-device', f'virtio-blk-pci,share-rw=on,drive={DATA}',
            '-device', 'virtio-scsi-pci', '-device', 'scsi-cd,id=cd',
            '-drive', 'if=none,id=empty',
            '-device', 'scsi-hd,drive=empty,id=stick,removable=on', *args),
            **kwargs)

    def fill(self, byte: int = 1) -> None:
        for at in range(2 * MIB, FULL, MIB):
            self.qtest.ask(f'memset {at:#x} {MIB:#x} {byte + at // MIB % 99}')

    def sample(self) -> list[str]:
        return self.qtest.ask_all([f'read {at:#x} 16'
                                   for at in range(2 * MIB, FULL, MIB)])

    def write(self, node: str, byte: int) -> None:
        assert self.hmp(f'qemu-io {node} "write -P {byte} 0 64k"') == ''

    def has(self, node: str, byte: int) -> bool:
        before = self.log().count('verification failed')
        self.hmp(f'qemu-io {node} "read -P {byte} 0 64k"')
        return self.log().count('verification failed') == before

    def suspend(self) -> None:
        """What firmware and an operating system do."""
        for register, value in (0x40, PM_BASE | 1), (0x80, 1):
            self.qtest.out('l', 0xcf8, 0x80000b00 | register)
            self.qtest.out('l', 0xcfc, value)
        self.qtest.out('w', PM_BASE + 4, 1 << 13 | 1 << 10)

    def settings(self) -> tuple:
        return (self.qmp('query-migrate-capabilities'),
                self.qmp('query-migrate-parameters'))

    def tops(self) -> dict[str, str]:
        """The nodes to which devices write."""
        return {device['qdev']: device['inserted']['node-name'] for device in
                self.qmp('query-block') if 'inserted' in device}


def new_forker(guest: Forked, folder: Path) -> Forker:
    return Forker(guest, folder, {DISK: guest.disk, DATA: guest.data})


@contextlib.contextmanager
def child(fork: Fork, folder: Path, *args: str):
    fork.make_disks(folder)
    with Forked(folder, *INCOMING, *args) as guest:
        fork.enter(guest)
        yield guest
    check_all(folder)


def hold(guest: Machine) -> None:
    """The job's migration does not end, since it is slow."""
    guest.qmp('migrate-set-parameters', **{'max-bandwidth': 1})
    assert guest.qmp('query-migrate')['status'] in ('setup', 'active')


def let_go(guest: Machine) -> None:
    guest.qmp('migrate-set-parameters', **{'max-bandwidth': 1 << 40})


def left(fork: Fork) -> list[Path]:
    """Files of a fork, finished or not."""
    return list(fork.state.parent.glob(f'{fork.state.name}*'))


def assert_forks(guest: Forked, forker: Forker, folder: Path) -> None:
    """The machine can be forked, and its child is what it was."""
    nodes = list(guest.tops().values())
    for node in nodes:
        guest.write(node, 0x11)
    status = guest.qmp('query-status')['status']
    image = guest.sample()
    fork = forker.fork()
    assert guest.qmp('query-status')['status'] == status
    assert guest.sample() == image
    for node in guest.tops().values():
        assert node not in nodes and guest.has(node, 0x11)
        guest.write(node, 0x22)
    guest.qtest.ask(f'memset {2 * MIB:#x} {PAGE:#x} 0xff')
    with child(fork, folder) as other:
        assert other.sample() == image
        for node in other.tops().values():
            assert other.has(node, 0x11)


def set_mode(guest: Forked, mode: str) -> None:
    guest.qmp('migrate-set-parameters', mode=mode)
