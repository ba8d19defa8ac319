# SPDX-License-Identifier: GPL-2.0-or-later
"""What only QEMU 10.2 and later can do; test_releases.py runs it with those.

Snapshots with the capability mapped-ram, which QEMU loads by a way of its own,
with no call for a page.
"""

import pytest

from lib.fixtures import accel, built, fast_accel   # noqa: F401
from lib.guests import Ring3
from lib.machine import MEMORIES, MIB, RAM, STRATEGIES, MachineError

RAM_SIZE = 128 * MIB
KEPT = Ring3.FIRST_FREE, 8 * MIB
# Zero when it is saved
LATER = Ring3.FIRST_FREE + 16 * MIB, 32 * MIB


def mapped_ram(guest: Ring3) -> None:
    guest.qmp('migrate-set-capabilities',
              capabilities=[{'capability': 'mapped-ram', 'state': True}])


def save(guest: Ring3) -> bytes:
    guest.ask('fill', *KEPT, 1)
    guest.stop()
    guest.save('s')
    image = guest.ram_image()
    guest.cont()
    return image


@pytest.mark.parametrize('memory', MEMORIES)
@pytest.mark.parametrize('strategy', STRATEGIES[1:])
def test_mapped_ram(tmp_path, fast_accel, strategy, memory):
    with Ring3(tmp_path, accel=fast_accel, strategy=strategy, memory=memory,
               ram=RAM_SIZE, options=',rewind=on') as guest:
        mapped_ram(guest)
        image, before = save(guest), guest.rss()
        for seed in range(2, 4):
            guest.ask('fill', *KEPT, seed)
            guest.ask('fill', *LATER, seed)
            guest.stop()
            guest.load('s')
            assert guest.ram_image() == image
            load = guest.last_load()
            assert not load['rewound'] and 'mapped-ram' in load['blocker']
            rewind = guest.qmp('query-ram-reset')['rewind']
            assert 'mapped-ram' in rewind['blocker']
            block, = (b for b in load['blocks'] if b['name'] == RAM)
            assert not block['fallback']
            if block['strategy'] in ('madvise', 'remap'):
                assert guest.rss() < before + LATER[1] // 2
            guest.cont()
            guest.ask('check-fill', *KEPT, 1)


def test_mapped_ram_in_a_new_process(tmp_path, fast_accel):
    """Without a template, which would need what QEMU does not tell."""
    directory = tmp_path / 'templates'
    directory.mkdir(mode=0o700)
    settings = dict(accel=fast_accel, strategy='auto', memory='private',
                    ram=RAM_SIZE, options=f',template-dir={directory}')
    with Ring3(tmp_path, **settings) as guest:
        mapped_ram(guest)
        image = save(guest)
    assert not list(directory.iterdir())
    with Ring3(tmp_path, **settings, loadvm='s',
               args=('-global', 'migration.mapped-ram=on', '-S')) as guest:
        assert guest.ram_image() == image
    assert not list(directory.iterdir())


def test_mapped_ram_is_verified(tmp_path, fast_accel):
    with Ring3(tmp_path, accel=fast_accel, strategy='memset', memory='private',
               ram=RAM_SIZE, options=',verify=on') as guest:
        mapped_ram(guest)
        save(guest)
        guest.ask('fill', *LATER, 2)
        guest.load('s')
        assert guest.status() == 'running'
        # the capability has to be what it was
        guest.qmp('migrate-set-capabilities',
                  capabilities=[{'capability': 'mapped-ram', 'state': False}])
        with pytest.raises(MachineError, match='mapped-ram'):
            guest.load('s')
