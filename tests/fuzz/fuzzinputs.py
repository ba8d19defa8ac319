# SPDX-License-Identifier: GPL-2.0-or-later
"""Inputs for QEMU's generic fuzzer to begin with, in its binary form."""

import struct

SEPARATOR = b'FUZZ'
READ, WRITE, PCI_WRITE, CLOCK_STEP = 2, 3, 5, 9
REGS, TABLE, PBA = range(3)     # as BARs are mapped, in this order
SLOT, COMMAND, STATUS = 0x10, 0x14, 0x18
SAVE, LOAD = 1, 2
SLOTS = 3


def read(offset, size=4, region=REGS):
    return struct.pack('<BBBxxI', READ, size.bit_length() - 1, region, offset)


def write(offset, value, size=4, region=REGS):
    return struct.pack('<BBBxxIQ', WRITE, size.bit_length() - 1, region,
                       offset, value)


def config(offset, value, size=2):
    """To PCI configuration space."""
    return struct.pack('<BBBBxI', PCI_WRITE, size.bit_length() - 1, 0, offset,
                       value)


def command(what, slot):
    return write(SLOT, what << 32 | slot, 8)


SEE = [read(STATUS, 8), read(SLOT, 8)]
MSIX_ON = [config(4, 7), config(0x42, 0x8000),
           write(0, 0xfee00000, 4, TABLE), write(8, 0x41, 4, TABLE),
           write(12, 0, 4, TABLE)]
SEEDS = {
    'registers': [read(o) for o in range(0, 0x68, 4)],
    'registers-8': [read(o, 8) for o in range(0, 0x68, 8)],
    'odd': [read(2, 2), read(1, 1), write(SLOT, 1, 1), write(COMMAND, 1, 2),
            write(0, 1), write(0x800, 1, 8), read(0xff8, 8)],
    'save': [write(SLOT, 1), write(COMMAND, SAVE), *SEE],
    'save-load': [command(SAVE, 0), *SEE, command(LOAD, 0), *SEE,
                  command(LOAD, 0), read(0x20, 8), read(0x28, 8)],
    'empty': [command(LOAD, 2), *SEE],
    'slots': [command(SAVE, 0), command(SAVE, 1), command(LOAD, 0),
              command(LOAD, 1), *SEE],
    'refused': [command(SAVE, SLOTS), *SEE, command(LOAD, 0xffffffff),
                command(3, 0), command(0, 0), write(COMMAND, 0x80000001)],
    'msix': [*MSIX_ON, command(SAVE, 0), command(LOAD, 0),
             read(0, 4, PBA), read(12, 4, TABLE)],
    'masked': [*MSIX_ON, write(12, 1, 4, TABLE), command(SAVE, 0),
               command(LOAD, 0), read(0, 8, PBA)],
    'bar-off': [command(SAVE, 0), config(4, 0), read(STATUS), config(4, 7),
                command(LOAD, 0), *SEE],
    'bar-moved': [command(SAVE, 1), config(0x10, 0xe0000000, 4),
                  command(LOAD, 1), *SEE],
    'timers': [command(SAVE, 0), bytes([CLOCK_STEP]), command(LOAD, 0),
               bytes([CLOCK_STEP]), *SEE],
}
# slots 0 and 1, of which the second has seen loads
SAVES = SEPARATOR.join([command(SAVE, 0), command(LOAD, 0), command(LOAD, 0),
                        command(SAVE, 1)])
WORDS = {
    'separator': SEPARATOR,
    'see': read(STATUS, 8),
    'msix-on': config(0x42, 0x8000),
    'msix-masked': config(0x42, 0xc000),
    'memory-on': config(4, 7),
    **{f'{name}-{slot}': SEPARATOR + command(what, slot) + SEPARATOR
       for name, what in (('save', SAVE), ('load', LOAD), ('bad', 3))
       for slot in range(SLOTS + 1)},
}


def write_seeds(folder):
    for name, operations in SEEDS.items():
        (folder / f'seed-{name}').write_bytes(SEPARATOR.join(operations))


def write_dictionary(path):
    path.write_text(''.join(
        f'{name}="{"".join(f"{chr(92)}x{b:02x}" for b in word)}"\n'
        for name, word in WORDS.items()))
