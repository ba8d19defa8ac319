# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests of ram-reset check: whether they start, and their verified loads."""

import os
import platform
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, NoReturn, Optional, Tuple

from ram_reset import Machine, OBJECT
from ram_reset.cli import check_guest, check_initrd
from ram_reset.cli.check_report import NO, OK, SLOW, Finding, Trial
from ram_reset.cli.results import Results
from ram_reset.errors import Error, GuestError

VERIFIED = f'{OBJECT},verify=on'
MIB = 1 << 20
LINUX_RAM = 256 * MIB
TINY_RAM = 128 * MIB
UNPACKED = 8            # the most that an initrd grows when it is unpacked
ANSWER = 30.0           # seconds
LONGEST = 1e8           # seconds of a timer
BOOT = {'kvm': 20.0, 'tcg': 60.0}
# KVM that emulates has one or two millions of instructions a second, other KVM
# has a thousand times as many; the second try is for a host that was busy
EMULATED = 10.0
TRIES = 2
APPEND = 'console=ttyS0 loglevel=1 no_timer_check'
SHELL = f' rdinit={check_initrd.SHELL}'
# busybox asks the terminal for the place of its cursor
PROMPT = r'[#$] (\x1b\[6n)?\Z'


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise an error some time later, if QEMU itself gives no answer."""
    whole = min(seconds + ANSWER, LONGEST)

    def late(*_: object) -> NoReturn:
        raise GuestError(f'QEMU gives no answer in {whole:g} s')

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, whole)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@dataclass(frozen=True)
class Guest:
    """A guest without devices, except for its serial port."""

    name: str
    options: Tuple[str, ...]
    ready: str

    def start(self, qemu: str, accel: str, object: str = VERIFIED
              ) -> Machine:
        return Machine.start(
            ['-nodefaults', '-display', 'none', '-vga', 'none', '-accel', accel,
             *self.options], qemu=qemu, serial=True, object=object)

    def boot(self, machine: Machine, timeout: float) -> None:
        assert machine.serial
        machine.serial.expect(self.ready, timeout)

    def work(self, machine: Machine, number: int) -> None:
        """Something that changes memory; raises if it is wrong."""
        raise NotImplementedError


class Linux(Guest):
    def work(self, machine: Machine, number: int) -> None:
        said = machine.run(f'echo {number}', ANSWER).output
        if said != f'{number}\n':
            raise GuestError(f"the guest answers 'echo {number}' with {said!r}"
                             )


class Tiny(Guest):
    def work(self, machine: Machine, number: int) -> None:
        assert machine.serial
        # between two bytes there is a round over all pages
        machine.serial.send('ab')
        machine.serial.expect('ab', ANSWER)


def tiny(folder: Path) -> Guest:
    """:param folder: for its image"""
    file = folder / 'guest.bin'
    file.write_bytes(check_guest.image())
    return Tiny('the tiny guest of ram-reset', (
        '-m', f'{TINY_RAM // MIB}M', '-bios', str(file)), '>')


def linux(kernel: Path, folder: Path, initrd: Optional[Path] = None,
          append: Optional[str] = None) -> Guest:
    """
    :param folder: for an initrd with this host's shell, if there is no other
    """
    if not initrd:
        initrd = folder / 'initrd'
        initrd.write_bytes(check_initrd.image())
        append = append or APPEND + SHELL
    room = LINUX_RAM + UNPACKED * initrd.stat().st_size
    return Linux(f'Linux, {kernel}', (
        '-m', f'{-(-room // MIB)}M', '-kernel', str(kernel), '-initrd',
        str(initrd), '-append', append or APPEND), PROMPT)


def find_kernel(release: str, *folders: Path) -> Optional[Path]:
    """This host's own, if it can be read."""
    for folder in folders:
        for name in f'vmlinuz-{release}', 'vmlinuz':
            if os.access(folder / name, os.R_OK):
                return folder / name
    return None


def host_kernel() -> Optional[Path]:
    release = platform.release()
    return find_kernel(release, Path('/boot'),
                       Path('/usr/lib/modules') / release)


def speed(guest: Guest, qemu: str) -> float:
    """Millions of instructions a second that the tiny guest has under KVM."""
    with limit(2 * ANSWER), guest.start(qemu, 'kvm') as machine:
        assert machine.serial
        machine.serial.expect('<', ANSWER)
        begin = time.perf_counter()
        guest.boot(machine, ANSWER)
        seconds = time.perf_counter() - begin
    return 2 * check_guest.LOOPS / seconds / 1e6


def guest_code(guest: Guest, qemu: str) -> Finding:
    """How KVM runs it."""
    name = 'guests under KVM'
    rate = 0.0
    try:
        for _ in range(TRIES):
            rate = max(rate, speed(guest, qemu))
            if rate > EMULATED:
                return Finding(OK, name, 'the CPU runs the code of their '
                               'kernels')
    except Error as e:
        return Finding(NO, name, str(e), 'use TCG, or another host')
    return Finding(
        SLOW, name, 'this KVM emulates the code of their kernels '
        f'({rate:.1f} million instructions a second), and boots no Linux in '
        'reasonable time', 'use TCG here, or a host whose hardware runs KVM '
        '(VMX or SVM, also nested)')


def run(trial: Trial, guest: Guest, machine: Machine, seconds: float
        ) -> None:
    """Load until enough is done or the time is over."""
    snapshot = machine.snapshot()
    begin = time.perf_counter()
    results = trial.results
    while len(results.iterations) < trial.asked:
        guest.work(machine, len(results.iterations) + 1)
        before = time.perf_counter()
        machine.restore(snapshot)
        took = time.perf_counter() - before
        account = machine.statistics()
        results.note_load(took, account)
        last = account.last_load if account else None
        trial.verify.append(last.raw['phases']['verify'] / 1e9 if last else 0)
        results.seconds = time.perf_counter() - begin
        if results.seconds > seconds:
            break
    guest.work(machine, 0)


def loads(trial: Trial, guest: Guest, machine: Machine, seconds: float
          ) -> List[Finding]:
    try:
        run(trial, guest, machine, seconds)
    except Error as e:
        trial.failure = str(e)
    results = trial.results
    made = len(results.iterations)
    if trial.failure:
        return [Finding(NO, 'loads', f'{made:,} were right, and then: '
                        f'{trial.failure}', 'report it as a bug of RAM reset')]
    if trial.verified < made:
        return [Finding(NO, 'loads', f'QEMU has verified {trial.verified} of '
                        f'{made} loads', 'report it as a bug of RAM reset')]
    enough = '' if made == trial.asked else \
        f', of {trial.asked:,} when the time was over'
    found = [Finding(OK, 'loads', f'{made:,} in {results.seconds:.1f} s'
                     f'{enough}; each was verified'),
             Finding(OK, 'time of a load', trial.times())]
    fact = f'{results.rewinds:,} of {made:,}'
    if not results.reasons:
        return [*found, Finding(OK, 'rewinds', fact)]
    (reason, times), = results.reasons.most_common(1)
    return [*found, Finding(SLOW, 'rewinds', f'{fact}; {times} were none: '
                            f'{reason}', results.blockers[reason].remedy)]


def boots(guest: Guest, machine: Machine, accel: str) -> Optional[str]:
    """Why not."""
    try:
        guest.boot(machine, BOOT[accel])
        guest.work(machine, 0)
    except Error as e:
        return str(e)
    return None
