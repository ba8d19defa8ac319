# SPDX-License-Identifier: GPL-2.0-or-later
"""Display devices of a pc, whose memory is written from outside by qtest."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from lib.dma import CONFIG_ADDRESS, CONFIG_DATA, Qtest
from lib.machine import MIB, PAGE, Machine

SLOT, ADDRESS = 3, 0xd0000000
COMMAND, IO_MEMORY_AND_MASTER = 4, 7
VBE_INDEX, VBE_DATA = 0x1ce, 0x1cf
SEQUENCER, GRAPHICS = 0x3c4, 0x3ce
SPICE = '-spice', 'unix=on,addr={dir}/spice,disable-ticketing=on'
QXL = 'qxl-vga,ram_size_mb=16,vram_size_mb=16'
WINDOW = 0xa0000                # of what a VGA has
TEXT = 0xb8000                  # what it has there in text modes


@dataclass(frozen=True)
class Display:
    """
    @block: the end of its RAM block's name; @size: of that; @bar: the register
    that says where it is; @by_reset: how many pages the device's reset writes
    """

    driver: str
    block: str = 'vga.vram'
    size: int = 16 * MIB
    bar: int = 0x10
    extra: tuple[str, ...] = ()
    by_reset: int = 0

    @property
    def args(self) -> tuple[str, ...]:
        return ('-vga', 'none', *self.extra,
                '-device', f'{self.driver},addr={SLOT}')

    def config(self, qtest: Qtest, register: int, value: int) -> None:
        qtest.out('l', CONFIG_ADDRESS, 1 << 31 | SLOT << 11 | register)
        qtest.out('l', CONFIG_DATA, value)

    def map(self, qtest: Qtest) -> None:
        self.config(qtest, self.bar, ADDRESS)
        self.config(qtest, COMMAND, IO_MEMORY_AND_MASTER)

    def fill(self, qtest: Qtest, size: int = 0) -> None:
        """All of it, or as much as @size."""
        for at in range(0, size or self.size, MIB):
            qtest.ask(f'memset {ADDRESS + at:#x} {MIB:#x} '
                      f'{at // MIB % 255 + 1}')

    def image(self, guest: Machine) -> bytes:
        file = Path(guest.workdir) / 'screen'
        guest.qmp('pmemsave', val=ADDRESS, size=self.size, filename=str(file))
        return file.read_bytes()

    def last(self, guest: Machine) -> dict:
        """The last load's report on its memory."""
        last = guest.last_load()
        assert last['rewound'], last.get('blocker')
        return next(b for b in last['blocks']
                    if b['name'].endswith(self.block))


VGA = Display('VGA')
LARGE = Display('VGA,vgamem_mb=64', size=64 * MIB)
DISPLAYS = {
    'std': VGA,
    'secondary': Display('secondary-vga'),
    'bochs': Display('bochs-display', 'bochs-display-vram'),
    'cirrus': Display('cirrus-vga', size=4 * MIB),
    'virtio': Display('virtio-vga', size=8 * MIB),
    'ati': Display('ati-vga'),
    'vmware': Display('vmware-svga', bar=0x14),
    'qxl': Display(QXL, extra=SPICE, by_reset=2),
    'qxl, other memory': Display(QXL, 'qxl.vram', bar=0x14, extra=SPICE),
}


def indexed(qtest: Qtest, port: int, values: dict[int, int]) -> None:
    """Registers of a VGA."""
    for index, value in values.items():
        qtest.out('b', port, index)
        qtest.out('b', port + 1, value)


def clear_by_mode(qtest: Qtest, width: int, height: int) -> int:
    """VGA clears what a mode shows; the number of pages."""
    for index, value in ((4, 0), (1, width), (2, height), (3, 32), (4, 0x41)):
        qtest.out('w', VBE_INDEX, index)
        qtest.out('w', VBE_DATA, value)
    return width * height * 4 // PAGE


def write_plane_by_plane(qtest: Qtest, at: int, data: bytes) -> None:
    """To each plane, @at in the window: 4 bytes of memory for each."""
    indexed(qtest, SEQUENCER, {2: 0xf, 4: 0x06})
    indexed(qtest, GRAPHICS, {1: 0, 3: 0, 5: 0, 6: 0x05, 8: 0xff})
    qtest.write(WINDOW + at, data)


def write_chained(qtest: Qtest, at: int, data: bytes) -> None:
    """
    Four planes in turn, of which one is masked out, or memory would be mapped:
    4 bytes of memory for each of data's.
    """
    indexed(qtest, SEQUENCER, {2: 0x7, 4: 0x0e})
    indexed(qtest, GRAPHICS, {6: 0x05})
    qtest.write(WINDOW + at, data)


def picture(guest: Machine) -> bytes:
    """The user's screen: width, height and each pixel."""
    file = Path(guest.workdir) / 'screen.ppm'
    guest.qmp('screendump', filename=str(file))
    return file.read_bytes()


def without_cursor(one: bytes, other: bytes) -> int:
    """
    How many bytes of two pictures of a text mode differ that are not in one and
    the same character's cell.
    """
    if len(one) != len(other):
        return abs(len(one) - len(other))
    start, line = len(one) - 720 * 400 * 3, 720 * 3
    places = [divmod(i - start, line) for i in range(start, len(one))
              if one[i] != other[i]] if one != other else []
    cells = Counter((y // 16, x // 3 // 9) for y, x in places)
    return len(places) - max(cells.values(), default=0)


def write_glyph(qtest: Qtest, character: int, rows: bytes) -> None:
    """To the font of a text mode, in plane 2; registers are then as before."""
    selected = [(port, int(qtest.ask(f'inb {port:#x}'), 0))
                for port in (SEQUENCER, GRAPHICS)]
    sequencer = read_indexed(qtest, SEQUENCER, (2, 4))
    graphics = read_indexed(qtest, GRAPHICS, (5,))
    indexed(qtest, SEQUENCER, {2: 4, 4: 0x06})
    indexed(qtest, GRAPHICS, {5: 0})
    qtest.write(TEXT + 32 * character, rows)
    indexed(qtest, SEQUENCER, sequencer)
    indexed(qtest, GRAPHICS, graphics)
    for port, index in selected:
        qtest.out('b', port, index)


def read_indexed(qtest: Qtest, port: int, indices: tuple[int, ...]
                 ) -> dict[int, int]:
    values = {}
    for index in indices:
        qtest.out('b', port, index)
        values[index] = int(qtest.ask(f'inb {port + 1:#x}'), 0)
    return values
