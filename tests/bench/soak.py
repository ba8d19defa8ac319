#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Loads by the hundred thousand in one QEMU: what grows, and what gets slower.
"""

import contextlib
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import context
import standalone
from lib import products, soak
from lib.loopers import DeviceLoop, HmpLoop, Looper
from lib.machine import MachineError, kvm_usable, run_quietly
from report import Failure, Section, Table, number

NAME = 'soak'
STOCK = 'HMP stock'
TITLE = 'A million loads'

LOADS, HMP_LOADS, STOCK_LOADS = 1_000_000, 100_000, 2000
QUICK_LOADS, QUICK_HMP_LOADS, QUICK_STOCK_LOADS = 20_000, 5000, 500
# The least rate in the end, as a part of the rate at the start
LEAST = 0.95
WARM_UP = 5000
PARTS = 20
TURNS, TURN = 150, 0.25

WHAT = (
    'Bare-metal guests in ring 3 under KVM, with 64 MiB of private memory and '
    'rewind=on. After each load the guest looks whether 64 pages are as they '
    'were saved, and writes to half of them. device: it asks the snapctl '
    'device for the next load. HMP: it writes its output to the memory of an '
    'ivshmem-plain, for which a program on the host waits, writes the next '
    'input there, and has QEMU loadvm, as syzkaller does. Each load was a '
    'rewind, as QEMU, the device, the guest and the client have counted.')
HOW = (
    'Growth is from after the first loads, in which malloc() finds its size, '
    'to the end: KiB that are resident when the loop has rested for a second, '
    'for what RCU frees is freed later. The rates of the first and the last '
    'tenth are of windows of half a second: the tenth best one, and the '
    'median. They tell more of what else the host did then. What decides is '
    'lasting: a second QEMU was started with the first one, and is frozen '
    'but for turns of a quarter of a second, which the two take before and '
    'after. It says how much the first one has kept of its rate, and of its '
    f'loads per CPU time, relative to the second one: at least {LEAST}. It is '
    'of the tenth best turns, as other work only makes slower. In brackets is '
    'where nine of ten such figures are if the turns are drawn by lot. CPU is '
    'of all of QEMU, the guest included.')


def plan(loads: int, quick: bool) -> soak.Plan:
    warm_up = min(WARM_UP, loads // 4)
    return soak.Plan(loads, warm_up, min(PARTS, max(loads // 1000, 1)),
                     TURNS // (5 if quick else 1), TURN)


class Progress:
    def __init__(self, name: str, loads: int):
        self._name = name
        self._loads = loads

    def __call__(self, done: int, rate: float) -> None:
        print(f'    {self._name}: {done} of {self._loads} loads, '
              f'{rate:.0f} a second', file=sys.stderr, flush=True)


Start = Callable[[Path], Looper]


def measure(name: str, start: tuple[Start, Start], loads: int, work: Path,
            quick: bool) -> dict:
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(contextlib.closing(each(work / place)))
                for each, place in zip(start, (name, f'{name} witness'))]
        found = soak.soak(both[0], both[1], plan(loads, quick),
                          Progress(name, loads))
        disk = both[0].guest.disk
    # with its complaint, if there is any
    run_quietly(products.QEMU_IMG, 'check', '-q', disk)
    return {'what': name, **found}


def complaints(row: dict) -> list[str]:
    said = soak.complaints(row)
    for what, name in (('rate', 'rate'), ('cpu', 'rate by CPU time')):
        ratio, _, high = soak.lasting(row, what)
        # below only by chance is not a complaint
        if high < LEAST:
            said.append(f'the {name} is {ratio:.3f} of what it was, less than '
                        f'{LEAST}')
    return [f'{row["what"]}: {complaint}' for complaint in said]


def change(first: float, last: float) -> str:
    return f'{number(first)} to {number(last)}'


def interval(middle: float, low: float, high: float) -> str:
    return f'{middle:.3f} ({low:.3f}-{high:.3f})'


def rates(data: list[dict]) -> Table:
    rows = []
    for row in data:
        tenths = {what: soak.tenths(row, what) for what in ('rate', 'cpu')}
        rows.append((row['what'], row['loads'],
                     *(change(*(tenth[which] for tenth in tenths[what]))
                       for what in tenths for which in ('best', 'median')),
                     *(interval(*soak.lasting(row, what))
                       for what in tenths)))
    return Table('First and last', (
        '', 'loads', 'loads a second', 'median', 'CPU ms', 'median',
        'lasting: rate', 'CPU'), rows)


def beside_stock(row: dict) -> Table:
    """Its witness is ours."""
    rows = [(name, *(number(soak.at_best(turns, what))
                     for what in ('rate', 'cpu')))
            for name, turns in zip((row['what'], 'HMP'), row['turns']['first'])]
    return Table('Beside stock, in turns', (
        '', 'loads a second', 'CPU ms'), rows)


def growth(data: list[dict]) -> Table:
    columns = [what for what in soak.MAY_GROW if 'blocks' not in what]
    return Table('Growth', ('', *columns), [
        (row['what'], *(soak.grown(row)[what] for what in columns))
        for row in data])


def run(ctx: context.Context) -> Section:
    if not kvm_usable():
        raise Failure('/dev/kvm cannot be opened for reading and writing')
    sizes = (QUICK_LOADS, QUICK_HMP_LOADS, QUICK_STOCK_LOADS) if ctx.quick \
        else (LOADS, HMP_LOADS, STOCK_LOADS)
    stock = ctx.stock()
    cells = (('device', (DeviceLoop, DeviceLoop), ctx.loads or sizes[0]),
             ('HMP', (HmpLoop, HmpLoop), ctx.hmp_loads or sizes[1]),
             (STOCK, (lambda work: HmpLoop(work, stock, 'stock'), HmpLoop),
              sizes[2]))
    data, failed = [], []
    ctx.expect(len(cells))
    try:
        with tempfile.TemporaryDirectory(prefix='soak-',
                                         dir=products.BUILD) as folder:
            for name, start, loads in cells:
                ctx.step(f'{name}, {loads} loads')
                data.append(measure(name, start, loads, Path(folder),
                                    ctx.quick))
                if name != STOCK:
                    failed += complaints(data[-1])
    except (products.Missing, MachineError) as e:
        raise Failure(str(e)) from e
    return Section(NAME, TITLE, data,
                   [rates(data), growth(data), beside_stock(data[-1])], [],
                   [WHAT, HOW], failed)


def main() -> int:
    args = standalone.parser(__doc__).parse_args()
    return standalone.deliver('soak.py', args.json, lambda: run(
        standalone.context(args.quick)))


if __name__ == '__main__':
    sys.exit(main())
