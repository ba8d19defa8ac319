# SPDX-License-Identifier: GPL-2.0-or-later
"""The Python package: calls that are cancelled, and pools that are misused."""

# Takes: 10 s

import asyncio

import pytest
from ram_reset import LostError, UsageError, aio

from lib import package
from lib.patience import patience


async def start() -> aio.Machine:
    machine = await aio.Machine.start(
        package.ring3('tcg'), qemu=package.QEMU, serial=True)
    await machine.serial.expect(r'^ready 3 [^\n]*\n', patience(60))
    return machine


def test_take_that_is_cancelled():
    """The machine stays in the pool."""
    async def work() -> None:
        async with await aio.Pool.of(await start(), 1) as pool:
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
        async with await aio.Pool.of(await start(), 1) as pool:
            ready = await pool.take()
            await pool.give(ready)
            with pytest.raises(UsageError, match='is not taken; give each'):
                await pool.give(ready)
            await pool.give(await pool.take())

    asyncio.run(work())


def test_pool_that_is_closed():
    """It has nothing that is waited for, and does no work."""
    async def work() -> None:
        pool = await aio.Pool.of(await start(), 1)
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
