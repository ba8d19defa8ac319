#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""The time of each phase of a load, by QEMU's trace events."""

import collections
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import context
import standalone
from lib import products
from lib.guests import PAGE, Ring3
from lib.machine import MIB, MachineError, kvm_usable
from report import Failure, Section, Table

NAME = 'phases'
TITLE = 'Where the time of a load goes'
TAG = 's'
START = 0x600000
WARM_UPS = 3
LOADS, QUICK_LOADS = 100, 20
PAGES = 32
# Below this, in us, all of a kind are one row
LEAST = 10.0
EVENTS = (
    'flatview_new', 'kvm_vcpu_ioctl', 'kvm_vm_ioctl',
    'qemu_loadvm_state_section', 'qemu_loadvm_state_section_startfull',
    'ram_reset_freeze_map',
    'ram_reset_load_begin', 'ram_reset_load_end', 'ram_reset_rewind',
    'ram_reset_rewind_block', 'resettable_phase_hold_exec', 'resettable_reset',
    'runstate_set', 'vm_state_notify', 'vm_stop_flush_all')
# The machine that a Linux guest has, beside the small one
MACHINES = {
    'small': ('-M', 'pc'),
    'Linux': ('-M', 'q35,usb=on', '-vga', 'std', '-netdev', 'user,id=net',
              '-device', 'virtio-net-pci,netdev=net', '-device',
              'virtio-serial-pci', '-device', 'qemu-xhci', '-device',
              'virtio-rng-pci'),
}
WHAT = (
    'A guest of 64 MiB that writes to '
    f'{PAGES} pages and is loaded by the monitor, with QEMU\'s trace events of '
    'what a load does. Medians in us; each event takes some 2 us of its own, '
    'so the sums are more than a load takes without. What takes less than '
    f'{LEAST:.0f} us is added up by kind.')

STOP = r'runstate_set .*\(restore-vm\)$'
RUNS = {'kvm': 'kvm_vcpu_ioctl .* type 0xae80',
        'tcg': 'vm_state_notify running 1'}
LINE = re.compile(r'\d+@(\d+\.\d+):(\w+) ?(.*)')
# The phase that an event begins, by its arguments
KINDS = (
    ('runstate_set', r'\((\S+)\)$', 'stop and resume: to {}'),
    ('vm_state_notify', r'running (\d)', 'stop and resume: devices, {}'),
    ('vm_stop_flush_all', '', 'stop and resume: disks flushed'),
    ('ram_reset_load_begin', '', 'disks reverted'),
    ('ram_reset_freeze_map', '', 'devices compared'),
    ('resettable_reset', '', 'reset: other'),
    ('resettable_phase_hold_exec', r'\((\S+)\)', 'reset: {}'),
    ('ram_reset_rewind_block', '', 'RAM: after a block'),
    ('ram_reset_rewind', '', 'VM state opened'),
    ('qemu_loadvm_state_section_startfull', r'\((.*)\)', 'load: {}'),
    ('qemu_loadvm_state_section', '', 'load: other'),
    ('kvm_vcpu_ioctl', r'type (0x\w+)', 'vCPU: {}'),
    ('kvm_vm_ioctl', r'type (0x\w+)', 'KVM: {}'),
    ('flatview_new', '', 'memory map'),
)
IOCTLS = {
    '0xae80': 'KVM_RUN', '0x4010ae42': 'KVM_GET_DIRTY_LOG',
    '0xc018aec0': 'KVM_CLEAR_DIRTY_LOG', '0x4068aea3': 'KVM_ENABLE_CAP',
    '0xc008ae67': 'KVM_IRQ_LINE_STATUS', '0x8208ae63': 'KVM_SET_IRQCHIP',
    '0x4070aea0': 'KVM_SET_PIT2', '0x4008ae89': 'KVM_SET_MSRS',
    '0xc008ae88': 'KVM_GET_MSRS', '0x4400ae8f': 'KVM_SET_LAPIC',
    '0x4140aecd': 'KVM_SET_SREGS2', '0x4090ae82': 'KVM_SET_REGS',
    '0x5000aea5': 'KVM_SET_XSAVE', '0x4188aea7': 'KVM_SET_XCRS',
    '0x4040aea0': 'KVM_SET_VCPU_EVENTS', '0x4004ae99': 'KVM_SET_MP_STATE',
    '0x4080aea2': 'KVM_SET_DEBUGREGS', '0x4030ae7b': 'KVM_SET_CLOCK',
    '0x8030ae7c': 'KVM_GET_CLOCK', '0xaea2': 'KVM_SET_TSC_KHZ',
    '0xaea3': 'KVM_GET_TSC_KHZ', '0xaead': 'KVM_KVMCLOCK_CTRL',
    '0xc028ae92': 'KVM_TPR_ACCESS_REPORTING',
    '0x4008ae93': 'KVM_SET_VAPIC_ADDR',
}


def kind_of(event: str, arguments: str) -> str | None:
    for name, what, kind in KINDS:
        if re.fullmatch(name, event):
            found = re.search(what, arguments)
            detail = found[1] if found and found.groups() else ''
            return kind.format(IOCTLS.get(detail, detail))
    return None


def loads_in(log: str, last: str) -> Iterator[dict[str, float]]:
    """
    Seconds by kind, of each load from the stop to the first event that matches
    @last after it.
    """
    sums: collections.Counter[str] = collections.Counter()
    kind, since, ended = '', 0.0, False
    for found in LINE.finditer(log):
        now, event, arguments = float(found[1]), found[2], found[3]
        if kind:
            sums[kind] += now - since
        since = now
        if re.match(STOP, f'{event} {arguments}'):
            sums.clear()
            kind, ended = kind_of(event, arguments), False
        elif event == 'ram_reset_load_end':
            kind, ended = 'end of the load', True
        elif ended and kind and re.match(last, f'{event} {arguments}'):
            yield dict(sums)
            kind = ''
        elif kind:
            kind = kind_of(event, arguments) or kind


def measure(work: Path, accel: str, machine: str, loads: int
            ) -> dict[str, float]:
    """Medians in us, by kind."""
    work.mkdir()
    events = work / 'events'
    events.write_text('\n'.join(EVENTS) + '\n')
    with Ring3(work, accel=accel, ram=64 * MIB, memory='private',
               strategy='auto', options=',rewind=on', args=(
                   *MACHINES[machine], '-trace', f'events={events}', '-msg',
                   'timestamp=on')) as guest:
        guest.save(TAG)
        for n in range(WARM_UPS + loads):
            guest.ask('tag', START, PAGES, PAGE, n)
            guest.load(TAG)
        if not guest.last_load()['rewound']:
            raise MachineError('the last load was a full one')
        found = list(loads_in(guest.log(), RUNS[accel]))[-loads:]
    if len(found) < loads:
        raise MachineError(f'{len(found)} of {loads} loads are in the log')
    kinds = sorted(set().union(*found))
    return {kind: statistics.median(load.get(kind, 0) for load in found) * 1e6
            for kind in kinds}


def shortened(times: dict[str, float]) -> dict[str, float]:
    rows: collections.Counter[str] = collections.Counter()
    for kind, time in times.items():
        room = kind.partition(':')[0]
        rows[kind if time >= LEAST or room == kind else f'{room}: all else'
             ] += time
    return dict(rows)


def table(data: list[dict]) -> Table:
    columns = [shortened(row['times']) for row in data]
    kinds = sorted(set().union(*columns))
    rows = [(kind, *(f'{column[kind]:.0f}' if kind in column else '-'
                     for column in columns)) for kind in kinds]
    rows.append(('sum', *(f'{sum(column.values()):.0f}'
                          for column in columns)))
    return Table('us', ('', *(f'{row["machine"]}, {row["accel"]}'
                              for row in data)), rows)


def run(ctx: context.Context, rounds: int = 0) -> Section:
    notes = [WHAT]
    if not kvm_usable():
        notes.append('/dev/kvm cannot be opened, so there is nothing of KVM.')
    cells = [(accel, machine) for accel in ('kvm', 'tcg')
             if accel != 'kvm' or kvm_usable() for machine in MACHINES]
    ctx.expect(len(cells))
    data = []
    try:
        with tempfile.TemporaryDirectory(prefix='phases-', dir=products.BUILD
                                         ) as folder:
            for i, (accel, machine) in enumerate(cells):
                ctx.step(f'the {machine} machine under {accel}')
                times = measure(Path(folder) / str(i), accel, machine,
                                QUICK_LOADS if ctx.quick else LOADS)
                data.append({'accel': accel, 'machine': machine,
                             'times': times})
    except (products.Missing, MachineError) as e:
        raise Failure(str(e)) from e
    return Section(NAME, TITLE, data, [table(data)], [], notes)


def main() -> int:
    args = standalone.parser(__doc__).parse_args()
    return standalone.deliver('phases.py', args.json, lambda: run(
        standalone.context(args.quick), args.rounds))


if __name__ == '__main__':
    sys.exit(main())
