#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Iterations of a harness whose guest asks for its loads itself, beside the
same ones driven from outside, through QMP.
"""

import contextlib
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path

import context
import standalone
from lib import products
from lib.guests import Linux, linux_boots_under_kvm
from lib.machine import MIB, Machine, MachineError, kvm_usable
from lib.snapctl_guest import LOOP, A, SnapctlGuest
from ram_reset.ring import READY, Ring
from report import ROUNDS, Failure, Section, Table, figure

NAME = 'snapctl'
TITLE = 'Loads that the guest asks for'

RAM = 256 * MIB
REGION = MIB
PATIENCE = 60.0
POLL = 0.0002
TAG = 'start'
WARM_UPS = 1
INPUT = b'exit 0'
# how the guest is taken back: what it may do, and what the harness is told
WAYS = {'guest': ('both', ''), 'QMP': ('save', '--no-load')}

WHAT = (
    'A Linux guest runs snapctl-harness, which starts a small program with '
    'each input. guest asks the device for the load itself, and finds the next '
    'input in the persistent region. QMP is the same guest, but a program on '
    'the host polls the region for the result, then has QEMU stop, loadvm and '
    'cont. Both save themselves, and rewind, in private memory. load is what '
    'the device says of its load, or what the three commands take. rest is '
    'what an iteration takes without it. They take turns. A bare-metal guest '
    'in ring 3 does the same without a program to start: it looks whether 64 '
    'pages are as they were saved and writes to half of them; QMP tells it to '
    'on the serial port, then has QEMU loadvm.')


class Trace:
    """Times of commands, from QEMU's log: events come once a second."""

    ARGS = '-trace', 'snapctl_completed'
    LINE = re.compile(r'snapctl_completed slot \d+, command (\d), success 1, '
                      r'(\d+) ns')
    COMMANDS = {'1': 'save', '2': 'load'}

    def __init__(self, guest: Machine):
        self._guest = guest
        self._read = 0

    def take(self) -> dict[str, list[float]]:
        """Seconds, since this was asked for before."""
        seconds: dict[str, list[float]] = {'save': [], 'load': []}
        log = self._guest.log()
        for command, ns in self.LINE.findall(log[self._read:]):
            seconds[self.COMMANDS[command]].append(int(ns) / 1e9)
        self._read = len(log)
        return seconds


def figures(guest: Machine, name: str, seconds: float, loads: list[float]
            ) -> dict[str, float]:
    if not guest.last_load()['rewound']:
        raise MachineError(f'{name}: a full load, since '
                           f'{guest.last_load().get("blocker")}')
    load = statistics.median(loads)
    return {'rate': len(loads) / seconds, 'load': load * 1e3,
            'rest': (seconds / len(loads) - load) * 1e3}


class Bare:
    """A guest in ring 3, stopped other than while it is measured."""

    def __init__(self, work: Path, accel: str, name: str):
        self.name = name
        work.mkdir()
        self.guest = SnapctlGuest(work, accel=accel, memory='private',
                                  args=Trace.ARGS)
        self._trace = Trace(self.guest)
        # pages are then as snap-work wants them
        self.guest.ask('snap-loop', 0, A, *LOOP)
        self.guest.save(TAG)
        self.guest.stop()

    def close(self) -> None:
        self.guest.close()

    def _by_guest(self, count: int) -> tuple[float, list[float]]:
        begin = time.perf_counter()
        self.guest.ask('snap-loop', count, A, *LOOP)
        seconds = time.perf_counter() - begin
        done = self._trace.take()
        return seconds - sum(done['save']), done['load']

    def _by_qmp(self, count: int) -> tuple[float, list[float]]:
        guest, loads = self.guest, []
        begin = time.perf_counter()
        for i in range(count):
            guest.ask('snap-work', i, *LOOP)
            start = time.perf_counter()
            guest.load(TAG)
            loads.append(time.perf_counter() - start)
        return time.perf_counter() - begin, loads

    def cycle(self, count: int) -> dict[str, float]:
        guest = self.guest
        guest.cont()
        if self.name == 'guest':
            self._trace.take()
            seconds, loads = self._by_guest(count)
        else:
            seconds, loads = self._by_qmp(count)
        guest.stop()
        if len(loads) != count:
            raise MachineError(f'{len(loads)} loads instead of {count}')
        return figures(guest, self.name, seconds, loads)


class Harness:
    """A guest, stopped except while it is measured."""

    def __init__(self, work: Path, accel: str, name: str):
        self.name = name
        allow, options = WAYS[name]
        work.mkdir()
        region = work / 'region'
        self.guest = Linux(
            work, accel=accel, ram=RAM, strategy='auto', options=',rewind=on',
            args=(*Trace.ARGS,
                  '-object', f'memory-backend-file,id=ring,size={REGION},'
                             f'mem-path={region},share=on', '-device',
                  f'snapctl,slots={TAG},memdev=ring,allow={allow}'))
        self._trace = Trace(self.guest)
        try:
            self.ring = Ring(region, 64, 64)
            self.guest.run(f'snapctl-harness {options} -- snaptarget &')
            self._wait_ready()
            self.guest.stop()
        except BaseException:
            self.guest.close()
            raise

    def close(self) -> None:
        self.ring.close()
        self.guest.close()

    def _wait(self, check) -> None:
        deadline = time.monotonic() + PATIENCE
        while not check():
            if time.monotonic() > deadline:
                raise MachineError(f'{self.name}: the harness does nothing, '
                                   f'state {self.ring.state}')
            time.sleep(POLL)

    def _wait_ready(self) -> None:
        self._wait(lambda: self.ring.state == READY)

    def _take(self) -> None:
        result = self.ring.take()
        if result.status() != 'exit 0':
            raise MachineError(f'{self.name}: {result.status()}')

    def _by_guest(self, count: int) -> list[float]:
        guest, ring = self.guest, self.ring
        last = ring.head + count
        while ring.done != last:
            while ring.head != last and ring.has_room():
                ring.put(INPUT)
            self._wait(lambda: ring.tail != ring.done)
            while ring.tail != ring.done:
                self._take()
        # the last load is one of the iterations
        self._wait(lambda: not (found := guest.qmp('query-snapctl'))['pending']
                   and found['generation'] == self._generation + count)
        self._generation += count
        return self._trace.take()['load']

    def _by_qmp(self, count: int) -> list[float]:
        loads = []
        for _ in range(count):
            self.ring.put(INPUT)
            self._wait(lambda: self.ring.tail != self.ring.done)
            self._take()
            begin = time.perf_counter()
            self.guest.stop()
            self.guest.load(TAG)
            self.guest.cont()
            loads.append(time.perf_counter() - begin)
        return loads

    def cycle(self, count: int) -> dict[str, float]:
        guest = self.guest
        self._trace.take()
        guest.cont()
        self._generation = guest.qmp('query-snapctl')['generation']
        begin = time.perf_counter()
        loads = (self._by_guest if self.name == 'guest' else self._by_qmp)(
            count)
        seconds = time.perf_counter() - begin
        self._wait_ready()
        guest.stop()
        return figures(guest, self.name, seconds, loads)


def measure(kind: type, work: Path, accel: str, rounds: int, count: int
            ) -> list[dict]:
    with contextlib.ExitStack() as stack:
        runners = [stack.enter_context(contextlib.closing(
            kind(work / name, accel, name))) for name in WAYS]
        samples = context.race(runners, lambda r, _: r.cycle(count), rounds,
                               WARM_UPS)
    return [{'program': 'harness' if kind is Harness else 'ring 3',
             'accel': accel, 'what': name, 'count': count,
             'samples': context.columns(found)}
            for name, found in zip(WAYS, samples)]


def table(data: list[dict]) -> Table:
    rows = []
    for row in data:
        qmp, = (r for r in data if r['what'] == 'QMP' and
                (r['program'], r['accel']) == (row['program'], row['accel']))
        ratio = statistics.median(row['samples']['rate']) / \
            statistics.median(qmp['samples']['rate'])
        rows.append((row['program'], row['accel'], row['what'],
                     *(figure(row['samples'][key])
                       for key in ('rate', 'load', 'rest')), f'{ratio:.2f}'))
    return Table('Iterations', (
        '', '', 'taken back by', 'iterations a second', 'load ms', 'rest ms',
        'rate, of QMP'), rows)


def run(ctx: context.Context, rounds: int = 0) -> Section:
    notes = [WHAT]
    rounds = rounds or (3 if ctx.quick else ROUNDS)
    data: list[dict] = []
    try:
        with tempfile.TemporaryDirectory(prefix='snapctl-',
                                         dir=products.BUILD) as folder:
            work = Path(folder)
            sections = [(Bare, 'kvm', 300)] if kvm_usable() else []
            sections.append((Bare, 'tcg', 300))
            (work / 'probe').mkdir()
            if linux_boots_under_kvm(work / 'probe'):
                sections.append((Harness, 'kvm', 200))
            else:
                notes.append('Linux does not boot under KVM here, so the '
                             'harness ran under TCG only.')
            sections.append((Harness, 'tcg', 20))
            ctx.expect(len(sections))
            for kind, accel, count in sections:
                ctx.step(f'{kind.__name__} {accel}')
                place = work / f'{kind.__name__}-{accel}'
                place.mkdir()
                data += measure(kind, place, accel, rounds,
                                count // (4 if ctx.quick else 1))
    except (products.Missing, MachineError) as e:
        raise Failure(str(e)) from e
    return Section(NAME, TITLE, data, [table(data)], [], notes)


def main() -> int:
    args = standalone.parser(__doc__).parse_args()
    return standalone.deliver('snapctl.py', args.json, lambda: run(
        standalone.context(args.quick), args.rounds))


if __name__ == '__main__':
    sys.exit(main())
