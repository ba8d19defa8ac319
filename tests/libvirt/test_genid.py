# SPDX-License-Identifier: GPL-2.0-or-later
"""A domain with <genid/> gets new IDs, from libvirt or from QEMU."""

# Takes: 15 s

import dataclasses

import pytest

from lib.domains import OBJECTS, TAG, Config, saved
from lib.effort import rounds

CONFIG = Config(genid=True, objects=OBJECTS['rewind'])
OPTION = tuple(f'{one},new-vmgenid=on' for one in CONFIG.objects)


def vmgenid(guest) -> str:
    return guest.qmp('query-vm-generation-id')['guid']


@pytest.mark.each_value
@pytest.mark.parametrize('objects', (CONFIG.objects, OPTION),
                         ids=('without', 'with'))
def test_new_id_after_each_load_and_revert(daemon, objects):
    config = dataclasses.replace(CONFIG, objects=objects)
    with saved(daemon, config) as guest:
        seen = [vmgenid(guest)]
        for load in (guest.load_by_hmp, guest.load_by_qmp):
            load(TAG)
            seen.append(vmgenid(guest))
        assert len(set(seen)) == (3 if objects == OPTION else 1)
        for _ in range(rounds(2, 1)):
            guest.revert(TAG)
            assert vmgenid(guest) not in seen
            seen.append(vmgenid(guest))
        shown = guest.virsh('dumpxml')
        assert (vmgenid(guest) in shown) == (objects != OPTION)
