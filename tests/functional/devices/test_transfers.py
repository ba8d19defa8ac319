# SPDX-License-Identifier: GPL-2.0-or-later
"""A transfer on the SMBus that the guest has begun ends with a load."""

# Takes: 3 s

import pytest

from lib.dma import CONFIG_ADDRESS, CONFIG_DATA
from lib.rewinding import Still

# PIIX4's power management of the machine "pc", and the EEPROMs on its SMBus
PM, BASE_REGISTER, HOST_CONFIG = 0x0b00, 0x90, 0xd0
BASE, EEPROM, OTHER = 0xb100, 0x50, 0x51
STATUS, CONTROL, ADDRESS, DATA1, BLOCK = 0, 2, 4, 6, 7
READ_BLOCK, START, INTERRUPT = 6 << 2, 1 << 6, 1
BUSY, ERROR, BYTE_DONE = 1, 1 << 2, 1 << 7


class Smbus(Still):
    def config(self, register: int, value: int) -> None:
        self.qtest.out('l', CONFIG_ADDRESS, 1 << 31 | PM | register)
        self.qtest.out('l', CONFIG_DATA, value)

    def begin(self, device: int) -> None:
        """Read the first byte of a block; the transfer goes on."""
        self.config(BASE_REGISTER, BASE | 1)
        self.config(HOST_CONFIG, 9 << 16)
        for register, value in ((STATUS, 0xff), (ADDRESS, device << 1),
                                (DATA1, 0),
                                (CONTROL, READ_BLOCK | START | INTERRUPT)):
            self.qtest.out('b', BASE + register, value)
        assert self.status_of_host() == BUSY | BYTE_DONE

    def status_of_host(self) -> int:
        return int(self.qtest.ask(f'inb {BASE + STATUS:#x}'), 0)


@pytest.mark.parametrize('saved', (False, True), ids=('idle', 'busy'))
def test_transfer_is_the_snapshots(tmp_path, saved):
    """verify=on compares the bus with the VM state after each load."""
    with Smbus(tmp_path, ',verify=on') as guest:
        if saved:
            guest.begin(EEPROM)
        guest.save('s')
        for device in OTHER, EEPROM, OTHER:
            guest.begin(device)
            guest.load('s')
        assert guest.last_load()['rewound']
        guest.save('t')
        guest.load('t')
