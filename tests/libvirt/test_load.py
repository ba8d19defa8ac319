# SPDX-License-Identifier: GPL-2.0-or-later
"""Loads in the QEMU that runs, by way of libvirt's monitor passthrough."""

# Takes: 30 s

import pytest

from lib.content import check_state, dirty
from lib.domains import OBJECTS, TAG, Config, Domain, saved
from lib.kernel import needs_kernel
from lib.libvirtd import LibvirtError
from lib.machine import kvm_usable, may_use


def take_back(guest: Domain, how: str) -> None:
    pid = guest.pid()
    getattr(guest, f'load_by_{how}')(TAG)
    assert guest.state() == 'running'
    check_state(guest)
    assert guest.pid() == pid


@pytest.mark.each_value
@pytest.mark.parametrize('how', ('hmp', 'qmp'))
def test_load_brings_memory_back(guest, how):
    for seed in (2, 3):
        dirty(guest, seed)
        take_back(guest, how)


@pytest.mark.each_value
def test_load_brings_memory_back_under_kvm(daemon, ram_reset):
    if not kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    with saved(daemon, Config(objects=ram_reset, virt='kvm')) as guest:
        dirty(guest, 2)
        take_back(guest, 'hmp')


@pytest.mark.each_value
@pytest.mark.parametrize('how', ('hmp', 'qmp'))
def test_query_tells_what_a_load_has_done(plain_guest, how):
    dirty(plain_guest, 2)
    take_back(plain_guest, how)
    info = plain_guest.qmp('query-ram-reset')
    assert (info['loads'], info['failed-loads'], info['fallbacks']) == \
        (1, 0, 0)
    last = info['last-load']
    assert last['tag'] == TAG
    assert last['rewound'] == info['objects'][0]['rewind']
    block, = (b for b in last['blocks'] if b['name'] == 'pc.ram')
    assert block['strategy'] in {'rewind', *may_use('auto')}


@needs_kernel
def test_kernel_tells_what_is_written_to_devices_memory(daemon):
    """Nothing of libvirt's, such as its sandbox, keeps QEMU from asking."""
    with saved(daemon, Config(objects=OBJECTS['rewind'])) as guest:
        dirty(guest, 2)
        take_back(guest, 'hmp')
        blocks = guest.qmp('query-ram-reset')['last-load']['blocks']
        watched = [b for b in blocks if 'kernel has reported' in b['reason']]
        assert 'pc.bios' in [b['name'] for b in watched]
        assert not any(b['compared-pages'] for b in blocks)


@pytest.mark.each_value
def test_load_of_no_snapshot_is_told_by_text_alone(plain_guest):
    """virsh succeeds; the guest has been paused, and can go on."""
    assert plain_guest.hmp('loadvm nonsense').startswith(
        "Error: Snapshot 'nonsense' does not exist")
    assert plain_guest.state() == 'paused'
    plain_guest.virsh('resume')
    plain_guest.sync()
    check_state(plain_guest)


@pytest.mark.each_value
def test_job_that_loads_no_snapshot_tells_its_error(plain_guest):
    with pytest.raises(LibvirtError,
                       match="Snapshot 'nonsense' does not exist"):
        plain_guest.load_by_qmp('nonsense')
