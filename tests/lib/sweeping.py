# SPDX-License-Identifier: GPL-2.0-or-later
"""
Two QEMUs with the same snapshots and the same devices, to which the same is
done: one leaves devices alone when it loads, the other resets and loads each.
"""

import contextlib
import difflib
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lib import products
from lib.dma import CONFIG_ADDRESS, CONFIG_DATA, Qtest
from lib.guests import Ring3
from lib.machine import DISK, MIB, run_quietly
from lib.rewinding import RAM_SIZE
from lib.screens import (VBE_DATA, VBE_INDEX, picture, without_cursor,
                         write_glyph)
from lib.vmstate import VMState, device_sections

PORT = ('-chardev', 'null,id=c0', '-device', 'virtserialport,chardev=c0')
COMMON = ('-device', 'virtio-blk-pci,drive=disk1,id=blk', '-device',
          'virtio-serial', *PORT, '-device', 'virtio-tablet-pci')
MACHINES = {
    'q35': ('-device', 'pcie-root-port,id=p0,chassis=1',
            '-device', 'VGA,id=vga',
            '-device', 'virtio-net-pci,netdev=n0,bus=p0', *COMMON,
            '-device', 'qemu-xhci', '-device', 'usb-tablet'),
    'pc': ('-device', 'VGA,id=vga', '-device', 'virtio-net-pci,netdev=n0',
           *COMMON, '-usb', '-device', 'usb-tablet')}
# The screen of each snapshot: none, or width, height and bits of a pixel
MODES = {'text': None, 'palette': (640, 480, 8), 'pixels': (800, 600, 32)}
# The guest tells by these that it uses VMware's mouse
VMMOUSE_COMMAND, READ_ID, DISABLE = 41, 0x45414552, 0xf5
VMMOUSE = {'text': READ_ID, 'palette': DISABLE, 'pixels': READ_ID}
INFO = ('pci', 'mtree', 'mtree -f', 'qtree', 'network', 'usb', 'mice',
        'chardev', 'block', 'registers', 'status')
# Each QEMU has its own: the mouse's number in the order since the start, and
# names that QEMU makes up
OWN = (re.compile(r'Mouse #\d+'), re.compile(r'#block\d+'),
       re.compile(r'fd=\d+'), re.compile(r'(?<=FlatView )#\d+'))
# A disk's cache mode is set again when the guest goes on
CACHE = re.compile(r'Cache mode: .*')
# Sections with a clock of the host's in them; the first whatever runs the guest
CLOCKS = ('mc146818rtc', 'timer', 'kvmclock', 'cpu')
# In stock QEMU a transfer that the guest has begun goes on after a load
BUSY = 'i2c_bus'

# Ports that guests write to, beside functions of PCI: VGA, and power
# management without sleep; the last of a range comes before its end
LEGACY = (range(0x3b4, 0x3b6), range(0x3c0, 0x3d0), range(0x3d4, 0x3d6),
          range(VBE_INDEX, VBE_DATA + 1), range(0x600, 0x604),
          range(0xafe0, 0xafe4))
CONFIG = (0x04, 0x0c, 0x10, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x30, 0x3c)
# Registers of a function's own, without the ports of functions that switch the
# machine off
SPECIAL = range(0x40, 0x100, 4)
POWER = {'pc': (0, 1, 3), 'q35': (0, 31, 0)}
# A virtio tablet: its PCI ID, and in its memory the driver's state
TABLET, STATUS, DRIVER_OK = '1af4:1052', 0x14, 7
TEXT_WINDOW, TEXT_SIZE = 0xb8000, 4000


class Swept(Ring3):
    """With @tag, what is loaded first; without it the guest boots."""

    def __init__(self, workdir: Path, machine: str, tag: str = '', **kwargs):
        disk = workdir / 'disk1.qcow2'
        self.qtest = Qtest(workdir)
        if not disk.exists():
            run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', disk,
                        '1M')
        super().__init__(
            workdir, ram=RAM_SIZE, machine=machine, loadvm=tag, args=(
                '-bios', 'bios-256k.bin', '-netdev', 'hubport,id=n0,hubid=0',
                '-drive', f'if=none,id=disk1,file={disk}', *MACHINES[machine],
                *self.qtest.args), **kwargs)
        self.qtest.connect()
        self.stop()

    def close(self) -> None:
        with contextlib.suppress(AttributeError):
            self.qtest.close()
        super().close()

    def inp(self, size: str, port: int) -> int:
        return int(self.qtest.ask(f'in{size} {port:#x}'), 0)

    def select(self, where: tuple[int, int, int], at: int) -> None:
        bus, device, function = where
        self.qtest.out('l', CONFIG_ADDRESS, 1 << 31 | bus << 16 | device << 11
                       | function << 8 | at)

    def config(self, where: tuple[int, int, int]) -> list[int]:
        values = []
        for at in range(0, 0x100, 4):
            self.select(where, at)
            values.append(self.inp('l', CONFIG_DATA))
        return values

    def functions(self) -> dict[tuple[int, int, int], list[tuple[bool, int,
                                                                int]]]:
        """BARs of each function: whether it has ports, the first and last."""
        found = {}
        for text in re.split(r'^  Bus +', self.hmp('info pci'),
                             flags=re.MULTILINE)[1:]:
            where = tuple(map(int, re.match(
                r'(\d+), device +(\d+), function (\d+)', text).groups()))
            found[where] = [
                (kind == 'I/O', int(first, 16), int(last, 16))
                for kind, first, last in re.findall(
                    r'BAR\d: (I/O|\S+ bit \S*\s*memory) at (0x\w+) '
                    r'\[(0x\w+)\]', text) if first != last]
        return found

    def set_mode(self, mode: tuple[int, int, int] | None) -> None:
        values = (0,) if mode is None else (*mode, 0x41)
        for index, value in zip((4,) if mode is None else (1, 2, 3, 4), values):
            self.qtest.out('w', VBE_INDEX, index)
            self.qtest.out('w', VBE_DATA, value)

    def sections(self) -> dict[tuple[str, int], bytes]:
        """Sections of devices of the VM state as it is."""
        self.save('now')
        # whichever disk is the first that QEMU finds
        disk = next(path for path in self.workdir.glob('*.qcow2')
                    if has_state(path, 'now'))
        with VMState(disk, 'now') as state:
            found = dict(device_sections(state.stream))
        self.hmp('delvm now')
        return found


def has_state(disk: Path, tag: str) -> bool:
    with contextlib.suppress(KeyError, AssertionError), VMState(disk, tag):
        return True
    return False


def snapshots(workdir: Path, accel: str, machine: str) -> None:
    """Make one for each mode; the disks are in @workdir then."""
    with Swept(workdir, machine, accel=accel) as guest:
        memory = next(first for where, bars in guest.functions().items()
                      for ports, first, last in bars
                      if not ports and last - first == 16 * MIB - 1)
        for tag, mode in MODES.items():
            guest.set_mode(mode)
            if mode:
                for i in range(64):
                    guest.qtest.ask(f'memset {memory + i * 8192:#x} 8192 '
                                    f'{i * 37 % 251:#x}')
            picture(guest)
            guest.cont()
            guest.ask('vmport', VMMOUSE_COMMAND, VMMOUSE[tag])
            guest.stop()
            guest.save(tag)


class Sweep:
    """A context: the two QEMUs."""

    def __init__(self, workdir: Path, origin: Path, accel: str, machine: str,
                 rng: random.Random):
        self._rng = rng
        self._exact = accel == 'qtest'
        self._machine = machine
        self._tag = 'text'
        self._done: list[str] = []
        self.counts: Counter[str] = Counter()
        self._stack = contextlib.ExitStack()
        self._guests = []
        for name, kwargs in (
                ('alone', {'strategy': 'auto',
                           'options': ',rewind=on,verify=on'}),
                ('loaded', {'qemu': products.stock()})):
            folder = workdir / name
            folder.mkdir()
            for disk in origin.glob('*.qcow2'):
                shutil.copy(disk, folder)
            self._guests.append(self._stack.enter_context(
                Swept(folder, machine, self._tag, accel=accel, **kwargs)))
        self._alone = self._guests[0]
        self._functions = self.same('functions', Swept.functions)
        self._tablet = int(re.search(
            rf'{TABLET}.*?64 bit \S* ?memory at (0x\w+)',
            self._alone.hmp('info pci'), re.DOTALL)[1], 16)

    def __enter__(self) -> 'Sweep':
        return self

    def __exit__(self, *failed) -> None:
        self._stack.__exit__(*failed)

    def same(self, what: str, look: Callable[[Swept], object]) -> object:
        alone, loaded = (look(guest) for guest in self._guests)
        assert alone == loaded, \
            f'{what}, {self._tag}, after {self._done}: ' \
            f'{differences(alone, loaded)}'
        return alone

    # Actions of a guest, or of its user

    def _both(self, what: str, act: Callable[[Swept], object]) -> None:
        self._done.append(what)
        for guest in self._guests:
            act(guest)

    def _poke_legacy(self) -> None:
        ports = self._rng.choice(LEGACY)
        self._write_sized('b', self._rng.choice(ports))

    def _write_sized(self, size: str, port: int) -> None:
        value = self._rng.getrandbits({'b': 8, 'w': 16, 'l': 32}[size])
        self._both(f'out{size} {port:#x} {value:#x}',
                   lambda g: g.qtest.out(size, port, value))

    def _poke_config(self) -> None:
        where = self._rng.choice(sorted(self._functions))
        at = self._rng.choice(CONFIG)
        if where != POWER[self._machine] and self._rng.random() < 0.3:
            at = self._rng.choice(SPECIAL)
        value = self._rng.getrandbits(32)

        def write(guest: Swept) -> None:
            guest.select(where, at)
            guest.qtest.out('l', CONFIG_DATA, value)
        self._both(f'config {where} {at:#x} {value:#x}', write)

    def _poke_bar(self) -> None:
        where = self._rng.choice([w for w, bars in self._functions.items()
                                  if bars])
        ports, first, last = self._rng.choice(self._functions[where])
        if ports:
            self._write_sized(self._rng.choice('bwl'),
                              self._rng.randrange(first, last - 2))
            return
        span = min(last - first, self._rng.choice((0x100, 0x4000, MIB)))
        at = first + self._rng.randrange(0, span, 4)
        value = self._rng.getrandbits(32)
        self._both(f'writel {at:#x} {value:#x}',
                   lambda g: g.qtest.ask(f'writel {at:#x} {value:#x}'))

    def _write_text(self) -> None:
        at = TEXT_WINDOW + self._rng.randrange(TEXT_SIZE - 64)
        data = self._rng.randbytes(64)
        self._both(f'text {at:#x}', lambda g: g.qtest.write(at, data))

    def _change_font(self) -> None:
        character = self._rng.randrange(0x20, 0x80)
        rows = self._rng.randbytes(16)
        self._both(f'font {character:#x}',
                   lambda g: write_glyph(g.qtest, character, rows))

    def _set_mode(self) -> None:
        mode = self._rng.choice((*MODES.values(), (320, 200, 8),
                                 (1024, 768, 16), (640, 480, 4)))
        self._both(f'mode {mode}', lambda g: g.set_mode(mode))

    def _look(self) -> None:
        self._both('screendump', picture)

    def _use_mouse(self) -> None:
        names = sorted(m['name'] for m in self._alone.qmp('query-mice'))
        name = self._rng.choice(names)

        def use(guest: Swept) -> None:
            index = next(m['index'] for m in guest.qmp('query-mice')
                         if m['name'] == name)
            guest.hmp(f'mouse_set {index}')
        self._both(f'mouse {name}', use)

    def _use_tablet(self) -> None:
        """The driver of virtio's tablet is ready, or has gone."""
        status = self._rng.choice((0, DRIVER_OK))
        self._both(f'tablet {status}', lambda g: g.qtest.ask(
            f'writeb {self._tablet + STATUS:#x} {status:#x}'))

    def _run(self) -> None:
        """Time passes, of which a load takes back the guest's."""
        if self._exact:
            step = self._rng.randrange(10 ** 9)
            self._both(f'clock {step}',
                       lambda g: g.qtest.ask(f'clock_step {step}'))
            return
        self._both('cont', Swept.cont)
        self._both('picture', picture)
        self._both('stop', Swept.stop)

    def act(self) -> None:
        actions = {
            self._poke_legacy: 6, self._poke_config: 4, self._poke_bar: 6,
            self._write_text: 3, self._change_font: 2, self._set_mode: 2,
            self._look: 3, self._use_mouse: 2, self._use_tablet: 1,
            self._run: 3}
        for action in self._rng.choices(list(actions), list(actions.values()),
                                        k=self._rng.randrange(5)):
            self.counts[action.__name__.strip('_')] += 1
            action()

    # Loads, and comparisons after them

    def load(self) -> None:
        if self._rng.random() < 0.2:
            self._tag = self._rng.choice(list(MODES))
        for guest in self._guests:
            guest.load(self._tag)
        last = self._alone.last_load()
        self.counts['loads'] += 1
        self.counts['rewound'] += last['rewound']
        self.counts['left alone'] += last['devices-kept']

    def compare(self) -> None:
        for about in INFO:
            self.same(f'info {about}',
                      lambda g, a=about: comparable(g, a, (*OWN, CACHE)))
        alone, loaded = (picture(guest) for guest in self._guests)
        differ = alone != loaded if self._exact or self._tag != 'text' else \
            without_cursor(alone, loaded)
        assert not differ, f'screen, {self._tag}, after {self._done}'
        for where in self._functions:
            self.same(f'configuration space of {where}',
                      lambda g, w=where: g.config(w))
        self._done.clear()

    def compare_running(self) -> None:
        """Let the guests run for a moment, and compare them."""
        for guest in self._guests:
            guest.cont()
            guest.stop()
        for about in ('block', 'network', 'pci', 'chardev'):
            self.same(f'info {about} after cont',
                      lambda g, a=about: comparable(g, a))

    def compare_sections(self) -> None:
        """Compare once more after another load."""
        for guest in self._guests:
            guest.load(self._tag)
            guest.load(self._tag)
        assert self._alone.last_load()['devices-kept']
        sections = [guest.sections() for guest in self._guests]
        assert sections[0].keys() == sections[1].keys()
        own = BUSY, *(CLOCKS[:1] if self._exact else CLOCKS)
        differ = {name for name in sections[0]
                  if sections[0][name] != sections[1][name]
                  and name[0] not in own}
        assert not differ, (self._tag, differ)
        self.counts['sections'] += len(sections[0])


def comparable(guest: Swept, about: str,
               own: tuple[re.Pattern, ...] = OWN) -> list[str]:
    """QEMU's answer, without parts that may differ."""
    text = guest.hmp(f'info {about}').replace(str(guest.workdir), '')
    for pattern in own:
        text = pattern.sub('', text)
    if not about.startswith('mtree'):
        return text.splitlines()
    # in an order of QEMU's own, by addresses in its memory; and of regions of
    # one priority by which came last, which matters only where "-f" tells
    parts = re.split(r'^FlatView$|\n\n', text.replace('\r', ''),
                     flags=re.MULTILINE)
    return sorted('\n'.join(sorted(part.splitlines())) for part in parts)


def differences(alone: object, loaded: object) -> object:
    """The first of them."""
    if not isinstance(alone, list) or not isinstance(loaded, list):
        return alone, loaded
    lines = [[line for part in parts for line in str(part).splitlines()]
             for parts in (alone, loaded)]
    return [line for line in difflib.ndiff(*lines) if line[0] in '-+'][:8]
