#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Loads of snapshots, side by side with an unpatched QEMU of the same source.

Guests without a vCPU (-accel qtest) take turns; what is printed are medians
of the time that the client waits for loadvm, and memory in MiB.

  dirtied  private RAM, a quarter of it written after the save
  empty    shared memfd, nothing written
  idle     patched without an object against unpatched: the price of the hooks

Build the unpatched one with: build/venv/bin/meson compile -C build stock
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from qemu.qmp import QMPClient

BUILD = Path(__file__).resolve().parents[2] / 'build'
MADVISE = ('-object', 'ram-reset-madvise,id=rr0')
MEMSET = ('-object', 'ram-reset-memset,id=rr0')


class Machine:
    """A guest without a vCPU, and a disk for its snapshots."""

    def __init__(self, name, qemu, work, mib, shared, extra=()):
        self.name = name
        self.work = Path(work) / name
        self.work.mkdir()
        self.mib = mib
        disk = self.work / 'disk.qcow2'
        subprocess.run([BUILD / 'qemu/qemu-img', 'create', '-q', '-f',
                        'qcow2', disk, '1G'], check=True)
        backend = 'memory-backend-memfd' if shared else 'memory-backend-ram'
        share = 'on' if shared else 'off'
        self.args = [
            qemu, '-M', 'pc', '-accel', 'qtest', '-nodefaults', '-display',
            'none', '-L', BUILD / 'firmware', '-m', f'{mib}M',
            '-object', f'{backend},id=ram,size={mib}M,share={share}',
            '-machine', 'memory-backend=ram',
            '-drive', f'if=none,id=d0,format=qcow2,file={disk}',
            '-qtest', f'unix:{self.work}/qtest,server=on,wait=off',
            '-qmp', f'unix:{self.work}/qmp,server=on,wait=off', *extra]

    async def start(self):
        with open(self.work / 'log', 'wb') as log:
            self.process = subprocess.Popen(self.args, stderr=log)
        while not (self.work / 'qmp').exists():
            if self.process.poll() is not None:
                sys.exit((self.work / 'log').read_text())
            await asyncio.sleep(0.01)
        self.qmp = QMPClient(self.name)
        await self.qmp.connect(str(self.work / 'qmp'))
        self.qtest = await asyncio.open_unix_connection(
            str(self.work / 'qtest'))

    async def stop(self):
        self.qtest[1].close()
        await self.qmp.disconnect()
        self.process.kill()
        self.process.wait()

    async def hmp(self, line):
        start = time.monotonic()
        text = await self.qmp.execute('human-monitor-command',
                                      {'command-line': line})
        if text:
            sys.exit(f'{self.name}: {line}: {text}')
        return (time.monotonic() - start) * 1e3

    async def fill(self, mib, byte):
        """Write the first @mib MiB above 1 MiB, a page at a time as it were."""
        self.qtest[1].write(
            f'memset 0x100000 {mib << 20:#x} {byte:#x}\n'.encode())
        await self.qtest[0].readline()

    def rss(self):
        for line in open(f'/proc/{self.process.pid}/status'):
            if line.startswith('VmRSS'):
                return int(line.split()[1]) / 1024


async def race(machines, dirty, rounds):
    """Loads in turn; {name: (median ms, fastest, slowest, RSS saved, after)}"""
    times = {m.name: [] for m in machines}
    saved = {}
    for m in machines:
        await m.start()
        await m.hmp('savevm clean')
        saved[m.name] = m.rss()
        await m.hmp('loadvm clean')
    for n in range(rounds):
        order = machines if n % 2 else machines[::-1]
        for m in order:
            if dirty:
                await m.fill(dirty, n + 1)
            times[m.name].append(await m.hmp('loadvm clean'))
        print(f'\r  round {n + 1} of {rounds}', end='', file=sys.stderr)
    print(file=sys.stderr)
    result = {}
    for m in machines:
        t = times[m.name]
        result[m.name] = (statistics.median(t), min(t), max(t),
                          saved[m.name], m.rss())
        await m.stop()
    return result, times


def report(title, result, times, base):
    print(f'\n{title}')
    for name, (mid, low, high, saved, after) in result.items():
        pairs = [a / b for a, b in zip(times[name], times[base])]
        print(f'  {name:<9} {mid:8.2f} ms ({low:.2f}-{high:.2f})  '
              f'median ratio to {base} {statistics.median(pairs):.3f}  '
              f'RSS {saved:.0f} MiB saved, {after:.0f} MiB after')


async def run(args, work):
    ours, stock = args.qemu, args.stock
    out = {}
    cells = [
        ('dirtied', f'{args.mib} MiB private, {args.mib // 4} MiB dirtied',
         False, args.mib // 4, args.rounds,
         [('stock', stock, ()), ('none', ours, ()), ('memset', ours, MEMSET),
          ('madvise', ours, MADVISE)]),
        ('empty', f'{args.mib} MiB shared memfd, nothing dirtied', True, 0,
         args.rounds,
         [('stock', stock, ()), ('madvise', ours, MADVISE)]),
        ('idle', f'{args.mib // 4} MiB private, {args.mib // 32} MiB dirtied',
         False, args.mib // 32, args.pairs,
         [('stock', stock, ()), ('none', ours, ())]),
    ]
    for name, title, shared, dirty, rounds, kinds in cells:
        if args.only and name not in args.only:
            continue
        mib = args.mib // 4 if name == 'idle' else args.mib
        with tempfile.TemporaryDirectory(dir=work) as folder:
            machines = [Machine(n, q, folder, mib, shared, e)
                        for n, q, e in kinds]
            result, times = await race(machines, dirty, rounds)
        report(f'{name}: {title}, {rounds} rounds', result, times, 'stock')
        out[name] = {n: {'ms': times[n], 'rss_saved_mib': r[3],
                         'rss_after_mib': r[4]} for n, r in result.items()}
    if args.json:
        Path(args.json).write_text(json.dumps(out, indent=1) + '\n')


def main():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--qemu', default=BUILD / 'qemu/qemu-system-x86_64')
    p.add_argument('--stock', default=BUILD / 'stock/qemu-system-x86_64')
    p.add_argument('--mib', type=int, default=8192, help='guest RAM')
    p.add_argument('--rounds', type=int, default=7)
    p.add_argument('--pairs', type=int, default=21, help='rounds of "idle"')
    p.add_argument('--json', help='write all times to this file')
    p.add_argument('only', nargs='*', choices=['dirtied', 'empty', 'idle', []],
                   help='cells to measure; default: all')
    args = p.parse_args()
    for binary in (args.qemu, args.stock):
        if not Path(binary).is_file():
            sys.exit(f'compare_stock.py: {binary} is missing; build it first '
                     '(see --help)')
    with tempfile.TemporaryDirectory() as work:
        asyncio.run(run(args, work))


if __name__ == '__main__':
    main()
