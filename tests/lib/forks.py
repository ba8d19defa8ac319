# SPDX-License-Identifier: GPL-2.0-or-later
"""Overlays, also over internal snapshots, and machines that start from them."""

import hashlib
import json
from pathlib import Path

import pytest

from lib import products
from lib.kills import Disks
from lib.machine import run_quietly

OPTION = 'internal-snapshot'
SAVED, LATER = 0x11, 0x22


def backing(image: Path, tag: object) -> str:
    """The name of the disk that @image had at the snapshot @tag."""
    return 'json:' + json.dumps({
        'driver': 'qcow2', OPTION: tag,
        'file': {'driver': 'file', 'filename': str(image)}})


def overlay(base: Path | str, path: Path, *size: str) -> None:
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', '-F', 'qcow2',
                '-b', base, path, *size)


def fork(parent: Path, child: Path, tag: object) -> Path:
    """A folder with overlays over the snapshot @tag of all disks of another."""
    child.mkdir()
    for image in parent.glob('*.qcow2'):
        overlay(backing(image, tag), child / image.name)
    return child


def digests(folder: Path) -> list[str]:
    return [hashlib.sha256(image.read_bytes()).hexdigest()
            for image in sorted(folder.glob('*.qcow2'))]


def check_all(*folders: Path) -> None:
    """Nothing is wrong in any image, and nothing leaks."""
    for folder in folders:
        for image in folder.glob('*.qcow2'):
            run_quietly(products.QEMU_IMG, 'check', '-q', image)


def machine(folder: Path, number: int = 1, **kwargs) -> Disks:
    return Disks(folder, number, strategy='auto', **kwargs)


def parent(folder: Path, number: int = 1, tag: str = 's', **kwargs) -> Path:
    """A folder with a snapshot in which all is SAVED, and writes after it."""
    folder.mkdir()
    with machine(folder, number, **kwargs) as guest:
        guest.fill(SAVED)
        guest.snapshot_job('snapshot-save', tag, devices=guest.nodes)
        guest.fill(LATER)
        assert guest.holds(SAVED, LATER) == LATER
    return folder


@pytest.fixture
def saved_image(tmp_path) -> Path:
    return parent(tmp_path / 'parent')


def use(guest: Disks, number: int, rewinds: bool) -> None:
    """A child that has loaded: it goes on, saves, and loads what is its own."""
    assert guest.holds(SAVED, LATER) == SAVED
    for round_ in range(2):
        guest.fill(number)
        guest.save('own')
        guest.fill(number + 1)
        for tag, content in ('own', number), ('s', SAVED), ('own', number):
            guest.load(tag)
            assert guest.holds(SAVED, LATER, number, number + 1) == content
            assert guest.last_load()['rewound'] == rewinds
            guest.fill(number + 2 + round_)
        assert guest.tags() == [['own']] * len(guest.nodes)
