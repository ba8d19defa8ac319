# SPDX-License-Identifier: GPL-2.0-or-later
"""The manual's table of domains, against what virt-install and libvirt do."""

# Takes: 150 s

import concurrent.futures
import contextlib
import os

import pytest

from lib import hugepages, inventory, products
from lib.effort import ALL
from lib.libvirtd import GENERATIONS, Libvirtd, Unavailable
from lib.machine import Serial
from lib.virtinst import TAG, Installed, Installer, programs

ROWS = inventory.table()
# Of those that differ, and that no other test has
SOME = ('i440FX', 'NVMe')
PAGES = 3 * 128
HUGE = [name for name in ROWS if name.startswith('hugepages')]
# Each has two vCPUs, which wait most of the time
TOGETHER = 2 + len(os.sched_getaffinity(0)) // 2
BOOT_TIMEOUT = 180.0


def chosen() -> list[tuple[str, str]]:
    if ALL:
        return [(gen, name) for gen in GENERATIONS for name in ROWS]
    return [(GENERATIONS[-1], name) for name in SOME if name in ROWS]


@pytest.fixture(scope='session')
def daemons():
    """Each is started when it is needed first."""
    with contextlib.ExitStack() as stack:
        found: dict[str, tuple[Libvirtd, Installer]] = {}

        def of(generation: str) -> tuple[Libvirtd, Installer]:
            if generation not in found:
                try:
                    daemon = stack.enter_context(Libvirtd(
                        generation, more=programs(generation)))
                except Unavailable as e:
                    pytest.skip(str(e))
                found[generation] = daemon, stack.enter_context(
                    Installer(daemon))
            return found[generation]
        yield of


@pytest.fixture(scope='session')
def measured(request, daemons):
    """What chosen() names is measured at once, a few at a time."""
    with contextlib.ExitStack() as stack:
        free = 0
        if ALL and hugepages.POOL.exists():
            free = stack.enter_context(hugepages.lent(PAGES))
        pool = stack.enter_context(
            concurrent.futures.ThreadPoolExecutor(TOGETHER))
        found = {}
        for generation, name in chosen():
            if name not in HUGE or free >= PAGES:
                found[generation, name] = pool.submit(
                    inventory.measure, *daemons(generation), ROWS[name])
        yield found


@pytest.mark.parametrize('generation,name', chosen())
def test_row(measured, generation, name):
    if (generation, name) not in measured:
        pytest.skip('the host has not enough hugepages')
    found = measured[generation, name].result()
    assert all(map(inventory.fits, found, ROWS[name].expected(generation))), \
        found


def ask(domain: Installed, console: Serial, command: str) -> str:
    """Of the shell in the guest, see lib/guest/init."""
    number = next(domain.numbers)
    console.send(f'{number} {command}\n')
    answer = console.wait(rf'^(.*?)= {number} 0\r?\n', BOOT_TIMEOUT)
    return answer[1].decode().strip()


@pytest.mark.parametrize('generation',
                         GENERATIONS if ALL else GENERATIONS[-1:])
def test_default_domain_with_linux_rewinds(daemons, generation):
    """It differs from what virt-install makes by the object alone."""
    kernel = (f'kernel={products.kernel()},initrd={products.initramfs()},'
              'kernel_args="console=ttyS0 loglevel=1 edd=off"')
    with Installed(*daemons(generation), ['--boot', kernel]) as domain:
        domain.start()
        with domain.console() as console:
            console.wait(r'^ready ', BOOT_TIMEOUT)
            ask(domain, console, 'ramtool fill /run/state 16')
            state = ask(domain, console, 'sha256sum /run/state')
            domain.virsh('snapshot-create-as', TAG)
            for i in range(3):
                ask(domain, console, f'echo {i} >/run/new; '
                    'ramtool fill /run/state 8')
                assert domain.hmp(f'loadvm {TAG}') == ''
                last = domain.query()['last-load']
                assert last['rewound'], last['blocker']
                assert ask(domain, console, 'sha256sum /run/state') == state
                assert ask(domain, console, 'ls /run') == 'state'
        domain.virsh('snapshot-revert', TAG)
        with domain.console() as console:
            assert ask(domain, console, 'sha256sum /run/state') == state
        assert 'template' in domain.query()['last-load']
