# SPDX-License-Identifier: GPL-2.0-or-later
"""
Rewinds of guests whose devices other processes serve, which write to RAM: they
log that, and the log is all there is to know of it.  verify=on compares all of
RAM after each load.

The kernel's vhost is told the same by the same code of QEMU's, by ioctls; test
machines have no such kernel.

RAM_RESET_LONG=1 loads 1,000 times.
"""

# Alone: DPDK's testpmd takes a processor of its own
# Takes: 75 s
# Long: nothing else may run meanwhile; test_vhost_rings.py has a vhost device

import hashlib
import random
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lib.effort import LONG, rounds
from lib.guests import Linux
from lib.io.guest import BOOTED
from lib.io.vhost import BLOCK, Echo, Served, StorageDaemon, stamped
from lib.machine import MIB, MachineError
from lib.patience import Limit
from lib.storing import set_kind

SIZE = 8 * MIB
# Requests a second, a tenth of which is not delayed; there are always 12
SLOW = 400
# Bytes, by which a disk is at work
SOME = 48 * BLOCK
TIMEOUT = 60.0
REWIND = {'strategy': 'auto', 'options': ',rewind=on,verify=on'}
DISKS = {'slow': '/dev/vda', 'fast': '/dev/vdb'}
# With room for many snapshots
MANY = REWIND | {'options': REWIND['options'] + ',rewind-limit=1G'}
Start = Callable[..., Served]


@pytest.fixture
def daemons(tmp_path) -> Iterator[list[StorageDaemon]]:
    content = stamped(SIZE)
    with StorageDaemon(tmp_path, content, name='slow', iops=SLOW) as slow, \
            StorageDaemon(tmp_path, content, name='fast', queues=2) as fast:
        yield [slow, fast]


@pytest.fixture(scope='module')
def booted(tmp_path_factory) -> Path:
    """The disk of a guest with drivers of those devices."""
    workdir = tmp_path_factory.mktemp('booted')
    content = stamped(SIZE)
    with StorageDaemon(workdir, content, name='slow', iops=SLOW) as slow, \
            StorageDaemon(workdir, content, name='fast', queues=2) as fast, \
            Served(workdir, [slow, fast], disks=DISKS, **REWIND) as guest:
        guest.load_drivers(Served.MODULES)
        guest.save(BOOTED)
        return guest.disk


@pytest.fixture
def start(tmp_path, booted, daemons) -> Start:
    def start_guest(**kwargs) -> Served:
        shutil.copy(booted, tmp_path / 'disk.qcow2')
        return Served(tmp_path, daemons, disks=DISKS, loadvm=BOOTED,
                      **(REWIND | kwargs))
    return start_guest


def check_rewound(guest: Served) -> None:
    load = guest.last_load()
    assert load['rewound'], load['blocker']


def check_whole(guest: Served, why: str) -> None:
    load = guest.last_load()
    assert not load['rewound'] and why in load['blocker']


def wait_for_requests(daemons: list[StorageDaemon]) -> None:
    """Wait for some more requests of each disk."""
    limit = Limit(TIMEOUT)
    wanted = [daemon.transferred() + SOME for daemon in daemons]
    while any(daemon.transferred() < number
              for daemon, number in zip(daemons, wanted)):
        assert not limit.over()
        time.sleep(0.002)


def test_disks_at_work(start, daemons):
    """Two disks, three queues, 24 requests, many of them under way."""
    loads = 1000 if LONG else rounds(60, 4)
    rng = random.Random(1)
    with start() as guest:
        guest.churn()
        wait_for_requests(daemons)
        guest.save('s')
        before = guest.waits()
        for _ in range(loads):
            wait_for_requests(daemons)
            time.sleep(rng.random() / 100)
            guest.load('s')
            check_rewound(guest)
        guest.check_progress()
        assert guest.waits() - before > loads / 2, 'no request was under way'
        # what a stopped guest had under way would never be answered
        wait_for_requests(daemons)
        guest.stop()
        guest.save('s')
        guest.cont()
        wait_for_requests(daemons)
        guest.load('s')
        guest.check_progress()
    assert not any(daemon.log() for daemon in daemons)


def digest(guest: Served) -> bytes:
    return hashlib.blake2b(guest.ram_image()).digest()


def go_anywhere(guest: Served, saved: dict[str, bytes], rng: random.Random,
                meanwhile: Callable[[], None]) -> None:
    """Each load is a rewind, and RAM is what it was."""
    for _ in range(rounds(40, 6)):
        meanwhile()
        tag = rng.choice(list(saved))
        # of a guest that stands, and of one that runs
        if stopped := rng.random() < 0.7:
            guest.stop()
        guest.load(tag, rng.choice(('hmp', 'qmp')))
        check_rewound(guest)
        if stopped:
            assert digest(guest) == saved[tag]
            guest.cont()
        assert guest.run('cat /run/mark') == tag


def save_some(guest: Served, meanwhile: Callable[[], None]
              ) -> dict[str, bytes]:
    """Of both kinds; they are at work before each of them."""
    saved = {}
    for n in range(5):
        tag = f't{n}'
        guest.run(f'echo {tag} >/run/mark; dd if=/dev/urandom of=/run/state '
                  f'bs=1M count={n + 1} 2>/dev/null')
        meanwhile()
        set_kind(guest, ('image', 'memory')[n % 2])
        guest.stop()
        guest.save(tag)
        saved[tag] = digest(guest)
        guest.cont()
    return saved


def test_many_snapshots_of_disks(start, daemons, rng):
    """Requests are under way at each save and load."""
    def meanwhile() -> None:
        wait_for_requests(daemons)

    with start(**MANY) as guest:
        guest.churn()
        go_anywhere(guest, save_some(guest, meanwhile), rng, meanwhile)
        guest.check_progress()
    assert not any(daemon.log() for daemon in daemons)


def test_many_snapshots_of_a_network(tmp_path, rng):
    with Echo(tmp_path) as echo, \
            Served(tmp_path, [echo], disks={}, **MANY) as guest:
        def meanwhile() -> None:
            before = guest.received()
            guest.wait_for(lambda: {} if guest.received() > before + 20 else
                           {'net': guest.received()})

        guest.load_drivers(Served.MODULES)
        guest.run('ip link set eth0 up && chatter ethernet eth0 & true')
        go_anywhere(guest, save_some(guest, meanwhile), rng, meanwhile)
        meanwhile()


def test_network_at_work(tmp_path):
    """A process that always polls, and takes packets the moment they come."""
    loads = 1000 if LONG else rounds(30, 2)
    with Echo(tmp_path) as echo, \
            Served(tmp_path, [echo], disks={}, **REWIND) as guest:
        guest.load_drivers(Served.MODULES)
        guest.run('ip link set eth0 up && chatter ethernet eth0 & true')
        guest.wait_for(lambda: {} if guest.received() > 300 else
                       {'net': guest.received()})
        guest.save('s')
        saved = guest.received()
        for _ in range(loads):
            guest.wait_for(lambda: {} if guest.received() > saved + 100 else
                           {'net': guest.received()})
            guest.load('s')
            check_rewound(guest)
        guest.wait_for(lambda: {} if guest.received() > saved + 100 else
                       {'net': guest.received()})


def test_writes_that_nobody_has_seen(start, daemons):
    """Nobody waits when a guest stops a device, or a process is gone."""
    device = '$(basename $(readlink /sys/block/vdb/device))'
    driver = '/sys/bus/virtio/drivers/virtio_blk'
    read = 'dd if=/dev/vdb of=/dev/null bs=64k iflag=direct 2>/dev/null'
    with start() as guest:
        guest.run(read)
        guest.save('s')
        guest.run(f'd={device}; echo $d >{driver}/unbind && '
                  f'echo $d >{driver}/bind')
        guest.until('[ -b /dev/vdb ]')
        guest.run(read)
        guest.load('s')
        check_whole(guest, 'while the guest was running')
        guest.run(read)
        guest.load('s')
        check_rewound(guest)
        guest.run(f'{read} & true')
        daemons[1].kill()
        guest.load('s')
        check_whole(guest, 'vhost device')
        guest.load('s')
        check_rewound(guest)


def test_connected_while_stopped(tmp_path):
    """QEMU starts such a device at once, whose process then is at work."""
    with StorageDaemon(tmp_path, stamped(4 * MIB), reconnect=True) as daemon:
        with Served(tmp_path, [daemon], disks={}, **REWIND) as guest:
            guest.load_drivers(Served.MODULES)
            guest.until('[ -b /dev/vda ]')
            guest.save('s')
            guest.load('s')
            guest.stop()
            daemon.kill()
            daemon.again()
            path = '/machine/peripheral/served-disk/virtio-backend'
            limit = Limit(TIMEOUT)
            while not guest.qmp('x-query-virtio-status',
                                path=path)['vhost-started']:
                assert not limit.over()
                time.sleep(0.02)
            with pytest.raises(MachineError, match='resume the guest'):
                guest.load('s')
            guest.cont()
            guest.load('s')
            check_whole(guest, 'vhost device')
            guest.load('s')
            check_rewound(guest)


def test_template(tmp_path, start, daemons, booted):
    """Nobody writes to memory while the guest is stopped."""
    templates = tmp_path / 'templates'
    templates.mkdir(0o700)
    options = f',template-dir={templates},verify=on'
    with start(options=options) as guest:
        guest.churn()
        wait_for_requests(daemons)
        guest.save(BOOTED)
        disk = guest.disk.rename(tmp_path / 'saved.qcow2')
    assert any(templates.iterdir())
    disk.rename(tmp_path / 'disk.qcow2')
    with Served(tmp_path, daemons, disks=DISKS, loadvm=BOOTED, strategy='auto',
                options=options + ',rewind=on') as guest:
        assert guest.last_load()['template']
        for _ in range(2):
            wait_for_requests(daemons)
            guest.load(BOOTED)
            check_rewound(guest)


@pytest.mark.parametrize('kind, advice', [
    ('vhost-user-fs', 'can be rewound'), ('vhost-user-vsock', 'is seen')])
def test_refusal(tmp_path, kind, advice):
    """In one line, when QEMU starts, and before anything is loaded."""
    with StorageDaemon(tmp_path, bytes(MIB), queues=4, kind=kind) as daemon:
        args = [word + {'vhost-user-fs': ',tag=t',
                        'vhost-user-vsock': ''}[kind]
                if word.startswith(kind) else word for word in daemon.device]
        daemon.device = tuple(args)
        with Served(tmp_path, [daemon], disks={}, boot_timeout=0,
                    **REWIND) as guest:
            line, = (said for said in guest.log().splitlines()
                     if 'vhost holds guest memory' in said)
            assert kind in line and advice in line
            assert 'loaded as a whole' in line
            rewind = guest.qmp('query-ram-reset')['rewind']
            assert rewind['blocker'] in line
            assert rewind['blocker-info']['id'] == 'unlogged-writer'
            assert line.endswith(rewind['blocker-info']['remedy'])


def test_query_while_code_is_translated(tmp_path, linux_accel):
    """
    TCG's threads walk the list of listeners without a lock, above all after a
    load, which has QEMU translate all code anew.
    """
    with Linux(tmp_path, accel=linux_accel, ram=128 * MIB, **REWIND) as guest:
        guest.serial.send('1 while true; do ls -l /bin >/dev/null; done\n')
        guest.save('s')
        for _ in range(rounds(40, 3)):
            guest.load('s')
            for _ in range(40):
                guest.qmp('query-ram-reset')
        assert guest.status() == 'running'
