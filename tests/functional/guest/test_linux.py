# SPDX-License-Identifier: GPL-2.0-or-later
"""A Linux guest that dirties much of its memory and is taken back."""

# Takes: 45 s

import secrets
import shutil
from dataclasses import replace

import pytest

from lib.effort import rounds, tried
from lib.guests import Linux, State
from lib.machine import MIB, STRATEGIES
from lib.streams import Finder

RAM_SIZE = rounds(512, 320) * MIB
STATE_MIB = 8
DIRTY_MIB = rounds(192, 96)


@pytest.fixture(scope='module')
def booted(tmp_path_factory, each_linux_accel):
    """A disk that has the snapshot "booted", and what the guest was then."""
    workdir = tmp_path_factory.mktemp('booted')
    with Linux(workdir, accel=each_linux_accel, ram=RAM_SIZE) as guest:
        guest.prepare_state(STATE_MIB)
        state = guest.state()
        guest.save('booted')
    return guest.disk, state


@pytest.fixture
def start(tmp_path, each_linux_accel, memory, strategy, booted):
    """Starts the guest anew from a snapshot on a disk of the test's own."""
    shutil.copy(booted[0], tmp_path / 'disk.qcow2')

    def start_guest(tag: str) -> Linux:
        return Linux(tmp_path, accel=each_linux_accel, ram=RAM_SIZE,
                     memory=memory, strategy=strategy, loadvm=tag)
    return start_guest


def find(guest: Linux, secret: bytes) -> dict[str, int]:
    finder = Finder(raw=secret, typed=secret.hex().encode())
    guest.dump(finder)
    return finder.counts


def after_one_question(state: State) -> State:
    return replace(state, commands=state.commands + 1)


# ./test has each strategy in one of two, --all in both
@pytest.mark.each_value
@pytest.mark.parametrize('strategy', tried(STRATEGIES, ('memset', 'remap')))
def test_back_to_the_snapshot(start, booted, memory, strategy):
    with start('booted') as guest:
        saved = guest.state()
        assert saved == after_one_question(booted[1])
        guest.save('s')
        for how in ('hmp', 'qmp'):
            secret = secrets.token_bytes(16)
            guest.run(f'ramtool fill /run/dirty {DIRTY_MIB} {secret.hex()}')
            guest.run('rm /run/state')
            dirty_rss = guest.rss()
            counts = find(guest, secret)
            assert counts['raw'] >= DIRTY_MIB and counts['typed'] > 0

            guest.load('s', how)
            if strategy in ('madvise', 'remap'):
                assert guest.rss() < dirty_rss - (DIRTY_MIB - 32) * MIB
            assert guest.state() == after_one_question(saved)
            assert find(guest, secret) == {'raw': 0, 'typed': 0}
        assert guest.qmp('query-ram-reset')['loads'] == 3

    with start('s') as guest:
        assert guest.state() == after_one_question(saved)


@pytest.mark.each_value
@pytest.mark.parametrize('strategy', tried(STRATEGIES[1:],
                                           ('madvise', 'auto')))
def test_load_in_the_middle_of_work(start, strategy):
    """The guest runs processes that write while it is saved and loaded."""
    with start('booted') as guest:
        guest.run('expected=$(sha256sum </run/state)')
        guest.run('while ramtool fill /run/work 8; do :; done & worker=$!')
        guest.save('s')
        secret = secrets.token_bytes(16)
        for i in range(rounds(6, 3)):
            guest.run(f'ramtool fill /run/new{i} {8 + i} {secret.hex()}')
            guest.load('s', how=('hmp', 'qmp')[i % 2])
            guest.run(f'kill -0 $worker && [ ! -e /run/new{i} ]')
        assert find(guest, secret) == {'raw': 0, 'typed': 0}
        guest.run('kill $worker && [ "$(sha256sum </run/state)" = "$expected" ]')
        guest.run('[ -z "$(dmesg | grep -E "BUG|Oops|corrupt|Bad page")" ]')
