# SPDX-License-Identifier: GPL-2.0-or-later
"""
Connections to a guest.  A load makes each anew: what the guest has said before
it, and what it has not read, is dropped.
"""

import array
import asyncio
import base64
import fcntl
import itertools
import json
import re
import shlex
import socket
import termios
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional, TypeVar

from ram_reset.disks import quoted
from ram_reset.errors import GuestError, StartError
from ram_reset.monitor import Monitor

T = TypeVar('T')
SHOWN = 300             # characters of it in an error
LONGEST = 4000          # bytes of a line; a terminal takes 4095
POLL = 0.001            # seconds
AGENT_POLL = 0.01


@dataclass(frozen=True)
class Result:
    """A command that has ended in the guest."""

    status: int
    output: str


class Channel:
    """
    A socket chardev of QEMU that is a server.

    :param path: of its socket
    :param device: the guest's end, for messages
    """

    kept = 1 << 20      # bytes of output that nobody has taken

    def __init__(self, path: Path, device: str, monitor: Monitor):
        self._path = path
        self._device = device
        self._monitor = monitor
        self._socket: Optional[socket.socket] = None
        self._label = ''
        self._text = b''
        self._changed = asyncio.Event()
        self._closed = False
        self._loads = 0
        self._asking = asyncio.Lock()   # held until the answer has come
        self._listener: Optional[Callable[[bytes], None]] = None
        self._sending = asyncio.Lock()  # a socket has room for one at a time
        self._send: 'Optional[asyncio.Future[None]]' = None

    async def open(self) -> None:
        before = await self._connected()
        self._connect()
        await self._poll(lambda now: bool(now - before))
        self._label = next(iter(await self._connected() - before))

    def _connect(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(self._path))
        except OSError as e:
            self._socket.close()
            self._socket = None
            raise StartError(
                f'the {self._device} {self._path} cannot be connected to '
                f'({e.strerror}); give the path of a socket chardev of QEMU '
                'that has server=on') from e
        self._socket.setblocking(False)
        self._closed = False
        asyncio.get_running_loop().add_reader(self._socket, self.drain)

    async def _connected(self) -> 'set[str]':
        return {chardev['label'] for chardev in
                await self._monitor.execute('query-chardev')
                if not chardev['filename'].startswith('disconnected:')}

    async def _poll(self, check: Callable[['set[str]'], bool]) -> None:
        deadline = time.monotonic() + 10
        while not check(await self._connected()):
            if time.monotonic() > deadline:
                raise GuestError(
                    f'QEMU does not accept the connection to {self._path}; '
                    'check that no other program uses it')
            await asyncio.sleep(POLL)

    def drain(self) -> None:
        """Read all that QEMU has passed on."""
        while self._socket and not self._closed:
            try:
                data = self._socket.recv(65536)
            except BlockingIOError:
                return
            except OSError:
                data = b''
            self._closed = not data
            if self._closed:
                asyncio.get_running_loop().remove_reader(self._socket)
            self._text = (self._text + data)[-self.kept:]
            self._changed.set()
            if self._listener:
                self._listener(data)

    def close(self) -> None:
        if self._socket:
            try:
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._socket)
                # the next socket may get the same number
                loop.remove_writer(self._socket)
                if self._send:
                    self._send.cancel()
            except RuntimeError:
                pass    # there is no loop any more
            self._socket.close()
            self._socket = None

    # Around a load; the guest is stopped

    async def before_load(self) -> None:
        """Drop input that QEMU has not read: it would reach the new guest."""
        if not self._socket:
            return
        unread = array.array('i', [0])
        fcntl.ioctl(self._socket, termios.TIOCOUTQ, unread)
        if unread[0] or self._closed:
            self.close()
            await self._poll(lambda now: self._label not in now)

    async def after_load(self, drop: bool) -> None:
        """:param drop: what the guest has said before"""
        if not self._socket:
            self._connect()
            await self._poll(lambda now: self._label in now)
        self.drain()
        if drop:
            self._text = b''
            self._loads += 1
            self._changed.set()

    # Text

    @property
    def text(self) -> str:
        """The guest's output since the last load, as far as nobody took it."""
        return self._text.decode(errors='replace')

    def listen(self, call: Callable[[bytes], None]) -> None:
        """Call with all output as it comes, and now with what has come."""
        call(self._text)
        self._listener = call

    async def send(self, text: str) -> None:
        await self.write(text.encode())

    async def write(self, data: bytes) -> None:
        await self._monitor.settle()
        end, load = self._socket, self._loads
        if not end:
            await self._monitor.probe()
            raise GuestError(f'the {self._device} is not connected')
        async with self._sending:
            dropped = end is not self._socket or load != self._loads
            if not dropped:
                send = self._send = asyncio.ensure_future(
                    asyncio.get_running_loop().sock_sendall(end, data))
                try:
                    await asyncio.wait([send])
                finally:
                    self._send = None
                    if send.cancel():   # this is cancelled itself
                        await asyncio.wait([send])
                dropped = send.cancelled()
        if dropped:
            raise GuestError(f'a load has dropped input of the {self._device} '
                             'that the guest has not read; send it again')
        error = send.exception()
        if isinstance(error, OSError):
            await self._monitor.probe()
            raise GuestError(f'QEMU has closed the {self._device} '
                             f'({error.strerror})') from error
        send.result()

    async def _say(self, data: bytes, timeout: float) -> None:
        try:
            await asyncio.wait_for(self.write(data), timeout)
        except asyncio.TimeoutError:
            raise GuestError(f'no answer from the guest in {timeout:g} s; the '
                             f'{self._device} takes no input') from None

    async def expect(self, pattern: str, timeout: float = 30.0
                     ) -> 're.Match[str]':
        """
        Take the guest's output up to the end of a match.

        :param pattern: a regular expression, with MULTILINE and DOTALL
        :param timeout: in seconds
        """
        return await self._expect(pattern, timeout)

    async def _expect(self, pattern: str, timeout: float,
                      load: Optional[int] = None) -> 're.Match[str]':
        regex = re.compile(pattern, re.MULTILINE | re.DOTALL)

        def find() -> 'Optional[re.Match[str]]':
            # a character may be in two parts: no byte is lost by latin-1
            text = self._text.decode('latin-1')
            match = regex.search(text)
            if match:
                self._text = text[match.end():].encode('latin-1')
            return match

        return await self._wait(find, f'no {pattern!r}', timeout, load)

    async def _wait(self, find: Callable[[], Optional[T]], what: str,
                    timeout: float, load: Optional[int] = None) -> T:
        """
        Look at all that has come, again when there is more.

        :param load: the number of loads when it was asked for
        """
        await self._monitor.settle()
        deadline = time.monotonic() + timeout
        while True:
            self._changed.clear()
            if load not in (None, self._loads):
                raise GuestError('a load has dropped the answer from the '
                                 f'{self._device}; ask again')
            found = find()
            if found is not None:
                return found
            left = deadline - time.monotonic()
            if left <= 0 or self._closed:
                if self._closed:
                    await self._monitor.probe()
                said = self.text[-SHOWN:]
                why = f'QEMU has closed the {self._device}' if self._closed \
                    else f'{what} from the guest in {timeout:g} s'
                raise GuestError(f'{why}; it said {said!r}')
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                pass


class Serial(Channel):
    """The guest's serial port, with a shell if one reads there."""

    _numbers = itertools.count(1)

    async def run(self, command: str, timeout: float = 30.0) -> Result:
        """
        Run a command in the shell that reads the serial port.

        :param command: at most 4,000 bytes, in one line; a shell with a line
            editor may take fewer
        :param timeout: in seconds
        """
        mark = f'{uuid.uuid4().hex[:8]}-{next(self._numbers)}'
        # the terminal's echo has the quotes of the mark, the output has not; a
        # quoted command that has no end does not take the next mark with it
        line = (f"echo 'ram''reset {mark}'; eval {shlex.quote(command)} 2>&1; "
                f"echo 'ram''reset end' {mark} $?")
        if len(line.encode()) > LONGEST or '\n' in command:
            raise GuestError(
                f'a command for the serial port is one line of at most '
                f'{LONGEST} bytes; put a longer one into a file, or use the '
                'guest agent')
        async with self._asking:
            load = self._loads
            await self._say(line.encode() + b'\n', timeout)
            await self._expect(rf'ramreset {mark}\r?\n', timeout, load)
            # all output is searched for each part that comes: only for a word
            end = await self._expect(rf'ramreset end {mark} (\d+)\r?\n',
                                     timeout, load)
        output = end.string[:end.start()].encode('latin-1').decode(
            errors='replace')
        return Result(int(end[1]), output.replace('\r\n', '\n'))


class Agent(Channel):
    """QEMU's guest agent."""

    kept = 1 << 26      # QEMU's agent answers with at most 16 MiB, in base64
    _synced = -1        # the number of loads at that time

    async def _sync(self, timeout: float) -> None:
        """Find the agent at the start of a message, after each load."""
        if self._synced == self._loads:
            return
        number = uuid.uuid4().int & 0x7fffffff
        self._text = b''
        # the byte ends a message that was cut
        load = self._loads
        await self._say(b'\xff' + json.dumps({
            'execute': 'guest-sync-delimited',
            'arguments': {'id': number}}).encode() + b'\n', timeout)
        wanted = b'\xff{"return": %d}\n' % number
        while not (await self._line(timeout, load)).endswith(wanted):
            pass
        self._synced = load

    async def _line(self, timeout: float, load: int) -> bytes:
        searched = 0

        def find() -> Optional[bytes]:
            nonlocal searched
            end = self._text.find(b'\n', searched) + 1
            searched = len(self._text)
            line, rest = self._text[:end], self._text[end:]
            self._text = rest if end else self._text
            return line or None

        return await self._wait(find, 'no answer', timeout, load)

    async def execute(self, command: str,
                      arguments: Optional[Mapping[str, object]] = None,
                      timeout: float = 30.0) -> Any:
        """A command of the agent, and its return value."""
        async with self._asking:
            await self._sync(timeout)
            load, self._synced = self._synced, -1
            question = {'execute': command, 'arguments': arguments or {}}
            await self._say(json.dumps(question).encode() + b'\n', timeout)
            reply = json.loads(await self._line(timeout, load))
            self._synced = load         # no reply is outstanding
        if 'error' in reply:
            raise GuestError(f'the guest agent refuses {command}: '
                             f'{reply["error"]["desc"]}')
        return reply['return']

    async def run(self, command: str, timeout: float = 30.0) -> Result:
        """
        Run a command with /bin/sh in the guest.

        :param timeout: in seconds; the command goes on when it is over
        """
        deadline = time.monotonic() + timeout
        pid = (await self.execute('guest-exec', {
            'path': '/bin/sh', 'arg': ['-c', f'exec 2>&1; {command}'],
            'capture-output': True}, timeout))['pid']
        while True:
            state = await self.execute('guest-exec-status', {'pid': pid},
                                       timeout)
            if state['exited']:
                break
            if time.monotonic() > deadline:
                raise GuestError(f'{command!r} has not ended in the guest in '
                                 f'{timeout:g} s')
            await asyncio.sleep(AGENT_POLL)
        output = base64.b64decode(state.get('out-data', ''))
        status = state.get('exitcode', 128 + state.get('signal', 0))
        return Result(status, output.decode(errors='replace'))


def chardev(name: str, path: Path) -> List[str]:
    """Options of QEMU for a channel's socket."""
    return ['-chardev',
            f'socket,id={name},path={quoted(path)},server=on,wait=off']
