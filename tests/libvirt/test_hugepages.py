# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains with hugepages as libvirt gives them are taken back page by page."""

# Takes: 20 s

import xml.etree.ElementTree as ET
from dataclasses import dataclass

import pytest

from lib.content import check_state, dirty, write_state
from lib.domains import (HUGEPAGES, MEMFD, QEMU_NAMESPACE, TAG, Config,
                         Domain)
from lib.guests import PAGE

REWINDS = 'ram-reset-auto,id=rr0,rewind=on,verify=on'
SHARED = '<access mode="shared"/>'
AT_ONCE = '<allocation mode="immediate"/>'
KINDS = {'private': '', 'shared': SHARED, 'memfd': MEMFD,
         'at once': AT_ONCE, 'shared, at once': SHARED + AT_ONCE}


@dataclass(frozen=True)
class Huge(Config):
    """@backing: what is inside of <memoryBacking>; @cells: of NUMA"""

    backing: str = ''
    cells: int = 1

    def xml(self, *args) -> str:
        domain = ET.fromstring(super().xml(*args))
        old = domain.find('memoryBacking')
        for child in list(old):
            old.remove(child)
        old.extend(ET.fromstring(f'<m>{self.backing}</m>'))
        if self.cells > 1:
            domain.insert(1, ET.fromstring(
                f'<vcpu>{self.cells}</vcpu>'))
            domain.insert(2, ET.fromstring('<cpu><numa>' + ''.join(
                f'<cell id="{n}" cpus="{n}" unit="b" '
                f'memory="{self.ram // self.cells}"/>'
                for n in range(self.cells)) + '</numa></cpu>'))
        return ET.tostring(domain, encoding='unicode')


class Locked(Huge):
    """As <locked/> has it, whose limits libvirt may have no right to set."""

    def xml(self, *args) -> str:
        domain = ET.fromstring(super().xml(*args))
        command = domain.find(f'{{{QEMU_NAMESPACE}}}commandline')
        for value in ('-overcommit', 'mem-lock=on'):
            ET.SubElement(command, f'{{{QEMU_NAMESPACE}}}arg', value=value)
        return ET.tostring(domain, encoding='unicode')


def check_rewinds(daemon, config: Huge) -> None:
    with Domain(daemon, config) as domain:
        domain.start()
        assert domain.process_status()['HugetlbPages'] != '0 kB'
        write_state(domain)
        domain.snapshot(TAG)
        for seed in (2, 3):
            dirty(domain, seed)
            domain.load_by_hmp(TAG)
            check_state(domain)
            last = domain.qmp('query-ram-reset')['last-load']
            assert last['rewound'], last.get('blocker')
            ram = [b for b in last['blocks'] if b['page-size'] > PAGE]
            assert len(ram) == config.cells
            # not all of them: check_state() does not read what dirty() leaves
            assert sum(b['dirty-pages'] for b in ram) < \
                config.ram // PAGE * 3 // 4


@pytest.mark.each_value
@pytest.mark.parametrize('cells', (1, 2))
@pytest.mark.parametrize('kind', KINDS)
def test_rewinds(daemon, huge_pool, kind, cells):
    check_rewinds(daemon, Huge(objects=(REWINDS,), cells=cells,
                               backing=HUGEPAGES + KINDS[kind]))


@pytest.mark.each_value
@pytest.mark.parametrize('huge', ('', HUGEPAGES))
def test_locked_memory_is_told_from(daemon, huge_pool, huge):
    config = Locked(objects=(REWINDS,), backing=huge)
    with Domain(daemon, config) as domain:
        domain.start()
        write_state(domain)
        domain.snapshot(TAG)
        dirty(domain, 2)
        domain.load_by_hmp(TAG)
        check_state(domain)
        info = domain.qmp('query-ram-reset')
        assert not info['last-load']['rewound']
        assert '<locked/>' in info['rewind']['blocker-info']['remedy']


def test_file_of_a_name_is_told_from(daemon):
    """libvirt's <source type="file"/>, which others are to find."""
    config = Huge(objects=(REWINDS,),
                  backing='<source type="file"/><access mode="shared"/>')
    with Domain(daemon, config) as domain:
        domain.start()
        domain.snapshot(TAG)
        domain.load_by_hmp(TAG)
        assert 'memory-backend-memfd' in \
            domain.qmp('query-ram-reset')['rewind']['blocker']
