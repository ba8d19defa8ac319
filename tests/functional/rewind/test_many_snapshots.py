# SPDX-License-Identifier: GPL-2.0-or-later
"""Many snapshots: a load of any known one is a rewind, and a save is small."""

# Takes: 60 s

import pytest

from lib.damage import damage_device, damage_template
from lib.dma import CONFIG_ADDRESS, CONFIG_DATA, Qtest
from lib.guests import PAGE, Ring3
from lib.machine import MIB, MachineError
from lib.rewinding import RAM_SIZE, START, Explorer, Still, boot, full_disk
from lib.shm import in_memory
from lib.vmstate import VMState


@pytest.mark.any_value
def test_random_walk(tmp_path, tracker, rng):
    """Each load is verified by the object, too."""
    with boot(tmp_path, tracker, options=',verify=on') as guest:
        guest.stop()
        explorer = Explorer(guest, rng)
        for _ in range(explorer.STEPS):
            explorer.step()
        explorer.check_all()
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


def whole_loads_are_remembered(guest: Still) -> bool:
    """Four unknown snapshots, in turns: the first loads are whole ones."""
    rewound = []
    for i in range(16):
        guest.load(f's{i % 4}')
        assert guest.qtest.read(START, 1) == bytes((i % 4 + 1,))
        rewound.append(guest.last_load()['rewound'])
    return rewound == [False] * 4 + [True] * 12


@pytest.mark.parametrize('memory', ('private', 'shared'))
@pytest.mark.parametrize('strategy', ('memset', 'madvise', 'remap'))
def test_whole_loads_in_turns(tmp_path, strategy, memory):
    """A whole load by remap replaces the memory of the blocks."""
    kwargs = {'strategy': strategy, 'memory': memory}
    with Still(tmp_path, **kwargs) as guest:
        for i in range(4):
            guest.put(0, i + 1, i + 1)
            guest.save(f's{i}')
    with Still(tmp_path, ',verify=on', **kwargs) as guest:
        assert whole_loads_are_remembered(guest)


@pytest.mark.parametrize('strategy', ('memset', 'madvise'))
def test_templates_in_turns(tmp_path, strategy):
    """A template is mapped in place of the memory, and may be the baseline."""
    with in_memory('templates') as folder:
        kwargs = {'strategy': strategy, 'memory': 'private'}
        options = f',template-dir={folder},rewind-limit=64K'
        with Still(tmp_path, options, **kwargs) as guest:
            for i in range(4):
                guest.put(0, i + 1, 10)
                guest.save(f's{i}')
                # the baseline is a file, and has no limit; pages have
                assert guest.rewind()['pages'] <= 64 << 10
        options = f',template-dir={folder},verify=on'
        with Still(tmp_path, options, **kwargs) as guest:
            assert whole_loads_are_remembered(guest)


def test_save_populates_nothing(tmp_path, fast_accel):
    """A change of the memory map makes slots of KVM's, which are all dirty."""
    qtest = Qtest(tmp_path)
    with boot(tmp_path, fast_accel, args=qtest.args) as guest:
        qtest.connect()
        guest.stop()
        guest.save('a')
        before = guest.rss()
        for value in 0x33, 0:
            for register in 0x59, 0x5a:     # which ROMs the host bridge shows
                qtest.out('l', CONFIG_ADDRESS, 1 << 31 | register & ~3)
                qtest.out('b', CONFIG_DATA + register % 4, value)
        guest.save('b')
        assert guest.rss() - before < 4 * MIB
        qtest.close()


@pytest.mark.parametrize('what', ('plug', 'save', 'fail'))
def test_others_stay(tmp_path, what):
    """A whole load or save follows, which loses nothing of the others."""
    with Still(tmp_path) as guest:
        guest.save('broken')
    with VMState(tmp_path / 'disk.qcow2', 'broken') as state:
        damage_device(state)
    with Still(tmp_path, ',verify=on') as guest:
        for i in range(3):
            guest.put(i, i + 1)
            guest.save(f's{i}')
        if what != 'fail':
            guest.qmp('device_add', driver='virtio-rng-pci', id='rng')
            guest.qmp('device_del', id='rng')
        else:
            with pytest.raises(MachineError):
                guest.load('broken')
        guest.put(9, 9)
        if what == 'save':
            guest.save('s3')
        else:
            guest.load('s1')
            assert not guest.last_load()['rewound']
        for i in 0, 2, 1:
            guest.load(f's{i}')
            guest.block()


def test_wrong_copy_is_dropped(tmp_path):
    """verify=on finds that a template is damaged: no load may use it again."""
    with in_memory('templates') as folder:
        options = f',template-dir={folder}'
        kwargs = {'strategy': 'memset', 'memory': 'private'}
        with Still(tmp_path, options, **kwargs) as guest:
            guest.put(0, 1, 100)
            guest.save('s')
            file, = (f for f in folder.iterdir() if f.stat().st_size > MIB // 4)
            guest.hmp('savevm t')
        damage_template(file, b'\1' * PAGE)
        with Still(tmp_path, options + ',verify=on', **kwargs) as guest:
            with pytest.raises(MachineError, match='RAM is not what'):
                guest.load('s')
            guest.load('t')
            guest.qmp('qom-set', path='/objects/rr0', property='verify',
                      value=False)
            guest.load('s')
            assert guest.qtest.read(START, PAGE) == b'\1' * PAGE


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
        size = guest.rewind()['baseline'] + guest.rewind()['unread']

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
