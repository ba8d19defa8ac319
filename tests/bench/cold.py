#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""How long a new QEMU takes to have a guest of a snapshot answer.

Beside template-dir= there is an unpatched QEMU, which is built by

    build/venv/bin/meson compile -C build stock
"""

import contextlib
import json
import re
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import context
import rewind_guests as guests
import standalone
from lib import products
from lib.machine import MIB, MachineError, kvm_usable, start_line
from lib.shm import in_memory
from loadvm_guests import TAG
from report import ROUNDS, Failure, Section, Table, figure
from rewind_guests import START, Scene

NAME = 'cold'
TITLE = 'Starting a new QEMU from a snapshot'

PATIENCE = 60.0
POLL = 0.0005
WARM_UPS = 2
PAGES = 1000
CROWD = 20

WHAT = (
    'A guest in ring 3 with so much RAM that is not zero has been saved. '
    'answer is the time from the start of a QEMU process until that guest has '
    'answered a message, which is sent each half a millisecond; touch is what '
    f'the guest then takes to write to {PAGES} pages, scattered over all of '
    'its RAM up to 3 GiB. boot is an unpatched QEMU without a snapshot, stock '
    'the same with -loadvm, template ours with -loadvm and a ram-reset-auto '
    'object whose template-dir= is in /dev/shm, and rewind has rewind=on as '
    'well. image is an unpatched QEMU that maps a RAM file in /dev/shm with '
    'share=off and has the rest from -incoming file: with x-ignore-shared. It '
    'has no disk, all others take one back. The others start from a file of a '
    'migration, on a disk, but in the page cache: stock-mapped and '
    'stock-stream are an unpatched QEMU with mapped-ram and without, mapped '
    'and stream are ours with a ram-reset-auto object; of the stream there is '
    'a template, from the first start.')


def command(scene: Scene, qemu: Path, *args: Any) -> list[str]:
    return [str(a) for a in (
        *start_line(qemu, scene.accel), '-m', f'{scene.ram}M',
        '-bios', 'qboot.rom', '-kernel', products.ring3_image(), *args)]


def lines(what: str, file: Path, *capabilities: str) -> list[dict]:
    """Commands for a migration to @file, or from it."""
    return [{'execute': 'qmp_capabilities'},
            {'execute': 'migrate-set-capabilities', 'arguments': {
                'capabilities': [{'capability': name, 'state': True}
                                 for name in capabilities]}},
            {'execute': what, 'arguments': {'uri': f'file:{file}'}}]


def migrating(*args: Any) -> bytes:
    return ''.join(json.dumps(line) for line in lines(*args)).encode()


def memory(scene: Scene) -> list[str]:
    kind = 'memory-backend-memfd,share=on' if scene.memory == 'shared' \
        else 'memory-backend-ram'
    return ['-object', f'{kind},id=mem0,size={scene.ram}M',
            '-M', 'pc,memory-backend=mem0']


class Process:
    """A QEMU, asked from the first moment on whether its guest is there."""

    def __init__(self, args: list[str], log: Path, qmp: bytes):
        self._end, theirs = socket.socketpair()
        self._qmp, their_qmp = socket.socketpair()
        self._text = b''
        args = args + ['-chardev', f'socket,id=s,fd={theirs.fileno()}',
                       '-chardev', f'socket,id=q,fd={their_qmp.fileno()}',
                       '-serial', 'chardev:s', '-qmp', 'chardev:q']
        # there before QEMU asks, so that nobody waits
        self._qmp.sendall(qmp)
        with log.open('wb') as output:
            self._started = time.perf_counter()
            self._process = subprocess.Popen(
                args, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                pass_fds=(theirs.fileno(), their_qmp.fileno()))
        theirs.close()
        their_qmp.close()
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self, wait: float) -> None:
        if select.select([self._end], [], [], wait)[0]:
            try:
                data = self._end.recv(65536)
            except ConnectionResetError:
                data = b''
            if not data:
                raise MachineError(f'{self._log.parent.name}: QEMU has ended: '
                                   + self._log.read_text(errors='replace'))
            self._text += data

    def wait(self, pattern: bytes, send: bytes = b'') -> re.Match:
        while not (match := re.search(pattern, self._text)):
            if time.perf_counter() - self._started > PATIENCE:
                raise MachineError(f'no answer, but {self._text[-200:]!r}')
            with contextlib.suppress(BlockingIOError):
                self._end.send(send, socket.MSG_DONTWAIT)
            self._read(POLL if send else 1)
        self._text = self._text[match.end():]
        return match

    def answer(self) -> float:
        """Seconds until there is one."""
        self.wait(rb'pong 1\n', b'\nping 1\n')
        return time.perf_counter() - self._started

    def ask(self, *words: Any) -> str:
        text = ' '.join(w if isinstance(w, str) else f'{w:x}' for w in words)
        self._end.sendall(f'\nping 2\n{text}\n'.encode())
        self.wait(rb'pong 2\n')
        return self.wait(rb'(?:^|\n)ok([^\n]*)\n')[1].decode().strip()

    def pss(self) -> float:
        """MiB that this process accounts for, what is shared by its share."""
        text = Path(f'/proc/{self.pid}/smaps_rollup').read_text()
        return int(re.search(r'^Pss:\s+(\d+)', text, re.M)[1]) / 1024

    def monitor(self, *commands: dict, until: bytes) -> None:
        """Repeat the last of @commands until an answer has @until."""
        text = b''
        for command in commands[:-1]:
            self._qmp.sendall(json.dumps(command).encode())
        limit = time.perf_counter() + PATIENCE
        while until not in text:
            if time.perf_counter() > limit:
                raise MachineError(f'no {until!r}, but {text[-200:]!r}')
            self._qmp.sendall(json.dumps(commands[-1]).encode())
            time.sleep(0.01)
            text += self._qmp.recv(65536)

    def freeze(self) -> None:
        """Its guest, which asks for input all the time, leaves the CPU."""
        self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._end.close()
        self._qmp.close()


@dataclass
class Starter:
    """
    A way to start; @args of a QEMU, in a folder of its own, and what its
    monitor is told.
    """

    name: str
    scene: Scene
    args: list[str]
    folder: Path
    qmp: bytes = b''

    def start(self) -> Process:
        return Process(self.args, self.folder / 'log', self.qmp)

    def cycle(self, hertz: float) -> dict[str, float]:
        with contextlib.closing(self.start()) as process:
            found = {'answer': process.answer() * 1e3}
            room = self.scene.room
            ticks = process.ask('touch', START, room, PAGES,
                                self.scene.step(0))
            return found | {'touch': int(ticks, 16) / hertz * 1e3}


class Field:
    """The loads that take turns for one scene."""

    def __init__(self, work: Path, scene: Scene, stock: Path):
        self.scene = scene
        self._work = work
        self._stock = stock
        snapshots = work / 'snapshots'
        snapshots.mkdir()
        self._saved = guests.Snapshots(snapshots, stock).get(scene)
        self._stack = contextlib.ExitStack()
        self.templates = self._stack.enter_context(in_memory('templates'))
        self._image = guests.Image('image', work / 'image', scene, stock,
                                   started=False)
        self.hertz = self._image.hertz

    def close(self) -> None:
        self._image.close()
        self._stack.close()

    def starter(self, name: str, qemu: Path, *args: Any,
                loadvm: bool = True) -> Starter:
        folder = self._work / name
        folder.mkdir()
        disk = folder / 'disk.qcow2'
        shutil.copy(self._saved, disk)
        every = [*memory(self.scene), '-blockdev',
                 f'driver=qcow2,node-name=disk0,file.driver=file,'
                 f'file.filename={disk}', *args]
        return Starter(name, self.scene, command(
            self.scene, qemu, *every, *(['-loadvm', TAG] if loadvm else [])),
            folder)

    def ours(self, name: str, options: str = '') -> Starter:
        return self.starter(name, products.QEMU, '-object',
                            'ram-reset-auto,id=rr0,'
                            f'template-dir={self.templates}{options}')

    def image(self) -> Starter:
        folder = self._work / 'image'
        return Starter('image', self.scene, command(
            self.scene, self._stock, '-object',
            f'memory-backend-file,id=mem0,size={self.scene.ram}M,'
            f'mem-path={self._image._image},share=off',
            '-M', 'pc,memory-backend=mem0', '-incoming', 'defer'), folder,
            migrating('migrate-incoming', folder / 'state',
                      'x-ignore-shared'))

    def file(self, *capabilities: str) -> Path:
        """The file of a migration of the snapshot."""
        file = self._work / f'migration-{len(capabilities)}'
        if not file.exists():
            source = self.starter(f'to-{file.name}', self._stock)
            source.qmp = b'{"execute": "qmp_capabilities"}'
            with contextlib.closing(source.start()) as process:
                process.answer()
                process.monitor(*lines('migrate', file, *capabilities)[1:],
                                {'execute': 'query-migrate'},
                                until=b'completed')
        return file

    def incoming(self, name: str, qemu: Path, *capabilities: str,
                 options: str | None = None) -> Starter:
        args = [] if options is None else \
            ['-object', f'ram-reset-auto,id=rr0{options}']
        starter = self.starter(name, qemu, *args, '-incoming', 'defer',
                               loadvm=False)
        starter.qmp = migrating('migrate-incoming', self.file(*capabilities),
                                *capabilities)
        return starter

    def all(self) -> list[Starter]:
        return [self.starter('boot', self._stock, loadvm=False),
                self.starter('stock', self._stock), self.image(),
                self.ours('template'), self.ours('rewind', ',rewind=on'),
                self.incoming('stock-mapped', self._stock, 'mapped-ram'),
                self.incoming('mapped', products.QEMU, 'mapped-ram',
                              options=''),
                self.incoming('stock-stream', self._stock),
                self.incoming('stream', products.QEMU,
                              options=f',template-dir={self.templates}')]


def race(field: Field, rounds: int) -> list[dict]:
    starters = field.all()
    samples = context.race(starters, lambda s, _: s.cycle(field.hertz),
                           rounds, WARM_UPS)
    return [{'table': 'start', 'what': starter.name, **asdict(field.scene),
             'samples': context.columns(found)}
            for starter, found in zip(starters, samples)]


CROWDS = {
    'template': lambda field, name: field.ours(name),
    'rewind': lambda field, name: field.ours(name, ',rewind=on'),
    'mapped': lambda field, name: field.incoming(
        name, products.QEMU, 'mapped-ram', options=''),
}


def crowd(field: Field) -> list[dict]:
    """PSS of many guests, and of one; each has written to some pages."""
    rows = []
    for name, starter in CROWDS.items():
        starters = [starter(field, f'{name}-{i}') for i in range(CROWD)]
        starters[0].cycle(field.hertz)
        for count in (1, CROWD):
            with contextlib.ExitStack() as stack:
                all_of = []
                for starter in starters[:count]:
                    process = stack.enter_context(contextlib.closing(
                        starter.start()))
                    process.answer()
                    # reads what is stored, writes to some of it
                    process.ask('sum', START, field.scene.stored * MIB)
                    process.ask('touch', START, field.scene.room, PAGES,
                                field.scene.step(0))
                    process.freeze()
                    all_of.append(process)
                rows.append({'table': 'crowd', 'what': name, 'count': count,
                             **asdict(field.scene),
                             'pss': sum(p.pss() for p in all_of)})
        for starter in starters:
            shutil.rmtree(starter.folder)
    return rows


def start_table(data: Sequence[dict]) -> Table:
    rows = []
    for cell in sorted({(r['accel'], r['memory'], r['ram'], r['stored'])
                        for r in data}):
        found = {r['what']: r['samples'] for r in data
                 if (r['accel'], r['memory'], r['ram'], r['stored']) == cell}
        image = statistics.median(found['image']['answer'])
        for name, samples in found.items():
            rows.append((*cell, name, figure(samples['answer']),
                         f'{statistics.median(samples["answer"]) / image:.2f}',
                         figure(samples['touch'])))
    return Table('From the start of the process to the answer',
                 ('', 'memory', 'RAM MiB', 'stored MiB', '', 'answer ms',
                  'of image', 'touch ms'), rows)


def crowd_table(data: Sequence[dict]) -> Table:
    rows = []
    for name in sorted({r['what'] for r in data}):
        one, many = (next(r['pss'] for r in data
                          if r['what'] == name and r['count'] == count)
                     for count in (1, CROWD))
        rows.append((name, f'{one:.0f}', f'{many:.0f}',
                     f'{many / (CROWD * one):.3f}'))
    scene = data[0]
    return Table(f'{CROWD} guests of one snapshot, {scene["ram"]} MiB of RAM, '
                 f'{scene["stored"]} stored, all of that read',
                 ('', 'PSS of one, MiB', f'of {CROWD}', f'to {CROWD} x one'),
                 rows)


def tables(data: Sequence[dict]) -> list[Table]:
    found = []
    for name, make in (('start', start_table), ('crowd', crowd_table)):
        rows = [r for r in data if r['table'] == name]
        if rows:
            found.append(make(rows))
    return found


def scenes(quick: bool) -> list[Scene]:
    ram, sizes = (1024, (64,)) if quick else (4096, (400, 1024))
    return [Scene('kvm', kind, ram, stored, PAGES)
            for stored in sizes for kind in ('private', 'shared')]


def run(ctx: context.Context, only: str = '', rounds: int = 0) -> Section:
    stock = ctx.stock()
    notes = [WHAT]
    data: list[dict] = []
    todo: list[tuple[str, Scene, Callable[[Field], list[dict]]]] = []
    rounds = rounds or (3 if ctx.quick else 3 * ROUNDS)
    if kvm_usable():
        every = scenes(ctx.quick)
        todo = [(f'start {s}', s, lambda f: race(f, rounds)) for s in every]
        todo += [(f'crowd {every[0]}', every[0], crowd)]
    else:
        notes.append('/dev/kvm cannot be opened, so there is nothing here.')
    todo = [t for t in todo if re.search(only, t[0])]
    ctx.expect(len(todo))
    try:
        for name, scene, measure in todo:
            ctx.step(name)
            with tempfile.TemporaryDirectory(
                    prefix='cold-', dir=products.BUILD) as folder, \
                    contextlib.closing(Field(Path(folder), scene, stock)
                                       ) as field:
                data += measure(field)
    except (products.Missing, MachineError) as e:
        raise Failure(str(e)) from e
    return Section(NAME, TITLE, data, tables(data), [], notes)


def main() -> int:
    p = standalone.parser(__doc__)
    p.add_argument('--cells', default='', metavar='REGEX',
                   help='only what matches, such as "start .* shared"')
    args = p.parse_args()
    return standalone.deliver('cold.py', args.json, lambda: run(
        standalone.context(args.quick), args.cells, args.rounds))


if __name__ == '__main__':
    sys.exit(main())
