# SPDX-License-Identifier: GPL-2.0-or-later
"""Somebody who types what a document says into terminals of a sandbox."""

import contextlib
import os
import pty
import re
import select
import shlex
import signal
import time

from lib.documents import (GUEST, MONITOR, PYTHON, QMP, SHELL, XML, SHOWN,
                           Block, Command, Document)
from lib.patience import Limit, patience
from lib.sandbox import CLONE, PATH

TIMEOUT = 240
# A guest's shell may draw its prompt once more
SETTLED = 0.3
# a guest's console asks where the cursor is, the monitor redraws its line
ESCAPES = re.compile(r'\x1b\[[0-9;?]*[A-Za-z]')
# QEMU writes it before the monitor's prompt, or after it
NOTICE = re.compile(r'VNC server running on \S+\r*\n')
# The shell's also follows a line without an end
PROMPT = re.compile(r'(?:\[(\d+)\]> |(?:^|[\r\n])(?:(\(qemu\) )|(guest# )))$')
# Refusals that no status tells
REFUSED = {
    SHELL: re.compile(r'^(Error:|.*"error":|.*: command not found)', re.M),
    MONITOR: re.compile(r'^(Error|unknown command|Try "help)', re.M),
    GUEST: re.compile(r'^[\w-]+: .*(cannot|no such|not found|unreachable|'
                      r'timeout)', re.M | re.I)}
SHELL_START = ("PS1='[$?]> ' PS2=''; set -o pipefail; stty -echo; "
               'true\n')


class Wrong(Exception):
    """A document's promise does not come true."""


class Terminal:
    """A shell in a terminal, and whatever runs in its foreground."""

    def __init__(self, enter: list[str]):
        self.at = ''
        self.began = 0.0        # what has this prompt
        self._text = ''
        words = [*enter, 'env', '-i', 'TERM=dumb', 'HOME=/', f'PATH={PATH}',
                 'LC_ALL=C.UTF-8', 'bash', '--norc', '--noprofile',
                 '--noediting', '-i']
        self.pid, self._end = pty.fork()
        if not self.pid:
            os.execvp(words[0], words)
        self._send(f'cd {CLONE}; {SHELL_START}')
        while not self._text.endswith('[0]> '):
            self._read(patience(TIMEOUT))
        self.at = SHELL

    def _send(self, text: str) -> None:
        os.write(self._end, text.encode())

    def _read(self, seconds: float) -> None:
        if not select.select([self._end], [], [], max(seconds, 0))[0]:
            raise Wrong(f'no prompt after {patience(TIMEOUT):.0f} s, but '
                        f'{self._text[-1000:]!r}')
        try:
            data = os.read(self._end, 65536)
        except OSError:
            data = b''
        if not data:
            raise Wrong(f'the terminal is gone after {self._text[-1000:]!r}')
        text = ESCAPES.sub('', self._text + data.decode(errors='replace'))
        self._text = NOTICE.sub('', text)

    def _prompt(self) -> re.Match | None:
        match = PROMPT.search(self._text)
        if match and match[3] and select.select([self._end], [], [],
                                                SETTLED)[0]:
            return None
        return match

    def type(self, text: str) -> str:
        """The output until the next prompt, whose kind is "at" then."""
        self._text = ''
        self._send(text + '\n')
        limit = Limit(TIMEOUT)
        while not (match := self._prompt()):
            self._read(limit.left())
        said = self._text[:match.start()].replace('\r', '')
        status, monitor, _ = match.groups()
        before, self.at = self.at, \
            SHELL if status else MONITOR if monitor else GUEST
        if before == SHELL != self.at:
            self.began = time.monotonic()
        if status not in (None, '0'):
            raise Wrong(f'{text} ends with status {status}: {said[-2000:]}')
        return said

    def type_in_guest(self, text: str) -> str:
        """Its shell tells the status only if it is asked."""
        said = self.type(text)
        # a guest may be gone then, or taken back by what runs in it
        if self.at != GUEST or text.endswith('&'):
            return said
        answer = self.type('echo $?')
        status = re.search(r'^\d+\s*\Z|\Z', answer, re.M)[0].strip()
        if status != '0':
            raise Wrong(f'{text} ends with status {status or repr(answer)}: '
                        f'{said[-2000:]}')
        return said

    def close(self) -> None:
        os.close(self._end)
        # sudo is somebody else's, and ends with its terminal
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Typist:
    """A context: its terminals are closed after."""

    def __init__(self, enter: list[str]):
        self._enter = enter
        self._terminals: list[Terminal] = []
        self._socket = ''
        self.run = 0

    def __enter__(self) -> 'Typist':
        return self

    def __exit__(self, *unused) -> None:
        for terminal in self._terminals:
            terminal.close()

    def _terminal(self, prompt: str) -> Terminal:
        # a terminal that was opened early may have the QEMU that began last
        for terminal in sorted(reversed(self._terminals),
                               key=lambda t: t.began, reverse=True):
            if terminal.at == prompt:
                return terminal
        if prompt != SHELL:
            raise Wrong(f'nothing has the prompt {prompt!r}')
        self._terminals.append(Terminal(self._enter))
        return self._terminals[-1]

    def _say(self, message: str) -> str:
        """By QMP, to the QEMU that was started last."""
        python = f'{CLONE}/build/venv/bin/python3'
        return self._terminal(SHELL).type(shlex.join(
            [python, f'{CLONE}/tests/lib/say.py', self._socket, message]))

    def type(self, command: Command) -> str:
        if command.prompt == QMP:
            self.run += 1
            return self._say(command.text)
        if match := re.search(r'-qmp unix:([^, ]+)', command.text):
            self._socket = match[1]
        terminal = self._terminal(command.prompt)
        said = (terminal.type_in_guest if command.prompt == GUEST else
                terminal.type)(command.text)
        if REFUSED[command.prompt].search(said):
            raise Wrong(f'{command.text}: {said[-2000:]}')
        self.run += 1
        return said

    def read(self, document: Document, variant: int = 0) -> None:
        """Do all that it says, with the variant-th of the files of a name."""
        seen: dict[str, int] = {}
        for block in document.blocks:
            if block.caption:
                seen[block.caption] = seen.get(block.caption, 0) + 1
                if seen[block.caption] == variant + 1:
                    self._terminal(SHELL).type(
                        f"cat >{block.caption} <<'END'\n{block.text}END")
            self._block(document, block)

    def _block(self, document: Document, block: Block) -> None:
        if block.language not in (SHELL, QMP, XML, PYTHON, 'ini',
                                  *SHOWN):
            raise Wrong(f'{document.name}:{block.line}: nobody tests code in '
                        f'{block.language or "no language"}')
        for command in block.commands():
            if command.left_out():
                continue
            try:
                said = self.type(command)
            except Wrong as e:
                raise Wrong(f'{document.name}:{command.line}: {e}') from e
            print(f'{command.prompt}| {command.text}\n{said}')
