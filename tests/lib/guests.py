# SPDX-License-Identifier: GPL-2.0-or-later
"""The two test guests, each a Machine and the words it understands."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lib import products
from lib.machine import (MIB, PAGE, Machine, MachineError, Serial,
                         kvm_usable)


class Corrupt(AssertionError):
    """The guest found memory that is not what it wrote."""


class Ring3Words:
    """Commands of the guest of guest/ring3.c, on @serial."""

    FIRST_FREE = 16 * MIB
    TIMEOUT = 60.0

    serial: Serial
    _pings: Iterator[int]

    def wait_ready(self) -> None:
        ring = self.serial.wait(r'^ready (\w+) ', self.TIMEOUT)[1]
        assert ring == b'3', f'the guest runs in ring {ring}'

    def sync(self) -> None:
        """End whatever the guest is doing and forget what it has said."""
        ping = next(self._pings)
        self.serial.send(f'\nping {ping:x}\n')
        self.serial.wait(rf'pong {ping:x}\n', self.TIMEOUT)

    def ask(self, command: str, *numbers: int) -> str:
        self.tell(command, *numbers)
        return self.next_answer(command)

    def tell(self, command: str, *numbers: int) -> None:
        self.serial.send(' '.join([command, *(f'{n:x}' for n in numbers)])
                         + '\n')

    def next_answer(self, command: str = 'load') -> str:
        answer = self.serial.wait(r'^(ok|bad|error|trap|!)([^\n]*)\n',
                                  self.TIMEOUT)
        word, rest = (part.decode() for part in answer.groups())
        if word == 'bad':
            raise Corrupt(f'{command}: {rest} (count and first address)')
        if word == '!':
            raise Corrupt(f'{command}: {rest}')
        if word != 'ok':
            raise MachineError(f'{command}: {word}{rest}')
        return rest.strip()

    def checksum(self, start: int, length: int) -> str:
        return self.ask('sum', start, length)

    def snap(self, slot: int, command: int) -> tuple[int, int, int]:
        """A command to the snapctl device: status, error and generation."""
        return self.snap_answer(self.ask('snap', slot, command))

    @staticmethod
    def snap_answer(answer: str) -> tuple[int, int, int]:
        status, error, generation = (int(n, 16) for n in answer.split())
        return status, error, generation


class Ring3(Ring3Words, Machine):
    """A bare-metal guest that stays in ring 3, see guest/ring3.c."""

    def __init__(self, workdir: Path, *, ram: int = 128 * MIB,
                 args: tuple = (), **kwargs):
        args = ('-bios', 'qboot.rom', '-kernel', products.ring3_image(),
                *args)
        super().__init__(workdir, ram=ram, args=args, **kwargs)
        self._pings = itertools.count(1)
        if not kwargs.get('loadvm') and '-incoming' not in args:
            try:
                self.wait_ready()
            except BaseException:
                self.close()
                raise

    def start_loop(self, start: int, pages: int, report: int) -> int:
        """Endless write-and-check; the number of the first reported pass."""
        self.serial.send(f'loop {start:x} {pages:x} {PAGE:x} {report:x}\n')
        return self.next_pass()

    def next_pass(self) -> int:
        found = self.serial.wait(r'^pass ([0-9a-f]+)\n|![^\n]*\n',
                                 self.TIMEOUT)
        if not found.group(1):
            raise Corrupt(f'endless loop: {found.group(0)!r}')
        return int(found.group(1), 16)

    def settle(self, seconds: float = 0.1) -> None:
        """Forget what a guest that is stopped has said until then."""
        time.sleep(seconds)
        self.serial.take()

    def silent(self, seconds: float) -> bool:
        self.settle()
        time.sleep(seconds)
        return not self.serial.take()


@dataclass(frozen=True)
class State:
    """The Linux guest's knowledge of itself, by its own means."""

    commands: int
    checksum: str
    files: str


class LinuxWords:
    """Commands of the guest of guest/init, on @serial."""

    BOOT_TIMEOUT = 90.0
    COMMAND_TIMEOUT = 120.0
    # on a busy host Linux takes a late timer for none, and panics
    APPEND = 'console=ttyS0 loglevel=1 edd=off no_timer_check'

    serial: Serial
    release = ''
    _ids: Iterator[int]

    def wait_booted(self, timeout: float = BOOT_TIMEOUT) -> None:
        line = self.serial.wait(r'^ready ([^\r\n]+)\r?\n', timeout)
        self.release = line.group(1).decode()

    def run(self, command: str) -> str:
        """The output of a shell command that succeeds in the guest."""
        number = next(self._ids)
        self.serial.take()
        self.serial.send(f'{number} {command}\n')
        end = self.serial.wait(rf'^(.*?)^= {number} (\d+)\r?\n',
                               self.COMMAND_TIMEOUT)
        output = end.group(1).decode(errors='replace').strip()
        if end.group(2) != b'0':
            raise MachineError(f'guest: {command}: {output}')
        return output

    def prepare_state(self, mib: int) -> None:
        self.run(f'ramtool fill /run/state {mib}')


class Linux(LinuxWords, Machine):
    """Debian's cloud kernel and a busybox shell, see guest/init."""

    def __init__(self, workdir: Path, *, accel: str, append: str = '',
                 boot_timeout: float = LinuxWords.BOOT_TIMEOUT,
                 args: tuple = (), **kwargs):
        kernel = kwargs.pop('kernel', None) or products.kernel()
        products.require(kernel)
        firmware = kwargs.pop('firmware', None)
        args = ['-kernel', kernel,
                '-initrd', kwargs.pop('initrd', None) or products.initramfs(),
                '-append', f'{append} {self.APPEND}'.strip(), *args]
        if firmware:
            args += ['-bios', firmware]
        super().__init__(workdir, accel=accel, args=tuple(args), **kwargs)
        self._ids = itertools.count(1)
        if boot_timeout and not kwargs.get('loadvm'):
            self.wait_booted(boot_timeout)

    def state(self) -> State:
        """Asking counts as a command."""
        checksum, files, commands = self.run(
            'sha256sum </run/state | cut -c1-64; '
            'ls /run | tr "\\n" ,; echo; echo $commands').split()
        return State(int(commands), checksum, files)


def no_linux_under_kvm(workdir: Path) -> str:
    """
    Why Linux does not boot there, or ''.  It boots for hours if KVM emulates
    ring 0 instruction by instruction.  The kernel's first message tells:
    natively it comes in well under a second.
    """
    if not kvm_usable():
        return '/dev/kvm cannot be opened for reading and writing'
    try:
        with Linux(workdir, accel='kvm', ram=512 * MIB, firmware='qboot.rom',
                   append='ignore_loglevel earlyprintk=serial',
                   boot_timeout=0) as guest:
            guest.serial.wait('Linux version', 2)
            guest.wait_booted(20)
            return ''
    except MachineError as e:
        return f"this host's KVM does not boot Linux: {e}"


def linux_boots_under_kvm(workdir: Path) -> bool:
    return not no_linux_under_kvm(workdir)
