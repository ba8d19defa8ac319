# SPDX-License-Identifier: GPL-2.0-or-later
"""A domain with a ram-reset object is a domain as any other."""

# Takes: 25 s

import pytest

from lib.content import check_state, dirty
from lib.domains import TAG, Config, Domain
from lib.libvirtd import LibvirtError

SECCOMP_FILTER = '2'
REFUSED = {
    'unknown property': (
        'ram-reset-auto,id=rr0,nonsense=on',
        "Invalid parameter 'nonsense'"),
    'wrong value': (
        'ram-reset-auto,id=rr0,threads=65',
        "property 'threads' of ram-reset-auto takes 0 to 64"),
    'unknown type': (
        'ram-reset-nonsense,id=rr0', 'ram-reset-nonsense'),
    'unknown memory': (
        'ram-reset-auto,id=rr0,memdev=mem9', 'mem9'),
    'other memory': (
        'ram-reset-hugefile,id=rr0,memdev=pc.ram', 'pc.ram'),
}


def test_definition_is_valid_and_keeps_the_object(daemon, memory, ram_reset):
    with Domain(daemon, Config(memory, ram_reset)) as domain:
        # defined with --validate
        for value in domain.config.objects:
            assert f"<qemu:arg value='{value}'/>" in domain.virsh('dumpxml')


@pytest.mark.each_value
def test_starts_with_the_object(daemon, memory, ram_reset):
    with Domain(daemon, Config(memory, ram_reset)) as domain:
        domain.start()
        found = [o['id'] for o in domain.qmp('query-ram-reset')['objects']]
        assert (domain.state(), found) == ('running', ['rr0'])
        huge = domain.process_status()['HugetlbPages']
        assert (huge != '0 kB') == ('hugepages' in memory)


@pytest.mark.parametrize('case', REFUSED)
def test_start_shows_why_qemu_refuses(daemon, case):
    value, message = REFUSED[case]
    with Domain(daemon, Config(objects=(value,))) as domain:
        with pytest.raises(LibvirtError) as e:
            domain.start()
        assert message in str(e.value)
        assert domain.state() == 'shut off'


@pytest.mark.each_value
def test_loads_and_reverts_inside_of_the_sandbox(plain_guest):
    """No fork, no exec, no new privileges."""
    for load in (plain_guest.load_by_hmp, plain_guest.revert):
        dirty(plain_guest, 2)
        load(TAG)
        check_state(plain_guest)
        status = plain_guest.process_status()
        assert (status['Seccomp'], status['NoNewPrivs']) == \
            (SECCOMP_FILTER, '1')
        assert plain_guest.qmp('query-ram-reset')['fallbacks'] == 0
