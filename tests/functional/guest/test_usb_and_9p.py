# SPDX-License-Identifier: GPL-2.0-or-later
"""
A USB disk at work while snapshots are saved and loaded; and a share of the
host's, which keeps a guest from being saved, but not from going back.
"""

# Takes: 40 s
# Long: it takes a kernel of 100 MB, and a boot of it

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import products
from lib.io.guest import (BOOTED, DISK_MIB, WAYS, Churning, Files,
                          copy_disks)
from lib.machine import MachineError, run_quietly

LOADS = 10
MOUNT = 'mount -t 9p -o trans=virtio,version=9p2000.L share /run/share'


class Guest(Churning):

    disks = {'usb': '/dev/sda'}

    def __init__(self, workdir: Path, **kwargs):
        image, self.share = workdir / 'usb.qcow2', workdir / 'share'
        self.share.mkdir()
        if not image.exists():
            run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                        image, f'{DISK_MIB}M')
        super().__init__(
            workdir, kernel=products.full_kernel(),
            initrd=products.full_initramfs(), args=(
                '-device', 'qemu-xhci',
                '-blockdev', Files().blockdev('usb', image),
                '-device', 'usb-storage,drive=usb',
                '-fsdev', f'local,id=fs0,security_model=none,path={self.share}',
                '-device', 'virtio-9p-pci,fsdev=fs0,mount_tag=share'),
            **kwargs)


@pytest.fixture(scope='module')
def booted(tmp_path_factory) -> Path:
    if not products.FULL.exists():
        pytest.skip(f'{products.FULL} is not there: run '
                    'scripts/fetch-guest --full, which fetches it')
    workdir = tmp_path_factory.mktemp('booted')
    with Guest(workdir) as guest:
        guest.load_drivers(products.FULL_MODULES)
        guest.run('mkdir /run/share')
        guest.save(BOOTED)
    return workdir


@pytest.fixture(params=WAYS)
def start(request, tmp_path, booted) -> Callable[[], Guest]:
    def start_guest() -> Guest:
        copy_disks(booted, tmp_path)
        return Guest(tmp_path, loadvm=BOOTED, **WAYS[request.param])
    return start_guest


def test_usb_disk(start, rng):
    with start() as guest:
        guest.churn()
        guest.compare_disks()
        guest.save('s')
        for _ in range(LOADS):
            time.sleep(rng.random() / 10)
            guest.load('s')
            guest.compare_disks()


def test_share(start, rng):
    with start() as guest:
        secret = secrets.token_hex()
        (guest.share / 'file').write_text(secret + '\n')
        guest.save('before')
        for _ in range(LOADS // 2):
            guest.run(MOUNT)
            assert guest.run('cat /run/share/file') == secret
            with pytest.raises(MachineError, match='path .* is mounted'):
                guest.save('mounted')
            guest.run('while :; do cat /run/share/file; done >/dev/null &')
            time.sleep(rng.random() / 10)
            guest.load('before')
            assert not guest.run('ls /run/share')
            # nothing is mounted any more
            guest.save('again')
