# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python package: calls that are cancelled, and pools that are misused."""

# Takes: 10 s

import asyncio

import pytest
from ram_reset import LostError, UsageError, aio

from lib import package
from lib.patience import Limit, patience


def test_take_that_is_cancelled():
    """The machine stays in the pool."""
    async def work() -> None:
        async with await aio.Pool.of(await package.start_ring3('tcg'), 1) as pool:
            for number in range(12):
                call = asyncio.ensure_future(pool.take())
                for _ in range(number):
                    await asyncio.sleep(0)
                call.cancel()
                ready, = await asyncio.gather(call, return_exceptions=True)
                if not isinstance(ready, BaseException):
                    await pool.give(ready)
            ready = await asyncio.wait_for(pool.take(), patience(20))
            assert pool.machines == (ready[0],)

    asyncio.run(work())


def test_machine_that_is_given_twice():
    async def work() -> None:
        async with await aio.Pool.of(await package.start_ring3('tcg'), 1) as pool:
            ready = await pool.take()
            await pool.give(ready)
            with pytest.raises(UsageError, match='is not taken; give each'):
                await pool.give(ready)
            await pool.give(await pool.take())

    asyncio.run(work())


def test_pool_that_is_closed():
    """It has nothing that is waited for, and does no work."""
    async def work() -> None:
        pool = await aio.Pool.of(await package.start_ring3('tcg'), 1)
        await pool.take()
        calls = [asyncio.ensure_future(pool.take()) for _ in range(2)]
        await asyncio.sleep(0)
        await pool.close()
        for call in calls:
            with pytest.raises(LostError, match='no machine of the pool'):
                await asyncio.wait_for(call, patience(20))

        async def nothing(machine: aio.Machine, item: int) -> int:
            return item

        with pytest.raises(LostError, match='no machine of the pool'):
            await pool.map(nothing, [1])

    asyncio.run(work())


def test_call_after_a_cancelled_restore():
    """It finds the machine at the snapshot, and its input is not dropped."""
    async def work() -> None:
        async with await package.start_ring3('tcg') as machine:
            clean = await machine.snapshot()
            for number in range(1, 60):
                call = asyncio.ensure_future(machine.restore(clean))
                for _ in range(number % 20):
                    await asyncio.sleep(0)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                await machine.serial.send(f'\nping {number:x}\n')
                await machine.serial.expect(f'pong {number:x}\n', patience(10))

    asyncio.run(work())


def test_fork_that_is_cancelled(tmp_path, monkeypatch):
    """Nobody has its children: they end."""
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    monkeypatch.setattr('ram_reset.process.SHM', str(tmp_path))

    async def work() -> None:
        async with await package.start_ring3('tcg') as machine:
            for seconds in 0.001, 0.02, 0.1:
                call = asyncio.ensure_future(machine.fork())
                await asyncio.sleep(seconds)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            for count in 0, -1:
                with pytest.raises(UsageError, match='at least 1'):
                    await machine.fork(count)
            assert await machine.status() == 'running'
        limit = Limit(20)
        # children have it, too
        while list(tmp_path.iterdir()):
            assert not limit.over()
            await asyncio.sleep(0.01)

    asyncio.run(work())
