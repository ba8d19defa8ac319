# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains with a raw disk, which ram-reset xml has snapshots leave alone."""

# Takes: 8 s

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lib.content import check_state, dirty, write_state
from lib.domains import OBJECTS, TAG, Config, Domain
from lib.libvirtd import LibvirtError
from lib.xmltool import piped

SIZE = 1 << 20


class RawDiskConfig(Config):
    """As its user has it, but for what the program makes of it."""

    def xml(self, name: str, disk: Path, serial: Path) -> str:
        raw = disk.with_name('data.raw')
        raw.write_bytes(bytes(SIZE))
        plain = dataclasses.replace(self, objects=())
        domain = ET.fromstring(Config.xml(plain, name, disk, serial))
        domain.find('devices').append(ET.fromstring(
            '<disk type="file" device="disk"><driver name="qemu" type="raw"/>'
            f'<source file="{raw}"/><target dev="vdb" bus="virtio"/></disk>'))
        return piped(ET.tostring(domain), '--object', self.objects[0],
                     '--fix', 'keep-disks').decode()


def test_snapshots_leave_it_as_it_is(daemon):
    """Snapshots by the monitor; libvirt refuses to make any."""
    with Domain(daemon, RawDiskConfig(objects=OBJECTS['rewind'])) as guest:
        guest.start()
        write_state(guest)
        with pytest.raises(LibvirtError, match='unsupported for storage type '
                           'raw'):
            guest.snapshot(TAG)
        assert guest.hmp(f'savevm {TAG}') == ''
        assert TAG in guest.hmp('info snapshots')
        for seed in 2, 3:
            dirty(guest, seed)
            guest.load_by_hmp(TAG)
            assert guest.qmp('query-ram-reset')['last-load']['rewound']
            check_state(guest)


def test_without_a_name_for_it_the_monitor_says_what_helps(daemon):
    with Domain(daemon, RawDiskConfig(objects=('ram-reset-auto,id=rr0',))
                ) as guest:
        guest.start()
        guest.qmp('qom-set', path='/objects/rr0', property='keep-disks',
                  value=[])
        said = guest.hmp(f'savevm {TAG}')
        assert 'is writable but does not support snapshots' in said
        assert 'keep-disks=' in said
