# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests with rewind=on, and whether a load was one that undoes."""

import contextlib
import random
import re
import resource
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import pytest

from lib.dma import QtestMachine
from lib.effort import rounds
from lib.guests import PAGE, Ring3
from lib.machine import MIB, RAM, Machine, kvm_usable

RAM_SIZE = 32 * MIB
START = Ring3.FIRST_FREE
ACCELS = ('kvm', 'kvm,dirty-ring-size=1024', 'tcg')


@pytest.fixture(params=ACCELS)
def tracker(request) -> str:
    """The tracker that knows which pages have been written to."""
    if request.param.startswith('kvm') and not kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    return request.param


def boot(workdir: Path, accel: str, memory: str = 'shared',
         strategy: str = 'auto', options: str = '', **kwargs) -> Ring3:
    return Ring3(workdir, accel=accel, memory=memory, strategy=strategy,
                 ram=RAM_SIZE, options=f',rewind=on{options}', **kwargs)


def assert_rewound(guest: Ring3) -> dict:
    last = guest.last_load()
    assert last['rewound'], last.get('blocker')
    return next(b for b in last['blocks'] if RAM in b['name'])


def footprint(guest: Machine) -> dict[str, int]:
    """Figures of QEMU's process, memory in KiB."""
    folder = Path(f'/proc/{guest.process.pid}')
    status = dict(line.split(':', 1)
                  for line in (folder / 'status').read_text().splitlines())
    return {'anonymous': int(status['RssAnon'].split()[0]),
            'shared': int(status['RssShmem'].split()[0]),
            'threads': int(status['Threads']),
            'mappings': len((folder / 'maps').read_text().splitlines()),
            'descriptors': len(list((folder / 'fd').iterdir()))}


def descriptors(guest: Machine) -> Counter[str]:
    """Open files of QEMU's process, by name, with N for a number."""
    found: Counter[str] = Counter()
    for fd in Path(f'/proc/{guest.process.pid}/fd').iterdir():
        # it may have been closed meanwhile
        with contextlib.suppress(FileNotFoundError):
            found[re.sub(r'\d+', 'N', str(fd.readlink()))] += 1
    return found


class Still(QtestMachine):
    """No vCPU: nobody but the test writes to RAM."""

    def __init__(self, workdir, options: str = '', strategy: str = 'auto',
                 memory: str = 'shared', **kwargs):
        super().__init__(workdir, ram=RAM_SIZE, strategy=strategy,
                         memory=memory, options=',rewind=on' + options,
                         **kwargs)

    def put(self, page: int, byte: int, count: int = 1) -> None:
        self.qtest.ask(f'memset {START + page * PAGE:#x} {count * PAGE:#x} '
                       f'{byte:#x}')

    def block(self) -> dict:
        last = self.last_load()
        assert last['rewound'], last.get('blocker')
        return next(b for b in last['blocks'] if RAM in b['name'])

    def rewind(self) -> dict:
        return self.qmp('query-ram-reset')['rewind']

    def known(self) -> dict[str, dict]:
        return {s['tag']: s for s in self.rewind()['snapshots']}

    def blocker(self) -> str:
        return self.rewind()['blocker-info']['id']

    def load_whole(self, tag: str, why: str) -> None:
        self.load(tag)
        last = self.last_load()
        assert not last['rewound'] and last['blocker-info']['id'] == why, last

    def pin(self, tag: str, pinned: bool = True) -> None:
        self.qmp('ram-reset-pin', tag=tag, pinned=pinned)

    def pins(self) -> dict[str, str]:
        """Who pins which snapshot."""
        return {tag: s['pinned'] for tag, s in self.known().items()
                if 'pinned' in s}


def plug_device(guest: Machine) -> None:
    """QEMU does not know the changes of RAM any more."""
    guest.qmp('device_add', driver='virtio-rng-pci', id='rng')
    guest.qmp('device_del', id='rng')


@contextlib.contextmanager
def with_room(workdir: Path, options: str = '',
              pages: int = 10) -> Iterator[Still]:
    """The limit allows @pages beside those of the snapshot 'root'."""
    with Still(workdir) as guest:
        guest.save('root')
        size = guest.rewind()['baseline'] + guest.rewind()['unread']
    limit = f',rewind-limit={size + pages * PAGE}'
    with Still(workdir, options + limit) as guest:
        guest.load('root')
        yield guest


class Explorer:
    """Saves, goes to, deletes and overwrites snapshots, with a model beside."""

    SNAPSHOTS = 64
    STEPS = rounds(600, 100)
    # In any twenty steps each kind is done so often, in random order
    KINDS = {'write': 6, 'save': 4, 'load': 9, 'delete': 1}
    PAGES = (RAM_SIZE - START) // PAGE

    def __init__(self, guest: Ring3, rng: random.Random):
        self._guest = guest
        self._rng = rng
        self._saved: dict[str, bytes] = {}
        self.counts: Counter[str] = Counter()
        self._kinds: list[str] = []

    def step(self) -> None:
        if not self._kinds:
            self._kinds = list(Counter(self.KINDS).elements())
            self._rng.shuffle(self._kinds)
        kind = self._kinds.pop()
        getattr(self, kind)()
        self.counts[kind] += 1

    def _digest(self) -> bytes:
        return blake2b(self._guest.ram_image()).digest()

    def write(self) -> None:
        self._guest.cont()
        for _ in range(self._rng.randrange(1, 4)):
            count = 1 << self._rng.randrange(7)
            page = self._rng.randrange(self.PAGES - count)
            how = self._rng.choice(('set', 'fill', 'tag'))
            address = START + page * PAGE
            seed = self._rng.getrandbits(63)
            if how == 'tag':
                self._guest.ask(how, address, count, PAGE, seed)
            else:
                self._guest.ask(how, address, count * PAGE,
                                seed if how == 'fill' else 0)
        self._guest.stop()

    def save(self) -> None:
        tag = f't{self._rng.randrange(self.SNAPSHOTS)}'
        self._guest.save(tag)
        self._saved[tag] = self._digest()

    def load(self) -> None:
        if self._saved:
            tag = self._rng.choice(list(self._saved))
            self._guest.load(tag, self._rng.choice(('hmp', 'qmp')))
            last = self._guest.last_load()
            assert last['rewound'], last.get('blocker')
            assert self._digest() == self._saved[tag]

    def delete(self) -> None:
        if self._saved:
            tag = self._rng.choice(list(self._saved))
            self._guest.hmp(f'delvm {tag}')
            del self._saved[tag]

    def check_all(self) -> None:
        known = self._guest.qmp('query-ram-reset')['rewind']['snapshots']
        assert {s['tag'] for s in known} == set(self._saved)
        for tag in self._saved:
            self._guest.load(tag)
            assert self._digest() == self._saved[tag]


@contextlib.contextmanager
def full_disk(guest: Still) -> Iterator[None]:
    """Writes to the image fail soon."""
    size = guest.disk.stat().st_size + 2 * MIB
    pid = guest.process.pid
    old = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, old)
