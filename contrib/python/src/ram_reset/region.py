# SPDX-License-Identifier: GPL-2.0-or-later
"""The persistent region of the device snapctl, as a way to a guest."""

import asyncio
import time
from pathlib import Path
from typing import List

from ram_reset.channel import Result
from ram_reset.disks import quoted
from ram_reset.errors import GuestError, UsageError
from ram_reset.monitor import Monitor
from ram_reset.ring import (ALIGN, ENTRY_SIZE, EXITED, FAILED, HEADER, LARGEST,
                            SIGNAL, Answer, Ring)

POLL = 0.0005           # seconds
NEAREST = 4096          # QEMU maps whole pages


class Region:
    """
    Inputs for snapctl-harness in the guest, and its results.  A load leaves
    the region alone, and makes the ring in it anew.
    """

    def __init__(self, path: Path, monitor: Monitor):
        """:param path: the file of the device's memory backend"""
        self._monitor = monitor
        self._asking = asyncio.Lock()   # held until the answer has come
        self._loads = 0
        try:
            size = path.stat().st_size
        except OSError as e:
            raise UsageError(
                f'{path} cannot be used as a region ({e.strerror}); give the '
                "file of the snapctl device's memory backend") from e
        room = (size - HEADER - ENTRY_SIZE) // 2 // ALIGN * ALIGN
        room = min(max(room, 1), LARGEST)
        self._ring = Ring(path, room, room, 1)

    async def open(self) -> None:
        """It is open."""

    def close(self) -> None:
        self._ring.close()

    async def before_load(self) -> None:
        """Nothing of it is in QEMU."""

    async def after_load(self, drop: bool) -> None:
        """:param drop: inputs from before"""
        if drop:
            self._loads += 1
            self._ring.format()

    async def send(self, data: bytes, timeout: float = 30.0) -> Answer:
        """
        Give an input to the harness, and wait for its result.

        :param data: at most about half of the region, and 1 GiB
        :param timeout: in seconds; the input is taken back when it is over
        """
        if len(data) > self._ring.input_size:
            raise UsageError(
                f'an input of {len(data)} bytes is too long for the region, '
                f'which has room for {self._ring.input_size}; make the region '
                'larger')
        async with self._asking:
            await self._monitor.settle()
            load, ring = self._loads, self._ring
            ring.put(data)
            try:
                await self._wait(load, timeout)
            except BaseException:
                if load == self._loads:
                    ring.format()
                raise
            return ring.take()

    async def _wait(self, load: int, timeout: float) -> None:
        ring, deadline = self._ring, time.monotonic() + timeout
        while load == self._loads and ring.tail == ring.done:
            self._monitor.check()
            if ring.state == FAILED:
                raise GuestError('snapctl-harness has exited; its message is '
                                 'in the guest')
            if time.monotonic() > deadline:
                raise GuestError(
                    f'no answer from the guest in {timeout:g} s; check that '
                    'snapctl-harness runs there, with a shorter --timeout')
            await asyncio.sleep(POLL)
        if load != self._loads:
            raise GuestError('a load has dropped the answer from the region; '
                             'ask again')

    async def run(self, command: str, timeout: float = 30.0) -> Result:
        """
        Run a shell command, if the harness runs a shell: "snapctl-harness
        --no-load -- sh".

        :param timeout: in seconds
        """
        answer = await self.send(command.encode(), timeout)
        if answer.kind not in (EXITED, SIGNAL):
            raise GuestError(f'{command!r} has no status in the guest: '
                             f'{answer.status()}')
        return Result(answer.code + (128 if answer.kind == SIGNAL else 0),
                      answer.output.decode(errors='replace'))


def device(path: Path, size: int) -> List[str]:
    """
    Options of QEMU.  The guest may not save or load: that would bypass the
    handles of snapshots.

    :param size: in bytes
    """
    if size < NEAREST or size & (size - 1):
        raise UsageError(f'a region cannot have {size} bytes; give a power of '
                         f'two from {NEAREST}')
    return ['-object', f'memory-backend-file,id=ram-reset-region,size={size},'
            f'mem-path={quoted(path)},share=on',
            '-device', 'snapctl,allow=none,memdev=ram-reset-region']
