# SPDX-License-Identifier: GPL-2.0-or-later
"""The synchronous twins: one loop in a thread of its own serves them all."""

import asyncio
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import (Any, Callable, Coroutine, Generic, Iterable, Iterator, List,
                    Mapping, Optional, Sequence, TypeVar, Union)

from ram_reset import channel as aio_channel
from ram_reset import machine as aio_machine
from ram_reset import pool as aio_pool
from ram_reset import region as aio_region
from ram_reset.channel import Result
from ram_reset.monitor import Address
from ram_reset.ports import AnyPath
from ram_reset.ring import Answer
from ram_reset.spec import OBJECT, AnyDisks, Snapshot
from ram_reset.statistics import Load, Statistics

T = TypeVar('T')
Item = TypeVar('Item')
ChannelT = TypeVar('ChannelT', bound=aio_channel.Channel)


def _show_unless_lost(loop: asyncio.AbstractEventLoop, context: 'dict[str, Any]'
                      ) -> None:
    """A connection that nobody uses any more ends with its QEMU."""
    if not isinstance(context.get('exception'), (EOFError, OSError)):
        loop.default_exception_handler(context)


class _Loop:
    """Begins with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: Optional[asyncio.AbstractEventLoop] = None

    def forget(self) -> None:
        """A process that os.fork() has made has no thread of it."""
        self._lock = threading.Lock()
        self._loop = None

    def wait(self, work: 'Coroutine[Any, Any, T]') -> T:
        """Do work; an interrupt of the caller cancels it."""
        with self._lock:
            if not self._loop:
                self._loop = asyncio.new_event_loop()
                self._loop.set_exception_handler(_show_unless_lost)
                threading.Thread(target=self._loop.run_forever, daemon=True,
                                 name='ram-reset').start()
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


_loop = _Loop()
_wait = _loop.wait
os.register_at_fork(after_in_child=_loop.forget)


class Channel(Generic[ChannelT]):
    """A connection to the guest, see aio.Channel."""

    def __init__(self, channel: ChannelT):
        self._channel = channel

    @property
    def text(self) -> str:
        """The guest's output since the last load, as far as nobody took it."""
        return self._channel.text

    def send(self, text: str) -> None:
        """Send text to the guest."""
        _wait(self._channel.send(text))

    def expect(self, pattern: str, timeout: float = 30.0) -> 're.Match[str]':
        """
        Take the guest's output up to the end of a match.

        :param pattern: a regular expression, with MULTILINE and DOTALL
        :param timeout: in seconds
        """
        return _wait(self._channel.expect(pattern, timeout))


class Serial(Channel[aio_channel.Serial]):
    """The guest's serial port, see aio.Serial."""

    def run(self, command: str, timeout: float = 30.0) -> Result:
        """Run a command in the shell that reads the serial port."""
        return _wait(self._channel.run(command, timeout))


class Agent(Channel[aio_channel.Agent]):
    """The guest's agent, see aio.Agent."""

    def execute(self, command: str,
                arguments: Optional[Mapping[str, object]] = None,
                timeout: float = 30.0) -> Any:
        """A command of the agent, and its return value."""
        return _wait(self._channel.execute(command, arguments, timeout))

    def run(self, command: str, timeout: float = 30.0) -> Result:
        """Run a command with /bin/sh in the guest."""
        return _wait(self._channel.run(command, timeout))


class Region:
    """The region of the device snapctl, see aio.Region."""

    def __init__(self, region: aio_region.Region):
        self._region = region

    def send(self, data: bytes, timeout: float = 30.0) -> Answer:
        """Give an input to snapctl-harness, and wait for its result."""
        return _wait(self._region.send(data, timeout))

    def run(self, command: str, timeout: float = 30.0) -> Result:
        """Run a shell command, if the harness runs a shell."""
        return _wait(self._region.run(command, timeout))


class Machine:
    """
    A QEMU: started, attached to, or forked.  See aio.Machine, whose methods
    these are; they may be called from any thread.
    """

    def __init__(self, machine: aio_machine.Machine):
        """Use start(), attach() or fork()."""
        self._machine = machine
        self.serial = Serial(machine.serial) if machine.serial else None
        self.agent = Agent(machine.agent) if machine.agent else None
        self.region = Region(machine.region) if machine.region else None

    @classmethod
    def start(cls, args: Sequence[str] = (), *,
              qemu: str = 'qemu-system-x86_64', disks: AnyDisks = None,
              serial: bool = False, agent: bool = False, region: int = 0,
              object: str = OBJECT) -> 'Machine':
        """Start a QEMU with RAM reset, see aio.Machine.start()."""
        return cls(_wait(aio_machine.Machine.start(
            args, qemu=qemu, disks=disks, serial=serial, agent=agent,
            region=region, object=object)))

    @classmethod
    def attach(cls, address: Address, *, serial: AnyPath = None,
               agent: AnyPath = None, region: AnyPath = None) -> 'Machine':
        """Use a QEMU that runs already, see aio.Machine.attach()."""
        return cls(_wait(aio_machine.Machine.attach(
            address, serial=serial, agent=agent, region=region)))

    def kill(self) -> None:
        """End QEMU at once, also one that was attached to."""
        _wait(self._machine.kill())

    def close(self) -> None:
        """Kill a machine that was started here; detach from another."""
        _wait(self._machine.close())

    def __enter__(self) -> 'Machine':
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Unlike that of any other machine."""
        return self._machine.name

    @property
    def pid(self) -> Optional[int]:
        """Of a QEMU that was started here."""
        return self._machine.pid

    def log(self) -> str:
        """The output of a QEMU that was started here."""
        return self._machine.log()

    def execute(self, command: str,
                arguments: Optional[Mapping[str, object]] = None) -> Any:
        """A command of QMP, and its return value."""
        return _wait(self._machine.execute(command, arguments))

    def human(self, line: str) -> str:
        """A command of the human monitor, and its output."""
        return _wait(self._machine.human(line))

    def status(self) -> str:
        """QEMU's run state: running, paused, shutdown, ..."""
        return _wait(self._machine.status())

    def pause(self) -> None:
        """Stop the vCPUs."""
        _wait(self._machine.pause())

    def resume(self) -> None:
        """Let the vCPUs run."""
        _wait(self._machine.resume())

    def run(self, command: str, timeout: float = 30.0) -> Result:
        """Run a shell command in the guest."""
        return _wait(self._machine.run(command, timeout))

    def snapshot(self, name: str = '') -> Snapshot:
        """Save RAM, devices and disks, see aio.Machine.snapshot()."""
        return _wait(self._machine.snapshot(name))

    def find(self, name: str) -> Snapshot:
        """A handle of a snapshot that is in the machine's image."""
        return self._machine.find(name)

    def delete(self, snapshot: Snapshot) -> None:
        """Delete a snapshot."""
        _wait(self._machine.delete(snapshot))

    def restore(self, snapshot: Snapshot, *, run: Optional[bool] = None
                ) -> None:
        """Take the machine to a snapshot, see aio.Machine.restore()."""
        _wait(self._machine.restore(snapshot, run=run))

    def statistics(self) -> Optional[Statistics]:
        """QEMU's account of its loads; None for a QEMU without RAM reset."""
        return _wait(self._machine.statistics())

    def last_load(self) -> Optional[Load]:
        """QEMU's account of the last load."""
        return _wait(self._machine.last_load())

    def fork(self, count: int = 1) -> 'List[Machine]':
        """New machines that begin as this one is now, which goes on."""
        return [Machine(child) for child in _wait(self._machine.fork(count))]


class Pool:
    """Machines that are ready at one state, see aio.Pool."""

    def __init__(self, pool: aio_pool.Pool):
        """Use of()."""
        self._pool = pool

    @classmethod
    def of(cls, machine: Machine, count: int) -> 'Pool':
        """A pool of a machine, which belongs to it, and its forks."""
        return cls(_wait(aio_pool.Pool.of(machine._machine, count)))

    def close(self) -> None:
        """Close all machines."""
        _wait(self._pool.close())

    def __enter__(self) -> 'Pool':
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    @property
    def machines(self) -> Sequence[Machine]:
        """All that live, idle or not."""
        return tuple(map(Machine, self._pool.machines))

    @contextmanager
    def machine(self) -> Iterator[Machine]:
        """A machine that runs, for the body of a with statement."""
        context = self._pool.machine()
        machine = Machine(_wait(context.__aenter__()))
        try:
            yield machine
        except BaseException as e:
            _wait(context.__aexit__(type(e), e, e.__traceback__))
            raise
        _wait(context.__aexit__(None, None, None))

    def map(self, work: Callable[[Machine, Item], T], items: Iterable[Item]
            ) -> List[T]:
        """
        The results of work on each item, in their order, by as many threads
        as there are machines.
        """
        def one(item: Item) -> T:
            with self.machine() as machine:
                return work(machine, item)

        with ThreadPoolExecutor(max(len(self._pool.machines), 1)) as threads:
            return list(threads.map(one, items))
