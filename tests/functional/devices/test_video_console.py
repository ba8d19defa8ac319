# SPDX-License-Identifier: GPL-2.0-or-later
# Long: it boots a Linux of its own, and shows what test_video_memory.py does
# Takes: 15 s
"""Linux writes to the memory of its display, and loads undo that."""

from lib.content import assert_same_ram
from lib.guests import Linux
from lib.kernel import needs_kernel
from lib.machine import MIB
from lib.screens import VGA


@needs_kernel
def test_console_of_linux(tmp_path, linux_accel):
    """A kernel's console and a process that maps the device's memory write."""
    with Linux(tmp_path, accel=linux_accel, ram=192 * MIB, strategy='auto',
               options=',rewind=on,verify=on',
               args=('-vga', 'none', '-device', 'VGA')) as guest:
        address = int(guest.run(
            "cat /sys/bus/pci/devices/*/resource | grep -m1 42208$ "
            "| cut -d' ' -f1"), 0)

        def image() -> bytes:
            file = tmp_path / 'screen'
            guest.qmp('pmemsave', val=address, size=VGA.size,
                      filename=str(file))
            return file.read_bytes()

        guest.run(f'devmem {address + 4 * MIB:#x} 32 0x12345678')
        guest.run('echo saved >/dev/tty0')
        guest.stop()
        guest.save('s')
        saved = image()
        assert b'\x78\x56\x34\x12' in saved
        for n in range(4):
            guest.cont()
            guest.run(f'for i in 1 2 3; do echo {n} >/dev/tty0; done')
            guest.run(f'devmem {address + 4 * MIB:#x} 32 0x{n}')
            guest.run(f'devmem {address + (5 + n) * MIB:#x} 32 0xff')
            guest.stop()
            assert image() != saved
            guest.load('s')
            assert_same_ram(image(), saved)
            block = VGA.last(guest)
            assert 3 <= block['dirty-pages'] < 100
            assert not block['compared-pages']
