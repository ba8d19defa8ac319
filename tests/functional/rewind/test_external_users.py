# SPDX-License-Identifier: GPL-2.0-or-later
"""
A load must do right by those who hold guest RAM: a process that QEMU shares it
with, and devices by which the guest gives parts of it back and takes them.
"""

# Takes: 90 s

import hashlib
import os
import random
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lib.effort import ALL, rounds, tried
from lib.guests import Linux
from lib.io.vhost import StorageDaemon
from lib.machine import MIB, PAGE, RAM, STRATEGIES, may_use
from lib.patience import Limit
from lib.storing import set_kind

RAM_SIZE = 192 * MIB
TIMEOUT = 60.0
STATE_MIB = 4
BOOTED = 'booted'


@pytest.fixture(params=(*STRATEGIES, 'rewind'))
def way(request) -> str:
    """A strategy, or auto with rewind=on."""
    return request.param


# ./test rewinds, and a disk sees a way that makes new memory, too; Ring3's tests
# have all
SOME_WAYS = pytest.mark.parametrize(
    'way', (*STRATEGIES, 'rewind') if ALL else ('rewind',), indirect=True)
DISK_WAYS = pytest.mark.parametrize(
    'way', (*STRATEGIES, 'rewind') if ALL else ('remap', 'rewind'),
    indirect=True)


@pytest.fixture(scope='module')
def boot(tmp_path_factory, linux_accel) -> Callable[..., Linux]:
    """Starts a guest that has a driver; only the first one of each boots."""
    machine = {'accel': linux_accel, 'ram': RAM_SIZE,
               # the kernel puts what it can move where virtio-mem has plugged
               # memory first, like /run/state
               'append': 'memhp_default_state=online_movable'}
    disks: dict[str, Path] = {}

    def start(workdir: Path, driver: str, way: str, **kwargs) -> Linux:
        if driver not in disks:
            with Linux(tmp_path_factory.mktemp(driver), **machine, **kwargs
                       ) as guest:
                before = in_use(guest)
                guest.run(f'insmod /lib/{driver}.ko')
                if driver == 'virtio_mem':
                    wait_for(lambda: plugged(guest), PLUGGED)
                    wait_for(lambda: in_use(guest), before + PLUGGED)
                guest.save(BOOTED)
            disks[driver] = guest.disk
        shutil.copy(disks[driver], workdir / 'disk.qcow2')
        if way == 'rewind':
            # verify=on cannot read what virtio-mem has saved before RAM
            verify = '' if driver == 'virtio_mem' else ',verify=on'
            kwargs |= {'strategy': 'auto', 'options': f',rewind=on{verify}'}
        else:
            kwargs['strategy'] = way
        return Linux(workdir, loadvm=BOOTED, **machine, **kwargs)
    return start


def use_memory(guest: Linux, mib: int) -> None:
    guest.run(f'ramtool fill /run/used {mib} && rm /run/used')


def wait_for(size: Callable[[], int], expected: int) -> None:
    limit = Limit(TIMEOUT)
    while (now := size()) != expected:
        assert not limit.over(), f'{now} instead of {expected}'
        time.sleep(0.02)


def check_strategy(guest: Linux, strategy: str) -> None:
    """The last load has used @strategy, on both blocks if there are two."""
    blocks = guest.last_load()['blocks']
    used = {b['strategy'] for b in blocks if b['name'].endswith(RAM)}
    may = {'rewind'} if strategy == 'rewind' else may_use(strategy)
    assert bool(used) == (strategy != 'stock') and used <= may


def check_quiet(guest: Linux, warning: str = '') -> None:
    assert guest.qmp('query-ram-reset')['fallbacks'] == 0
    said = guest.log()
    assert warning in said and len(said.splitlines()) == bool(warning)


# A process that serves the guest's disk

FILE = 0, 4             # first MiB and how many
SCRATCH = 8, 1
DISK_SIZE = 16 * MIB
LOADS = rounds(20, 3)
# The strategy for RAM that the daemon has mapped.  Anything else must be
# refused, for it would leave the daemon with memory that is not the guest's.
EXPECTED = {s: s for s in ('stock', 'memset', 'madvise', 'auto')}


def read_disk(guest: Linux, first: int, count: int) -> str:
    """The checksum of what the daemon puts into memory now."""
    return guest.run('dd if=/dev/vda iflag=direct bs=1M '
                     f'skip={first} count={count} 2>/dev/null | '
                     'sha256sum | cut -c1-64')


def write_disk(guest: Linux, first: int, count: int) -> str:
    """The checksum of what the guest gives to the daemon."""
    # a load takes back the guest's random numbers as well
    secret = secrets.token_hex(16)
    return guest.run(f'ramtool fill /run/new {count} {secret} && '
                     'dd if=/run/new of=/dev/vda oflag=direct bs=1M '
                     f'seek={first} count={count} 2>/dev/null && '
                     'sha256sum </run/new | cut -c1-64')


def check_refusal(guest: Linux, strategy: str) -> None:
    if strategy == 'rewind':
        check_strategy(guest, strategy)
        return
    check_strategy(guest, EXPECTED.get(strategy, 'memset'))
    if strategy in ('remap', 'auto'):
        block, = (b for b in guest.last_load()['blocks'] if b['name'] == RAM)
        assert block['strategy'] != 'remap'
        reasons = [c.get('refused', '') for c in
                   block.get('decision', {}).get('candidates', ())]
        assert 'vhost' in ' '.join((block['reason'], *reasons))


@DISK_WAYS
def test_disk_of_another_process(tmp_path, boot, way):
    """
    Guest and daemon see the same memory after each load.  No request is on its
    way then; test_vhost.py has some.
    """
    with StorageDaemon(tmp_path, secrets.token_bytes(DISK_SIZE)) as daemon, \
            boot(tmp_path, 'virtio_blk', way, memory='shared',
                 args=daemon.device) as guest:
        content = daemon.sha256(*FILE)
        guest.prepare_state(STATE_MIB)
        assert read_disk(guest, *FILE) == content
        guest.save('s')
        state = guest.state()
        for _ in range(LOADS):
            guest.load('s')
            check_refusal(guest, way)
            assert guest.state() == state
            written = write_disk(guest, *SCRATCH)
            assert daemon.sha256(*SCRATCH) == written
            assert read_disk(guest, *SCRATCH) == written
            assert read_disk(guest, *FILE) == content
        check_quiet(guest)


# A balloon, by which the guest gives pages back and takes them

SAVED_SIZE, SMALL_SIZE = 160 * MIB, 96 * MIB


def balloon(guest: Linux) -> int:
    """How much of its RAM the guest has kept."""
    return guest.qmp('query-balloon')['actual']


def set_balloon(guest: Linux, size: int) -> None:
    guest.qmp('balloon', value=size)
    wait_for(lambda: balloon(guest), size)


def inflate(guest: Linux) -> None:
    """The guest writes most of what is free, then gives much of it back."""
    use_memory(guest, 80)
    before = guest.rss()
    set_balloon(guest, SMALL_SIZE)
    assert guest.rss() < before - (SAVED_SIZE - SMALL_SIZE) * 3 // 4


@SOME_WAYS
@pytest.mark.any_value
def test_balloon(tmp_path, boot, memory, way):
    with boot(tmp_path, 'virtio_balloon', way, memory=memory,
              args=('-device', 'virtio-balloon-pci')) as guest:
        guest.prepare_state(STATE_MIB)
        set_balloon(guest, SAVED_SIZE)
        guest.save('s')
        state = guest.state()
        for _ in range(rounds(2, 1)):
            inflate(guest)
            guest.load('s')
            check_strategy(guest, way)
            assert balloon(guest) == SAVED_SIZE
            assert guest.state() == state
        inflate(guest)
        set_balloon(guest, RAM_SIZE)
        use_memory(guest, 100)      # more than there was with the balloon
        assert guest.state().checksum == state.checksum
        check_quiet(guest)


# Memory of which the host plugs and unplugs parts

VMEM_SIZE = 256 * MIB
PLUGGED = 64 * MIB
VMEM_BACKENDS = {
    'private': f'memory-backend-ram,id=vmem0,size={VMEM_SIZE}',
    'shared': f'memory-backend-memfd,id=vmem0,size={VMEM_SIZE},share=on',
}


def plugged(guest: Linux) -> int:
    device, = guest.qmp('query-memory-devices')
    return device['data']['size']


def in_use(guest: Linux) -> int:
    """Bytes that the guest's kernel has to give, which come later."""
    return int(guest.run('grep MemTotal /proc/meminfo').split()[1]) << 10


def plug(guest: Linux, size: int) -> None:
    expected = in_use(guest) + size - plugged(guest)
    guest.qmp('qom-set', path='/machine/peripheral/vm0',
              property='requested-size', value=size)
    wait_for(lambda: plugged(guest), size)
    wait_for(lambda: in_use(guest), expected)


def populated(guest: Linux) -> int:
    """Bytes of the device's memory that the host has pages for."""
    process = Path(f'/proc/{guest.process.pid}')
    if guest.memory == 'shared':
        files = (fd for fd in (process / 'fd').iterdir()
                 if 'memory-backend-memfd' in os.readlink(fd))
        return next(f.stat().st_blocks * 512 for f in files
                    if f.stat().st_size == VMEM_SIZE)
    # a rewind's copy of the memory is a mapping of the same size
    device, = guest.qmp('query-memory-devices')
    address = guest.hmp(f'gpa2hva {device["data"]["memaddr"]:#x}')
    with open(process / 'pagemap', 'rb') as pagemap:
        pagemap.seek(int(address.split(' is ')[1], 16) // PAGE * 8)
        entries = memoryview(pagemap.read(VMEM_SIZE // PAGE * 8)).cast('Q')
    # present, or in swap
    return PAGE * sum(bool(entry >> 62) for entry in entries)


def vmem_args(memory: str) -> tuple[str, ...]:
    return ('-m', 'maxmem=1G', '-object', VMEM_BACKENDS[memory],
            '-device', 'virtio-mem-pci,id=vm0,memdev=vmem0,'
                       f'requested-size={PLUGGED}')


@SOME_WAYS
@pytest.mark.any_value
def test_virtio_mem(tmp_path, boot, memory, way):
    """The plugged part holds the guest's data, the rest has no pages."""
    with boot(tmp_path, 'virtio_mem', way, memory=memory,
              args=vmem_args(memory)) as guest:
        wait_for(lambda: plugged(guest), PLUGGED)
        guest.run('mount -o remount,size=128M /run')
        guest.prepare_state(32)
        assert 32 * MIB <= populated(guest) <= PLUGGED
        guest.save('s')
        state = guest.state()
        for size in (2 * PLUGGED, 0, 2 * PLUGGED)[:tried(3, 2)]:
            plug(guest, size)
            if size:
                use_memory(guest, 64)
                assert populated(guest) > PLUGGED
            guest.load('s')
            check_strategy(guest, way)
            assert plugged(guest) == PLUGGED
            assert guest.state() == state
            assert 32 * MIB <= populated(guest) <= PLUGGED
        check_quiet(guest)


def digests(guest: Linux) -> dict[int, bytes]:
    """By size, of each memory file that is mapped."""
    found = {}
    for fd in Path(f'/proc/{guest.process.pid}/fd').iterdir():
        if 'memory-backend-memfd' in os.readlink(fd):
            with open(fd, 'rb') as f:
                found[fd.stat().st_size] = hashlib.file_digest(
                    f, 'blake2b').digest()
    assert found.keys() == {RAM_SIZE, VMEM_SIZE}
    return found


def save_with(guest: Linux, tag: str, size: int, kind: str
              ) -> tuple[int, dict[int, bytes]]:
    """A snapshot of @kind of a guest with @size plugged."""
    plug(guest, size)
    guest.run(f'echo {tag} >/run/mark')
    set_kind(guest, kind)
    guest.stop()
    guest.save(tag)
    saved = size, digests(guest)
    guest.cont()
    return saved


@pytest.mark.long('test_virtio_mem has each size, with one snapshot')
def test_virtio_mem_in_many_snapshots(tmp_path, boot, rng: random.Random):
    """Of both kinds, each with another size, in any order."""
    with boot(tmp_path, 'virtio_mem', 'rewind', memory='shared',
              args=vmem_args('shared')) as guest:
        wait_for(lambda: plugged(guest), PLUGGED)
        guest.run('mount -o remount,size=128M /run')
        guest.prepare_state(16)
        sizes = PLUGGED, 3 * PLUGGED, 0, 2 * PLUGGED
        saved = {f't{n}': save_with(guest, f't{n}', size,
                                    ('image', 'memory')[n // 2])
                 for n, size in enumerate(sizes)}
        state = guest.state().checksum
        for _ in range(rounds(24, 5)):
            if rng.random() < 0.5:
                # with less plugged the guest may kill it
                use_memory(guest, 48 if plugged(guest) > PLUGGED else 4)
            guest.stop()
            tag = rng.choice(list(saved))
            guest.load(tag, rng.choice(('hmp', 'qmp')))
            check_strategy(guest, 'rewind')
            size, content = saved[tag]
            assert plugged(guest) == size >= populated(guest)
            assert digests(guest) == content
            guest.cont()
            assert guest.run('cat /run/mark') == tag
            assert guest.state().checksum == state
        check_quiet(guest)
