# SPDX-License-Identifier: GPL-2.0-or-later
"""The manual's table of domains, against what virt-install and libvirt do."""

# Takes: 25 s

import concurrent.futures
import contextlib
import os

import pytest

from lib import hugepages, inventory, products
from lib.effort import ALL, LONG
from lib.libvirtd import GENERATIONS, Libvirtd, Unavailable
from lib.machine import Serial
from lib.virtinst import TAG, Installed, Installer, programs

ROWS = inventory.table()
# Beside the default domain with Linux: one that QEMU refuses
SOME = ('NVMe',)
# With the older libvirt, these share a domain: all of it works
GROUPS = (('TPM 2.0', 'virtio-scsi', 'SATA', 'USB disk', 'CD',
           'raw, read-only', 'Bochs', 'smartcard', 'AC97',
           'balloon, free page reporting', 'e1000e', '9p', 'watchdog',
           "random numbers of QEMU's", 'panic device'),
          ('i440FX', 'IDE', 'Cirrus'), ('QXL', 'two QXLs'), ('DIMM', 'VGA'),
          ('memfd, private', 'ramfb', 'VNC'))
PAGES = 3 * 128
HUGE = [name for name in ROWS if name.startswith('hugepages')]
# Each has two vCPUs, which wait most of the time
TOGETHER = 2 + len(os.sched_getaffinity(0)) // 2
BOOT_TIMEOUT = 180.0


def group(generation: str, name: str) -> tuple[str, ...]:
    """The rows that share a domain, the first of them first."""
    for names in GROUPS if generation == GENERATIONS[0] else ():
        if name in names:
            return names
    return name,


def chosen() -> list[tuple[str, str]]:
    """With the older libvirt, ./test --all has the rows that share a domain."""
    if ALL:
        return [(gen, name) for gen in GENERATIONS for name in ROWS
                if LONG or gen != GENERATIONS[0] or len(group(gen, name)) > 1]
    return [(GENERATIONS[-1], name) for name in SOME if name in ROWS]


@pytest.fixture(scope='session')
def daemons():
    """Each is started when it is needed first."""
    with contextlib.ExitStack() as stack:
        found: dict[str, tuple[Libvirtd, Installer]] = {}

        def of(generation: str) -> tuple[Libvirtd, Installer]:
            if generation not in found:
                daemon = stack.enter_context(Libvirtd(
                    generation, more=programs(generation)))
                found[generation] = daemon, stack.enter_context(
                    Installer(daemon))
            return found[generation]
        yield of


@pytest.fixture(scope='session')
def measured(request, daemons):
    """All domains of the tests that run, a few at a time."""
    wanted = dict.fromkeys(
        (params['generation'], group(**params)) for params in
        (item.callspec.params for item in request.session.items
         if item.originalname == 'test_row'))
    with contextlib.ExitStack() as stack:
        free = 0
        if ALL and hugepages.POOL.exists():
            free = stack.enter_context(hugepages.lent(PAGES))
        pool = stack.enter_context(
            concurrent.futures.ThreadPoolExecutor(TOGETHER))
        found = {}
        for generation, names in wanted:
            if names[0] in HUGE and free < PAGES:
                continue
            with contextlib.suppress(Unavailable):
                found[generation, names[0]] = pool.submit(
                    inventory.measure, *daemons(generation),
                    inventory.combined([ROWS[name] for name in names]))
        yield found


def need(daemons, generation: str) -> tuple[Libvirtd, Installer]:
    try:
        return daemons(generation)
    except Unavailable as e:
        pytest.skip(str(e))


@pytest.mark.parametrize('generation,name', chosen())
def test_row(daemons, measured, generation, name):
    first = group(generation, name)[0]
    if (generation, first) not in measured:
        need(daemons, generation)
        pytest.skip('the host has not enough hugepages')
    found = measured[generation, first].result()
    assert all(map(inventory.fits, found, ROWS[name].expected(generation))), \
        found


def ask(domain: Installed, console: Serial, command: str) -> str:
    """A number of the shell in the guest, see lib/guest/init."""
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
    with Installed(*need(daemons, generation), ['--boot', kernel]) as domain:
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
