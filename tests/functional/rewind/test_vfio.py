# SPDX-License-Identifier: GPL-2.0-or-later
"""
A device of the host that is assigned to the guest writes to RAM unseen, so
that all of RAM has to be loaded, and nothing may take its place.  Test machines
have none: host/vfio.c is what QEMU takes for one.
"""

from pathlib import Path

import pytest

from lib import products
from lib.dma import Qtest
from lib.machine import MIB, RAM, Machine
from lib.pin import pin

START, SIZE = 8 * MIB, MIB
NEVER_WRITTEN = 20 * MIB
DMA = b'what the device has written'
IOMMUS = {'no IOMMU': (),
          'intel-iommu': ('-device', 'intel-iommu,caching-mode=on'),
          'virtio-iommu': ('-device', 'virtio-iommu-pci')}
# A mediated device whose driver lets go of what is discarded pins nothing
DEVICES = {'pci': {}, 'mdev': {'x-balloon-allowed': True}}


class Host:
    """The directory that the kernel would have for the device."""

    def __init__(self, workdir: Path, monkeypatch):
        monkeypatch.setenv('LD_PRELOAD', str(products.vfio()))
        self.sysfs = workdir / 'device'
        self.sysfs.mkdir()
        (self.sysfs / 'iommu_group').symlink_to('/sys/kernel/iommu_groups/7')

    def plug(self, vm: Machine, kind: str, **options) -> None:
        (self.sysfs / 'subsystem').symlink_to(f'/sys/bus/{kind}')
        vm.qmp('device_add', driver='vfio-pci', sysfsdev=str(self.sysfs),
               bus='port0', **options)


@pytest.fixture
def host(tmp_path, monkeypatch) -> Host:
    return Host(tmp_path, monkeypatch)


def start(workdir: Path, *args: str, strategy: str = 'auto',
          options: str = ',rewind=on') -> Machine:
    return Machine(workdir, accel='qtest', ram=32 * MIB, machine='q35',
                   strategy=strategy, options=options,
                   args=(*args, '-device', 'pcie-root-port,id=port0'))


def write_unseen(vm: Machine, address: int) -> None:
    """As DMA does: nobody in QEMU is told."""
    host_address = int(vm.hmp(f'gpa2hva {address:#x}').split(' is ')[1], 16)
    with open(f'/proc/{vm.process.pid}/mem', 'r+b', buffering=0) as memory:
        memory.seek(host_address)
        memory.write(DMA)


def check_nothing_is_rewound(vm: Machine, image: bytes) -> None:
    for _ in range(3):
        for address in (0, START, NEVER_WRITTEN):
            write_unseen(vm, address)
        vm.load('s')
        assert vm.ram_image() == image
        assert not vm.last_load()['rewound']
        blocker = vm.last_load()['blocker']
    assert 'device' in blocker or 'vfio' in blocker
    info = vm.last_load()['blocker-info']
    assert 'virtio device' in info.get('detail', '') + info['remedy']


@pytest.mark.parametrize('kind', DEVICES)
@pytest.mark.parametrize('iommu', IOMMUS)
def test_what_the_device_writes_is_undone(tmp_path, host, iommu, kind):
    qtest = Qtest(tmp_path)
    with start(tmp_path, *qtest.args, *IOMMUS[iommu]) as vm:
        qtest.use(START, SIZE)
        vm.save('s')
        vm.load('s')
        assert vm.last_load()['rewound']
        image = vm.ram_image()
        host.plug(vm, kind, **DEVICES[kind])
        check_nothing_is_rewound(vm, image)


@pytest.mark.parametrize('iommu', IOMMUS)
def test_memory_of_a_mediated_device_is_not_replaced(tmp_path, host, iommu):
    """It would go on with the old."""
    with start(tmp_path, *IOMMUS[iommu], strategy='remap', options='') as vm:
        vm.save('s')
        vm.load('s')
        assert strategy(vm)['strategy'] == 'remap'
        host.plug(vm, 'mdev', **DEVICES['mdev'])
        vm.load('s')
        assert strategy(vm)['strategy'] == 'memset'
        assert 'vfio holds guest memory' in strategy(vm)['reason']


def strategy(vm: Machine) -> dict:
    block, = (b for b in vm.last_load()['blocks'] if b['name'] == RAM)
    return block


def test_nothing_is_rewound_while_discarding_is_disabled(tmp_path):
    """A device that disables discarding has pinned memory, seen or not."""
    qtest = Qtest(tmp_path)
    with start(tmp_path, *qtest.args) as vm:
        qtest.use(START, SIZE)
        vm.save('s')
        vm.load('s')
        assert vm.last_load()['rewound']
        image = vm.ram_image()
        pin(vm)
        check_nothing_is_rewound(vm, image)


def test_machine_s_own_listener_is_no_device(tmp_path):
    """With maxmem= there is one for the memory that can be plugged."""
    with start(tmp_path, '-m', 'maxmem=1G,slots=2') as vm:
        vm.qmp('object-add', **{'qom-type': 'memory-backend-ram', 'id': 'mem1',
                                'size': 128 * MIB})
        vm.qmp('device_add', driver='pc-dimm', memdev='mem1')
        vm.save('s')
        for _ in range(2):
            vm.load('s')
            assert vm.last_load()['rewound']
