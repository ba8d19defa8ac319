# SPDX-License-Identifier: GPL-2.0-or-later
"""RAM content of a ring-3 guest of 64 MiB or more, which loads restore."""

import pytest

from lib.guests import PAGE, Corrupt, Ring3Words
from lib.machine import MIB

START = Ring3Words.FIRST_FREE
STORED = START, 4 * MIB
TAGGED = START + 8 * MIB, 512, 2 * PAGE
ZERO = START + 16 * MIB, 16 * MIB


def write_state(guest: Ring3Words) -> None:
    guest.ask('fill', *STORED, 1)
    guest.ask('tag', *TAGGED, 1)


def check_state(guest: Ring3Words) -> None:
    guest.ask('check-fill', *STORED, 1)
    guest.ask('check-tag', *TAGGED, 1)
    guest.ask('check-set', *ZERO, 0)


def dirty(guest: Ring3Words, seed: int) -> None:
    """Stored pages get other data and zeroes, zero pages get data."""
    guest.ask('fill', STORED[0], STORED[1] // 2, seed)
    guest.ask('set', STORED[0] + STORED[1] // 2, STORED[1] // 4, 0)
    guest.ask('tag', *TAGGED, seed)
    guest.ask('fill', ZERO[0], ZERO[1] // 2, seed)
    guest.ask('tag', ZERO[0] + ZERO[1] // 2, 64, 16 * PAGE, seed)
    with pytest.raises((Corrupt, AssertionError)):
        check_state(guest)


def assert_same_ram(got: bytes, expected: bytes) -> None:
    if got != expected:
        bad = [at for at in range(0, len(got), PAGE)
               if got[at:at + PAGE] != expected[at:at + PAGE]]
        pytest.fail(f'{len(bad)} pages of RAM differ, the first at {bad[0]:#x}')
