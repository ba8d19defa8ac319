# SPDX-License-Identifier: GPL-2.0-or-later
"""A ring-3 guest, whose stores go through real page tables under KVM too."""

# Takes: 25 s

import random
from pathlib import Path

import pytest

from lib.content import (START, STORED, TAGGED, ZERO, assert_same_ram,
                         check_state, dirty, write_state)
from lib.effort import rounds
from lib.guests import PAGE, Corrupt, Ring3
from lib.machine import MIB, RAM, STRATEGIES, may_use
from lib.patience import Limit

RAM_SIZE = 64 * MIB


def boot(workdir: Path, accel: str, memory: str, strategy: str, **kwargs
         ) -> Ring3:
    return Ring3(workdir, accel=accel, memory=memory, strategy=strategy,
                 ram=RAM_SIZE, **kwargs)


def check_statistics(guest: Ring3, strategy: str, loads: int) -> None:
    info = guest.qmp('query-ram-reset')
    assert (info['loads'], info['failed-loads'], info['fallbacks']) == \
        (loads, 0, 0)
    blocks = info['last-load']['blocks']
    if strategy == 'stock':
        assert blocks == []
        return
    block, = (b for b in blocks if RAM in b['name'])
    assert block['strategy'] in may_use(strategy)
    assert not block['fallback']
    pages = RAM_SIZE // PAGE
    assert block['skipped-pages'] + block['checked-pages'] + \
        block['copied-pages'] == pages
    assert block['copied-pages'] >= STORED[1] // PAGE + TAGGED[1]
    assert block['skipped-pages'] >= ZERO[1] // PAGE


@pytest.mark.each_value
@pytest.mark.parametrize('strategy, options', (
    *((strategy, '') for strategy in STRATEGIES),
    *((strategy, ',verify=on') for strategy in STRATEGIES[1:])))
def test_round_trip(tmp_path, accel, any_memory, strategy, options):
    with boot(tmp_path, accel, any_memory, strategy, options=options) as guest:
        write_state(guest)
        checksum = guest.checksum(START, RAM_SIZE - START)
        guest.stop()
        image = guest.ram_image()
        guest.save('s')
        for load in (1, 2):
            guest.cont()
            dirty(guest, 100 + load)
            guest.stop()
            guest.load('s')
            assert guest.status() == 'paused'
            assert_same_ram(guest.ram_image(), image)
        check_statistics(guest, strategy, loads=2)
        guest.cont()
        check_state(guest)
        assert guest.checksum(START, RAM_SIZE - START) == checksum


@pytest.mark.each_value
@pytest.mark.parametrize('how', ('hmp', 'qmp', 'loadvm'))
def test_ways_to_load(tmp_path, fast_accel, memory, strategy, how):
    with boot(tmp_path, fast_accel, memory, strategy) as guest:
        write_state(guest)
        if how == 'qmp':
            guest.snapshot_job('snapshot-save', 's')
        else:
            guest.save('s')
        if how != 'loadvm':
            dirty(guest, 7)
            guest.load('s', how)
            assert guest.status() == 'running'
            check_state(guest)
            check_statistics(guest, strategy, loads=1)
    if how == 'loadvm':
        with boot(tmp_path, fast_accel, memory, strategy,
                  loadvm='s') as guest:
            check_state(guest)
            check_statistics(guest, strategy, loads=1)


def pass_where(guest: Ring3, wanted) -> int:
    limit = Limit(guest.TIMEOUT)
    while not wanted(number := guest.next_pass()):
        assert not limit.over(), f'still at pass {number}'
    return number


@pytest.mark.each_value
def test_hot_loop(tmp_path, accel, any_memory, strategy):
    """The guest writes and checks all the time; loads come from both sides."""
    loads, ahead = rounds(24, 12), 200
    with boot(tmp_path, accel, any_memory, strategy) as guest:
        guest.ask('fill', *STORED, 3)
        guest.start_loop(ZERO[0], 256, report=16)
        guest.stop()
        guest.settle()
        guest.save('s')
        guest.cont()
        limit = guest.next_pass() + ahead
        for i in range(loads):
            pass_where(guest, lambda number: number >= limit)
            guest.load('s', how=('hmp', 'qmp')[i % 2])
            # all that was said before the load is at or beyond the limit
            pass_where(guest, lambda number: number < limit)
        assert guest.qmp('query-ram-reset')['loads'] == loads
        guest.sync()
        guest.ask('check-fill', *STORED, 3)


def random_write(rng: random.Random, guest: Ring3) -> str:
    pages = (RAM_SIZE - START) // PAGE
    first = rng.randrange(pages)
    count = min(pages - first, 1 << rng.randrange(11))
    start, size = START + first * PAGE, count * PAGE
    kind = rng.choice(('fill', 'set', 'tag', 'tag', 'unaligned'))
    seed = rng.getrandbits(63)
    if kind == 'tag':
        stride = rng.choice((1, 2, 3, 16, 513))
        guest.ask('tag', start, -(-count // stride), stride * PAGE, seed)
    elif kind == 'unaligned':
        guest.ask('fill', start + 8 * rng.randrange(512), 8, seed)
    elif kind == 'set':
        guest.ask('set', start, size, 0)
    else:
        guest.ask('fill', start, size, seed)
    return f'{kind} {start:#x} {size:#x}'


@pytest.mark.each_value
def test_random_sequence(tmp_path, accel, any_memory, strategy, rng):
    """RAM after a load is RAM at the time of the save, in any sequence."""
    steps, tags = rounds(24, 8), ('a', 'b', 'c')
    saved = {}
    loads = 0
    with boot(tmp_path, accel, any_memory, strategy) as guest:
        for step in range(steps):
            for _ in range(rng.randrange(1, 8)):
                print(step, random_write(rng, guest))
            guest.stop()
            if not saved or rng.random() < 0.25:
                tag = rng.choice(tags)
                print(step, 'save', tag)
                saved[tag] = guest.ram_image()
                guest.save(tag)
            else:
                # a second load in a row finds pages that the first has left
                for _ in range(rng.choice((1, 1, 2))):
                    tag = rng.choice(sorted(saved))
                    print(step, 'load', tag)
                    guest.load(tag, rng.choice(('hmp', 'qmp')))
                    loads += 1
                    assert_same_ram(guest.ram_image(), saved[tag])
            guest.cont()
        assert guest.qmp('query-ram-reset')['loads'] == loads > 0


def test_loop_finds_stale_memory(tmp_path, fast_accel):
    """The check of the hot loop is worth something: a stray write ends it."""
    with boot(tmp_path, fast_accel, 'shared', 'stock') as guest:
        guest.start_loop(ZERO[0], 256, report=16)
        with open(guest.memfd(), 'r+b') as f:
            f.seek(ZERO[0] + 17 * PAGE)
            f.write(b'stale!!!')
        with pytest.raises(Corrupt):
            for _ in range(1000):
                guest.next_pass()
