# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset-pin: a pinned snapshot stays known when others have to go."""

# Takes: 20 s

import pytest

from lib.effort import rounds
from lib.guests import PAGE
from lib.machine import MIB, MachineError
from lib.rewinding import START, Still, boot, plug_device, with_room
from lib.storing import set_kind

# More than QEMU knows without pins
MANY = 258


def save_three(guest: Still, pinned: str | None) -> None:
    """Snapshots of four pages each, one more than there is room for."""
    for i in range(3):
        guest.load('root')
        guest.put(i * 10, i + 1, 4)
        guest.save(f's{i}')
        if pinned == f's{i}':
            guest.pin(pinned)


@pytest.mark.parametrize('pinned', (None, 's0', 's1'))
def test_the_others_go(tmp_path, pinned):
    """Which loads are rewinds, and what they restore, exactly."""
    with with_room(tmp_path, ',verify=on') as guest:
        save_three(guest, pinned)
        gone = 's1' if pinned == 's0' else 's0'
        stays, = {'s0', 's1'} - {gone}
        assert set(guest.known()) == {'root', 's2', stays}
        assert guest.pins() == ({pinned: 'user'} if pinned else {})
        assert guest.rewind()['pages'] == 8 * PAGE
        guest.load(stays)
        assert guest.block()['dirty-pages'] == 8
        guest.load_whole(gone, 'unknown-snapshot')
        assert set(guest.known()) == {'root', gone, stays}
        guest.load(stays)
        assert guest.block()['dirty-pages'] == 8
        if pinned:
            guest.load_whole('s2', 'unknown-snapshot')
            guest.pin(stays, False)
            assert not guest.pins()
            guest.load_whole(gone, 'unknown-snapshot')
            assert set(guest.known()) == {'root', gone, 's2'}


def test_pins_leave_no_room(tmp_path):
    """The new one is not known; the pinned ones are as before."""
    with with_room(tmp_path, ',verify=on') as guest:
        for i in range(2):
            guest.load('root')
            guest.put(i * 10, i + 1, 4)
            guest.save(f's{i}')
        for tag in 'root', 's0', 's1':
            guest.pin(tag)
        guest.load('root')
        guest.put(20, 3, 4)
        warning = guest.hmp('savevm s2')
        assert 'unpin or delete some of them' in warning
        assert guest.blocker() == 'pinned-snapshots'
        assert guest.rewind()['blocker'] == \
            'pinned snapshots leave no room for another one: rewind-limit'
        assert '[pinned-snapshots]' in guest.hmp('info ram-reset')
        assert set(guest.known()) == {'root', 's0', 's1'}
        for _ in range(2):
            guest.load_whole('s2', 'pinned-snapshots')
            assert guest.qtest.read(START + 20 * PAGE, 1) == b'\3'
        # RAM is known again when it is that of a known one
        guest.load_whole('s0', 'pinned-snapshots')
        assert guest.rewind()['pages'] == 8 * PAGE
        for tag in 's1', 's0':
            guest.load(tag)
            assert guest.block()['dirty-pages'] == 8
        set_kind(guest, 'memory')
        guest.put(30, 4, 4)
        with pytest.raises(MachineError, match='pinned snapshots leave no room'
                           '.*rewind-limit'):
            guest.save('memory')
        guest.load_whole('s0', 'pinned-snapshots')
        guest.pin('s1', False)
        guest.load_whole('s2', 'unknown-snapshot')
        assert set(guest.known()) == {'root', 's0', 's2'}
        guest.load('s0')
        assert guest.block()['dirty-pages'] == 8


def test_more_than_are_known(tmp_path):
    """256 others are known beside the pinned ones."""
    with Still(tmp_path) as guest:
        for i in range(MANY):
            guest.put(0, i % 255 + 1)
            guest.save(f's{i}')
            if i >= 2:
                guest.pin(f's{i}')
        assert len(guest.pins()) == MANY - 2
        assert set(guest.known()) == {f's{i}' for i in range(MANY)}
        guest.save('more')
        for i in 2, 0, MANY - 1, 1:
            guest.load(f's{i}')
            assert guest.block()['dirty-pages'] == 1
            assert guest.qtest.read(START, 1)[0] == i % 255 + 1
        guest.load('more')
        for i in range(2, MANY):
            guest.pin(f's{i}', False)
        guest.save('last')
        known = set(guest.known())
        assert len(known) == 256
        assert known >= {'last', 'more', 's0', 's1', 's2', 's7'}
        assert known.isdisjoint({'s3', 's4', 's5', 's6'})


def test_alternating(tmp_path):
    """Whole loads in turns drop all copies, but not with a pinned one."""
    with with_room(tmp_path, pages=1000) as guest:
        for i in range(4):
            guest.load('root')
            guest.put(0, i + 1, 500)
            guest.save(f's{i}')
            if not i:
                guest.pin('s0')
        for i in 1, 2, 3, 1, 2:
            guest.load(f's{i}')
        assert guest.blocker() == 'alternating'
        assert guest.known()['s0']['pinned'] == 'user'
        guest.load_whole('s0', 'alternating')
        guest.put(7, 7)
        guest.load('s0')
        assert guest.block()['dirty-pages'] == 1
        guest.load_whole('s3', 'unknown-snapshot')
        guest.load('s0')
        assert guest.block()['dirty-pages'] == 500
        assert guest.qtest.read(START, 500 * PAGE) == b'\1' * 500 * PAGE


def test_whole_load_records_nothing_again(tmp_path):
    """RAM is the pinned copy then: no page is compared, read or stored."""
    with Still(tmp_path) as guest:
        guest.put(0, 1, 600)
        guest.save('root')
    with Still(tmp_path, ',verify=on') as guest:
        guest.load('root')
        guest.put(0, 2, 10)
        guest.save('s')
        before = guest.rewind()['unread']
        assert before >= 600 * PAGE
        guest.pin('s')
        assert guest.rewind()['unread'] == before
        for i in range(3):
            plug_device(guest)
            guest.put(0, 3, 300)
            guest.load_whole('s', 'device-plugged')
            assert guest.rewind()['unread'] == before - i * 20 * PAGE
            assert guest.rewind()['pages'] == 10 * PAGE
            guest.put(100 + 20 * i, 3, 20)
            guest.load('s')
            assert guest.block()['dirty-pages'] == 20
            assert guest.qtest.read(START, 600 * PAGE) == \
                b'\2' * 10 * PAGE + b'\1' * 590 * PAGE


def test_running_guest(tmp_path, tracker):
    """The log has all that it writes after such a load."""
    with boot(tmp_path, tracker, options=',verify=on') as guest:

        def write(seed: int) -> None:
            guest.cont()
            guest.ask('fill', START + seed * 50 * PAGE, 100 * PAGE, seed)
            guest.stop()

        images = {}
        for seed, tag in enumerate(('root', 's'), 1):
            write(seed)
            guest.save(tag)
            images[tag] = guest.ram_image()
            guest.qmp('ram-reset-pin', tag=tag, pinned=True)
        for seed, tag in enumerate(('s', 'root', 's'), 3):
            plug_device(guest)
            for rewound in False, True, True:
                write(seed)
                guest.load(tag)
                assert guest.last_load()['rewound'] == rewound
                assert guest.ram_image() == images[tag]


def test_limit_is_changed(tmp_path):
    """The remedy keeps what was pinned."""
    with with_room(tmp_path) as guest:
        save_three(guest, 's0')
        guest.qmp('qom-set', path='/objects/rr0', property='rewind-limit',
                  value=64 * MIB)
        assert guest.blocker() == 'objects-changed'
        assert guest.pins() == {'s0': 'user'}
        guest.load_whole('s0', 'objects-changed')
        guest.put(50, 9, 100)
        guest.save('large')
        guest.load('s0')
        assert guest.block()['dirty-pages'] == 100


class Pinner:
    """Random steps with a small limit, and a model of what is pinned."""

    TAGS = tuple(f't{i}' for i in range(12))

    def __init__(self, guest: Still, rng):
        self._guest, self._rng = guest, rng
        self._images: dict[str, bytes] = {}
        self._pinned: set[str] = set()
        self.pinned_loads = self.unknown = 0

    def save(self) -> None:
        tag = self._rng.choice(self.TAGS)
        self._pinned.discard(tag)
        self._guest.save(tag)
        self._images[tag] = self._guest.ram_image()

    def load(self) -> None:
        if not self._images:
            return
        tags = self._rng.choice((sorted(self._pinned), list(self._images)))
        tag = self._rng.choice(tags or list(self._images))
        known = not self._guest.rewind().get('blocker')
        self._guest.load(tag)
        last = self._guest.last_load()
        assert self._guest.ram_image() == self._images[tag]
        if tag in self._pinned and known:
            assert last['rewound'], last
            self.pinned_loads += 1
        self.unknown += not last['rewound']

    def write(self) -> None:
        self._guest.put(self._rng.randrange(40), self._rng.randrange(256),
                        self._rng.randrange(1, 8))

    def pin(self) -> None:
        known = list(self._guest.known())
        if known:
            tag = self._rng.choice(known)
            self._guest.pin(tag)
            self._pinned.add(tag)

    def unpin(self) -> None:
        if self._pinned:
            tag = self._rng.choice(sorted(self._pinned))
            self._guest.pin(tag, False)
            self._pinned.remove(tag)

    def delete(self) -> None:
        if self._images:
            tag = self._rng.choice(list(self._images))
            self._guest.hmp(f'delvm {tag}')
            del self._images[tag]
            self._pinned.discard(tag)

    def step(self) -> None:
        ways = {self.write: 8, self.save: 5, self.load: 8, self.pin: 2,
                self.unpin: 1, self.delete: 1}
        self._rng.choices(list(ways), list(ways.values()))[0]()
        assert set(self._guest.pins()) == self._pinned
        assert not self._guest.rewind()['lost-pins']


def test_random_walk(tmp_path, rng):
    with with_room(tmp_path, ',verify=on', pages=35) as guest:
        guest.hmp('delvm root')
        walk = Pinner(guest, rng)
        for _ in range(rounds(1000, 150)):
            walk.step()
        # by chance there have been few of one kind
        for _ in range(1000):
            if min(walk.pinned_loads, walk.unknown) > 2:
                return
            walk.step()
        raise AssertionError(f'{walk.pinned_loads}, {walk.unknown}')
