# SPDX-License-Identifier: GPL-2.0-or-later
"""
Snapshots are saved and loaded while each device of a Linux guest is at work:
its disks have what the guest has written and no more, and no queue gets stuck.

Guests know themselves what has to be on their disks, see guest/churn.c.
"""

# Takes: 40 s

import filecmp
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import products
from lib.effort import rounds, tried
from lib.io.channels import why_no_tap
from lib.io.guest import BOOTED, DISKS, WAYS, Busy, Files, boot, copy_disks
from lib.machine import run_quietly

SLOW = '''[inject-error]
event = "none"
errno = "0"
iotype = "write"
delay-ns = "2000000"
'''


@pytest.fixture(scope='module')
def booted(tmp_path_factory) -> Path:
    """A folder with disks of a guest that has drivers of all its devices."""
    return boot(Busy, tmp_path_factory)


@pytest.fixture
def start(tmp_path, booted) -> Callable[..., Busy]:
    def start_guest(way: str, **kwargs) -> Busy:
        copy_disks(booted, tmp_path)
        if way == 'stock' or kwargs.get('net') != 'tap':
            return Busy(tmp_path, loadvm=BOOTED, **WAYS[way], **kwargs)
        # a tap can do more than what the guest was booted with, and virtio-net
        # has that in the VM state: verify=on would find a difference
        guest = Busy(tmp_path, loadvm=BOOTED, strategy='auto',
                     options=',rewind=on', **kwargs)
        guest.qmp('qom-set', path='/objects/rr0', property='verify', value=True)
        return guest
    return start_guest


def fast_aio(workdir: Path) -> str:
    """QEMU may have been built without io_uring, or the host forbids it."""
    disk = workdir / 'probe.raw'
    with open(disk, 'wb') as f:
        f.truncate(1 << 20)
    works = subprocess.run([products.QEMU_IMG, 'bench', '-c', '1', '-i',
                            'io_uring', '-f', 'raw', disk],
                           capture_output=True, check=False).returncode == 0
    if not works:
        print('no io_uring here: all disks have threads')
    return 'io_uring' if works else 'threads'


def all_files(workdir: Path) -> list[Files]:
    """The first four differ most."""
    fast = fast_aio(workdir)
    rules = workdir / 'slow.conf'
    # QEMU 10.2 has no delays
    rules.write_text(SLOW if b'delay-ns' in products.QEMU.read_bytes() else
                     SLOW[:SLOW.index('delay')])
    return [Files('none', fast, rules), Files('writeback', 'threads'),
            Files('none', fast), Files('unsafe', fast),
            Files('none', 'threads', rules), Files('writeback', fast),
            Files('none', 'threads'), Files('unsafe', 'threads')]


def check_images(workdir: Path, tag: str) -> None:
    """Each is sound, and has what it had when the snapshot was saved."""
    now, then = workdir / 'now.raw', workdir / 'then.raw'
    for name in DISKS:
        image = workdir / f'{name}.qcow2'
        run_quietly(products.QEMU_IMG, 'check', '-q', image)
        run_quietly(products.QEMU_IMG, 'convert', '-O', 'raw', image, now)
        run_quietly(products.QEMU_IMG, 'convert', '-O', 'raw', '-l',
                    f'snapshot.name={tag}', image, then)
        assert filecmp.cmp(now, then, shallow=False), name


@pytest.mark.long('test_inflight.py has disks with requests, too')
@pytest.mark.parametrize('way, shift', tried(
    [('stock', 1), ('stock', 5), *(('rewind', n) for n in range(0, 8, 2))],
    [('rewind', 0)]))
def test_disks(start, tmp_path, rng, way, shift):
    """@shift: so that each disk has had each of the files."""
    files = all_files(tmp_path)
    files = files[shift:] + files[:shift]
    with start(way, files=files) as guest:
        guest.churn()
        guest.compare_disks()
        guest.save('s')
        for _ in range(2):
            time.sleep(rng.random() / 10)
            guest.load('s')
            guest.compare_disks()
        guest.stop()
        guest.load('s')
    check_images(tmp_path, 's')


@pytest.mark.parametrize('way, saved, net', tried(
    [('stock', 'running', 'cable'), ('stock', 'stopped', 'user'),
     ('rewind', 'running', 'user'), ('rewind', 'stopped', 'tap')], []) +
    [('rewind', 'stopped', 'cable')])
def test_queues(start, rng, way, saved, net):
    """
    While this host floods the guest, and the guest this host.  No device waits
    for what has happened after the save: a limit of entropy, for one, begins
    anew, or what was used since were missing until the clock is there again.
    """
    if net == 'tap' and (reason := why_no_tap()):
        pytest.skip(f'no tap device can be made: {reason}')
    with start(way, net=net, limit='max-bytes=16384,period=1000000') as guest:
        guest.chatter()
        guest.check_flow()
        used_up = guest.exhaust_entropy()
        if saved == 'stopped':
            guest.stop()
            time.sleep(0.1)     # what comes in now waits in front of the queue
        guest.save('s')
        guest.cont()
        for _ in range(rounds(8, 3)):
            time.sleep(rng.random() / 10)
            guest.load('s')
            guest.cont()
            guest.check_flow(used_up)
