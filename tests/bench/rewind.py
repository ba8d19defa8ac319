#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The cost of undoing a guest's changes, and of other ways to do that.

Beside rewind=on there is an unpatched QEMU, which is built by

    build/venv/bin/meson compile -C build stock
"""

import contextlib
import functools
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import rewind_guests as guests
import rewind_tables
import standalone
from context import Context, columns
from lib import products
from lib.guests import Ring3
from lib.machine import MIB, MachineError, kvm_usable
from lib.rewinding import footprint
from report import ROUNDS, Failure, Section
from rewind_guests import START, TAG, Maker, Scene

NAME = 'rewind'
TITLE = 'Undoing what a guest has changed'

# Until what is written has memory, and untracked pages are known
WARM_UPS, MANY_WARM_UPS = 5, 15
MANY = 10000
THP_STORED = 256
IMAGES = (guests.stock, guests.rewind, guests.new_qemu, guests.started_qemu)
REPEATS, QUICK_REPEATS, SETTLED = 10000, 1000, 100
PASSES = 20

WHAT = (
    'A guest in ring 3 is taken back and then writes one word in each of so '
    'many pages, which are scattered over all of its RAM up to 3 GiB, stored '
    'or zero: the same in each round, or others. load is the time that the '
    'client waits for the monitor command, touch what writing takes as the '
    'guest measures it, and total is both. stock is an unpatched build of the '
    'same source, rewind ram-reset-auto with rewind=on; both load the same snapshot. new is '
    'another QEMU for each iteration, killed after it, which maps a RAM file '
    'in /dev/shm with share=off and gets the rest by -incoming file: with '
    'x-ignore-shared; its load lasts until the guest runs. '
    'started is the same, but the time begins when that QEMU waits for '
    'migrate-incoming. Neither takes a disk back.')
HOW = (
    f'All take turns. {WARM_UPS} rounds before the first, {MANY_WARM_UPS} with '
    f'{MANY} random pages and more, are not counted: what a guest writes to for '
    'the first time gets memory then, which takes longer than all else. An '
    'unpatched QEMU has given memory to all of a shared guest by loading it.')


def grid(quick: bool) -> list[Scene]:
    sizes = ((1024, (16,), (100, 10000)) if quick
             else (4096, (16, 256, 1024), (100, 10000, 200000)))
    found = [Scene('kvm', 'shared', sizes[0], stored, pages, same)
             for stored in sizes[1] for pages in sizes[2]
             for same in (True, False)]
    return found + [replace(scene, memory='thp') for scene in found
                    if scene.stored == THP_STORED]


def sizes(quick: bool) -> list[tuple[Scene, tuple[Maker, ...]]]:
    """A small guest, and a large one that has changed as much."""
    large = (1024, 64) if quick else (8192, 400)
    return [(Scene(accel, 'shared', *size, 1000), makers)
            for accel in ('kvm', 'tcg', 'qtest')
            for size, makers in (((24, 0), (guests.rewind,)),
                                 (large, (guests.rewind, guests.stock)))]


def slopes(quick: bool) -> list[Scene]:
    """By dirty pages, and by the guest's size."""
    base = Scene('kvm', 'shared', 1024 if quick else 4096, 16, 100)
    return [base,
            *(replace(base, pages=n, same=same)
              for n in ((10000,) if quick else (10000, 200000))
              for same in (True, False)),
            *(replace(base, ram=ram)
              for ram in ((512,) if quick else (1024, 2048, 8192)))]


def warm_ups(scene: Scene) -> int:
    return MANY_WARM_UPS if scene.pages >= MANY and not scene.same \
        else WARM_UPS


class Bench:
    def __init__(self, work: Path, stock: Path, rounds: int):
        self._work = work
        self._rounds = rounds
        (work / 'snapshots').mkdir()
        self._snapshots = guests.Snapshots(work / 'snapshots', stock)

    def race(self, table: str, pairs: Sequence[tuple[Scene, Maker]]
             ) -> list[dict]:
        """Rows, one for each of @pairs."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(
                tempfile.TemporaryDirectory(dir=self._work)))
            runners = [stack.enter_context(contextlib.closing(
                make(folder / str(i), scene, self._snapshots)))
                for i, (scene, make) in enumerate(pairs)]
            first = max(warm_ups(scene) for scene, _ in pairs)
            order = random.Random(0)
            samples: list[list[dict]] = [[] for _ in runners]
            for turn in range(first + self._rounds):
                for i in order.sample(range(len(runners)), len(runners)):
                    if turn >= first - runners[i].WARM_UPS:
                        samples[i].append(runners[i].cycle(turn))
        return [{'table': table, 'what': r.name, **asdict(r.scene),
                 'samples': columns(found[-self._rounds:])}
                for r, found in zip(runners, samples)]

    def one(self, table: str, scene: Scene, *makers: Maker) -> list[dict]:
        return self.race(table, [(scene, make) for make in makers])


def repeat(work: Path, scene: Scene, snapshots: guests.Snapshots,
           loads: int) -> list[dict]:
    """Loads of one process, and what that has grown."""
    rows = []
    with contextlib.closing(guests.rewind(work, scene, snapshots)) as guest:
        machine = guest.machine
        machine.cont()
        marks = sorted({1, SETTLED, loads // 10, loads // 2, loads - loads // 10,
                        loads})
        before, since = time.perf_counter(), 0
        for n in range(1, loads + 1):
            machine.ask('touch', START, scene.room, scene.pages, 1)
            machine.load(TAG)
            if n in marks:
                now = time.perf_counter()
                rows.append({'table': 'repeat', **asdict(scene), 'loads': n,
                             'per second': (n - since) / (now - before),
                             **footprint(machine)})
                before, since = time.perf_counter(), n
        if not machine.last_load()['rewound']:
            raise MachineError('the last load was a full one')
    return rows


def save(work: Path, ram: int, rounds: int, stock: Path) -> list[dict]:
    """savevm of an empty guest, each in a process of its own."""
    ways = {'stock': {'qemu': stock},
            'rewind': {'strategy': 'auto', 'options': ',rewind=on'}}
    rows = [{'table': 'save', 'what': what, 'ram': ram,
             'samples': {'save': [], 'grown': []}} for what in ways]
    for _ in range(rounds):
        for row in rows:
            with tempfile.TemporaryDirectory(dir=work) as folder, \
                    Ring3(Path(folder), accel='kvm', ram=ram * MIB,
                          memory='shared', **ways[row['what']]) as machine:
                had, before = machine.rss(), time.perf_counter()
                machine.save(TAG)
                row['samples']['save'].append(time.perf_counter() - before)
                row['samples']['grown'].append((machine.rss() - had) / MIB)
    return rows


def speed(work: Path, scene: Scene, snapshots: guests.Snapshots,
          passes: int) -> dict:
    """Writing the same pages again and again, tracked and not."""
    found: dict[str, dict[str, float]] = {}
    for make in (guests.stock, guests.rewind):
        with contextlib.closing(make(work / make.__name__, scene, snapshots)
                                ) as guest:
            machine = guest.machine

            def write() -> float:
                ticks = guests.touch(machine, scene, 0)
                return ticks / guest.hertz * 1e9 / scene.pages
            machine.cont()
            write()
            machine.load(TAG)
            first = write()
            found[guest.name] = {
                'first': first,
                'again': statistics.median(write() for _ in range(passes))}
    return {'table': 'speed', **asdict(scene), 'found': found}


def accel_usable(accel: str) -> bool:
    return accel != 'kvm' or kvm_usable()


def tasks(bench: Bench, work: Path, quick: bool, rounds: int, stock: Path
          ) -> list[tuple[str, str, Callable[[], list[dict]]]]:
    """The measurements: a name, its accelerator, and how."""
    found: list[tuple[str, str, Callable[[], list[dict]]]] = []

    def add(name: str, accel: str, call: Callable, *args: Any) -> None:
        found.append((name, accel, functools.partial(call, *args)))

    snapshots = bench._snapshots
    for scene in grid(quick):
        add(f'grid {scene}', scene.accel, bench.one, 'grid', scene, *IMAGES)
    for accel in ('kvm', 'tcg', 'qtest'):
        pairs = [(scene, make) for scene, makers in sizes(quick)
                 for make in makers if scene.accel == accel]
        add(f'size {accel}', accel, bench.race, 'size', pairs)
    for scene in slopes(quick):
        add(f'slope {scene}', scene.accel, bench.one, 'slope', scene,
            guests.one_thread)
    for accel in ('kvm', 'tcg'):
        for memory in ('shared', 'thp') if accel == 'kvm' else ('shared',):
            scene = Scene(accel, memory, 512, 16, 10000)
            add(f'speed {scene}', accel, lambda s: [speed(
                Path(tempfile.mkdtemp(dir=work)), s, snapshots, PASSES)],
                scene)
        scene = Scene(accel, 'shared', 256, 16, 100)
        add(f'repeat {scene}', accel, lambda s: repeat(
            Path(tempfile.mkdtemp(dir=work)) / 'repeat', s, snapshots,
            QUICK_REPEATS if quick else REPEATS), scene)
    add('save', 'kvm', save, work, 1024 if quick else 8192,
        2 if quick else 3, stock)
    return found


def run(ctx: Context, only: str = '', rounds: int = 0) -> Section:
    stock = ctx.stock()
    notes = [WHAT, HOW]
    if not kvm_usable():
        notes.append('/dev/kvm cannot be opened, so there is nothing of KVM.')
    data: list[dict] = []
    with tempfile.TemporaryDirectory(prefix='rewind-', dir=products.BUILD
                                     ) as folder:
        work = Path(folder)
        bench = Bench(work, stock, rounds or (3 if ctx.quick else ROUNDS))
        todo = [t for t in tasks(bench, work, ctx.quick, rounds, stock)
                if re.search(only, t[0]) and accel_usable(t[1])]
        ctx.expect(len(todo))
        try:
            for name, _, measure in todo:
                ctx.step(name)
                data += measure()
        except (products.Missing, MachineError) as e:
            raise Failure(str(e)) from e
    return Section(NAME, TITLE, data, rewind_tables.tables(data),
                   rewind_tables.pictures(data), notes)


def main() -> int:
    p = standalone.parser(__doc__)
    p.add_argument('--cells', default='', metavar='REGEX',
                   help='only what matches, such as "grid .* stored=16"')
    args = p.parse_args()
    return standalone.deliver('rewind.py', args.json, lambda: run(
        standalone.context(args.quick), args.cells, args.rounds))


if __name__ == '__main__':
    sys.exit(main())
