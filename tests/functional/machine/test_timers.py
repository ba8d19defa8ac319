# SPDX-License-Identifier: GPL-2.0-or-later
"""
A guest that sleeps when it is saved is woken up by its timer after each load,
and mostly in time: a busy host wakes some late.

RAM_RESET_LONG=1 loads 1,000 times for each kind of timer.
"""

# Takes: 10 s

import statistics
import time
from dataclasses import dataclass

from lib.effort import LONG, rounds
from lib.timers import TIMERS, Sleep, Sleeper

LOADS = 1000 if LONG else rounds(30, 5)
# Multiples of the same sleep's time without a load: mostly, and at worst
USUAL, WORST = 3, 200


@dataclass
class Sleeps:
    loaded: list[Sleep]     # in the middle of which the guest was loaded
    plain: list[Sleep]      # between the loads


def sleeps_after_loads(guest: Sleeper, timer: str) -> Sleeps:
    """It is in the middle of its sleep each time."""
    guest.save_asleep(timer)
    sleeps, plain = [guest.wake_up()], []
    # for a clock that does not go back
    time.sleep(4 * guest.PERIOD)
    for _ in range(LOADS):
        guest.load(timer)
        sleeps.append(guest.wake_up())
        guest.fall_asleep(timer)
        plain.append(guest.wake_up())
    assert len({sleep.begin for sleep in sleeps}) == 1
    return Sleeps(sleeps[1:], plain)


def test_wakes_up_in_time(tmp_path, accel):
    with Sleeper(tmp_path, accel=accel, strategy='auto',
                 options=',rewind=on') as guest:
        sleeps = {timer: sleeps_after_loads(guest, timer) for timer in TIMERS
                  if guest.has(timer)}
        hz = guest.measure_tsc('hpet')
    assert {*TIMERS} - {*sleeps} == ({'tsc-deadline'} if accel == 'tcg'
                                     else set())
    for timer in sleeps:
        check_in_time(timer, sleeps[timer], accel)
        if accel == 'tcg':
            check_ahead(f'{timer}, TSC', [sleep.ticks() / hz - sleep.seconds()
                                          for sleep in sleeps[timer].loaded])
        else:
            check_ahead(f'{timer}, kvm-clock',
                        [sleep.kvm_seconds() - sleep.seconds()
                         for sleep in sleeps[timer].loaded])


def check_in_time(timer: str, sleeps: Sleeps, accel: str) -> None:
    seconds = [sleep.seconds() for sleep in sleeps.loaded]
    # one that KVM's timer of the sleep before ends is none
    plain = [max(sleep.seconds(), Sleeper.PERIOD) for sleep in sleeps.plain]
    print(f'{timer}: woken after {min(seconds):.3f} to {max(seconds):.3f} s, '
          f'without a load {min(plain):.3f} to {max(plain):.3f} s')
    # some are late on a host that has much to do
    assert statistics.median(seconds) < USUAL * statistics.median(plain)
    assert max(seconds) < WORST * max(plain)
    # KVM's timers go on while the guest is being saved
    assert accel == 'kvm' or min(seconds) >= Sleeper.PERIOD * 0.99


def check_ahead(what: str, ahead: list[float]) -> None:
    """By a clock that goes back of itself, the HPET's."""
    print(f'{what}: ahead by {min(ahead):.3f} to {max(ahead):.3f} s')
    assert abs(statistics.median(ahead)) < Sleeper.PERIOD
