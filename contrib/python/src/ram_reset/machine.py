# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines, for asyncio."""

import asyncio
import uuid
from contextlib import suppress
from pathlib import Path
from typing import (Any, Callable, Coroutine, Dict, List, Mapping, Optional,
                    Sequence, Tuple, Type, TypeVar, Union)

from ram_reset.channel import Agent, Result, Serial
from ram_reset.disks import Disks, find_disks, image_tool
from ram_reset.errors import UsageError
from ram_reset.monitor import Address, Monitor, word
from ram_reset.ports import AnyPath, Ports
from ram_reset.process import Folder, Process
from ram_reset.region import Region
from ram_reset.restorer import Restorer
from ram_reset.spec import NAME, OBJECT, AnyDisks, Snapshot, Spec
from ram_reset.statistics import Load, Statistics, query

T = TypeVar('T')
Self = TypeVar('Self', bound='Machine')
LONGEST_NAME = 255      # QEMU cuts longer ones


class Machine:
    """
    A QEMU: started, attached to, or forked.

    All methods raise LostError if QEMU has ended.  A machine is an asynchronous
    context manager, which closes it at the end.
    """

    def __init__(self, monitor: Monitor, process: Optional[Process] = None):
        """Use start(), attach() or fork()."""
        self.name = uuid.uuid4().hex[:8]
        self._monitor = monitor
        self._process = process
        self._ports = Ports(monitor)
        self._lock = asyncio.Lock()
        self._forks = 0
        self._restorer = Restorer(monitor)
        # of a machine that was started here
        self._spec: Optional[Spec] = None
        self._disks: Optional[Disks] = None
        self._folder: Optional[Folder] = None
        self._tops: Dict[str, str] = {}     # nodes that are written to

    # The beginning

    @classmethod
    async def start(cls: Type[Self], args: Sequence[str] = (), *,
                    qemu: str = 'qemu-system-x86_64', disks: AnyDisks = None,
                    serial: bool = False, agent: bool = False, region: int = 0,
                    object: str = OBJECT) -> Self:
        """
        Start a QEMU with RAM reset.

        :param args: of its command line, without QMP, the object, and disks
            that the guest can write to
        :param qemu: the program; its qemu-img is beside it, or in PATH
        :param disks: images, or Disk; without names they are disk0, disk1 ...
            No image is changed: writes go to overlays, which are removed with
            the machine.
        :param serial: add a serial port, and connect to it
        :param agent: add the port of the guest agent, and connect to it
        :param region: bytes, a power of two: add the device snapctl with a
            region for snapctl-harness
        :param object: the argument of ``-object``, '' for none
        """
        spec = Spec(qemu, tuple(map(str, args)), object, serial, agent,
                    region)
        family = Folder().take()
        try:
            folder = family.new('machine')
            made = Disks.create(find_disks(disks), folder, image_tool(qemu))
            return await cls._begin(spec, family, folder, made, '-S')
        finally:
            family.release()

    @classmethod
    async def _begin(cls: Type[Self], spec: Spec, family: Folder, folder: Path,
                     disks: Disks, *more: str, state: Optional[Path] = None
                     ) -> Self:
        """:param state: the file that RAM and devices are in"""
        region = family.for_memory(spec.region) / f'{folder.name}-region' \
            if spec.region else None
        process = Process([*spec.command(folder, disks, region), *more],
                          folder / 'qemu.log')
        machine = cls(Monitor(process.lost), process)
        machine._spec, machine._disks = spec, disks
        machine._folder = family.take()
        machine._tops = {node: node for node in disks.files}
        try:
            await machine._monitor.connect(process.monitor, process.lost)
            await machine._open(folder / 'serial' if spec.serial else None,
                                folder / 'agent' if spec.agent else None,
                                region)
            if region:
                region.unlink()     # QEMU and this have mapped it
            if state:
                await machine._enter(state)
            else:
                await machine.resume()
        except BaseException:
            await machine.close()
            raise
        return machine

    @classmethod
    async def attach(cls: Type[Self], address: Address, *,
                     serial: AnyPath = None, agent: AnyPath = None,
                     region: AnyPath = None) -> Self:
        """
        Use a QEMU that runs already.  It runs on when the machine is closed.

        :param address: a path, or (host, port), of an unused QMP monitor
        :param serial: socket chardev of the serial port, if it is to be used
        :param agent: socket chardev of the guest agent's port
        :param region: file of the memory backend of a snapctl device
        """
        machine = cls(Monitor())
        try:
            await machine._monitor.connect(address)
            await machine._open(serial, agent, region)
        except BaseException:
            await machine.close()
            raise
        return machine

    async def _open(self, serial: AnyPath, agent: AnyPath, region: AnyPath
                    ) -> None:
        self._ports = Ports(self._monitor, serial, agent, region)
        await self._restorer.begin(self._ports.all)
        await self._ports.open()

    @property
    def serial(self) -> Optional[Serial]:
        """The serial port, if it was asked for."""
        return self._ports.serial

    @property
    def agent(self) -> Optional[Agent]:
        """The guest agent's port, if it was asked for."""
        return self._ports.agent

    @property
    def region(self) -> Optional[Region]:
        """The region of the device snapctl, if it was asked for."""
        return self._ports.region

    # The end

    async def kill(self) -> None:
        """End QEMU at once, also one that was attached to."""
        if self._process:
            await self.close()
            return
        try:
            await self.execute('quit')
        finally:
            await self.close()

    async def close(self) -> None:
        """
        Kill a machine that was started here, with its disks and snapshots;
        detach from another.
        """
        self._ports.close()
        await self._monitor.close()
        if self._process:
            self._process.kill()
        if self._folder:
            self._folder.release()
            self._folder = None

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.close()

    # Any command

    async def execute(self, command: str,
                      arguments: Optional[Mapping[str, object]] = None) -> Any:
        """A command of QMP, and its return value."""
        await self._monitor.settle()
        return await self._monitor.execute(command, arguments)

    async def human(self, line: str) -> str:
        """A command of the human monitor, and its output."""
        await self._monitor.settle()
        return await self._monitor.human(line)

    @property
    def pid(self) -> Optional[int]:
        """Of a QEMU that was started here."""
        return self._process.pid if self._process else None

    def log(self) -> str:
        """The output of a QEMU that was started here."""
        return self._process.log() if self._process else ''

    async def _alone(self, work: 'Coroutine[Any, Any, T]', undo: Optional[
            'Callable[[asyncio.Future[T]], None]'] = None) -> T:
        """
        Work that nothing overlaps, and that a cancel does not cut.

        :param undo: called after it if it was cancelled
        """
        async def locked() -> T:
            async with self._lock:
                return await work
        task = asyncio.ensure_future(locked())
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._monitor.abandon(task)
            if undo:
                task.add_done_callback(undo)
            raise

    # State

    async def status(self) -> str:
        """QEMU's run state: running, paused, shutdown, ..."""
        return str((await self.execute('query-status'))['status'])

    async def pause(self) -> None:
        """Stop the vCPUs."""
        await self.execute('stop')

    async def resume(self) -> None:
        """Let the vCPUs run."""
        await self.execute('cont')

    async def run(self, command: str, timeout: float = 30.0) -> Result:
        """
        Run a shell command in the guest: by its agent, otherwise by the serial
        port, otherwise by the region.
        """
        return await self._ports.run(command, timeout)

    # Snapshots

    async def snapshot(self, name: str = '') -> Snapshot:
        """
        Save RAM, devices and disks.  A machine that runs goes on afterwards.

        :param name: by default one that no other snapshot has; QEMU replaces
            a snapshot that has the name
        """
        name = name or f'py-{uuid.uuid4().hex[:12]}'
        if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
            raise UsageError(f"'{name}' is no name of a snapshot; use at most "
                             f'{LONGEST_NAME} letters, digits and - _ . but '
                             'not digits only')
        await self._alone(self._monitor.human(f'savevm {name}'))
        return self.find(name)

    def find(self, name: str) -> Snapshot:
        """A handle of a snapshot that is in the machine's image."""
        return Snapshot(name, self.name, self._forks)

    def _tag(self, snapshot: Snapshot) -> str:
        if snapshot.machine != self.name:
            raise UsageError(
                f"snapshot '{snapshot.name}' is of machine {snapshot.machine}, "
                f'not of {self.name}; restore it there, or save one here')
        if snapshot.forks != self._forks:
            raise UsageError(
                f"snapshot '{snapshot.name}' is in a disk that a fork has "
                'frozen since; save another after the fork')
        return snapshot.name

    async def delete(self, snapshot: Snapshot) -> None:
        """Delete a snapshot."""
        await self._alone(self._monitor.human(
            f'delvm {word(self._tag(snapshot))}'))

    async def restore(self, snapshot: Snapshot, *, run: Optional[bool] = None
                      ) -> None:
        """
        Take the machine to a snapshot: RAM, devices and disks.

        If QEMU refuses, nothing has changed, and the machine goes on.  If a
        load fails after it has begun, FailedLoadError is raised.

        :param run: whether it runs afterwards; by default if it ran before,
            or if the guest had shut down, crashed or panicked
        """
        await self._alone(self._restorer.restore(self._tag(snapshot), run))

    async def statistics(self) -> Optional[Statistics]:
        """QEMU's account of its loads; None for a QEMU without RAM reset."""
        await self._monitor.settle()
        return await query(self._monitor)

    async def last_load(self) -> Optional[Load]:
        """QEMU's account of the last load."""
        statistics = await self.statistics()
        return statistics.last_load if statistics else None

    # Forks

    async def fork(self: Self, count: int = 1) -> List[Self]:
        """
        New machines that begin as this one is now, which goes on.

        Handles of snapshots of this machine end: they are in disks that are
        frozen now.
        """
        if not (self._spec and self._folder and self._disks):
            raise UsageError('only a machine that was started here can be '
                             'forked; use start()')
        if count < 1:
            raise UsageError(f'{count} forks are none; ask for at least 1')

        def close(task: 'asyncio.Future[List[Self]]') -> None:
            if not task.cancelled() and not task.exception():
                for child in task.result():
                    asyncio.ensure_future(child.close())

        return await self._alone(self._fork(
            count, self._spec, self._folder, self._disks), close)

    async def _fork(self: Self, count: int, spec: Spec, family: Folder,
                    disks: Disks) -> List[Self]:
        memory = await self._monitor.execute('query-memory-size-summary')
        self._forks += 1
        state = family.for_memory(sum(memory.values())) / \
            f'{self.name}-{self._forks}'

        async def child() -> Self:
            folder = family.new('fork')
            return await self._begin(
                spec, family, folder, disks.fork(folder), '-incoming', 'defer',
                state=state)

        try:
            await self._freeze(state, disks, family.new('frozen'))
            found = await asyncio.gather(*(child() for _ in range(count)),
                                         return_exceptions=True)
        finally:
            # children have mapped it
            with suppress(FileNotFoundError):
                state.unlink()
        children = [f for f in found if not isinstance(f, BaseException)]
        for failure in found:
            if isinstance(failure, BaseException):
                await asyncio.gather(*(child.close() for child in children))
                raise failure
        return children

    async def _freeze(self, state: Path, disks: Disks, folder: Path) -> None:
        """Write RAM and devices, and give each disk an overlay."""
        overlays = disks.fork(folder, parent=True)
        new = {node: f'fork{self._forks}-{number}'
               for number, node in enumerate(disks.of_guest())}
        for node, top in new.items():
            await self._monitor.execute('blockdev-add', {
                'driver': 'qcow2', 'node-name': top, 'backing': None,
                'file': {'driver': 'file',
                         'filename': str(overlays.files[node])}})
        try:
            await self._monitor.job('ram-reset-fork', {
                'file': str(state),
                'disks': [{'node': self._tops[node], 'overlay': top}
                          for node, top in new.items()]})
        finally:
            # also a job that fails may have given disks their overlays
            found = await self._monitor.execute('query-block')
            used = {device['inserted']['node-name'] for device in found
                    if 'inserted' in device}
            if used.intersection(new.values()):
                self._tops.update(new)
                self._disks = overlays

    async def _enter(self, state: Path) -> None:
        """Begin as the machine that has written the file."""
        mapped = {'capability': 'mapped-ram', 'state': True}
        await self.execute('migrate-set-capabilities',
                           {'capabilities': [mapped]})
        await self.execute('migrate-incoming', {'uri': f'file:{state}'})
        while await self.status() == 'inmigrate':
            await asyncio.sleep(0.002)
        mapped['state'] = False
        await self.execute('migrate-set-capabilities',
                           {'capabilities': [mapped]})
