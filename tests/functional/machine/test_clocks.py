# SPDX-License-Identifier: GPL-2.0-or-later
"""
A guest's clocks go on at the instant of the save, however long ago that was.

RAM_RESET_LONG=1 waits for a minute, and loads plain Linux 1,000 times.
"""

# Takes: 12 s

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from lib.effort import ALL, LONG, rounds, tried
from lib.guests import Linux
from lib.machine import MIB, MachineError
from lib.timers import TRIES

# With --all longer than it takes a kernel to believe in a lockup
WAIT = 60 if LONG else rounds(25, 4)
LOADS = rounds(8, 4)
VCPUS = tried((1, 4), (2,))

SLEEP = 0.3
# How far a clock would be that went on from where it was before the load
AHEAD = 2

# Clocks other than a TSC and the timer of the local APIC
CLOCKS = {
    'hpet': (1, 'clocksource=hpet nolapic_timer nohz=off highres=off'),
    'pit': (1, 'clocksource=acpi_pm nolapic_timer', ('-machine', 'hpet=off')),
    'icount': (1, '', ('-icount', 'shift=auto'))}


@dataclass(frozen=True)
class Clocks:
    """Clocks of a Linux guest: CLOCK_REALTIME, _MONOTONIC, _BOOTTIME."""

    real: float
    monotonic: float
    boot: float

    @classmethod
    def read(cls, guest: Linux) -> 'Clocks':
        monotonic, boot, real = guest.run(
            "sed -n 's/now at \\([0-9]*\\) nsecs/\\1/p' /proc/timer_list; "
            "cut -d' ' -f1 /proc/uptime; date +%s").split()
        return cls(float(real), int(monotonic) / 1e9, float(boot))

    def since(self, before: 'Clocks') -> tuple[float, ...]:
        return (self.real - before.real, self.monotonic - before.monotonic,
                self.boot - before.boot)


class Saved:
    """A guest that was saved, and is to be taken back."""

    def __init__(self, guest: Linux):
        self._guest = guest
        self._log = self._messages()
        self._clocks = Clocks.read(guest)
        guest.save('s')

    def _messages(self) -> int:
        return int(self._guest.run('dmesg | wc -l'))

    def load(self) -> None:
        """
        A clock that did not go back would be further than before.  How far it
        went is by its own rate, which Linux may have measured badly.
        """
        before = Clocks.read(self._guest)
        self._guest.load('s')
        after = Clocks.read(self._guest)
        print(f'{self._clocks}, {before}, {after}')
        assert min(after.since(self._clocks)) >= 0
        assert max(after.since(before)) < 0

    def check_silent(self) -> None:
        new = self._guest.run(f'dmesg | tail -n +{self._log + 1}')
        assert not re.search('stall|lockup|hung|blocked for', new), new


def boot(workdir: Path, vcpus: int, append: str = '', args: tuple = ()
         ) -> Linux:
    workdir.mkdir()
    return Linux(workdir, accel='tcg', ram=256 * MIB, append=append,
                 boot_timeout=0, args=('-smp', str(vcpus), *args))


def test_linux_goes_on_at_the_save(tmp_path):
    """All at once, since it is the waiting that takes time."""
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(boot(tmp_path / str(vcpus), vcpus))
                  for vcpus in VCPUS]
        for guest in guests:
            guest.wait_booted(guest.BOOT_TIMEOUT)
        saved = [Saved(guest) for guest in guests]
        time.sleep(WAIT)
        for instant in saved:
            instant.load()
        check_wall_clock(guests[0])
        check_wakes_up(guests[-1], 1000 if LONG else LOADS)
        # this is how long it takes Linux to find out
        time.sleep(rounds(5, 0))
        for instant in saved:
            instant.check_silent()


def check_wall_clock(guest: Linux) -> None:
    """The RTC has the host's time; this is what docs/system tells users."""
    begin = time.time()
    guest.run('hwclock -s -u')
    date, slack = int(guest.run('date +%s')), 3 + WAIT / 4
    # on a slow host it takes a while to ask
    assert begin - slack < date < time.time() + slack


WOKEN = r'^(\d+\.\d+)\r?\n= x 0\r?\n'


def save_asleep(guest: Linux) -> float:
    """When that was.  It must have been stopped before its sleep is over."""
    for _ in range(TRIES):
        boot = Clocks.read(guest).boot
        begin = time.monotonic()
        guest.serial.send(f'x echo tired; sleep {SLEEP}; '
                          'cut -d" " -f1 /proc/uptime\n')
        guest.serial.wait('^tired\r?\n', guest.COMMAND_TIMEOUT)
        time.sleep(SLEEP / 4)
        guest.stop()
        if time.monotonic() - begin < SLEEP:
            break
        guest.cont()
        guest.serial.wait(WOKEN, guest.COMMAND_TIMEOUT)
    else:
        raise MachineError('this host is too busy to stop a guest within '
                           f'{SLEEP} s')
    guest.save('asleep')
    guest.cont()
    return boot


def check_wakes_up(guest: Linux, loads: int = LOADS) -> None:
    """A guest that was saved asleep sleeps the rest after a load."""
    begin = save_asleep(guest)
    woken = []
    for _ in range(loads):
        found = guest.serial.wait(WOKEN, guest.COMMAND_TIMEOUT)
        woken.append(float(found[1]) - begin)
        if len(woken) == 1:
            time.sleep(AHEAD)
        guest.load('asleep')
    print(f'woken after {woken} s')
    # both times are printed with few digits
    assert min(woken) > SLEEP - 1e-6
    # some are late on a host that has much to do
    assert min(woken[1:]) < woken[0] + AHEAD / 2


# ./test has plain Linux's, above
if ALL:
    @pytest.mark.parametrize('clock', CLOCKS)
    def test_linux_wakes_up(tmp_path, clock):
        with boot(tmp_path / 'vm', *CLOCKS[clock]) as guest:
            guest.wait_booted(guest.BOOT_TIMEOUT)
            check_wakes_up(guest)
