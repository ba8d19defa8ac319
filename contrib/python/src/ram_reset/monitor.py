# SPDX-License-Identifier: GPL-2.0-or-later
"""The QMP monitor of one QEMU."""

import asyncio
import itertools
import logging
import os
import re
import socket
from typing import Any, Callable, Mapping, Optional, Sequence, Set, Tuple, Union

from qemu.qmp import EventListener, ExecuteError, QMPClient, QMPError
from qemu.qmp.protocol import Runstate

from ram_reset.errors import (Error, LostError, RefusedError, StartError,
                              UsageError)

Address = Union[str, Tuple[str, int], socket.socket]

# qemu.qmp raises what it logs
logging.getLogger('qemu.qmp').addHandler(logging.NullHandler())

BROKEN = (QMPError, OSError, EOFError)
GREETING = 10.0         # seconds


def word(text: str) -> str:
    """One argument of a command of the human monitor."""
    if re.fullmatch(r'[\w.-]+', text):
        return text
    text = re.sub(r'(["\\])', r'\\\1', text)
    return '"' + text.replace('\n', '\\n').replace('\r', '\\r') + '"'


class Monitor:
    """
    A connection; its commands may be sent from several tasks at once.

    :param lost: makes the error for a connection that breaks
    """

    def __init__(self, lost: Optional[Callable[[], Error]] = None):
        self._client = QMPClient('ram-reset')
        self._client.logger = logging.getLogger('ram_reset.quiet')
        self._client.logger.setLevel(logging.CRITICAL + 1)
        self._lost = lost or (lambda: LostError(
            'QEMU has closed the monitor connection; see its log'))
        self._jobs = itertools.count(1)
        self._owner = os.getpid()
        self._abandoned: 'Set[asyncio.Future[Any]]' = set()

    async def connect(self, address: Address,
                      lost: Optional[Callable[[], Error]] = None) -> None:
        """:param lost: makes the error for a QEMU that was started for it"""
        try:
            # QEMU greets one client at a time
            await asyncio.wait_for(self._client.connect(address),
                                   None if lost else GREETING)
        except (*BROKEN, asyncio.TimeoutError) as e:
            raise lost() if lost else StartError(
                f'{address} cannot be connected to ({str(e) or "no greeting"}); '
                'give the address of a QMP monitor that nobody else uses') from e

    def abandon(self, work: 'asyncio.Future[Any]') -> None:
        """Work goes on, although its caller was cancelled."""
        self._abandoned.add(work)
        work.add_done_callback(self._abandoned.discard)

    async def settle(self) -> None:
        """Wait for work that goes on."""
        self._check_owner()
        while self._abandoned:
            await asyncio.wait(set(self._abandoned))

    @property
    def connected(self) -> bool:
        return self._client.runstate == Runstate.RUNNING

    def check(self) -> None:
        """Raise the error for a connection that has broken."""
        if not self.connected:
            raise self._lost()

    async def probe(self) -> None:
        """Raise the error for a QEMU that has ended, also just now."""
        await self.execute('query-name')

    async def ended(self) -> None:
        """Return when the connection has ended."""
        while self.connected:
            await self._client.runstate_changed()

    def _check_owner(self) -> None:
        if os.getpid() != self._owner:
            raise UsageError(f'the machine is of process {self._owner}; after '
                             'os.fork(), start another one, or use it there')

    async def close(self) -> None:
        if os.getpid() != self._owner:
            return
        try:
            await self._client.disconnect()
        except BROKEN:
            pass        # the other end is gone, as it should

    async def execute(self, command: str,
                      arguments: Optional[Mapping[str, object]] = None) -> Any:
        """A QMP command's return value."""
        self._check_owner()
        if not self.connected:
            await self.close()
            raise self._lost()
        try:
            return await self._client.execute(command, arguments)
        except ExecuteError as e:
            raise RefusedError(command, str(e)) from e
        except BROKEN as e:
            await self.close()
            raise self._lost() from e

    async def human(self, line: str) -> str:
        """The output of a command of the human monitor."""
        output = str(await self.execute('human-monitor-command',
                                        {'command-line': line}))
        # details of an error are printed before the error
        if re.search('^(Error: |unknown command: |Try "help )', output,
                     re.MULTILINE):
            raise RefusedError(f"'{line}'", output.strip())
        return output.strip()

    async def job(self, command: str, arguments: Mapping[str, object]) -> None:
        """Run a job to its end; it is cancelled if the caller is."""
        job = f'ram-reset-{id(self):x}-{next(self._jobs)}'
        ended = EventListener('JOB_STATUS_CHANGE', lambda event: (
            event['data'] == {'id': job, 'status': 'concluded'}))
        with self._client.listen(ended):
            await self.execute(command, {'job-id': job, **arguments})
            try:
                await self._wait(ended)
            except asyncio.CancelledError:
                await self.execute('job-cancel', {'id': job})
                await self._wait(ended)
                await self.execute('job-dismiss', {'id': job})
                raise
        found = [j for j in await self.execute('query-jobs')
                 if j['id'] == job]
        await self.execute('job-dismiss', {'id': job})
        if found and 'error' in found[0]:
            raise RefusedError(command, found[0]['error'])

    async def _wait(self, listener: EventListener) -> None:
        """For one event, or the end of the connection."""
        event = asyncio.ensure_future(listener.get())
        try:
            while not event.done():
                lost = asyncio.ensure_future(self._client.runstate_changed())
                await asyncio.wait({event, lost},
                                   return_when=asyncio.FIRST_COMPLETED)
                lost.cancel()
                if not event.done() and not self.connected:
                    raise self._lost()
        finally:
            event.cancel()

    def on_event(self, names: Sequence[str],
                 call: Callable[[Mapping[str, Any]], None]) -> None:
        """Call with each such event, before replies that come after it."""
        def take(event: Mapping[str, Any]) -> bool:
            call(event)
            return False        # nothing is queued

        self._client.register_listener(EventListener(list(names), take))
