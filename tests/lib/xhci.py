# SPDX-License-Identifier: GPL-2.0-or-later
"""
A driver for a qemu-xhci of a machine without a vCPU, which can make control
requests without data to one device.  See chapters 4 and 6 of xHCI's
specification.
"""

import struct

from lib.dma import CONFIG_ADDRESS, CONFIG_DATA, QtestMachine

BAR0, COMMAND, MEMORY_AND_MASTER = 0x10, 0x04, 6
# From the start of its memory: operational registers, of the first interrupter,
# doorbells
OPERATIONAL, INTERRUPTER, DOORBELLS = 0x40, 0x1020, 0x2000
USBCMD, CRCR, DCBAAP, CONFIG = 0x00, 0x18, 0x30, 0x38
PORTS, PORT_SIZE, PORT_RESET = 0x400, 0x10, 1 << 4 | 1 << 9
CONTEXTS, COMMANDS, EVENTS, SEGMENT, DEVICE, INPUT, REQUESTS = \
    range(0x100000, 0x107000, 0x1000)
SETUP, STATUS, ENABLE_SLOT, DISABLE_SLOT, ADDRESS_DEVICE = 2, 4, 9, 10, 11
IMMEDIATE, CYCLE, INWARDS = 1 << 6, 1, 1 << 16
SLOT, ENDPOINT_0 = 1, 1


class Xhci:
    """@slot: of PCI; @port: of the device, counted from 1."""

    def __init__(self, guest: QtestMachine, slot: int, port: int,
                 base: int = 0xd0000000):
        self._qtest = guest.qtest
        self._base = base
        self._at = {COMMANDS: COMMANDS, REQUESTS: REQUESTS}
        for register, value in ((BAR0, base), (COMMAND, MEMORY_AND_MASTER)):
            self._qtest.out('l', CONFIG_ADDRESS, 1 << 31 | slot << 11
                            | register)
            self._qtest.out('l', CONFIG_DATA, value)
        self._start(port)

    def _put(self, register: int, value: int) -> None:
        self._qtest.ask(f'writel {self._base + register:#x} {value:#x}')

    def _start(self, port: int) -> None:
        self._qtest.ask(f'memset {CONTEXTS:#x} 0x7000 0')
        self._qtest.write(SEGMENT, struct.pack('<QQ', EVENTS, 64))
        self._qtest.write(CONTEXTS + 8 * SLOT, struct.pack('<Q', DEVICE))
        for register, value in (
                (OPERATIONAL + DCBAAP, CONTEXTS), (OPERATIONAL + DCBAAP + 4, 0),
                (OPERATIONAL + CRCR, COMMANDS | CYCLE),
                (OPERATIONAL + CRCR + 4, 0),
                (OPERATIONAL + CONFIG, 1), (INTERRUPTER + 0x08, 1),
                (INTERRUPTER + 0x18, EVENTS), (INTERRUPTER + 0x1c, 0),
                (INTERRUPTER + 0x10, SEGMENT), (INTERRUPTER + 0x14, 0),
                (OPERATIONAL + USBCMD, 1),
                (OPERATIONAL + PORTS + PORT_SIZE * (port - 1), PORT_RESET)):
            self._put(register, value)
        self._command(ENABLE_SLOT)
        # both contexts are to be taken: a device at @port, its first endpoint
        self._qtest.write(INPUT, struct.pack('<II', 0, 3))
        self._qtest.write(INPUT + 0x20, struct.pack('<II', 1 << 27, port << 16))
        self._qtest.write(INPUT + 0x40, struct.pack(
            '<IIQ', 0, 8 << 16 | 4 << 3 | 3 << 1, REQUESTS | CYCLE))
        self._command(ADDRESS_DEVICE, INPUT)

    def _add(self, ring: int, parameter: int, status: int, control: int
             ) -> None:
        self._qtest.write(self._at[ring], struct.pack(
            '<QII', parameter, status, control | CYCLE))
        self._at[ring] += 16

    def _command(self, kind: int, parameter: int = 0) -> None:
        events = self._events()
        slot = SLOT if kind != ENABLE_SLOT else 0
        self._add(COMMANDS, parameter, 0, slot << 24 | kind << 10)
        self._put(DOORBELLS, 0)
        assert self._events() > events, 'the controller does not answer'

    def _events(self) -> int:
        """How many there have been; none may be a failure of a command."""
        count = 0
        for at in range(EVENTS, EVENTS + 64 * 16, 16):
            _, status, control = struct.unpack('<QII', self._qtest.read(at, 16))
            if not control & CYCLE:
                break
            assert status >> 24 in (0, 1), f'event {count}: {status:#x}'
            count += 1
        return count

    def request(self, kind: int, request: int, value: int) -> None:
        """A control request to the device, with no data."""
        self._add(REQUESTS, kind | request << 8 | value << 16, 8,
                  SETUP << 10 | IMMEDIATE)
        self._add(REQUESTS, 0, 0, STATUS << 10 | INWARDS | 1 << 5)
        events = self._events()
        self._put(DOORBELLS + 4 * SLOT, ENDPOINT_0)
        assert self._events() > events, 'the device does not answer'

    def disable(self) -> None:
        self._command(DISABLE_SLOT)
