# SPDX-License-Identifier: GPL-2.0-or-later
"""A Linux guest that writes with fsync, and has a record of it in RAM."""

import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lib import products
from lib.io.guest import Churning, Files
from lib.machine import run_quietly

CACHES = 'writeback', 'none', 'unsafe'
# By bus, QEMU's device
BUSES = {'blk': 'virtio-blk-pci', 'scsi': 'scsi-hd,bus=scsi0.0',
         'ahci': 'ide-hd,bus=ahci0.{unit}'}
# The disks of each bus, and their MiB
KINDS = {'raw': 2, 'files': 24}
# The guest finds the disks of a bus in any order
LINK_DISKS = '''\
for d in /sys/block/[sv]d*; do \
case $(readlink $d) in */ata*) bus=ahci;; */vd*) bus=blk;; *) bus=scsi;; esac; \
case $(cat $d/size) in 4096) kind=raw;; *) kind=files;; esac; \
ln -s ${d##*/} /dev/${bus}_$kind; done'''
MKFS = '/sbin/mke2fs -q -t ext4 -E lazy_itable_init=0,lazy_journal_init=0'
PAUSE = 0.03
TAGS = 'a', 'b', 'c', 'd'


class Ledger(Churning):
    """
    Two disks on each bus. @shift: 0 to 2, so that each bus has had each cache.
    """

    disks = {f'{bus}_{kind}': f'/dev/{bus}_{kind}'
             for bus in BUSES for kind in KINDS}

    def __init__(self, workdir: Path, *, shift: int = 0,
                 args: Iterable[str] = (), **kwargs):
        self._base = workdir
        super().__init__(workdir, initrd=products.trust_initramfs(),
                         args=(*self._disk_args(shift), *args), **kwargs)

    def _disk_args(self, shift: int) -> Iterable[str]:
        yield from ('-device', 'virtio-scsi-pci,id=scsi0')
        yield from ('-device', 'ahci,id=ahci0')
        for i, (bus, device) in enumerate(BUSES.items()):
            files = Files(CACHES[(i + shift) % len(CACHES)])
            for unit, (kind, size) in enumerate(KINDS.items()):
                name = f'{bus}_{kind}'
                path = self._base / f'{name}.qcow2'
                if not path.exists():
                    run_quietly(products.QEMU_IMG, 'create', '-q', '-f',
                                'qcow2', path, f'{size}M')
                yield from ('-blockdev', files.blockdev(name, path))
                yield from ('-device', f'{device.format(unit=unit)},'
                                       f'drive={name},write-cache=on')

    def file_systems(self) -> dict[str, str]:
        return {name: device for name, device in self.disks.items()
                if name.endswith('files')}

    def set_up(self) -> None:
        """Ends when it writes to all of its disks."""
        self.load_drivers(products.IO_MODULES)
        self.until(f'set -- /sys/block/[sv]d*; [ $# = {len(self.disks)} ]')
        self.run(LINK_DISKS)
        self.keep_requests()
        for name, device in self.file_systems().items():
            self.run(f'{MKFS} {device} && mkdir -p /mnt/{name} && '
                     f'mount -t ext4 {device} /mnt/{name} && '
                     f'mkdir /mnt/{name}/d')
        self.churn()

    def load_drivers(self, modules: Sequence[str]) -> None:
        for module in modules:
            self.run(f'insmod /lib/{Path(module).name}.ko')

    def churn(self) -> None:
        for name, device in self.disks.items():
            what = f'files /mnt/{name}/d' if name in self.file_systems() \
                else f'raw {device}'
            self.run(f'ledger {what} /run/churn.{name} & '
                     f'churn_{name}=$!')
        for name in self.disks:
            self.until(f'[ -s /run/churn.{name} ]')

    def churned(self) -> dict[str, tuple[int, int]]:
        time.sleep(PAUSE)       # the guest's shell takes time from its work
        return super().churned()

    def check_file_systems(self) -> int:
        """
        Nothing writes afterwards; a load goes back to where something does.
        The number of rounds until then.
        """
        pids = ' '.join(f'$churn_{name}' for name in self.disks)
        self.run(f'kill {pids}')
        for name in self.disks:
            self.run(f'wait $churn_{name} || '
                     f'{{ cat /run/churn.{name}; false; }}')
        for name, device in self.file_systems().items():
            self.run(f'umount /mnt/{name} && /sbin/e2fsck -fn {device}')
        self.run("! dmesg | grep -E 'EXT4-fs (error|warning)|I/O error|BUG|"
                 "JBD2: '")
        return sum(done for done, _ in self.churned().values())


class Traveller:
    """Saves and loads at random, and compares after each load."""

    def __init__(self, guest: Ledger, rng: random.Random):
        self._guest = guest
        self._rng = rng
        self._known: set[str] = set()
        self.loads = self.saves = self.checks = self.rounds = 0
        self.seconds = 0.0      # in loads

    def _how(self) -> str:
        return self._rng.choice(('hmp', 'qmp'))

    def _job(self, command: str, tag: str) -> None:
        """The VM state is where savevm puts it."""
        nodes = list(self._guest.disks)
        self._guest.snapshot_job(command, tag, nodes[0], nodes)

    def save(self) -> None:
        tag = self._rng.choice(TAGS)
        if self._how() == 'hmp' or tag in self._known:
            self._guest.save(tag)
        else:
            self._job('snapshot-save', tag)
        self._known.add(tag)
        self.saves += 1

    def load(self, tag: str = '') -> None:
        tag = tag or self._rng.choice(sorted(self._known))
        begin = time.monotonic()
        if self._how() == 'hmp':
            self._guest.load(tag)
        else:
            self._job('snapshot-load', tag)
        self.seconds += time.monotonic() - begin
        last = self._guest.last_load()
        assert last['rewound'], last.get('blocker')
        self.loads += 1
        self._guest.compare_disks()

    def check(self) -> None:
        self.rounds += self._guest.check_file_systems()
        self.checks += 1

    def travel(self, loads: int, check_every: int) -> None:
        """Of so many loads, and file systems are checked last."""
        self.save()
        while self.loads < loads:
            time.sleep(self._rng.random() / 20)
            if self._rng.random() < 0.25:
                self.save()
            else:
                self.load()
            if self.loads % check_every == check_every - 1:
                self.check()
                self.load()
        self.check()

    def known(self) -> list[str]:
        return sorted(self._known)

    def __str__(self) -> str:
        return (f'{self.saves} saves, {self.loads} loads of '
                f'{1000 * self.seconds / max(self.loads, 1):.0f} ms, '
                f'{self.checks} checks of file systems, {self.rounds} rounds '
                'before them')
