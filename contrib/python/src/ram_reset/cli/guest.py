# SPDX-License-Identifier: GPL-2.0-or-later
"""The QEMU of ram-reset loop."""

import argparse
import asyncio
import re
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional

from ram_reset.channel import Serial, chardev
from ram_reset.cli.shared import SharedSerial
from ram_reset.errors import Error
from ram_reset.monitor import Monitor
from ram_reset.process import Process
from ram_reset.restorer import DEAD, pause_when_dead, revive, run_state
from ram_reset.statistics import Statistics, query

# Events of a dead guest
CRASHES = {'SHUTDOWN': 'the guest shut down or reset',
           'GUEST_PANICKED': 'the guest panicked'}
END = 20.0              # seconds that QEMU has to complete its images


class Guest:
    """
    A QEMU that is started with the user's command line, or connected to.

    :ivar crash: how the guest has died, or ''
    :param work: a folder for sockets and QEMU's output
    :param changed: is called when the guest has said something or has died,
        or QEMU has ended
    """

    def __init__(self, options: argparse.Namespace, work: Path,
                 changed: Callable[[], None],
                 warn: Callable[[str], None]):
        self.crash = ''
        self.port: Optional[SharedSerial] = None
        self._options = options
        self._work = work
        self._changed = changed
        self._warn = warn
        self._process: Optional[Process] = None
        self._monitor = Monitor()
        self._watch: Optional['asyncio.Task[None]'] = None
        self._reboot_stops = False

    # The beginning and the end

    async def start(self) -> None:
        """The guest runs afterwards."""
        options = self._options
        path = Path(options.serial) if options.serial else None
        if options.command:
            added: List[str] = []
            if not path and options.talks:
                path = self._work / 'serial'
                added = [*chardev('ram-reset-serial', path),
                         '-serial', 'chardev:ram-reset-serial']
            # our option comes first, so that it is the first serial port; the
            # guest starts when somebody listens to it
            program, *rest = options.command
            self._process = Process([program, '-S', *added, *rest],
                                    self._work / 'qemu.log')
            self._monitor = Monitor(self._process.lost)
        self._monitor.on_event(tuple(CRASHES), self._note_crash)
        if self._process:
            await self._monitor.connect(self._process.monitor,
                                        self._process.lost)
        else:
            await self._monitor.connect(options.connect)
        self._watch = asyncio.ensure_future(self._watch_monitor())
        if path:
            serial = Serial(path, 'serial port', self._monitor)
            self.port = SharedSerial(serial, self._work / 'shared',
                                     self._changed)
            await serial.open()
            await self.port.open()
        if self._process:
            await self.resume()

    async def _watch_monitor(self) -> None:
        await self._monitor.ended()
        self._changed()

    def _note_crash(self, event: Mapping[str, Any]) -> None:
        self.crash = CRASHES[event['event']]
        # with -no-reboot, a reset is a shutdown
        self._reboot_stops |= 'reset' in event.get('data', {}).get('reason', '')
        self._changed()

    async def end(self, delete: bool) -> None:
        """Leave nothing behind, whatever has happened."""
        if self._monitor.connected:
            try:
                if delete:
                    await self.pause()
                    await self.snapshot('delete')
                if not self._process:
                    await self.resume()
            except Error:
                pass        # there is another one, which led to this end
        if self._watch:
            self._watch.cancel()
        await self._monitor.close()
        if self.port:
            self.port.close()
        if self._process:
            self._process.terminate(END)

    # Commands

    def check(self) -> None:
        """Raise LostError if QEMU has gone."""
        self._monitor.check()

    async def pause(self) -> None:
        await self._monitor.execute('stop')
        if self.port:
            self.port.serial.drain()

    async def resume(self) -> None:
        await self._monitor.execute('cont')

    async def pause_when_dead(self) -> None:
        """Make a QEMU that was started here pause when its guest dies."""
        if self._process:
            await pause_when_dead(self._monitor)
            self._reboot_stops = True

    async def revive(self) -> None:
        """Reset a machine that has been shut down, so that it can run."""
        if await run_state(self._monitor) in DEAD:
            await revive(self._monitor, lambda: self._reboot_stops)

    async def snapshot(self, what: str) -> None:
        """:param what: save, load or delete; with --disk by a job"""
        disks, tag = self._options.disk, self._options.snapshot
        if disks:
            state = {'vmstate': disks[0]} if what != 'delete' else {}
            await self._monitor.job(f'snapshot-{what}', {
                'tag': tag, 'devices': disks, **state})
            return
        command = {'save': 'savevm', 'load': 'loadvm', 'delete': 'delvm'}[what]
        output = await self._monitor.human(f'{command} {tag}')
        if output:
            self._warn(f'QEMU: {output}')

    async def before_load(self) -> None:
        """The guest is stopped until resume()."""
        if self.port:
            await self.port.serial.before_load()

    async def after_load(self) -> None:
        if self.port:
            await self.port.serial.after_load(drop=True)
            self.port.text = b''
        self.crash = ''

    async def statistics(self) -> Optional[Statistics]:
        """None for a QEMU without RAM reset."""
        return await query(self._monitor)

    # The serial port

    async def send(self, data: bytes) -> None:
        if self.port:
            await self.port.serial.write(data)

    def has_said(self, pattern: str) -> bool:
        return bool(self.port and re.search(pattern.encode(), self.port.text,
                                            re.MULTILINE))

    def said(self) -> str:
        """The end of its output, for messages."""
        return repr(self.port.text[-200:].decode(errors='replace')
                    if self.port else '')
