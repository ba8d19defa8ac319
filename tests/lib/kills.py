# SPDX-License-Identifier: GPL-2.0-or-later
"""A QEMU that ends at the Nth call that changes a disk, see host/kill.c."""

import mmap
import shutil
import struct
from collections import Counter
from pathlib import Path

from lib import products
from lib.faults import Driven, memset
from lib.machine import DISK, MIB, Machine, disk_file, run_quietly

LIBRARY = products.BUILD / 'kill.so'
CONTROL = struct.Struct('<5I')
KINDS = 'write', 'flush', 'truncate'
AREA = 4 * MIB, 64 * 1024
SIZE = '8M'


class Kills:
    """The memory by which the library and the test tell each other things."""

    def __init__(self, workdir: Path, monkeypatch):
        products.require(LIBRARY)
        path = workdir / 'kill'
        path.write_bytes(bytes(CONTROL.size))
        with open(path, 'r+b') as f:
            self._map = mmap.mmap(f.fileno(), CONTROL.size)
        monkeypatch.setenv('RAM_RESET_KILL', str(path))
        monkeypatch.setenv('LD_PRELOAD', str(LIBRARY))

    def arm(self, nth: int, seed: int = 0) -> None:
        """@seed: the host loses its power as well, see kill.c."""
        self._map[:] = CONTROL.pack(1, nth, 0, 0, seed)

    def disarm(self) -> tuple[int, str]:
        """How many calls there were, and what kind the last one was of."""
        _, _, count, kind, _ = CONTROL.unpack(self._map[:])
        self._map[:] = bytes(CONTROL.size)
        return count, KINDS[kind]


def disk_io(guest: Machine, node: str, command: str) -> bool:
    """By qemu-io, which prints to the log; whether it has succeeded."""
    before = len(guest.log())
    guest.hmp(f'qemu-io {node} "{command}"')
    answer = guest.log()[before:]
    assert 'bytes at offset' in answer, answer
    return 'failed' not in answer


class Disks(Driven):
    """A machine with several disks, whose content and RAM are one number."""

    def __init__(self, workdir: Path, number: int, args: tuple = (),
                 **kwargs):
        self.nodes = [DISK, *(f'disk{n}' for n in range(1, number))]
        for node in self.nodes[1:]:
            path = workdir / f'{node}.qcow2'
            if not path.exists():
                run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                            path, SIZE)
            args += ('-blockdev', f'driver=qcow2,node-name={node},'
                     + disk_file(path, ''))
        super().__init__(workdir, args=args, **kwargs)

    def fill(self, number: int) -> None:
        memset(self, *AREA, number)
        for node in self.nodes:
            self.disk_io(node, f'write -P {number} 0 128k')
        # two saves are never at the same time of the guest
        self.qtest.ask('clock_step 1000000')

    def disk_io(self, node: str, command: str) -> bool:
        return disk_io(self, node, command)

    def has(self, number: int) -> list[bool]:
        """Whether RAM is @number, and each disk."""
        start, size = AREA
        found = [self.ram_image()[start:start + size] == bytes([number]) * size]
        return found + [self.disk_io(node, f'read -P {number} 0 128k')
                        for node in self.nodes]

    def holds(self, *numbers: int) -> int:
        """The one that all of it is; a mixture fails."""
        matches = {number: self.has(number) for number in numbers}
        whole = [number for number, found in matches.items() if all(found)]
        assert len(whole) == 1, f'RAM, {", ".join(self.nodes)}: {matches}'
        return whole[0]

    def tags(self) -> list[list[str]]:
        """The names of each disk's snapshots."""
        images = {n['node-name']: n['image']
                  for n in self.qmp('query-named-block-nodes')}
        return [[s['name'] for s in images[node].get('snapshots', ())]
                for node in self.nodes]


def copy_disks(source: Path, target: Path) -> Path:
    target.mkdir()
    for disk in source.glob('*.qcow2'):
        shutil.copy(disk, target)
    return target


def check_disks(workdir: Path) -> None:
    """Only clusters allocated before a crash may leak."""
    for disk in workdir.glob('*.qcow2'):
        run_quietly(products.QEMU_IMG, 'check', '-q', '-r', 'leaks', disk)


class Outcomes:
    """By kind of the last call, how often each outcome was seen."""

    def __init__(self, title: str):
        self._title = title
        self._counts: Counter = Counter()

    def add(self, kind: str, outcome: str) -> None:
        self._counts[kind, outcome] += 1

    def seen(self, outcome: str) -> int:
        return sum(n for (_, o), n in self._counts.items() if o == outcome)

    def __str__(self) -> str:
        return f'{self._title}: ' + ', '.join(
            f'{n} at a {kind}: {outcome}'
            for (kind, outcome), n in sorted(self._counts.items()))
