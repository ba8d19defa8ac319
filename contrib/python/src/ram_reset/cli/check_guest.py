# SPDX-License-Identifier: GPL-2.0-or-later
"""
A guest of 64 KiB that takes the place of QEMU's firmware: it starts at once,
and needs no Linux.

It says '<' on the serial port, counts LOOPS down to zero, and says '>'.  Then
it adds 1 to a word of each of PAGES pages, round after round.  After each
round it takes a byte from the serial port, if there is one, and sends it back.
"""

import struct

LOOPS = 200_000         # of two instructions
PAGES = 64
FIRST = 2 << 20         # address of the first page
SIZE = 64 << 10
BASE = 0xf0000          # address of the image below 1 MiB
RESET = SIZE - 16       # offset of the first instruction of the CPU
PORT, LINE_STATUS = 0x3f8, 0x3fd
CODE, DATA = 8, 16      # selectors

# flat segments: from 0 to 4 GiB
SEGMENTS = struct.pack('<QQQ', 0, 0x00cf9b000000ffff, 0x00cf93000000ffff)
TABLE = struct.pack('<HI', len(SEGMENTS) - 1, BASE)
START = len(SEGMENTS) + len(TABLE)


def word(value: int) -> str:
    return struct.pack('<H', value).hex()


def long(value: int) -> str:
    return struct.pack('<I', value).hex()


def real_mode() -> bytes:
    """The beginning, which goes to protected mode."""
    length = 23
    text = bytes.fromhex(' '.join((
        'fa',                                   # cli
        '2e 0f 01 16', word(len(SEGMENTS)),     # lgdt %cs:TABLE
        '0f 20 c0',                             # mov %cr0, %eax
        '0c 01',                                # or $1, %al
        '0f 22 c0',                             # mov %eax, %cr0
        # ljmp to what follows
        '66 ea', long(BASE + START + length), word(CODE))))
    assert len(text) == length
    return text


def say(character: str) -> str:
    return ' '.join((
        '66 ba', word(PORT),                    # mov $PORT, %dx
        'b0', character.encode().hex(),         # mov $character, %al
        'ee'))                                  # out %al, (%dx)


def protected_mode() -> bytes:
    begin = bytes.fromhex(' '.join((
        '66 b8', word(DATA),                    # mov $DATA, %ax
        '8e d8',                                # mov %eax, %ds
        say('<'),
        'b9', long(LOOPS),                      # mov $LOOPS, %ecx
        '49 75 fd',                             # 1: dec %ecx; jnz 1b
        say('>'))))
    rounds = bytes.fromhex(' '.join((
        'bf', long(FIRST),                      # mov $FIRST, %edi
        'b9', long(PAGES),                      # mov $PAGES, %ecx
        'ff 07',                                # 2: incl (%edi)
        '81 c7', long(4096),                    # add $4096, %edi
        '49 75 f5',                             # dec %ecx; jnz 2b
        '66 ba', word(LINE_STATUS),             # mov $LINE_STATUS, %dx
        'ec a8 01',                             # in (%dx), %al; test $1, %al
        '74 e2',                                # jz to the start of the round
        '66 ba', word(PORT),                    # mov $PORT, %dx
        'ec ee',                                # in (%dx), %al; out %al, (%dx)
        'eb da')))                              # jmp to the same
    return begin + rounds


def image() -> bytes:
    """The file for QEMU's option -bios."""
    text = SEGMENTS + TABLE + real_mode() + protected_mode()
    # ljmp to START, in real mode
    reset = bytes.fromhex(f'ea {word(START)} {word(BASE >> 4)}')
    return (text.ljust(RESET, b'\xf4') + reset).ljust(SIZE, b'\xf4')
