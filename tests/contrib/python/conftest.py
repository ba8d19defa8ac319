# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests of the Python package."""

from collections.abc import Callable, Iterator

import pytest
from ram_reset import Machine

from lib import package
from lib.patience import patience


@pytest.fixture
def start(fast_accel) -> Iterator[Callable[..., Machine]]:
    """Start a guest that answers "ping 7"."""
    machines = []

    def run(*args: str, **kwargs) -> Machine:
        machine = Machine.start([*package.ring3(fast_accel), *args],
                                qemu=package.QEMU, serial=True, **kwargs)
        machines.append(machine)
        machine.serial.expect(package.READY, patience(60))
        return machine

    yield run
    for machine in machines:
        machine.close()


@pytest.fixture(scope='module')
def shell(each_linux_accel) -> Iterator[Machine]:
    """A Linux guest with a shell; each test forks it."""
    with Machine.start(package.shell(each_linux_accel), qemu=package.QEMU,
                       serial=True) as machine:
        package.set_up_shell(machine)
        yield machine
