# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of a guest, by the shell that Machine.run() reaches."""

import asyncio
import base64
import binascii
import gzip
import itertools
from shlex import quote
from typing import Set

from ram_reset.channel import Result
from ram_reset.errors import GuestError
from ram_reset.machine import Machine

FOLDER = '/tmp/ram-reset'
PATH = '/usr/sbin:/usr/bin:/sbin:/bin'
PART = 3 << 15          # bytes that are read at once
LINE = 700              # characters written at once: some shells take 1024
AGENT_LINE = 60000
WAIT = 60.0             # seconds for a guest that only has to answer


class TooMuchError(GuestError):
    """The guest has more bytes than are allowed."""


def decode(text: str, size: int) -> bytes:
    try:
        data = base64.b64decode(text)
    except binascii.Error:
        data = b''
    if len(data) != size:
        raise GuestError(
            f"the guest's reply of {size} bytes is damaged; check that "
            'nothing else writes to the serial port (Linux: loglevel=1)')
    return data


class Shell:
    """Of one machine that runs; its lines are short, and any bytes pass."""

    def __init__(self, machine: Machine):
        self._machine = machine
        self._line = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._tasks: 'Set[asyncio.Task[Result]]' = set()

    async def end(self) -> None:
        """To be called before the machine is restored."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def begin(self, line: str) -> 'asyncio.Task[Result]':
        """Run a short line, after those that have begun."""
        async def locked() -> Result:
            async with self._line:
                return await self._machine.run(
                    f'( own=$PATH PATH={PATH}; export own PATH; {line}; )',
                    WAIT)
        task = asyncio.ensure_future(locked())
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: 'asyncio.Task[Result]') -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()    # nobody may have waited for it

    async def _run(self, line: str) -> Result:
        """Run a short line of the shell; a cancel does not cut it."""
        return await asyncio.shield(self.begin(line))

    async def check(self, line: str) -> str:
        """Run a short line, which must succeed."""
        result = await self._run(line)
        if result.status:
            raise GuestError(f'the guest fails with status {result.status}: '
                             f'{result.output.strip()}')
        return result.output

    async def put(self, path: str, data: bytes) -> None:
        """Write a file.  Its folder must be there."""
        text = base64.b64encode(gzip.compress(data)).decode()
        length = AGENT_LINE if self._machine.agent else LINE
        parts = [text[i:i + length] for i in range(0, len(text), length)]
        part = quote(path + '.part')
        for before in parts[:-1]:
            await self.check(f'printf %s {before} >>{part}')
        last = f'printf %s {parts[-1]}'
        if len(parts) > 1:
            await self.check(f'{last} >>{part}')
            last = f'cat {part}'
        await self.check(f'{last} | base64 -d | gunzip >{quote(path)} && '
                         f'rm -f {part}')

    async def get(self, path: str, limit: int) -> bytes:
        """Read a file that need not be a regular one."""
        folder = await self.new()
        size = int(await self.check(
            f'head -c {limit + 1} {quote(path)} >{folder}/got && '
            f'wc -c <{folder}/got'))
        if size > limit:
            raise TooMuchError(f'{path} has more than {limit} bytes')
        packed = int(await self.check(f'gzip {folder}/got && '
                                      f'wc -c <{folder}/got.gz'))
        data = b''
        for offset in range(0, packed, PART):
            text = await self.check(f'tail -c +{offset + 1} {folder}/got.gz | '
                                    f'head -c {PART} | base64')
            data += decode(text, min(PART, packed - offset))
        self.begin(f'rm -rf {folder}')
        return gzip.decompress(data)

    async def new(self) -> str:
        """A new folder in the guest."""
        folder = f'{FOLDER}/{next(self._numbers)}'
        await self.check(f'mkdir {folder}')
        return folder
