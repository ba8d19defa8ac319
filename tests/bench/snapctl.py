#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Iterations of a harness whose guest asks for its loads itself, beside the
same ones driven from outside, through QMP.
"""

import contextlib
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / 'tests/functional'), str(ROOT / 'scripts')]

import feedlib
import products
import standalone
from guests import Linux, linux_boots_under_kvm
from machine import MIB, MachineError
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
    'what an iteration takes without it. They take turns.')


class Runner:
    """One guest, stopped other than while it is measured."""

    def __init__(self, work: Path, accel: str, name: str):
        self.name = name
        allow, options = WAYS[name]
        work.mkdir()
        region = work / 'region'
        self.guest = Linux(
            work, accel=accel, ram=RAM, strategy='auto', options=',rewind=on',
            args=('-object', f'memory-backend-file,id=ring,size={REGION},'
                             f'mem-path={region},share=on', '-device',
                  f'snapctl,slots={TAG},memdev=ring,allow={allow}'))
        try:
            self.ring = feedlib.Ring(region, 64, 64)
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
        self._wait(lambda: self.ring.state == feedlib.READY)

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
        return [event['data']['time-ns'] / 1e9
                for event in guest._qmp.get_events()
                if event['event'] == 'SNAPCTL_COMPLETED'
                and event['data']['command'] == 'load']

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
        guest._qmp.clear_events()
        guest.cont()
        self._generation = guest.qmp('query-snapctl')['generation']
        begin = time.perf_counter()
        loads = (self._by_guest if self.name == 'guest' else self._by_qmp)(
            count)
        seconds = time.perf_counter() - begin
        self._wait_ready()
        guest.stop()
        if not guest.last_load()['rewound']:
            raise MachineError(f'{self.name}: a full load, since '
                               f'{guest.last_load().get("doubt")}')
        load = statistics.median(loads)
        return {'rate': count / seconds, 'load': load * 1e3,
                'rest': (seconds / count - load) * 1e3}


def measure(work: Path, accel: str, rounds: int, count: int) -> list[dict]:
    order = random.Random(0)
    samples: dict[str, list[dict]] = {name: [] for name in WAYS}
    with contextlib.ExitStack() as stack:
        runners = [stack.enter_context(contextlib.closing(
            Runner(work / name, accel, name))) for name in WAYS]
        for turn in range(WARM_UPS + rounds):
            for runner in order.sample(runners, len(runners)):
                found = runner.cycle(count)
                if turn >= WARM_UPS:
                    samples[runner.name].append(found)
    return [{'accel': accel, 'what': name, 'count': count,
             'samples': {key: [f[key] for f in found] for key in found[0]}}
            for name, found in samples.items()]


def table(data: list[dict]) -> Table:
    rows = []
    for row in data:
        qmp, = (r for r in data
                if r['accel'] == row['accel'] and r['what'] == 'QMP')
        ratio = statistics.median(row['samples']['rate']) / \
            statistics.median(qmp['samples']['rate'])
        rows.append((row['accel'], row['what'],
                     *(figure(row['samples'][key])
                       for key in ('rate', 'load', 'rest')), f'{ratio:.2f}'))
    return Table('Iterations of snapctl-harness', (
        '', 'taken back by', 'iterations a second', 'load ms', 'rest ms',
        'rate, of QMP'), rows)


def run(ctx: Any, rounds: int = 0) -> Section:
    notes = [WHAT]
    rounds = rounds or (3 if ctx.quick else ROUNDS)
    data: list[dict] = []
    try:
        with tempfile.TemporaryDirectory(prefix='snapctl-',
                                         dir=products.BUILD) as folder:
            work = Path(folder)
            accels = ['tcg']
            (work / 'probe').mkdir()
            if linux_boots_under_kvm(work / 'probe'):
                accels.insert(0, 'kvm')
            else:
                notes.append('Linux does not boot under KVM here, so there is '
                             'TCG only.')
            ctx.expect(len(accels))
            for accel in accels:
                ctx.step(accel)
                (work / accel).mkdir()
                fast = accel == 'kvm'
                count = (200 if fast else 20) // (4 if ctx.quick else 1)
                data += measure(work / accel, accel, rounds, count)
    except (products.Missing, MachineError) as e:
        raise Failure(str(e)) from e
    return Section(NAME, TITLE, data, [table(data)], [], notes)


def main() -> int:
    args = standalone.parser(__doc__).parse_args()
    return standalone.deliver('snapctl.py', args.json, lambda: run(
        standalone.Context(args.quick), args.rounds))


if __name__ == '__main__':
    sys.exit(main())
