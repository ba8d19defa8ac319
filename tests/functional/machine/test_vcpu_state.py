# SPDX-License-Identifier: GPL-2.0-or-later
"""
A load writes the state of each KVM vCPU once, and reads none.  All that KVM has
of them afterwards is what it has after a load by an unpatched QEMU.
"""

# Takes: 4 s

import shutil
from collections import Counter
from pathlib import Path

import pytest

from lib import products
from lib.effort import tried
from lib.machine import kvm_usable
from lib.registers import Bank
from lib.smp import Smp

# A vCPU that has one of these is read, and written twice, as ever
PLAIN = 'pmu=off,vmx=off,svm=off,xfd=off,sgxlc=off'
MODELS = {'host': f'host,arch-capabilities=off,{PLAIN}',
          'old': f'qemu64,{PLAIN}',
          'more': 'host,arch-capabilities=off,pmu=on,hv-relaxed=on'}
WAYS = {'stock': {'qemu': products.stock()},
        'rewind': {'strategy': 'auto', 'options': ',rewind=on'}}
TAG = 's'

pytestmark = pytest.mark.skipif(not kvm_usable(),
                                reason='/dev/kvm cannot be opened')


class Log:
    """The output of host/vcpus.c since then."""

    def __init__(self, guest: Smp):
        self._guest = guest
        self._read = len(guest.log())

    def take(self) -> tuple[list[dict], list[int], list[int]]:
        """The last state of each vCPU, and how often it was put and read."""
        state: dict[str, dict] = {}
        puts: Counter[str] = Counter()
        gets: Counter[str] = Counter()
        for line in self._guest.log()[self._read:].splitlines():
            if not line.startswith('vcpu '):
                continue
            _, fd, name, *value = line.split()
            if name == 'put':
                puts[fd] += 1
            elif name == 'get':
                gets[fd] += 1
            else:
                state.setdefault(fd, {})[name] = value
        vcpus = sorted(state, key=int)
        return ([state[fd] for fd in vcpus], [puts[fd] for fd in vcpus],
                [gets[fd] for fd in vcpus])


def boot(workdir: Path, model: str, cpus: int, way: str) -> Smp:
    return Smp(workdir, accel='kvm', cpus=str(cpus), memory='shared',
               args=('-cpu', MODELS[model]), **WAYS[way])


def save(workdir: Path, model: str, cpus: int) -> Path:
    workdir.mkdir()
    with boot(workdir, model, cpus, 'rewind') as guest:
        for cpu in range(cpus):
            Bank(guest, cpu).write(0)
        guest.save(TAG)
        return guest.disk


def load(workdir: Path, disk: Path, model: str, cpus: int, way: str
         ) -> tuple[list[dict], list[int], list[int]]:
    """Into a guest with other registers, and with NMIs and SMIs pending."""
    workdir.mkdir()
    shutil.copy(disk, workdir)
    with boot(workdir, model, cpus, way) as guest:
        for _ in range(2):
            for cpu in range(cpus):
                Bank(guest, cpu).write(1)
            guest.stop()
            log = Log(guest)
            guest.load(TAG)
            found = log.take()
            guest.cont()
        return found


@pytest.mark.each_value
@pytest.mark.parametrize('cpus', [1, 2])
@pytest.mark.parametrize('model', tried(tuple(MODELS), ('host', 'more')))
def test_state_is_that_of_a_stock_load(tmp_path, monkeypatch, model, cpus):
    disk = save(tmp_path / 'saved', model, cpus)
    monkeypatch.setenv('LD_PRELOAD', str(products.vcpus()))
    stock, stock_puts, stock_gets = load(tmp_path / 'stock', disk, model, cpus,
                                         'stock')
    ours, puts, gets = load(tmp_path / 'ours', disk, model, cpus, 'rewind')
    assert len(ours) == cpus and all(len(one) > 20 for one in ours)
    for cpu, (a, b) in enumerate(zip(stock, ours, strict=True)):
        assert not {name: (value, b.get(name)) for name, value in a.items()
                    if b.get(name) != value}, cpu
    assert (stock_puts, stock_gets) == ([2] * cpus, [1] * cpus)
    once = model != 'more'
    assert (puts, gets) == (([1] * cpus, [0] * cpus) if once else
                            (stock_puts, stock_gets))
