# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshots from memory that share clusters with another one."""

import re
from hashlib import blake2b
from pathlib import Path

from lib.dma import QtestMachine
from lib.rewinding import RAM_SIZE, Still
from lib.storing import set_kind

# Pages from START on that hold something in the first snapshot
STORED = 2000


class Sharer(Still):
    """Snapshots are in memory but for the first one, and jobs are traced."""

    def __init__(self, workdir: Path, first: str | None = 'first', **kwargs):
        super().__init__(workdir, ',verify=on', **kwargs)
        self.images: dict[str, bytes] = {}
        self.qmp('trace-event-set-state', name='ram_reset_stored', enable=True)
        if first:
            for page in range(0, STORED, 100):
                self.put(page, 1 + page // 100, 100)
            self.remember(first)
        set_kind(self, 'memory')

    def remember(self, tag: str) -> None:
        self.save(tag)
        self.images[tag] = blake2b(self.ram_image()).digest()

    def has(self, tag: str) -> bool:
        return blake2b(self.ram_image()).digest() == self.images[tag]

    def counted(self) -> tuple[int, int]:
        """Clusters that the last job has shared, and others."""
        shared, own = re.findall(r'(\d+) shared clusters, (\d+) own ones',
                                 self.log())[-1]
        return int(shared), int(own)


def load_all(tmp_path: Path, images: dict[str, bytes], qemu: Path) -> None:
    """Each in a QEMU of its own, without an object."""
    for tag, digest in images.items():
        with QtestMachine(tmp_path, ram=RAM_SIZE, strategy='stock',
                          memory='shared', qemu=qemu, loadvm=tag) as guest:
            assert blake2b(guest.ram_image()).digest() == digest, tag
