# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains with UEFI, whose variables are in a raw or in a qcow2 file."""

# Takes: 20 s

import dataclasses
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import products
from lib.domains import OBJECTS, TAG, Config, Domain
from lib.libvirtd import LibvirtError
from lib.machine import MIB, MONITOR_TIMEOUT, run_quietly
from lib.patience import Limit
from lib.uefi import CODE, VARS


@dataclasses.dataclass(frozen=True)
class UefiConfig(Config):
    """@variables: their format"""

    variables: str = 'raw'

    def xml(self, name: str, disk: Path, serial: Path) -> str:
        domain = ET.fromstring(super().xml(name, disk, serial))
        system = domain.find('os')
        system.remove(system.find('kernel'))
        system.find('type').set('machine', 'q35')
        loader = system.find('loader')
        loader.set('type', 'pflash')
        loader.text = str(products.FIRMWARE / CODE)
        nvram = ET.SubElement(system, 'nvram')
        nvram.text = str(nvram_of(disk))
        if self.variables != 'raw':
            nvram.set('format', self.variables)
        return ET.tostring(domain, encoding='unicode')


def nvram_of(disk: Path) -> Path:
    return disk.with_name('vars')


class UefiDomain(Domain):
    """OVMF writes variables when it runs; there are none to begin with."""

    START = products.FIRMWARE / VARS
    ATTEMPTS = 5

    def __init__(self, daemon, config: UefiConfig):
        super().__init__(daemon, config)
        self.nvram = nvram_of(self.disk)
        run_quietly(products.QEMU_IMG, 'convert', '-f', 'raw', '-O',
                    config.variables, self.START, self.nvram)

    def start_paused(self) -> None:
        self.virsh('start --paused')
        self.connected()

    def is_as_at_the_start(self) -> bool:
        copy = self.nvram.with_suffix('.copy')
        if self.config.variables == 'qcow2':
            assert self.hmp('qemu-io libvirt-pflash1-format flush') == ''
        run_quietly(products.QEMU_IMG, 'convert', '-U', '-f',
                    self.config.variables, '-O', 'raw', self.nvram, copy)
        return copy.read_bytes() == self.START.read_bytes()

    def run_until_written(self) -> None:
        self.virsh('resume')
        limit = Limit(MONITOR_TIMEOUT)
        while self.is_as_at_the_start():
            assert not limit.over(), 'OVMF writes no variables'
            time.sleep(0.1)
        self.virsh('suspend')

    def runs_from_the_start(self, load: Callable[[], None]) -> bool:
        """@load is followed by as short a run as is possible."""
        load()
        self.virsh('resume')
        self.virsh('suspend')
        return self.is_as_at_the_start()

    def assert_taken_back(self, load: Callable[[], None]) -> None:
        """OVMF soon writes again, but not always before one can look."""
        self.run_until_written()
        assert any(self.runs_from_the_start(load)
                   for _ in range(self.ATTEMPTS))


RAW = UefiConfig(objects=OBJECTS['rewind'], ram=128 * MIB)
QCOW2 = dataclasses.replace(RAW, variables='qcow2')


def rewind(guest: Domain) -> None:
    guest.load_by_hmp(TAG)
    assert guest.qmp('query-ram-reset')['last-load']['rewound']


def test_raw_variables_go_back_by_the_monitor(daemon):
    with UefiDomain(daemon, RAW) as guest:
        guest.start_paused()
        with pytest.raises(LibvirtError, match='internal snapshots of a VM '
                           'with pflash based firmware'):
            guest.snapshot(TAG)
        assert guest.hmp(f'savevm {TAG}') == ''
        assert TAG in guest.hmp('info snapshots')
        guest.assert_taken_back(lambda: rewind(guest))


def test_qcow2_variables_go_back(daemon):
    """A snapshot of libvirt's, which is one for the monitor as well."""
    if '11.3' not in daemon.root.name:
        with pytest.raises(LibvirtError, match='failed to validate'), \
                UefiDomain(daemon, QCOW2):
            pass
        return
    with UefiDomain(daemon, QCOW2) as guest:
        guest.start_paused()
        guest.snapshot(TAG)
        guest.assert_taken_back(lambda: rewind(guest))
        pid = guest.pid()
        guest.virsh_revert(TAG)
        guest.connected()
        assert guest.pid() != pid
        assert guest.is_as_at_the_start()
