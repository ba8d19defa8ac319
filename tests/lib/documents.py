# SPDX-License-Identifier: GPL-2.0-or-later
"""
Commands that documents tell their reader to type.

A block of code says its language.  Each line of a block of shell is a command
of a shell, or, with a prompt before it, of QEMU's monitor or of a guest.  A
block of QMP has messages to a QEMU whose options name a socket.
A block with a caption is a file of that name.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lib import products

SHELL, MONITOR, GUEST, QMP = 'shell', '(qemu) ', 'guest# ', 'QMP'
# in a document of libvirt, files of this kind are domains
XML = 'xml'
# files that tests/contrib/python/test_python_manual.py runs
PYTHON = 'python'
SHOWN = ('none', 'yaml')

# Commands that these tests do not type, and why
LEFT_OUT = {
    './demo': 'it builds, which has been done, and takes minutes',
    './test': 'it runs these tests',
    './package': 'it builds, too, and tries what it has built in a fresh root',
    'apt install ./build': 'so does ./package --try',
    'python3 -m venv venv': 'the tests of the Python package do so',
    'venv/bin/': 'it needs the network; the tests of the Python package do so',
    'kubectl create configmap': 'there is no cluster here',
}


@dataclass(frozen=True)
class Command:
    prompt: str
    text: str
    line: int

    def left_out(self) -> str:
        """Why, or nothing."""
        return next((why for begin, why in LEFT_OUT.items()
                     if self.text.startswith(begin)), '')


@dataclass(frozen=True)
class Block:
    language: str
    caption: str
    text: str
    line: int

    def commands(self) -> list[Command]:
        if self.language == QMP:
            return list(self._messages())
        if self.language != SHELL:
            return []
        found, pending, first = [], '', self.line
        for number, line in enumerate(self.text.splitlines(), self.line):
            first = first if pending else number
            pending += line + '\n'
            if is_complete(pending):
                if not pending.startswith('#') and pending.strip():
                    found.append(command(pending, first))
                pending = ''
        assert not pending, f'line {first}: {pending!r} has no end'
        return found


    def _messages(self) -> Iterator[Command]:
        for match in re.finditer(r'^-> (.*?)(?=^-> |\Z)', self.text,
                                 re.M | re.S):
            line = self.line + self.text.count('\n', 0, match.start())
            yield Command(QMP, json.dumps(json.loads(match[1])), line)


def is_complete(text: str) -> bool:
    if text.endswith('\\\n') or text.rstrip().endswith('|') or \
            text.count('$(') > text.count(')'):
        return False
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def command(text: str, line: int) -> Command:
    for prompt in (MONITOR, GUEST):
        if text.startswith(prompt):
            return Command(prompt, text[len(prompt):].strip(), line)
    return Command(SHELL, text.rstrip(), line)


class Document:
    def __init__(self, path: Path):
        self.path = path
        self.name = str(path.relative_to(products.REPO))
        lines = path.read_text().splitlines()
        self.blocks = list(markdown_blocks(lines) if path.suffix == '.md'
                           else rst_blocks(lines))

    def commands(self) -> list[Command]:
        return [c for block in self.blocks for c in block.commands()]

    def is_libvirt(self) -> bool:
        return any(c.text.startswith('virsh') for c in self.commands())

    def variants(self) -> int:
        """How many files of one name there are, one to be taken at a time."""
        captions = [b.caption for b in self.blocks if b.caption]
        return max((captions.count(c) for c in captions), default=1)


def markdown_blocks(lines: list[str]):
    begin = None
    for number, line in enumerate(lines):
        # one within a list, or of another kind, would be seen by nobody
        assert not re.match(r'\s+```|\s*(>|[-*+]|\d+[.)])\s*```|\s*~~~', line), \
            f'line {number + 1}: code has ``` at the begin of a line'
        assert not line.startswith('    ') or begin is not None or \
            is_of_list(lines, number), f'line {number + 1} is code without ```'
        if not line.startswith('```'):
            continue
        if begin is None:
            begin = number
        else:
            yield Block(lines[begin][3:], '', dedent(lines[begin + 1:number]),
                        begin + 2)
            begin = None
    assert begin is None, f'line {begin + 1}: code without an end'


def is_of_list(lines: list[str], number: int) -> bool:
    above = next((line for line in reversed(lines[:number])
                  if not line.startswith('  ')), '')
    return above.startswith(('- ', '* '))


def rst_blocks(lines: list[str]):
    for number, line in enumerate(lines):
        match = re.match(r'( *)\.\. (code-block|parsed-literal)::(.*)', line)
        if not match:
            assert not line.endswith('::') or line.lstrip().startswith('.. '), \
                f'line {number + 1}: code without a language'
            continue
        body = number + 1
        caption = ''
        while body < len(lines) and lines[body].strip():
            caption = lines[body].partition(':caption:')[2].strip()
            body += 1
        end = body
        while end < len(lines) and (not lines[end].strip() or
                                    indent(lines[end]) > len(match[1])):
            end += 1
        yield Block(match[3].strip(), caption, dedent(lines[body + 1:end]),
                    body + 2)


def indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def dedent(lines: list[str]) -> str:
    least = min((indent(line) for line in lines if line.strip()), default=0)
    return '\n'.join(line[least:] for line in lines).strip('\n') + '\n'


def documents() -> list[Document]:
    repo = products.REPO
    return [Document(path) for path in (
        repo / 'README.md', *sorted((repo / 'docs/system').glob('*.rst')),
        *sorted((repo / 'contrib').glob('*/README*')))]
