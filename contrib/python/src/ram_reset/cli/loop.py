# SPDX-License-Identifier: GPL-2.0-or-later
"""Load one snapshot of a guest again and again, with work in between: the loop
of a kernel fuzzer or of a sandbox.

Starts QEMU with the command line after "--" (or connects to a running one),
waits until the guest is ready and saves a snapshot.  Each iteration loads it,
sends --send to the guest, runs --run, and waits for --until in the guest's
output on its serial port.  A guest that hangs or crashes is counted; the next
load recovers it.  Ctrl-C ends the loop.  The summary comes last.

The status is 0 if all iterations were made, whatever the guest did in them,
1 if QEMU died or refused a command, 2 for wrong usage and 130 after Ctrl-C.
"""

import argparse
import asyncio
import itertools
import os
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Coroutine

from ram_reset.cli import json_file, loop_options
from ram_reset.cli.guest import Guest
from ram_reset.cli.progress import Progress
from ram_reset.cli.results import Results
from ram_reset.errors import Error, GuestError

HELP = 'take a guest back to a snapshot in a loop'


class Bad(Exception):
    """A failed iteration: a kind, which is counted, and the details."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


class Stopped(Exception):
    """Ctrl-C."""


class Loop:
    def __init__(self, options: argparse.Namespace, work: Path):
        self.options = options
        self.results = Results(
            options.snapshot, {'command': options.command} if options.command
            else {'connect': options.connect})
        self.progress = Progress(options.prog, self.results)
        self._changed = asyncio.Event()
        self.guest = Guest(options, work, self._changed.set, self.progress.say)
        self.stopping = False

    def stop(self) -> None:
        self.stopping = True
        self._changed.set()

    async def _wait(self, check: Callable[[], bool], seconds: float, what: str
                    ) -> None:
        deadline = time.monotonic() + seconds
        while True:
            self._changed.clear()
            if self.stopping:
                raise Stopped
            self.guest.check()
            if check():
                return
            if self.guest.crash:
                raise Bad('crash', self.guest.crash)
            left = deadline - time.monotonic()
            if left <= 0:
                raise Bad('hang', f'{what} within {seconds:g} s')
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)

    async def _wait_for_text(self, pattern: str, seconds: float) -> None:
        await self._wait(lambda: self.guest.has_said(pattern), seconds,
                         f'no {pattern!r} from the guest')

    async def _wait_for(self, work: 'Coroutine[Any, Any, Any]', what: str
                        ) -> None:
        """At most --timeout."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda _: self._changed.set())
        try:
            await self._wait(task.done, self.options.timeout, what)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, GuestError):
                await task

    async def prepare(self) -> None:
        options = self.options
        try:
            if options.ready:
                await self._wait_for_text(options.ready, options.ready_timeout)
            elif options.ready_after:
                with suppress(Bad):
                    await self._wait(lambda: bool(self.guest.crash),
                                     options.ready_after, '')
        except Bad as e:
            raise GuestError(
                f'the guest does not get ready: {e}, but {self.guest.said()}; '
                'see --ready and --ready-timeout') from e
        await self.guest.pause()
        await self.guest.pause_when_dead()
        if not options.no_save:
            self.progress.doing = 'saves the snapshot'
            await self.guest.snapshot('save')
        self.progress.doing = 'loads the snapshot'

    async def _run_shell(self, number: int) -> None:
        command = self.options.shell
        env = dict(os.environ, RAM_RESET_ITERATION=str(number))
        if self.guest.port:
            env['RAM_RESET_SERIAL'] = str(self.guest.port.path)
        process = await asyncio.create_subprocess_shell(
            command, env=env, start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL)
        try:
            await self._wait_for(process.wait(), f"no end of '{command}'")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode:
            raise Bad('failed command', f"'{command}' ends with status "
                                        f'{process.returncode}')

    async def _act(self, number: int) -> None:
        options = self.options
        if options.send:
            await self._wait_for(self.guest.send(options.send),
                                 'the guest does not read --send')
        if options.shell:
            await self._run_shell(number)
        if options.until:
            await self._wait_for_text(options.until, options.timeout)
        await self._wait(lambda: True, 0, '')

    async def _load(self) -> float:
        await self.guest.before_load()
        begin = time.perf_counter()
        await self.guest.snapshot('load')
        seconds = time.perf_counter() - begin
        await self.guest.after_load()
        return seconds

    async def iterate(self, number: int) -> None:
        """The guest is stopped before and after it."""
        guest, begin = self.guest, time.perf_counter()
        seconds = await self._load()
        result = self.results.note_load(seconds, await guest.statistics())
        await guest.resume()
        problem = None
        try:
            await self._act(number)
        except Bad as e:
            problem = e
        await guest.pause()
        if problem:
            self.results.note_problem(number, problem.kind, str(problem))
            self.progress.say(f'iteration {number}: {problem.kind}: {problem};'
                              f' the guest said {guest.said()}')
            await guest.revive()
        if self.options.collect:
            (self.options.collect / f'{number:04}.txt').write_bytes(
                guest.port.text if guest.port else b'')
        result.whole = time.perf_counter() - begin

    async def run(self) -> None:
        await self.guest.start()
        await self.prepare()
        begin = time.perf_counter()
        try:
            for number in itertools.count(1):
                if self.stopping or number > (self.options.iterations or
                                              number):
                    break
                await self.iterate(number)
        finally:
            self.results.seconds = time.perf_counter() - begin

    async def end(self) -> None:
        await self.guest.end(
            not self.options.keep and not self.options.no_save)
        self.progress.end()
        self.results.interrupted = self.stopping
        if self.results.iterations or self.stopping:
            print(self.results.summary(), flush=True)
        json_file.write(self.options.json, self.results.data())


async def loop(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix='ram-reset-loop.') as work:
        this = Loop(options, Path(work))
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, this.stop)
        drawing = asyncio.ensure_future(this.progress.draw_always())
        try:
            await this.run()
        except Stopped:
            pass
        except Error as e:
            this.results.failure = str(e)
            raise
        finally:
            drawing.cancel()
            await this.end()
        return 130 if this.stopping else 0


def run(options: argparse.Namespace) -> int:
    loop_options.check(options.parser, options)
    if options.collect:
        options.collect.mkdir(parents=True, exist_ok=True)
    json_file.claim(options.json)
    return asyncio.run(loop(options))


add_options = loop_options.add_options
