# SPDX-License-Identifier: GPL-2.0-or-later
"""
QEMU is killed at a random instant of a fork, while its guest writes: a machine
that starts from the overlays finds sound images and file systems, whether its
disks had been given the overlays by then or not.  The file is whole, or not
there.
"""

# Takes: 40 s
# Long: an instant is random

import random
import shutil
import subprocess
import time
from pathlib import Path

from lib import products
from lib.effort import LONG, rounds
from lib.forking import INCOMING, Fork, Forker
from lib.io.guest import BOOTED, boot, copy_disks
from lib.io.ledger import LINK_DISKS, Ledger
from lib.machine import DISK

KILLS = 50 if LONG else rounds(10, 3)
SECONDS = 0.8                   # about the time of a fork
EMPTY = 200 * 1024            # bytes, at most, of an overlay
LEAKS_ONLY = 3                  # of qemu-img check


def check_image(image: Path) -> None:
    done = subprocess.run([products.QEMU_IMG, 'check', '-q', image],
                          capture_output=True, text=True)
    assert done.returncode in (0, LEAKS_ONLY), f'{image}: {done.stderr}'


def kill(folder: Path, forks: Path, rng: random.Random) -> Fork:
    with Ledger(folder, strategy='auto', loadvm=BOOTED) as guest:
        forker = Forker(guest, forks, {
            DISK: guest.disk,
            **{name: folder / f'{name}.qcow2' for name in Ledger.disks}})
        fork = forker.begin()
        time.sleep(rng.random() * SECONDS)
        guest.process.kill()
        guest.process.wait()
    return fork


def starts(fork: Fork, folder: Path) -> bool:
    """A child of a file that is there, with the disks that its RAM knows."""
    if not fork.state.exists():
        return False
    fork.make_disks(folder)
    with Ledger(folder, boot_timeout=0, args=INCOMING) as guest:
        fork.enter(guest)
        guest.compare_disks()
        guest.check_file_systems()
    return True


def restart(folder: Path, forks: Path) -> None:
    """Over the overlays, in the order in which they were made."""
    again = folder / 'again'
    again.mkdir()
    for number, node in enumerate((DISK, *Ledger.disks)):
        name = 'disk' if node == DISK else node
        shutil.move(forks / f'fork1-{number}.qcow2', again / f'{name}.qcow2')
    with Ledger(again) as guest:
        guest.load_drivers(products.IO_MODULES)
        guest.until(f'set -- /sys/block/[sv]d*; [ $# = {len(guest.disks)} ]')
        guest.run(LINK_DISKS)
        for device in guest.file_systems().values():
            # the journal is replayed
            guest.run(f'mkdir -p /run/fs && mount -t ext4 {device} /run/fs && '
                      f'umount /run/fs && /sbin/e2fsck -fn {device}')


def test_killed(tmp_path, tmp_path_factory, rng):
    booted = boot(Ledger, tmp_path_factory)
    used = started = 0
    for n in range(KILLS):
        folder = tmp_path / f'kill{n}'
        forks = folder / 'forks'
        folder.mkdir()
        copy_disks(booted, folder)
        fork = kill(folder, forks, rng)
        for image in (*folder.glob('*.qcow2'), *forks.glob('*.qcow2')):
            check_image(image)
        used += any(image.stat().st_size > EMPTY
                    for image in forks.glob('*.qcow2'))
        started += starts(fork, folder / 'child')
        restart(folder, forks)
        shutil.rmtree(folder)
    print(f'{KILLS} kills, {used} after a write to an overlay, a child of '
          f'{started}')
