# SPDX-License-Identifier: GPL-2.0-or-later
"""Many snapshots: a load of any known one is a rewind, and a save is small."""

# Takes: 60 s

import pytest

from lib.guests import PAGE, Ring3
from lib.machine import MachineError
from lib.rewinding import RAM_SIZE, START, Explorer, Still, boot, full_disk


def test_random_walk(tmp_path, tracker, rng):
    """Each load is verified by the object, too."""
    with boot(tmp_path, tracker, options=',verify=on') as guest:
        guest.stop()
        explorer = Explorer(guest, rng)
        for _ in range(explorer.STEPS):
            explorer.step()
        explorer.check_all()
        assert min(explorer.counts.values()) > explorer.STEPS // 50
        print(explorer.counts)


@pytest.mark.parametrize('memory', ('private', 'shared'))
def test_another_qemu_loads_each(tmp_path, fast_accel, memory):
    """The image has all of each snapshot, however small its save was."""
    with boot(tmp_path, fast_accel, memory=memory) as guest:
        images = {}
        for tag in 'abc':
            guest.ask('tag', START + ord(tag) * PAGE, 3, PAGE, ord(tag))
            guest.stop()
            guest.save(tag)
            images[tag] = guest.ram_image()
            guest.cont()
    for tag, image in images.items():
        with Ring3(tmp_path, accel=fast_accel, ram=RAM_SIZE, memory=memory,
                   loadvm=tag) as guest:
            guest.stop()
            assert guest.ram_image() == image


def test_load_costs_the_difference(tmp_path):
    """Exactly: pages that differ, and pages that were written to since."""
    with Still(tmp_path) as guest:
        guest.save('root')
        for i in range(10):
            guest.put(i * 10, i + 1, 10)
            guest.save(f's{i}')
        assert guest.known()['s2']['differing-pages'] == 70
        guest.load('s2')
        assert guest.block()['dirty-pages'] == 70
        guest.load('s2')
        assert guest.block()['dirty-pages'] == 0
        guest.put(500, 7, 5)
        guest.load('s9')
        assert guest.block()['dirty-pages'] == 75
        assert guest.block()['copied-pages'] == 70
        guest.load('root')
        assert guest.block()['dirty-pages'] == 100
        assert guest.known()['root']['current']


def test_memory_of_many(tmp_path):
    """Pages that snapshots share are in memory once."""
    with Still(tmp_path) as guest:
        guest.put(0, 1, 100)
        guest.save('root')
        assert guest.rewind()['pages'] == 0
        for i in range(20):
            guest.load('root')
            guest.put(100 + i, i + 1)
            guest.put(0, 0xf0)              # in all of them
            guest.save(f's{i}')
        # saves from one state share, from equal states they cannot know
        assert guest.rewind()['pages'] == 40 * PAGE
        guest.load('s3')
        for i in range(20):
            guest.save(f'again{i}')
        rewind = guest.rewind()
        assert rewind['pages'] == 40 * PAGE
        assert rewind['tables'] < RAM_SIZE // 100
        known = guest.known()
        assert known['s3']['own-pages'] == 0
        assert known['s3']['shared-pages'] == 2
        assert known['s4']['own-pages'] == 2
        for tag in known:
            if tag != 'root':
                guest.hmp(f'delvm {tag}')
        rewind = guest.rewind()
        # RAM is equal to a deleted one still
        assert rewind['pages'] == 2 * PAGE
        guest.load('root')
        rewind = guest.rewind()
        assert rewind['pages'] == 0
        assert rewind['tables'] < PAGE
        assert [s['tag'] for s in rewind['snapshots']] == ['root']


def test_whole_load_is_remembered(tmp_path):
    """Snapshots of an earlier QEMU are known after their first load."""
    with Still(tmp_path) as guest:
        for i in range(3):
            guest.put(i, i + 1)
            guest.save(f's{i}')
    with Still(tmp_path, ',verify=on') as guest:
        for i in range(3):
            guest.load(f's{i}')
            blocker = guest.last_load()['blocker-info']['id']
            assert blocker == ('unknown-snapshot' if i else 'nothing-loaded')
        assert guest.rewind()['pages'] == 3 * PAGE
        for i in 1, 0, 2:
            guest.put(7, 7)
            guest.load(f's{i}')
            guest.block()
        guest.save('small')
        assert guest.known()['s2']['differing-pages'] == 0
        assert guest.rewind()['pages'] == 3 * PAGE


def test_limit_drops_the_one_used_least(tmp_path):
    with Still(tmp_path) as guest:
        guest.save('root')
        base = guest.rewind()['baseline']
    with Still(tmp_path, f',rewind-limit={base + 10 * PAGE}') as guest:
        guest.load('root')
        for i in range(3):
            guest.load('root')
            guest.put(i * 10, i + 1, 4)
            guest.save(f's{i}')
            if i == 1:
                guest.load('s0')
        assert set(guest.known()) == {'root', 's0', 's2'}
        assert guest.rewind()['pages'] == 8 * PAGE
        guest.load('s1')
        assert guest.last_load()['blocker-info']['id'] == 'unknown-snapshot'
        assert set(guest.known()) >= {'s2', 's1'}
        assert guest.rewind()['pages'] <= 10 * PAGE


def test_more_alternate_than_there_is_room_for(tmp_path):
    """Once that has been of no use; loads that repeat are rewinds again."""
    with Still(tmp_path) as guest:
        for i in range(3):
            guest.put(0, i + 1, 500)
            guest.save(f's{i}')
        size = guest.rewind()['baseline']

    def load(i: int) -> dict:
        guest.load(f's{i}')
        assert guest.qtest.read(START, 1) == bytes((i + 1,))
        return guest.last_load()

    with Still(tmp_path, f',verify=on,rewind-limit={size + PAGE}') as guest:
        for i in (0, 1, 2, 0, 1, 2):
            load(i)
        assert guest.rewind()['blocker-info']['id'] == 'alternating'
        assert load(0)['blocker-info']['id'] == 'alternating'
        assert load(0)['blocker-info']['id'] == 'alternating'
        for _ in range(3):
            assert load(0)['rewound']
        assert load(1)['blocker-info']['id'] == 'unknown-snapshot'
        assert load(1)['rewound']


def test_failed_save_keeps_all(tmp_path):
    """A save that fails has cleared QEMU's dirty log: nothing is lost."""
    with Still(tmp_path, ',verify=on') as guest:
        guest.put(0, 1, 10)
        guest.save('s')
        image = guest.ram_image()
        guest.put(3, 2, 4)
        guest.put(1000, 9, 1000)
        with pytest.raises(MachineError), full_disk(guest):
            guest.save('full')
        guest.put(20, 3, 2)
        guest.load('s')
        assert guest.block()['dirty-pages'] == 1006
        assert guest.ram_image() == image
