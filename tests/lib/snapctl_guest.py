# SPDX-License-Identifier: GPL-2.0-or-later
"""A ring-3 guest with the snapctl device, see guest/ring3-snapctl.c."""

import struct
from enum import IntEnum
from pathlib import Path

from lib.content import START
from lib.guests import Ring3
from lib.machine import MIB

RAM_SIZE = 64 * MIB
REGION_SIZE = MIB
# As in include/hw/misc/snapctl-regs.h: commands, statuses, and errors
SAVE, LOAD = 1, 2
PENDING, SAVED, LOADED, REFUSED, FAILED = 1, 2, 3, 4, 5
DENIED, EMPTY, HOST, LIMIT = 2, 4, 7, 8
A, B = 0, 1                     # slots
LOOP = START + 40 * MIB, 64     # for snap-loop: an address and pages
PAIRS = START + 44 * MIB, 64    # for hammer


class Register(IntEnum):
    """Offsets of the device's registers."""

    MAGIC, VERSION, FEATURES, SLOTS = 0x00, 0x04, 0x08, 0x0c
    SLOT, COMMAND, STATUS, ERROR = 0x10, 0x14, 0x18, 0x1c
    GENERATION, LOAD_NS, RANDOM = 0x20, 0x28, 0x40


class SnapctlGuest(Ring3):
    """A guest with the device, whose region is a file of the host's."""

    # Region in guest/ring3-snapctl.c, and where the device has registers
    REGION_WORDS = ('loads', 'generation', 'refused', 'random', 'steps',
                    'stop')

    def __init__(self, workdir: Path, *, strategy: str = 'auto',
                 memory: str = 'shared', options: str = '', args: tuple = (),
                 machine_type: str = 'pc', rewind_options: str = '', **kwargs):
        self.region = workdir / 'region'
        region = (f'memory-backend-file,id=region,size={REGION_SIZE},share=on,'
                  f'mem-path={self.region}')
        super().__init__(
            workdir, memory=memory, ram=RAM_SIZE, strategy=strategy,
            options=f',rewind=on{rewind_options}'
            if strategy != 'stock' else '', args=(
                '-M', machine_type, '-object', region, '-device',
                f'snapctl,id=snap0,allow=both,slots=a:b,memdev=region{options}',
                *args), **kwargs)

    def info(self) -> dict:
        return self.qmp('query-snapctl')

    def completed(self) -> dict:
        return self.event('SNAPCTL_COMPLETED')

    def register(self, offset: int, size: int = 8) -> int:
        return int(self.ask('snap-read', offset, size), 16)

    def region_address(self) -> int:
        return int(self.ask('snap-where').split()[2], 16)

    def region_word(self, name: str) -> int:
        with self.region.open('rb') as f:
            f.seek(8 * self.REGION_WORDS.index(name))
            return struct.unpack('<Q', f.read(8))[0]

    def set_region_word(self, name: str, value: int) -> None:
        with self.region.open('r+b', buffering=0) as f:
            f.seek(8 * self.REGION_WORDS.index(name))
            f.write(struct.pack('<Q', value))

    def next_snap(self) -> tuple[int, int, int]:
        """The guest's answer after a load that it has not asked for."""
        return self.snap_answer(self.next_answer())


def outcome(event: dict) -> dict:
    """SNAPCTL_COMPLETED as query-snapctl has it, in 'last'."""
    assert event['qom-path'] == '/machine/peripheral/snap0'
    return {name: event[name] for name in event if name != 'qom-path'}
