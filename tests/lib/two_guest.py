# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest of lib/two.py, and the devices that it and the host unplug."""

import random
import time
from dataclasses import dataclass
from pathlib import Path

from lib import products
from lib.content import START
from lib.machine import DISK, MIB, MachineError, run_quietly
from lib.patience import Limit
from lib.snapctl_guest import SnapctlGuest

# also in guest/ring3-two.c
FIRST_VICTIM, VICTIMS, ALL_SLOTS = 8, 8, 3
DISK_SLOT, SNAPCTL_SLOT = 4, 5
WILD = 1                            # of the mask of slots
PAIRS = START + MIB, 64             # an address and pages
PATIENCE, RESET_PATIENCE = 60.0, 5.0

# A slot after another
VICTIM = (
    ('virtio-blk-pci', {'drive': 'noise0', 'share-rw': True}),
    ('virtio-blk-pci', {'drive': 'noise1', 'iothread': 'io0',
                        'share-rw': True}),
    ('virtio-net-pci', {'netdev': 'net0', 'romfile': ''}),
    ('virtio-net-pci', {'netdev': 'net1', 'romfile': ''}),
    ('virtio-rng-pci', {}),
    ('virtio-scsi-pci', {}),
    ('virtio-serial-pci', {}),
    ('virtio-blk-pci', {'drive': 'noise0', 'share-rw': True}),
)


@dataclass(frozen=True)
class Setup:
    """The settings of a QEMU, and the actions that its guest may take."""

    accel: str
    memory: str
    strategy: str
    options: str
    eject: int          # a mask of slots
    pace: int           # the more bits the more seldom
    seed: int           # the guest's

    @classmethod
    def draw(cls, rng: random.Random, accel: str) -> 'Setup':
        slots = ((1 << VICTIMS) - 1) << FIRST_VICTIM
        return cls(
            {'tcg': 'tcg,thread=multi'}.get(accel, accel),
            rng.choice(('private', 'shared')),
            rng.choice(('auto', 'auto', 'memset', 'madvise', 'remap')),
            rng.choice(('', '', ',template-dir=')),
            slots | (rng.random() < 0.2) << SNAPCTL_SLOT | WILD *
            (rng.random() < 0.2),
            rng.choice((0xff, 0xfff, 0x3fff)), rng.getrandbits(64))


def victim(n: int) -> dict[str, object]:
    driver, options = VICTIM[n]
    return {'driver': driver, 'id': f'v{n}', 'addr': f'{FIRST_VICTIM + n:#x}',
            'disable-modern': True, **options}


def as_option(device: dict[str, object]) -> str:
    return ','.join([str(device['driver']), *(
        f'{name}={"on" if value is True else value}'
        for name, value in device.items() if name != 'driver')])


class TwoCpus(SnapctlGuest):
    """The guest."""

    timeout = PATIENCE

    def __init__(self, workdir: Path, setup: Setup):
        self.setup = setup
        options = f',verify=on,keep-disks=nowhere{setup.options}'
        if setup.options:
            (workdir / 'templates').mkdir(mode=0o700)
            options += str(workdir / 'templates')
        self.devices = [victim(n) for n in range(VICTIMS)]
        args = ['-smp', '2', '-object', 'iothread,id=io0']
        for n in range(2):
            image = workdir / f'noise{n}.qcow2'
            run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                        image, '1M')
            args += ['-blockdev', f'driver=qcow2,node-name=noise{n},'
                                  f'file.driver=file,file.filename={image}',
                     '-netdev', f'hubport,id=net{n},hubid=0']
        # the first of all disks, so that it has the VM states
        args += ['-device', f'virtio-blk-pci,drive={DISK},'
                            f'addr={DISK_SLOT:#x}']
        args += ['-blockdev', f'driver=null-co,node-name=nowhere,size={MIB}']
        for device in self.devices:
            args += ['-device', as_option(device)]
        super().__init__(workdir, accel=setup.accel, memory=setup.memory,
                         strategy=setup.strategy, rewind_options=options,
                         options=f',addr={SNAPCTL_SLOT:#x}', args=tuple(args))

    def prepare(self) -> None:
        self.ask('start-cpu', 1)
        self.set_region_word('random', self.setup.seed)

    def begin(self) -> None:
        """Go on with what is random, from when the guest was prepared."""
        self.tell('two', *PAIRS, self.setup.eject, self.setup.pace)

    def steps(self) -> int:
        return self.region_word('steps')

    def wait_steps(self, count: int) -> bool:
        """
        True also if a load that the guest has asked for has failed, if it has
        ejected the device that counts, or if it has reset itself and waits for
        a command.
        """
        before, limit = self.steps(), Limit(PATIENCE)
        reset_limit = Limit(RESET_PATIENCE)
        while self.steps() < before + count and \
                self.status() != 'restore-vm' and \
                'snap0' in self.peripherals():
            if limit.over():
                return False
            if reset_limit.over() and self._waits_for_command():
                return True
            time.sleep(0.01)
        return True

    def _waits_for_command(self) -> bool:
        self.TIMEOUT = RESET_PATIENCE
        try:
            self.sync()
        except MachineError:
            return False
        finally:
            del self.TIMEOUT
        return True

    def said(self) -> bytes:
        with self.serial._changed:
            return self.serial._text

    def peripherals(self) -> set[str]:
        return {child['name'] for child in
                self.qmp('qom-list', path='/machine/peripheral')}
