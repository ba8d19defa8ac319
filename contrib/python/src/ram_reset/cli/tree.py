# SPDX-License-Identifier: GPL-2.0-or-later
"""Try commands one upon the other, and keep the best of each level.

Starts QEMU with the command line after "--", and waits until the guest is ready.
At each level it forks the best machine once for each --do, runs the commands all
at once, and asks each fork for its --score: the last number that this command
prints, the higher the better.  A command that fails has no score.  The search
ends after --levels, or when no fork is better than the machine it comes from.

The tree of all attempts comes last, the best path with stars.

The status is 0 if any attempt was better than doing nothing, 1 if none was, or
if QEMU or a guest fails, 2 for wrong usage and 130 after Ctrl-C.
"""

import argparse
import asyncio
import math
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from ram_reset.cli import json_file, session
from ram_reset.cli.line import Line
from ram_reset.errors import GuestError
from ram_reset.machine import Machine

HELP = 'try commands one upon the other, and keep the best'

NUMBER = re.compile(r'[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?')


@dataclass
class Node:
    """
    An attempt.

    :ivar command: '' for the root
    :ivar score: None if the command has failed
    :ivar best: it is on the path that was kept
    """

    command: str = ''
    score: Optional[float] = None
    status: int = 0
    seconds: float = 0.0
    best: bool = False
    children: 'List[Node]' = field(default_factory=list)

    def lines(self, indent: str = '') -> List[str]:
        if indent:
            score = 'no score, status ' + str(self.status) \
                if self.score is None else f'score {self.score:g}'
            found = [f'{indent}{"*" if self.best else "-"} {self.command}: '
                     f'{score}, {self.seconds:.2f} s']
        else:
            found = [f'score {self.score:g} at the beginning']
        for child in self.children:
            found += child.lines(indent + '  ')
        return found

    def data(self) -> Dict[str, Any]:
        return {'command': self.command, 'score': self.score,
                'status': self.status, 'seconds': self.seconds,
                'best': self.best,
                'children': [child.data() for child in self.children]}


async def score(machine: Machine, options: argparse.Namespace) -> float:
    result = await machine.run(options.score, options.timeout)
    numbers = NUMBER.findall(result.output)
    if result.status or not numbers:
        raise GuestError(
            f"--score '{options.score}' ends with status {result.status} and "
            f'says {result.output.strip()!r}; it must print a number')
    return float(numbers[-1])


async def attempt(machine: Machine, command: str,
                  options: argparse.Namespace) -> Node:
    done = await session.do(machine, command, options.timeout)
    return Node(command, None if done.status else
                await score(machine, options), done.status, done.seconds)


def rank(node: Node) -> float:
    return -math.inf if node.score is None else node.score


async def level(machine: Machine, parent: Node, options: argparse.Namespace
                ) -> Optional[Machine]:
    """The best fork if it is better than its parent."""
    children = await machine.fork(len(options.do))
    kept: Optional[Machine] = None
    try:
        parent.children = list(await asyncio.gather(*(
            attempt(child, command, options)
            for child, command in zip(children, options.do))))
        best, fork = max(zip(parent.children, children),
                         key=lambda pair: rank(pair[0]))
        if rank(best) > rank(parent):
            best.best, kept = True, fork
    finally:
        await asyncio.gather(*(child.close() for child in children
                               if child is not kept))
    return kept


async def work(options: argparse.Namespace, line: Line) -> int:
    async with session.started(options, line) as first:
        root = node = Node(score=await score(first, options))
        machine, kept = first, None
        for number in range(options.levels):
            line.show(f'level {number + 1} of {options.levels}, score '
                      f'{node.score:g}')
            async with machine:
                kept = await level(machine, node, options)
            if not kept:
                break
            machine = kept
            node = next(child for child in node.children if child.best)
        if kept:
            await kept.close()
    line.hide()
    print('\n'.join(root.lines()))
    json_file.write(options.json, root.data())
    return 0 if node is not root else 1


def run(options: argparse.Namespace) -> int:
    if options.levels < 1:
        options.parser.error('--levels must be 1 or more')
    return session.run(work, options)


def add_options(parser: argparse.ArgumentParser) -> None:
    session.add_options(parser, attach=False)
    parser.add_argument('--score', metavar='COMMAND', required=True,
                        help='command for the guest that prints a number')
    parser.add_argument('--levels', metavar='N', type=int, default=3,
                        help='depth of the tree (default: %(default)s)')
