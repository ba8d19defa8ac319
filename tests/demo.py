# SPDX-License-Identifier: GPL-2.0-or-later
"""
Takes a Linux guest back to a snapshot with stock QEMU's way of bringing RAM
back and with each strategy, checks that it is back, and compares.
"""

import json
import logging
import secrets
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from lib import products
from lib.guests import Linux, State, linux_boots_under_kvm
from lib.machine import (MEMORIES, MIB, STRATEGIES, MachineError,
                         available_memory, free_disk)
from lib.streams import Finder

GIB = 1 << 30
GUEST_RAM = 4 * GIB
TAG = 'clean'
DIRTY_MIB = 1024
STATE_MIB = 16
NEEDED_RAM = 6 * GIB
NEEDED_DISK = 1 * GIB
WAYS = (*STRATEGIES, 'rewind', 'template')
FIGURES = products.BUILD / 'demo.json'
PHASES = ('disk-revert', 'system-reset', 'ram-reset', 'ram-load',
          'device-load')


@dataclass
class Result:
    memory: str
    strategy: str
    start: dict
    load: dict
    again: dict
    rss: tuple[int, int, int]

    @property
    def total(self) -> float:
        return self.load['phases']['total'] / 1e6

    @property
    def skipped(self) -> int:
        return sum(block['skipped-pages'] for block in self.load['blocks'])


class Progress:
    def __init__(self) -> None:
        self._start = time.monotonic()
        self.failed: list[str] = []

    def say(self, text: str) -> None:
        print(f'[{time.monotonic() - self._start:5.1f} s] {text}', flush=True)

    def check(self, good: bool, text: str) -> None:
        self.say(f'{"ok" if good else "FAILED"}: {text}')
        if not good:
            self.failed.append(text)


def mib(size: int) -> str:
    return f'{size / MIB:.0f} MiB'


def find_secret(guest: Linux, secret: bytes) -> int:
    """How often a dump of guest RAM has it, raw or as it was typed."""
    finder = Finder(raw=secret, typed=secret.hex().encode())
    guest.dump(finder)
    return sum(finder.counts.values())


def save(progress: Progress, workdir: Path, accel: str, memory: str) -> State:
    """A guest that has booted, as the snapshot "clean" in @workdir."""
    progress.say(f'{memory} RAM: booting')
    with Linux(workdir, accel=accel, ram=GUEST_RAM, memory=memory) as guest:
        guest.prepare_state(STATE_MIB)
        state = guest.state()
        progress.say(f'{memory} RAM: saving Linux {guest.release}')
        guest.save(TAG)
    return state


def one_run(progress: Progress, workdir: Path, accel: str, memory: str,
            strategy: str, saved: State) -> Result:
    name = f'{memory} RAM, {strategy}'
    # the question before the save was one command, asking again is another
    expected = replace(saved, commands=saved.commands + 1)
    kind = {'strategy': strategy} if strategy in STRATEGIES else \
        {'strategy': 'auto', 'options': ',rewind=on'}
    if strategy == 'template':
        folder = workdir / 'templates'
        folder.mkdir(mode=0o700)
        kind['options'] += f',template-dir={folder}'
        with Linux(workdir, accel=accel, ram=GUEST_RAM, memory=memory,
                   loadvm=TAG, **kind):
            progress.say(f'{name}: the first load has made it')
    with Linux(workdir, accel=accel, ram=GUEST_RAM, memory=memory,
               loadvm=TAG, **kind) as guest:
        start = guest.last_load()
        rss_start = guest.rss()
        progress.check(guest.state() == expected,
                       f'{name}: a new QEMU starts with the snapshot, RSS '
                       f'{mib(rss_start)}')

        secret = secrets.token_bytes(16)
        guest.run(f'ramtool fill /run/dirty {DIRTY_MIB} {secret.hex()}')
        rss_dirty = guest.rss()
        progress.check('dirty,' in guest.state().files,
                       f'{name}: the guest has written {DIRTY_MIB} MiB and a '
                       f'secret, RSS {mib(rss_dirty)}')
        if strategy == STRATEGIES[0]:
            found = find_secret(guest, secret)
            progress.check(found > 0, f'{name}: before the load a dump of RAM '
                                      f'holds the secret {found} times')

        guest.load(TAG)
        rss_after = guest.rss()
        load = guest.last_load()
        progress.check(
            guest.state() == expected,
            f'{name}: taken back in {load["phases"]["total"] / 1e6:.0f} ms, '
            f'RSS {mib(rss_after)}; the guest answers, and its {STATE_MIB} MiB '
            'of state, its files and its command count are the saved ones')
        found = find_secret(guest, secret)
        progress.check(found == 0, f'{name}: after the load a dump of RAM '
                                   f'holds the secret {found} times')
        guest.load(TAG)
        again = guest.last_load()
        progress.check(guest.state() == expected,
                       f'{name}: taken back again in '
                       f'{again["phases"]["total"] / 1e6:.0f} ms')
    return Result(memory, strategy, start, load, again,
                  (rss_start, rss_dirty, rss_after))


def table(results: list[Result]) -> str:
    rows = [('memory', 'strategy', 'start', 'load', *PHASES, 'again', 'skipped',
             'started', 'dirtied', 'loaded')]
    for r in results:
        rows.append((r.memory, r.strategy,
                     f'{start_ms(r):.1f}', f'{r.total:.1f}',
                     *(f'{r.load["phases"][p] / 1e6:.1f}' for p in PHASES),
                     f'{r.again["phases"]["total"] / 1e6:.1f}',
                     str(r.skipped), *(f'{x / MIB:.0f}' for x in r.rss)))
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        cells = (cell.ljust(width) if i < 2 else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths)))
        lines.append('  '.join(cells).rstrip())
    lines.insert(1, '  '.join('-' * width for width in widths))
    lines += [
        '',
        'start: ms to load RAM and devices into a new QEMU (-loadvm).  load: ms '
        'to take',
        f'the guest back after it wrote {DIRTY_MIB} MiB, then its phases.  '
        'again: ms to do so when it',
        'has only answered a question since.  skipped: pages known to be as '
        'saved, hence not read.',
        'started, dirtied, loaded: MiB that QEMU has resident.  rewind: '
        'ram-reset-auto,rewind=on',
        'template: the same with template-dir=']
    return '\n'.join(lines)


def start_ms(result: Result) -> float:
    return result.start['phases']['total'] / 1e6


def reading(results: list[Result]) -> str:
    by_key = {(r.memory, r.strategy): r for r in results}
    lines = []
    for memory in MEMORIES:
        stock = by_key[memory, STRATEGIES[0]]
        others = [by_key[memory, s] for s in WAYS[1:]]
        again = by_key[memory, 'rewind'].again['phases']['total'] / 1e6
        start = min(others, key=start_ms)
        load = min(others, key=lambda r: r.total)
        rss = min(others, key=lambda r: r.rss[2])
        lines.append(
            f'On {memory} RAM, and next to what stock QEMU does: {start.strategy}'
            f' loads into a new QEMU\nin {start_ms(start):.0f} ms '
            f'({start_ms(stock):.0f}), '
            f'{load.strategy} takes the guest back in {load.total:.0f} ms '
            f'({stock.total:.0f}), {rss.strategy} leaves {mib(rss.rss[2])} '
            f'resident ({mib(stock.rss[2])}).\nIf little has changed since the '
            f'last load, rewind takes {again:.0f} ms '
            f'({stock.again["phases"]["total"] / 1e6:.0f}).')
    return '\n'.join(lines)


def write_figures(results: list[Result], accel: str) -> None:
    """For tests/bench/demo_plot.py."""
    FIGURES.write_text(json.dumps({
        'accel': accel, 'ram-mib': GUEST_RAM // MIB, 'dirty-mib': DIRTY_MIB,
        'results': [{'memory': r.memory, 'way': r.strategy,
                     'start': start_ms(r), 'load': r.total,
                     'again': r.again['phases']['total'] / 1e6,
                     'rss-mib': r.rss[2] // MIB} for r in results]}, indent=1))


def check_host() -> None:
    memory, disk = available_memory(), free_disk(products.BUILD)
    if memory < NEEDED_RAM:
        raise products.Missing(
            f'the demo needs {NEEDED_RAM / GIB:.0f} GiB of available memory '
            f'and there are {memory / GIB:.1f}: end other programs, or take a '
            'larger machine')
    if disk < NEEDED_DISK:
        raise products.Missing(
            f'the demo needs {NEEDED_DISK / GIB:.0f} GiB of free disk and '
            f'there are {disk / GIB:.1f}: free some at {products.BUILD}')


def demo() -> int:
    products.BUILD.mkdir(parents=True, exist_ok=True)
    check_host()
    progress = Progress()
    results = []
    with tempfile.TemporaryDirectory(prefix='demo-', dir=products.BUILD) as d:
        top = Path(d)
        (top / 'probe').mkdir()
        accel = 'kvm' if linux_boots_under_kvm(top / 'probe') else 'tcg'
        progress.say(f'{GUEST_RAM // GIB} GiB guest under {accel.upper()}' + (
            '' if accel == 'kvm' else ': Linux does not boot under KVM here'))
        for memory in MEMORIES:
            workdir = top / memory
            workdir.mkdir()
            saved = save(progress, workdir, accel, memory)
            for strategy in WAYS:
                results.append(one_run(progress, workdir, accel, memory,
                                       strategy, saved))
    write_figures(results, accel)
    print(f'\n{table(results)}\n\n{reading(results)}')
    for text in progress.failed:
        print(f'FAILED: {text}')
    return 1 if progress.failed else 0


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # a monitor command that was interrupted is not worth a traceback
    logging.getLogger('asyncio').setLevel(logging.CRITICAL)
    try:
        return demo()
    except (products.Missing, MachineError, OSError) as e:
        print(f'demo: {e}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('demo: interrupted', file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
