# SPDX-License-Identifier: GPL-2.0-or-later
"""
After a load that leaves the devices alone, the user sees what a whole load
shows, and moves the mouse that the guest uses.
"""

# Takes: 12 s

import time
from pathlib import Path

import pytest

from lib.dma import Qtest, QtestMachine
from lib.guests import Ring3
from lib.machine import MIB
from lib.rewinding import RAM_SIZE, assert_rewound
from lib.screens import picture, without_cursor, write_glyph

VMMOUSE_COMMAND, READ_ID, DISABLE = 41, 0x45414552, 0xf5
KEYBOARD, SET_LEDS = 0x60, 0xed
BLINK = 0.25                    # seconds for which the cursor stays as it is


class Shown(Ring3):
    """A guest in a text mode: its firmware has set that."""

    def __init__(self, workdir: Path, options: str = ',rewind=on'):
        self.qtest = Qtest(workdir)
        super().__init__(
            workdir, accel='tcg', ram=RAM_SIZE, strategy='auto',
            options=options, args=('-bios', 'bios-256k.bin', '-device', 'VGA',
                                   '-usb', '-device', 'usb-tablet',
                                   *self.qtest.args))
        self.qtest.connect()

    def close(self) -> None:
        if hasattr(self.qtest, '_socket'):
            self.qtest.close()
        super().close()

    def vmmouse(self, command: int) -> None:
        """As a guest's driver does."""
        self.ask('vmport', VMMOUSE_COMMAND, command)

    def mouse(self) -> str:
        """The one that gets what the user does."""
        return next(mouse['name'] for mouse in self.qmp('query-mice')
                    if mouse['current'])

    def use_mouse(self, name: str) -> None:
        """As a device does when the guest begins to use it."""
        index = next(mouse['index'] for mouse in self.qmp('query-mice')
                     if mouse['name'] == name)
        self.hmp(f'mouse_set {index}')

    def load_kept(self) -> None:
        self.load('s')
        assert_rewound(self)
        assert self.last_load()['devices-kept'] >= 3


@pytest.fixture
def guest(tmp_path):
    with Shown(tmp_path) as guest:
        yield guest


def test_font_is_the_snapshots(guest):
    """VGA notices only writes to its memory through the device."""
    guest.stop()
    # whatever characters are there
    saved = picture(guest)
    guest.save('s')
    for _ in range(3):
        guest.load('s')
    for _ in range(2):
        for character in range(0x20, 0x80):
            write_glyph(guest.qtest, character, b'\x55\xaa' * 8)
        assert without_cursor(picture(guest), saved) > 1000
        guest.load_kept()
        assert without_cursor(picture(guest), saved) == 0


def test_cursor_blinks_after_a_load(guest):
    """However long the guest had run since the save."""
    guest.stop()
    picture(guest)
    guest.save('s')
    for _ in range(2):
        guest.load('s')
    guest.cont()
    before = time.monotonic()
    while time.monotonic() - before < 20 * BLINK:
        time.sleep(BLINK)
        picture(guest)
    guest.stop()
    picture(guest)
    guest.load_kept()
    guest.cont()
    # half of the time that it has run before
    seen = {picture(guest)}
    before = time.monotonic()
    while len(seen) < 2 and time.monotonic() - before < 10 * BLINK:
        time.sleep(BLINK / 5)
        seen.add(picture(guest))
    assert len(seen) == 2


def test_mouse_is_the_one_the_guest_had_begun_to_use(guest):
    guest.vmmouse(READ_ID)
    assert guest.mouse() == 'vmmouse'
    guest.save('s')
    guest.load('s')
    for other in ('QEMU HID Tablet', 'QEMU PS/2 Mouse', 'QEMU HID Tablet'):
        guest.use_mouse(other)
        assert guest.mouse() == other
        guest.load_kept()
        assert guest.mouse() == 'vmmouse'
    guest.vmmouse(DISABLE)
    assert guest.mouse() != 'vmmouse'
    guest.load('s')
    assert guest.mouse() == 'vmmouse'


def test_mouse_stays_the_users_if_the_guest_uses_none(guest):
    """As with a whole load."""
    guest.save('s')
    guest.load('s')
    for other in ('QEMU HID Tablet', 'QEMU PS/2 Mouse'):
        guest.use_mouse(other)
        guest.load_kept()
        assert guest.mouse() == other


@pytest.mark.parametrize('options', ('', ',rewind=on'))
def test_keyboard_leds(tmp_path, options):
    """A snapshot in which they are off does not name them."""
    with QtestMachine(tmp_path, ram=8 * MIB, strategy='auto',
                      options=options + ',verify=on') as guest:
        guest.save('off')
        for value in SET_LEDS, 7:
            guest.qtest.out('b', KEYBOARD, value)
        guest.save('on')
        for tag in 'off', 'off', 'on', 'off', 'on', 'on':
            guest.load(tag)
