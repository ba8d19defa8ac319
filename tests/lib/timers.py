# SPDX-License-Identifier: GPL-2.0-or-later
"""A bare-metal guest that sleeps until a timer wakes it, see guest/timers.c."""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from lib import products
from lib.machine import MIB, Machine, MachineError

TRIES = 200
TIMERS = {'pit': 'p', 'hpet': 'h', 'apic': 'l', 'tsc-deadline': 'd'}
HPET_HZ = 100_000_000
CPU = {'kvm': 'qemu64,+tsc-deadline', 'tcg': 'qemu64'}


@dataclass(frozen=True)
class Clocks:
    """In seconds; TSC in its ticks."""

    tsc: int
    hpet: float
    kvm: float

    @classmethod
    def read(cls, tsc: str, hpet: str, kvm: str) -> 'Clocks':
        return cls(int(tsc, 16), int(hpet, 16) / HPET_HZ, int(kvm, 16) / 1e9)


@dataclass(frozen=True)
class Sleep:
    """From when the timer was set to when the guest woke up."""

    begin: Clocks
    end: Clocks

    def ticks(self) -> int:
        return self.end.tsc - self.begin.tsc

    def seconds(self) -> float:
        return self.end.hpet - self.begin.hpet

    def kvm_seconds(self) -> float:
        return self.end.kvm - self.begin.kvm


class Sleeper(Machine):
    """Goes to sleep, and is woken up by its timer after PERIOD."""

    TIMEOUT = 60.0
    PERIOD = 0.05

    def __init__(self, workdir: Path, *, accel: str, **kwargs):
        super().__init__(workdir, accel=accel, ram=32 * MIB, args=(
            '-bios', 'qboot.rom', '-kernel', products.timers_image(),
            '-cpu', CPU[accel]), **kwargs)
        try:
            self.serial.wait('^ready\n', self.TIMEOUT)
        except BaseException:
            self.close()
            raise

    def fall_asleep(self, timer: str) -> bool:
        """False if the machine has no such timer."""
        self.serial.send(TIMERS[timer])
        return self.serial.wait('^(asleep|none)\n',
                                self.TIMEOUT)[1] == b'asleep'

    def save_asleep(self, timer: str) -> None:
        """
        Under the timer's name.  It cannot have woken up by the time that it is
        stopped, or it has to fall asleep once more.
        """
        for _ in range(TRIES):
            begin = time.monotonic()
            assert self.fall_asleep(timer)
            time.sleep(self.PERIOD / 10)
            self.stop()
            if time.monotonic() - begin < self.PERIOD:
                break
            self.cont()
            self.wake_up()
        else:
            raise MachineError('this host is too busy to stop a guest within '
                               f'{self.PERIOD} s')
        self.save(timer)
        self.cont()

    def wake_up(self) -> Sleep:
        found = self.serial.wait('^woken ([0-9a-f ]+)\n', self.TIMEOUT)
        numbers = found[1].decode().split()
        return Sleep(Clocks.read(*numbers[:3]), Clocks.read(*numbers[3:]))

    def has(self, timer: str) -> bool:
        return self.fall_asleep(timer) and bool(self.wake_up())

    def measure_tsc(self, timer: str) -> float:
        """
        How often it ticks in a second of the HPET.  The median, since the guest
        may lose its CPU between reading the one and the other.
        """
        rates = []
        for _ in range(5):
            assert self.fall_asleep(timer)
            sleep = self.wake_up()
            rates.append(sleep.ticks() / sleep.seconds())
        return statistics.median(rates)
