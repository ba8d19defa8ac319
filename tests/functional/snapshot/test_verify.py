# SPDX-License-Identifier: GPL-2.0-or-later
"""verify=on finds what a load leaves wrong in a device or a vCPU."""

# Takes: 5 s

import contextlib
import json
import mmap
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import products
from lib.effort import tried
from lib.guests import Ring3
from lib.machine import MIB, MachineError
from lib.rewinding import RAM_SIZE, boot
from lib.vmstate import SECTION_FULL, VMState

LIBRARY = products.BUILD / 'flip.so'
AREA = Ring3.FIRST_FREE, 8 * MIB
TAG = 's'
BUFFER = 32768                  # what a load reads at once

# A section, a field of it, a byte of that, and bits of it: those that a load
# takes as they are
WRONG = {'serial port': ('serial', 'state/scr', 0, 0x5a),
         'alarm in the RTC': ('mc146818rtc', 'cmos_data', 1, 0x01),
         'mask of interrupts': ('i8259', 'imr', 0, 0x80),
         'PCI': ('0000:00:01.1/ide', 'parent_obj/config[0]', 60, 0x01),
         'register': ('cpu', 'env.regs', 13 * 8 + 7, 0x01),
         'MSR': ('cpu', 'env.lstar', 7, 0x01)}
# The time
MAY_DIFFER = 'mc146818rtc', 'cmos_data', 0, 0x01


class Flip:
    """Makes QEMU read a byte of its disk wrongly, see flip.c."""

    CONTROL = struct.Struct('<IIQQQQ')

    def __init__(self, workdir: Path, monkeypatch):
        products.require(LIBRARY)
        path = workdir / 'flip'
        path.write_bytes(bytes(self.CONTROL.size))
        with open(path, 'r+b') as f:
            self._map = mmap.mmap(f.fileno(), self.CONTROL.size)
        monkeypatch.setenv('RAM_RESET_FLIP', str(path))
        monkeypatch.setenv('LD_PRELOAD', str(LIBRARY))

    def begin(self, disk: Path, offset: int, bits: int, longest: int) -> None:
        stat = disk.stat()
        self._map[:] = self.CONTROL.pack(0, bits, longest, stat.st_dev,
                                         stat.st_ino, offset)

    def end(self) -> int:
        """How often it was read wrongly."""
        flips, *_ = self.CONTROL.unpack(self._map[:])
        self._map[:] = bytes(self.CONTROL.size)
        return flips


@pytest.fixture
def flip(tmp_path, monkeypatch) -> Flip:
    return Flip(tmp_path, monkeypatch)


def described(state: VMState, section: str) -> dict:
    """This section's part of the stream's description."""
    start = state.stream.rindex(b'\0\x06', 0, state.stream.rindex(b'"devices"'))
    devices = json.loads(state.stream[start + 6:])['devices']
    return next(d for d in devices if d['name'] == section)


def field_at(desc: dict, path: str) -> int:
    """How many bytes come before the field."""
    name, _, rest = path.partition('/')
    at = 0
    for field in desc['fields']:
        if field['name'] == name:
            return at + (field_at(field['struct'], rest) if rest else 0)
        at += field['size'] * field.get('array_len', 1)
    raise KeyError(path)


def offset_of(disk: Path, section: str, field: str) -> int:
    """In the file."""
    with VMState(disk, TAG) as state:
        at = state.section(SECTION_FULL, section) + 5 + 1 + len(section) + 8
        return state.place(at + field_at(described(state, section), field))


@contextlib.contextmanager
def wrong(guest: Ring3, flip: Flip, way: str, what: tuple) -> Iterator[None]:
    """
    For a whole load, which reads the image by little and little, or for who
    compares with what a rewind keeps in memory.
    """
    section, field, byte, bits = what
    flip.begin(guest.disk, offset_of(guest.disk, section, field) + byte, bits,
               BUFFER if way == 'whole' else sys.maxsize)
    try:
        yield
    finally:
        assert flip.end()


def saved(workdir: Path, accel: str, way: str) -> Ring3:
    guest = Ring3(workdir, accel=accel, ram=RAM_SIZE, strategy='auto',
                  options=',verify=on' + ',rewind=on' * (way == 'rewind'))
    guest.ask('fill', *AREA, 1)
    guest.save(TAG)
    guest.load(TAG)
    return guest


@pytest.mark.parametrize('what', tried(list(WRONG), list(WRONG)[-1:]))
@pytest.mark.parametrize('way', ('whole', 'rewind'))
def test_what_is_wrong_is_named(tmp_path, flip, accel, way, what):
    section, field, _, _ = WRONG[what]
    with saved(tmp_path, accel, way) as guest:
        names = rf"section '{section}', .*{re.escape(field.split('/')[-1])}"
        with wrong(guest, flip, way, WRONG[what]), \
                pytest.raises(MachineError, match=names):
            guest.load(TAG)
        assert guest.status() == 'restore-vm'
        with pytest.raises(MachineError, match='partial load of snapshot'):
            guest.cont()
        guest.load(TAG)
        guest.cont()
        guest.ask('check-fill', *AREA, 1)


def test_time_may_differ(tmp_path, flip, fast_accel):
    with saved(tmp_path, fast_accel, 'whole') as guest:
        with wrong(guest, flip, 'whole', MAY_DIFFER):
            guest.load(TAG)


def test_without_a_description(tmp_path, fast_accel):
    """QEMU refuses to verify half of a VM state without a description."""
    with boot(tmp_path, fast_accel, options=',verify=on',
              machine='pc,suppress-vmdesc=on') as guest:
        guest.save(TAG)
        with pytest.raises(MachineError, match='no description of devices'):
            guest.load(TAG)
