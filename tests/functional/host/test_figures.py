# SPDX-License-Identifier: GPL-2.0-or-later
"""query-ram-reset and warnings say what is so: phases, costs, limits."""

# Takes: 10 s

import re
from pathlib import Path

import pytest

from lib.machine import MIB, Machine

TAG = 's'


def start(workdir: Path, strategy: str = 'auto', options: str = '',
          **kwargs) -> Machine:
    return Machine(workdir, accel='tcg', ram=64 * MIB, strategy=strategy,
                   options=options, **kwargs)


def load(guest: Machine) -> dict:
    guest.load(TAG)
    return guest.last_load()


@pytest.mark.parametrize('verify', ('off', 'on'))
@pytest.mark.parametrize('rewind', ('off', 'on'))
def test_verify_is_a_phase_of_its_own(tmp_path, verify, rewind):
    with start(tmp_path, options=f',verify={verify},rewind={rewind}',
               args=('-S',)) as guest:
        guest.save(TAG)
        load(guest)
        last = load(guest)
        phases = last['phases']
        text = guest.hmp('info ram-reset')
        total = phases.pop('total')
        assert last['rewound'] == (rewind == 'on')
        assert (phases['verify'] > 0) == (verify == 'on')
        assert sum(phases.values()) == total
        shown = re.search(r'^  verify +(\S+)', text, re.MULTILINE)
        assert bool(shown) == (verify == 'on')
        assert not shown or shown[1] == f'{phases["verify"] / 1e6:.3f}'


@pytest.mark.parametrize('templates', (False, True))
def test_costs_that_are_not_known_have_no_table(tmp_path, templates):
    """With templates, loads may never need them."""
    (tmp_path / 'templates').mkdir(mode=0o700)
    options = f',template-dir={tmp_path / "templates"}' if templates else ''
    with start(tmp_path, options=options, args=('-S',)) as guest:
        text = guest.hmp('info ram-reset')
    assert ('costs in ns (measured)' in text) == (not templates)
    assert ('granule' in text) == (not templates)
    assert ('no costs measured yet' in text) == templates


@pytest.mark.parametrize('options, warned', (
    (',rewind-limit=1G', 'rewind-limit= has no effect without rewind=on'),
    (',rewind-limit=1G,rewind=on', ''),
    (',template-limit=1G', 'template-limit= has no effect without '
                           'template-dir='),
    ('', '')))
def test_a_limit_of_nothing_is_warned_of(tmp_path, options, warned):
    with start(tmp_path, options=options, args=('-S',)) as guest:
        log = guest.log()
    assert ('has no effect' in log) == bool(warned)
    assert warned in log
    assert not warned or "'rr0'" in log
