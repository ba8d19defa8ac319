# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines that are ready at one state, for asyncio."""

import asyncio
from contextlib import asynccontextmanager
from typing import (AsyncIterator, Awaitable, Callable, Iterable, List,
                    Optional, Sequence, Tuple, TypeVar)

from ram_reset.errors import LostError, UsageError
from ram_reset.machine import Machine
from ram_reset.spec import Snapshot

Item = TypeVar('Item')
T = TypeVar('T')
Ready = Tuple[Machine, Snapshot]


class Pool:
    """
    Each machine is handed out as it was when the pool was made.  A machine
    whose QEMU has ended leaves the pool.
    """

    def __init__(self) -> None:
        """Use of()."""
        self._all: List[Machine] = []
        self._taken: List[Machine] = []
        # None wakes all that wait when no machine is left
        self._idle: 'asyncio.Queue[Optional[Ready]]' = asyncio.Queue()

    @classmethod
    async def of(cls, machine: Machine, count: int) -> 'Pool':
        """
        A pool of a machine and its forks.

        :param machine: belongs to the pool from now on, whatever happens
        :param count: of machines, this one included
        """
        pool = cls()
        pool._all.append(machine)
        try:
            if count < 1:
                raise UsageError(f'a pool of {count} machines is none; ask for '
                                 'at least 1')
            if count > 1:
                pool._all += await machine.fork(count - 1)
            await asyncio.gather(*map(pool._prepare, pool._all))
        except BaseException:
            await pool.close()
            raise
        return pool

    async def _prepare(self, machine: Machine) -> None:
        await machine.pause()
        self._idle.put_nowait((machine, await machine.snapshot()))

    @property
    def machines(self) -> Sequence[Machine]:
        """All that live, idle or not."""
        return tuple(self._all)

    async def close(self) -> None:
        """Close all machines."""
        machines, self._all = self._all, []
        self._idle.put_nowait(None)
        await asyncio.gather(*(machine.close() for machine in machines))

    async def __aenter__(self) -> 'Pool':
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.close()

    async def take(self) -> Ready:
        """A machine that runs; give it back with give()."""
        while True:
            if not self._all:
                raise LostError('no machine of the pool is left; see their '
                                'errors, or make another pool')
            ready = await self._idle.get()
            if not ready or not self._all:
                self._idle.put_nowait(None)     # for others that wait
                continue
            self._taken.append(ready[0])
            try:
                await ready[0].resume()
            except LostError:
                await self._drop(ready)
            except BaseException:
                await self.give(ready)
                raise
            else:
                return ready

    async def give(self, ready: Ready) -> None:
        """Take a machine back, to its state in the pool."""
        machine, snapshot = ready
        if machine not in self._taken:
            raise UsageError(f'machine {machine.name} is not taken; give each '
                             'machine back once')
        self._taken.remove(machine)
        try:
            await machine.restore(snapshot, run=False)
        except BaseException:
            await self._drop(ready)
            raise
        self._idle.put_nowait(ready)

    async def _drop(self, ready: Ready) -> None:
        machine = ready[0]
        if machine in self._taken:
            self._taken.remove(machine)
        if machine in self._all:
            self._all.remove(machine)
        await machine.close()
        if not self._all:
            self._idle.put_nowait(None)

    @asynccontextmanager
    async def machine(self) -> AsyncIterator[Machine]:
        """A machine that runs, for the body of a with statement."""
        ready = await self.take()
        try:
            yield ready[0]
        except LostError:
            await self._drop(ready)
            raise
        except BaseException:
            await self.give(ready)
            raise
        await self.give(ready)

    async def map(self, work: Callable[[Machine, Item], Awaitable[T]],
                  items: Iterable[Item]) -> List[T]:
        """
        The results of work on each item, each with a machine of its own, in
        the order of the items.  The first failure is raised when work that has
        begun has ended; no other begins.
        """
        todo = enumerate(items)
        results: List[Tuple[int, T]] = []
        failures: List[BaseException] = []

        async def worker() -> None:
            for number, item in todo:
                try:
                    async with self.machine() as machine:
                        results.append((number, await work(machine, item)))
                except Exception as e:
                    failures.append(e)
                if failures:
                    return

        await asyncio.gather(*(worker() for _ in range(max(len(self._all), 1))))
        if failures:
            raise failures[0]
        return [result for _, result in sorted(results, key=lambda r: r[0])]
