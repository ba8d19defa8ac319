# SPDX-License-Identifier: GPL-2.0-or-later
"""Feed inputs to a snapctl-harness in a guest, and collect the results.

Both share a file, the persistent region of the device snapctl: that of
"-object memory-backend-file,id=ring,mem-path=FILE,size=8M,share=on" and
"-device snapctl,memdev=ring,...".  An INPUT is a file, or a folder of files.
The harness may be started before or after this program.

With --qmp this program loads the snapshot if the guest hangs or crashes, and
continues with the next input.  For this it makes QEMU pause, rather than exit
or reset, when the guest shuts down, resets or panics.  With --console, the
kernel's messages distinguish a panic from a hang or a reset; so does a driver
for QEMU's device pvpanic-pci in the guest.  A guest booted with panic=-1 resets
as soon as it panics, and costs no --timeout.

The status is 0 if all inputs have a result, whatever it is, 1 if not, 2 for
wrong usage and 130 after Ctrl-C.
"""

import argparse
import asyncio
import itertools
import signal
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from pathlib import Path
from typing import IO, Deque, Iterator, Optional, Tuple

from ram_reset.cli import feed_options
from ram_reset.cli.console import Console, complaint
from ram_reset.cli.guard import Guard
from ram_reset.errors import GuestError, UsageError
from ram_reset.ring import (CRASH, FAILED, HANG, LARGEST, PANIC, READY, Answer,
                            Ring)

HELP = 'give inputs to snapctl-harness in a guest'

POLL = 0.0005
ROOM = 4096         # for inputs, unless there are larger ones
STUCK = 3           # loads in a row that do not help


class Feeder:
    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.stopping = False
        self.statuses: 'Counter[str]' = Counter()
        self.count = 0
        self.seconds = 0.0
        self._sources = inputs(options)
        self._waiting: Deque[str] = deque()     # names of inputs in the ring
        self._next = next(self._sources, None)
        self._revivals = 0
        self._guard = Guard(options.qmp, options.snapshot) \
            if options.qmp else None
        self._list: Optional[IO[str]] = None
        self._console = Console(options.console) if options.console else None
        size = max(path.stat().st_size for path in options.files)
        if size > LARGEST:
            raise UsageError(f'an input has {size} bytes, more than the '
                             f'{LARGEST} that a ring can have; make it smaller')
        self.ring = Ring(options.region, max(size, ROOM), options.output_size,
                         options.entries or 0)

    async def run(self) -> None:
        options = self.options
        if options.results:
            options.results.mkdir(parents=True, exist_ok=True)
            self._list = (options.results / 'results.txt').open('w')
            # a result need not have a console file: remove an old one
            for old in options.results.glob('[0-9]*.console'):
                if not (options.console and old.samefile(options.console)):
                    old.unlink()
        if self._guard:
            await self._guard.start()
        if not await self._wait_ready():
            return
        if self._guard and options.save:
            await self._guard.save()
        begin = time.perf_counter()
        try:
            await self._feed()
        finally:
            self.seconds = time.perf_counter() - begin

    async def close(self) -> None:
        if self._guard:
            await self._guard.close()
        if self._list:
            self._list.close()
        if self._console:
            self._console.close()
        self.ring.close()

    async def _wait_ready(self) -> bool:
        deadline = time.monotonic() + self.options.ready_timeout
        while self.ring.state != READY:
            if self.stopping:
                return False
            self._check()
            if time.monotonic() > deadline:
                raise GuestError(
                    'no snapctl-harness in the guest has looked at '
                    f'{self.options.region} within '
                    f'{self.options.ready_timeout:g} s; start it, see '
                    'contrib/snapctl/README.rst')
            await asyncio.sleep(POLL)
        return True

    def _check(self) -> None:
        if self._guard:
            self._guard.check()
        if self.ring.state == FAILED:
            raise GuestError('snapctl-harness has exited; its message is in '
                             'the guest')

    def _fill(self) -> None:
        while self._next and self.ring.has_room():
            name, path = self._next
            data = path.read_bytes()
            if len(data) > self.ring.input_size:
                raise UsageError(f'{path} has grown; run it again')
            self.ring.put(data)
            self._waiting.append(name)
            self._next = next(self._sources, None)

    def _collect(self) -> bool:
        """True if there was something new."""
        if self._console:
            self._console.look()
        tail = self.ring.tail
        new = self.ring.done < tail
        if self._console and new:
            self._console.next_input()
        while self.ring.done < tail:
            self._note(self._waiting.popleft(), self.ring.take())
        return new

    def _note(self, name: str, result: Answer) -> None:
        self.count += 1
        self.statuses[result.status()] += 1
        if self._list:
            self._list.write(
                f'{self.count:06} {result.status()}; generation '
                f'{result.generation}, {result.run_ns / 1e6:.3f} ms, '
                f'{result.total} bytes: {name}\n')
            (self.options.results / f'{self.count:06}.out').write_bytes(
                result.output)

    def _keep(self, said: bytes) -> None:
        """Store the console of a guest that did not answer."""
        if self._console and self.options.results:
            (self.options.results / f'{self.count:06}.console').write_bytes(
                said)

    async def _feed(self) -> None:
        if self._console:
            self._console.begin()
        deadline = time.monotonic() + self.options.timeout
        while True:
            self._fill()
            if self._collect():
                self._revivals = 0
                deadline = time.monotonic() + self.options.timeout
                continue
            if not self._waiting or self.stopping:
                return
            self._check()
            guard, late = self._guard, time.monotonic() > deadline
            if late and not guard:
                raise GuestError(
                    f'no answer from the guest to {self._waiting[0]} within '
                    f'{self.options.timeout:g} s; --qmp would load the '
                    'snapshot')
            if guard and (late or guard.crash or guard.problem):
                await self._revive(guard)
                deadline = time.monotonic() + self.options.timeout
            await asyncio.sleep(POLL)

    async def _revive(self, guard: Guard) -> None:
        ring, prog = self.ring, self.options.prog
        await guard.stop()
        # it may have progressed until it stopped
        self._collect()
        said = self._console.text() if self._console else b''
        kind, what = self._verdict(guard, said)
        if self._waiting and ring.begun == ring.tail + 1:
            print(f'{prog}: {self._waiting[0]}: {what}', file=sys.stderr)
            ring.complete(kind)
            self._collect()
            self._keep(said)
            self._revivals = 0
        else:
            # nothing was running, so no input is to blame
            print(f'{prog}: between two inputs: {what}', file=sys.stderr)
            self._revivals += 1
            if self._revivals == STUCK:
                raise GuestError(
                    'the guest does not continue with the next input after '
                    f"{STUCK} loads of '{self.options.snapshot}'; check that "
                    'snapctl-harness has saved it')
        if self._console:
            self._console.begin()
        await guard.revive()

    def _verdict(self, guard: Guard, said: bytes) -> Tuple[int, str]:
        """(kind, description) of the guest's failure"""
        what = guard.crash or guard.problem or \
            f'no answer within {self.options.timeout:g} s'
        panicked, line = complaint(said)
        if line:
            what += f"; its console says '{line}'"
        if panicked or guard.panicked:
            return PANIC, what
        return CRASH if guard.crash else HANG, what

    def summary(self) -> str:
        if not self.count:
            return 'There are no results.'
        lines = [f'{self.count} results in {self.seconds:.1f} s: '
                 f'{self.count / self.seconds:.1f} iterations per second']
        lines += [f'  {status}: {count}'
                  for status, count in self.statuses.most_common()]
        return '\n'.join(lines)

    def stop(self) -> None:
        self.stopping = True


def inputs(options: argparse.Namespace) -> Iterator[Tuple[str, Path]]:
    for path in options.files:
        for i in itertools.count(1):
            if i > options.repeat:
                break
            yield (f'{path} {i}' if options.repeat > 1 else str(path)), path


async def feed(options: argparse.Namespace) -> int:
    this = Feeder(options)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, this.stop)
    try:
        await this.run()
    finally:
        with suppress(BrokenPipeError):
            if this.count or this.stopping:
                print(this.summary(), flush=True)
        await this.close()
    return 130 if this.stopping else 0


def run(options: argparse.Namespace) -> int:
    feed_options.check(options.parser, options)
    return asyncio.run(feed(options))


add_options = feed_options.add_options
