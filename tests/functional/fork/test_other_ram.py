# SPDX-License-Identifier: GPL-2.0-or-later
"""
Forks of a machine whose RAM is not its first memory, but for example behind the
region of a snapctl device: the dirty log of TCG belongs to RAM all the same.
"""

# Takes: 10 s

from pathlib import Path

import pytest

from lib.forking import INCOMING, Forker
from lib.machine import DISK, MIB
from lib.smp import START, Smp

RAM = 128 * MIB
FULL = 64 * MIB         # takes a while to be written
PAGES = 512


class Second(Smp):
    """A guest whose RAM comes after memory that no migration has."""

    def __init__(self, workdir: Path, first: int, accel: str, *args: str):
        self._first = first
        workdir.mkdir(exist_ok=True)
        super().__init__(workdir, cpus='1', accel=accel, ram=RAM, start=False,
                         args=args)

    def _memory_args(self) -> list[str]:
        return ['-object', f'memory-backend-ram,id=first,size={self._first}',
                '-device', 'snapctl,allow=none,memdev=first',
                *super()._memory_args()]


@pytest.mark.parametrize('size', (MIB, 256 * MIB), ids=('less', 'more'))
def test_fork_of_a_writing_machine(tmp_path, accel, size):
    """Each page has what the last pass has written, or the guest says so."""
    with Second(tmp_path / 'parent', size, accel) as parent:
        parent.ask('set', START, FULL, 0x5a)
        parent.start_all(PAGES)
        forker = Forker(parent, tmp_path / 'forks', {DISK: parent.disk})
        fork = forker.fork()
        fork.make_disks(tmp_path / 'child')
        with Second(tmp_path / 'child', size, accel, *INCOMING) as child:
            fork.enter(child)
            for machine in (child, child, child, parent):
                machine.next_pass()
