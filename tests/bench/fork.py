#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Forks of a running Linux guest: what the parent and its children take."""

import asyncio
import contextlib
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cold
import context
import standalone
from lib import products
from lib.forking import INCOMING, Fork, Forker
from lib.guests import Linux
from lib.machine import DISK, MIB, MachineError, kvm_usable
from lib.shm import SHM
from report import ROUNDS, Failure, Section, Table, figure
from rewind_guests import Scene

NAME = 'fork'
TITLE = 'Forking a running machine'

CROWD = 25
MANY = 100
WARM_UPS = 1
FORKS = 6
SETTLED = 1.0                   # seconds, of a QEMU that has begun
DISK_ARGS = '-device', f'virtio-blk-pci,drive={DISK}'
TAG = 'template'
# In each of many: its own files and pages, and reads of others
WORK = ('sha256sum /bin/busybox; ls -R /sys >/dev/null; '
        'dd if=/dev/urandom of=/dev/vda bs=4k count=100 2>/dev/null; sync')

WHAT = (
    'A Linux guest under TCG, with so much of its RAM filled with random bytes, '
    'is forked by ram-reset-fork; files and disks are in /dev/shm, and the '
    'object is ram-reset-auto. stands is the time between the events STOP and '
    'RESUME, job that until the job has ended. answer is the time from the '
    'start of a QEMU process until the shell of its guest has answered: child '
    'is one from the file of the fork, template one with -loadvm and '
    'template-dir=. A QEMU that has not begun has the options of a child, and '
    'waits for the file.')


def in_proc(file: str, key: str) -> float:
    """MiB."""
    text = Path(f'/proc/{file}').read_text()
    return int(re.search(rf'^{key}:\s+(\d+)', text, re.M)[1]) / 1024


def memory_of(pid: int) -> dict[str, float]:
    rollup = f'{pid}/smaps_rollup'
    return {'pss': in_proc(rollup, 'Pss'),
            'private': in_proc(rollup, 'Private_Dirty')
            + in_proc(rollup, 'Private_Clean'),
            'tables': in_proc(f'{pid}/status', 'VmPTE')}


def memory_of_all(processes: Sequence[Any]) -> dict[str, list]:
    return context.columns([memory_of(p.pid) for p in processes])


def available() -> float:
    """MiB."""
    return in_proc('meminfo', 'MemAvailable')


class Family:
    """A parent and its children."""

    def __init__(self, work: Path, ram: int, stored: int):
        self._work = work
        self._ram = ram * MIB
        self._count = 0
        self.parent = self.linux('parent')
        self.parent.run('dd if=/dev/urandom of=/run/big bs=1M '
                        f'count={stored} 2>/dev/null')
        self.forker = Forker(self.parent, work / 'forks',
                             {DISK: self.parent.disk})

    def linux(self, name: str, *args: str, boot: bool = True, **kwargs
              ) -> Linux:
        folder = self._work / name
        folder.mkdir(exist_ok=True)
        more = {} if boot else {'boot_timeout': 0}
        return Linux(folder, accel='tcg', ram=self._ram, strategy='auto',
                     args=(*DISK_ARGS, *args), **more, **kwargs)

    def new_disks(self, fork: Fork) -> str:
        self._count += 1
        name = f'child{self._count}'
        fork.make_disks(self._work / name)
        return name

    def child(self, fork: Fork, name: str, **kwargs) -> Linux:
        guest = self.linux(name, *INCOMING, boot=False, **kwargs)
        fork.enter(guest)
        guest.run('true')
        return guest

    def remove(self, name: str) -> None:
        shutil.rmtree(self._work / name)


def time_of(events: Sequence[dict], name: str) -> float:
    stamp = [e['timestamp'] for e in events if e['event'] == name][-1]
    return stamp['seconds'] + stamp['microseconds'] / 1e6


def stand(family: Family) -> dict:
    """Of a parent whose guest does something meanwhile."""
    family.parent.run('while :; do cat /bin/busybox >/run/small; sleep 0.01; '
                      'done & load=$!')
    samples = []
    for _ in range(FORKS):
        family.parent.events()
        begin = time.perf_counter()
        fork = family.forker.fork()
        took = time.perf_counter() - begin
        family.parent.run('true')
        events = family.parent.events()
        samples.append({
            'stands': 1e3 * (time_of(events, 'RESUME')
                             - time_of(events, 'STOP')),
            'job': 1e3 * took,
            'stored': fork.state.stat().st_blocks * 512 / MIB})
        fork.state.unlink()
    family.parent.run('kill $load')
    return {'table': 'stand', 'samples': context.columns(samples)}


def answers(family: Family, fork: Fork, templates: Path, rounds: int) -> dict:
    saved = family.new_disks(fork)
    options = f',template-dir={templates}'
    with family.child(fork, saved, options=options) as guest:
        guest.save(TAG)

    def of_child(name: str) -> Linux:
        return family.child(fork, name)

    def of_template(name: str) -> Linux:
        shutil.copytree(family._work / saved, family._work / name,
                        dirs_exist_ok=True)
        begin[0] = time.perf_counter()
        guest = family.linux(name, boot=False, options=options, loadvm=TAG)
        guest.run('true')
        return guest

    begin = [0.0]

    def cycle(start: Callable[[str], Linux], _) -> dict[str, float]:
        name = family.new_disks(fork)
        begin[0] = time.perf_counter()
        with start(name):
            took = time.perf_counter() - begin[0]
        family.remove(name)
        return {'answer': 1e3 * took}

    found = context.race((of_child, of_template), cycle, rounds, WARM_UPS)
    return {'table': 'answer', 'samples': {
        name: [s['answer'] for s in samples]
        for name, samples in zip(('child', 'template'), found)}}


@contextlib.contextmanager
def at_once(family: Family, fork: Fork, count: int
            ) -> Iterator[tuple[list[Linux], list[float]]]:
    """Guests, and when each has answered, in ms."""
    names = [family.new_disks(fork) for _ in range(count)]
    begin = time.perf_counter()

    def start(name: str) -> tuple[Linux, float]:
        asyncio.set_event_loop(asyncio.new_event_loop())
        return family.child(fork, name), 1e3 * (time.perf_counter() - begin)

    with ThreadPoolExecutor(count) as executor:
        started = list(executor.map(start, names))
    try:
        yield [guest for guest, _ in started], sorted(t for _, t in started)
    finally:
        for guest, _ in started:
            guest.process.kill()
            guest.process.wait()
        for name in names:
            family.remove(name)


def crowd(family: Family, fork: Fork) -> dict:
    with at_once(family, fork, CROWD) as (guests, times):
        children = memory_of_all([guest.process for guest in guests])
    with family.linux(family.new_disks(fork), *INCOMING, boot=False) as guest:
        alone = memory_of_all([guest.process])
    return {'table': 'crowd', 'times': times, 'children': children,
            'alone': alone}


def idle(work: Path, stock: Path, ram: int, stored: int) -> dict:
    """Of a guest in ring 3 under KVM, which has no translated code."""
    scene = Scene('kvm', 'private', ram, stored, cold.PAGES)
    with contextlib.ExitStack() as stack:
        field = stack.enter_context(contextlib.closing(
            cold.Field(work, scene, stock)))
        starters = [field.incoming(f'child{i}', products.QEMU, 'mapped-ram',
                                   options='') for i in range(cold.CROWD)]
        found = {'table': 'idle', 'ram': ram, 'stored': stored}
        for name in 'children', 'alone':
            with contextlib.ExitStack() as running:
                processes = []
                for starter in starters:
                    if name == 'alone':
                        starter.qmp = b'{"execute": "qmp_capabilities"}'
                    processes.append(running.enter_context(
                        contextlib.closing(starter.start())))
                    if name == 'alone':
                        processes[-1].monitor({'execute': 'query-status'},
                                              until=b'inmigrate')
                    else:
                        processes[-1].answer()
                time.sleep(SETTLED)
                for process in processes:
                    process.freeze()
                found[name] = memory_of_all(processes)
    return found


def many(family: Family, fork: Fork) -> dict:
    before = available()
    names = [family.new_disks(fork) for _ in range(MANY)]
    with contextlib.ExitStack() as stack:
        begin = time.perf_counter()
        guests = [stack.enter_context(family.child(fork, name))
                  for name in names]
        found = {'table': 'many', 'seconds': time.perf_counter() - begin}
        for when in 'started', 'worked':
            found[when] = {
                'used': before - available(),
                **memory_of_all([guest.process for guest in guests])}
            if when == 'started':
                for guest in guests:
                    guest.run(WORK)
        for guest in guests:
            guest.process.kill()
            guest.process.wait()
    return found


def stand_table(data: dict, ram: int) -> Table:
    s = data['samples']
    return Table(f'The parent, {ram} MiB of RAM', (
        'MiB in the file', 'stands, ms', 'job, ms'),
        [(figure(s['stored']), figure(s['stands']), figure(s['job']))])


def answer_table(data: dict, ram: int) -> Table:
    base = statistics.median(data['samples']['template'])
    return Table('From the start of the process to the answer', (
        '', 'answer, ms', 'of template'),
        [(name, figure(found), f'{statistics.median(found) / base:.2f}')
         for name, found in data['samples'].items()])


def memory_row(name: str, found: dict) -> tuple:
    return (name, *(figure(found[key]) for key in ('pss', 'private', 'tables')))


MEMORY = 'PSS, MiB', 'private, MiB', 'page tables, MiB'


def crowd_table(data: dict, ram: int) -> Table:
    times = data['times']
    return Table(f'{len(times)} children at once: the first answers after '
                 f'{times[0]:.0f} ms, half after '
                 f'{statistics.median(times):.0f}, all after {times[-1]:.0f}',
                 ('', *MEMORY),
                 [memory_row('a child, idle', data['children']),
                  memory_row('a QEMU that has not begun', data['alone'])])


def idle_table(data: dict, ram: int) -> Table:
    return Table(f'{len(data["children"]["pss"])} idle children under KVM, '
                 f'{ram} MiB of RAM, {data["stored"]} stored', ('', *MEMORY),
                 [memory_row('a child', data['children']),
                  memory_row('a QEMU that has not begun', data['alone'])])


def many_table(data: dict, ram: int) -> Table:
    count = len(data['started']['pss'])
    return Table(f'{count} children of a guest of {ram} MiB, started one by '
                 f'one in {data["seconds"]:.1f} s',
                 ('', 'memory of the host, MiB', *MEMORY),
                 [(name, f'{data[name]["used"]:.0f}',
                   *memory_row('', data[name])[1:])
                  for name in ('started', 'worked')])


TABLES = {'stand': stand_table, 'answer': answer_table, 'crowd': crowd_table,
          'idle': idle_table, 'many': many_table}


def measure(work: Path, ctx: context.Context, ram: int, stored: int,
            only: str, rounds: int) -> list[dict]:
    cells: dict[str, Callable[[Family, Fork], dict]] = {
        'answer': lambda family, fork: answers(family, fork, templates, rounds),
        'crowd': crowd}
    templates = work / 'templates'
    templates.mkdir(mode=0o700)
    data = []
    ctx.step('stand')
    family = Family(work / 'large', ram, stored)
    with family.parent:
        data.append(stand(family))
        fork = family.forker.fork()
    for name, cell in cells.items():
        ctx.step(name)
        if re.search(only, name):
            data.append(cell(family, fork))
    return data


def run(ctx: context.Context, only: str = '', rounds: int = 0) -> Section:
    ram, stored = (1024, 100) if ctx.quick else (4096, 400)
    rounds = rounds or (3 if ctx.quick else ROUNDS)
    ctx.expect(5)
    with tempfile.TemporaryDirectory(prefix='ram-reset-fork-', dir=SHM) as name:
        work = Path(name)
        for folder in 'large', 'idle', 'small':
            (work / folder).mkdir()
        try:
            data = measure(work, ctx, ram, stored, only, rounds)
            ctx.step('idle')
            if re.search(only, 'idle') and kvm_usable():
                data.append(idle(work / 'idle', ctx.stock(), ram, stored))
            ctx.step('many')
            if re.search(only, 'many') and not ctx.quick:
                family = Family(work / 'small', 512, 100)
                with family.parent:
                    fork = family.forker.fork()
                data.append({'ram': 512, **many(family, fork)})
        except (products.Missing, MachineError) as e:
            raise Failure(str(e)) from e
    tables = [TABLES[d['table']](d, d.get('ram', ram)) for d in data]
    return Section(NAME, TITLE, data, tables, [], [WHAT])


def main() -> int:
    p = standalone.parser(__doc__)
    p.add_argument('--cells', default='', metavar='REGEX',
                   help='of answer, crowd, idle and many; stand is always there')
    args = p.parse_args()
    return standalone.deliver('fork.py', args.json, lambda: run(
        standalone.context(args.quick), args.cells, args.rounds))


if __name__ == '__main__':
    sys.exit(main())
