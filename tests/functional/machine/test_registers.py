# SPDX-License-Identifier: GPL-2.0-or-later
"""A load undoes all that ring 0 has written to registers since the save."""

# Takes: 6 s

from pathlib import Path

import pytest

from lib import products
from lib.effort import rounds
from lib.registers import Bank
from lib.smp import Smp

CPUS = 2
LOADS = rounds(3, 1)
# QEMU does not save this if it is 1, while a CPU with "monitor" begins with
# another value
UNSAVED = {'kvm': set(), 'tcg': {'MISC_ENABLE'}}
# KVM may not be able to set the MSR that arch-capabilities stands for
MODELS = {'kvm': 'host,arch-capabilities=off', 'tcg': 'max'}
WAYS = {
    'stock': {},
    'rewind': {'strategy': 'auto', 'options': ',rewind=on'},
    'whole': {'strategy': 'memset'}}
# On any host there must be some of these that can be told apart
COMMON = {'CR0', 'CR2', 'CR3', 'CR4', 'CR8', 'DR0', 'DR1', 'DR2', 'DR3', 'DR6',
          'DR7', 'vectors', 'EFER', 'STAR', 'LSTAR', 'CSTAR', 'FMASK',
          'FS_BASE', 'GS_BASE', 'KERNEL_GS_BASE', 'SYSENTER_CS',
          'SYSENTER_ESP', 'SYSENTER_EIP', 'PAT', 'MTRRdefType', 'APIC SVR',
          'APIC LVT0'}
# A guest under KVM may see these as the host has them, or not at all
OF_TCG = {'XCR0', 'PKRU', 'TSC_AUX'}


def boot(workdir: Path, accel: str, way: str, **kwargs) -> Smp:
    return Smp(workdir, accel=accel, cpus=str(CPUS), memory='shared',
               args=('-cpu', MODELS[accel]), **WAYS[way], **kwargs)


def differences(was: dict, now: dict) -> dict:
    return {name: (f'{value:#x}', f'{now[name]:#x}')
            for name, value in was.items() if value != now[name]}


@pytest.mark.each_value
@pytest.mark.parametrize('way', WAYS)
def test_registers_are_the_snapshots(tmp_path, accel, way):
    qemu = {'qemu': products.stock()} if way == 'stock' else {}
    with boot(tmp_path, accel, way, **qemu) as guest:
        banks = [Bank(guest, cpu) for cpu in range(CPUS)]
        saved = [bank.write(cpu) for cpu, bank in enumerate(banks)]
        print(accel, len(banks[0].kept), sorted(banks[0].kept))
        assert banks[0].kept >= COMMON | (OF_TCG if accel == 'tcg' else set())
        guest.save('s')
        for _ in range(LOADS):
            for cpu, bank in enumerate(banks):
                other = bank.write(1 - cpu)
                assert set(differences(saved[cpu], other)) >= bank.kept
            guest.load('s')
            for cpu, bank in enumerate(banks):
                wrong = differences(saved[cpu], bank.read())
                assert set(wrong) <= UNSAVED[accel], (cpu, wrong)
        if way == 'rewind':
            assert guest.last_load()['rewound']
