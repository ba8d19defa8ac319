# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests with a directory of templates, and what they have loaded from it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.guests import PAGE, Ring3
from lib.machine import MIB, RAM
from lib.shm import in_memory

RAM_SIZE = 32 * MIB
START = Ring3.FIRST_FREE
STORED = 6 * MIB
# Options with which templates have no file, and have one
REWIND = ('', ',rewind=on')


@pytest.fixture
def templates() -> Iterator[Path]:
    with in_memory('templates') as folder:
        yield folder


@pytest.fixture(params=REWIND, ids=('load', 'rewind'))
def rewind(request) -> str:
    return request.param


def boot(workdir: Path, templates: Path, accel: str = 'tcg',
         strategy: str = 'memset', options: str = '', ram: int = RAM_SIZE,
         **kwargs) -> Ring3:
    return Ring3(workdir, accel=accel, strategy=strategy, ram=ram,
                 options=f',template-dir={templates}{options}', **kwargs)


def files(templates: Path) -> list[Path]:
    return sorted(templates.iterdir())


def main_block(guest: Ring3) -> dict:
    return next(b for b in guest.last_load()['blocks'] if RAM in b['name'])


def assert_from_template(guest: Ring3, file: Path) -> None:
    last = guest.last_load()
    assert last.get('template') == str(file), guest.hmp('info ram-reset')


def assert_not_from_template(guest: Ring3) -> None:
    assert 'template' not in guest.last_load(), guest.hmp('info ram-reset')


def save(workdir: Path, templates: Path, seed: int = 1, **kwargs) -> bytes:
    """A snapshot 's', and what it has."""
    with boot(workdir, templates, **kwargs) as guest:
        guest.ask('fill', START, STORED, seed)
        guest.stop()
        image = guest.ram_image()
        guest.save('s')
    return image


def dirty(guest: Ring3, seed: int = 9) -> None:
    guest.ask('fill', START + MIB, 2 * MIB, seed)
    guest.ask('set', START + 4 * MIB, MIB, 0)
    guest.ask('tag', START + 8 * MIB, 100, PAGE, seed)


def start(workdir: Path, templates: Path, args: tuple = (), **kwargs
          ) -> Ring3:
    """A new QEMU, stopped as soon as it has loaded."""
    return boot(workdir, templates, loadvm='s', args=(*args, '-S'), **kwargs)
