# SPDX-License-Identifier: GPL-2.0-or-later
"""
Each system call of a load, a save, or of taking a hugepage file fails in turn:
never a wrong byte, never a crash, nothing is leaked, and what was done instead
is to be seen.  RAM_RESET_LONG=1 has every call fail with every error.
"""

# Takes: 40 s

import itertools
import os
import time
from pathlib import Path

import pytest

from lib.effort import ALL, LONG
from lib.faults import (EXCLUDED, LIE, RAM_SIZE, Driven, DrivenHuge, Faults,
                        Row, Sweep, Wrong, dirty, memset, write_state)
from lib.machine import MIB
from lib.patience import Limit
from lib.shm import in_memory

# strategy, memory, options
LOADS = (
    ('memset', 'private', ''), ('memset', 'shared', ''),
    ('memset', 'hugetlb', ''),
    ('madvise', 'private', ''), ('madvise', 'shared', ''),
    ('madvise', 'hugetlb', ''),
    ('remap', 'private', ''), ('remap', 'shared', ''),
    ('remap', 'hugetlb', ''),
    ('auto', 'private', ''), ('auto', 'shared', ''),
    ('memset', 'private', ',rewind=on'), ('madvise', 'private', ',rewind=on'),
    ('remap', 'shared', ',rewind=on'), ('auto', 'hugetlb', ',rewind=on'),
    ('memset', 'private', ',verify=on'), ('memset', 'shared', ',verify=on'),
    ('hugefile', 'file', ''),
)
# Each strategy, memory and option, and each call of DONE_BY
SOME_LOADS = (
    ('memset', 'shared', ''), ('madvise', 'private', ''),
    ('madvise', 'shared', ''), ('remap', 'private', ''),
    ('remap', 'hugetlb', ''), ('auto', 'private', ''),
    ('memset', 'private', ',rewind=on'), ('remap', 'shared', ',rewind=on'),
    ('memset', 'private', ',verify=on'), ('hugefile', 'file', ''),
)
# The calls of each strategy that can fail
DONE_BY = {
    ('madvise', 'private'): 'madvise', ('madvise', 'shared'): 'fallocate',
    ('madvise', 'hugetlb'): 'fallocate', ('remap', 'private'): 'mmap',
    ('remap', 'shared'): 'memfd_create', ('remap', 'hugetlb'): 'memfd_create',
}


@pytest.fixture
def folder():
    """In memory, where it takes no time to write a disk."""
    with in_memory('faults') as path:
        yield path


@pytest.fixture
def faults(folder, monkeypatch) -> Faults:
    return Faults(folder, monkeypatch)


@pytest.fixture(scope='session', autouse=True)
def say_what_is_left_out():
    for what, why in EXCLUDED.items():
        print(f'not swept: {what}: {why}')


def memory_for(request, memory: str) -> None:
    if memory in ('hugetlb', 'file'):
        request.getfixturevalue('huge_pool')


def started(request, folder: Path, faults: Faults, strategy: str, memory: str,
            options: str) -> Driven:
    memory_for(request, memory)
    if memory == 'file':
        path = request.getfixturevalue('ramfile')
        guest = DrivenHuge(folder, path, ram=RAM_SIZE, options=options)
    else:
        guest = Driven(folder, strategy=strategy, memory=memory,
                       options=options)
    faults.watch_disk(guest.disk)
    return guest


class Loads(Sweep):
    """Loads of snapshot 's' while calls fail."""

    def __init__(self, title: str, faults: Faults, guest: Driven):
        write_state(guest)
        guest.save('s')
        self.image = guest.ram_image()
        super().__init__(title, faults, guest,
                         lambda turn: dirty(guest, turn),
                         lambda: guest.load('s'), self.same_ram, self.visible)

    def same_ram(self) -> None:
        image = self.guest.ram_image()
        if image != self.image:
            at = next(i for i in range(len(image))
                      if image[i] != self.image[i])
            raise Wrong(f'wrong byte at {at:#x}')

    def visible(self) -> str:
        """A fallback is counted, and has a reason."""
        before, self.fallbacks = getattr(self, 'fallbacks', 0), \
            self.guest.qmp('query-ram-reset')['fallbacks']
        blocks = self.guest.last_load()['blocks']
        fallen = [b for b in blocks if b['fallback']]
        for block in fallen:
            if 'failed' not in block['reason']:
                raise Wrong(f'a fallback without a reason: {block}')
        if (self.fallbacks > before) != bool(fallen):
            raise Wrong(f'{self.fallbacks - before} fallbacks are counted, '
                        f'{len(fallen)} are shown')
        return 'fallback' if fallen else 'done'


@pytest.mark.parametrize('strategy,memory,options',
                         LOADS if ALL or LONG else SOME_LOADS)
def test_load(request, folder, faults, strategy, memory, options):
    with started(request, folder, faults, strategy, memory, options) as guest:
        sweep = Loads(f'load: {strategy}{options}, {memory}', faults, guest)
        table = sweep.run(LONG)
        assert table.injected()
        kind = DONE_BY.get((strategy, memory))
        if kind and not options:
            assert table.rows[kind].outcomes['fallback']


@pytest.mark.parametrize('strategy,memory,options', (
    ('memset', 'private', ''), ('remap', 'private', ',rewind=on'),
    ('memset', 'shared', ''), ('madvise', 'hugetlb', '')))
def test_load_template(request, folder, faults, strategy, memory, options):
    """Loads from a template that is there."""
    templates = made(folder)
    options += f',template-dir={templates}'
    with started(request, folder, faults, strategy, memory, options) as guest:
        # so much that several threads copy it
        memset(guest, 13 * MIB, 3 * MIB, 7)
        sweep = Loads(f'load from a template: {strategy}, {memory}', faults,
                      guest)
        table = sweep.run(LONG)
        assert table.injected()
        if memory == 'shared' and os.cpu_count() > 1:
            assert table.rows['thread'].outcomes['done']
        if memory == 'private' and 'rewind' not in options:
            assert table.rows['mmap'].outcomes['fallback']


def test_make_template(request, folder, faults):
    """Loads that make a template; the next one is from it."""
    templates = made(folder)

    def prepare(turn: int) -> None:
        for file in templates.iterdir():
            file.unlink()
        dirty(guest, turn)

    def load_again() -> None:
        dirty(guest, 99)
        guest.load('s')
        sweep.same_ram()

    with started(request, folder, faults, 'memset', 'private',
                 f',template-dir={templates}') as guest:
        sweep = Loads('load that makes a template', faults, guest)
        sweep.prepare, sweep.after = prepare, load_again
        assert sweep.run(LONG).rows['pwrite'].outcomes['done']


class Saves(Sweep):
    """A saved snapshot can be loaded; a failure leaves the old one alone."""

    def __init__(self, title: str, faults: Faults, guest: Driven):
        write_state(guest)
        super().__init__(title, faults, guest, self.note,
                         lambda: guest.save('t'), self.saved,
                         refused=self.loads)

    def note(self, turn: int) -> None:
        dirty(self.guest, turn)
        self.now = self.guest.ram_image()

    def saved(self) -> None:
        self.image = self.now
        self.loads()

    def loads(self) -> None:
        dirty(self.guest, 98)
        self.guest.load('t')
        if self.guest.ram_image() != self.image:
            raise Wrong('the snapshot is not what RAM was')


@pytest.mark.parametrize('strategy,memory,options', (
    ('memset', 'private', ''), ('auto', 'shared', ',rewind=on'),
    pytest.param('memset', 'private', ',template-dir={}',
                 marks=pytest.mark.long('test_make_template makes one'))))
def test_save(request, folder, faults, strategy, memory, options):
    options = options.format(made(folder))
    with started(request, folder, faults, strategy, memory, options) as guest:
        sweep = Saves(f'savevm: {strategy}, {memory}{options[:9]}', faults,
                      guest)
        assert sweep.run(LONG).injected()


def made(folder: Path) -> Path:
    path = folder / 'templates'
    path.mkdir(mode=0o700)
    return path


class HugeFiles:
    """A backend on hugetlbfs that is made and deleted in a running QEMU."""

    SIZE = 8 * MIB

    def __init__(self, guest: Driven, path: Path, state: Path):
        self.guest = guest
        self.path = path
        guest.qmp('object-add', **{
            'qom-type': 'ram-reset-hugefile', 'id': 'hf', 'memdev': 'huge0',
            'unlink': 'never', 'clear-on-exit': False, 'state': str(state)})

    def start(self) -> None:
        self.guest.qmp('object-add', **{
            'qom-type': 'memory-backend-file', 'id': 'huge0', 'share': True,
            'size': self.SIZE, 'mem-path': str(self.path)})

    def mapping(self) -> int:
        """The address at which QEMU has it mapped, 0 if it has not."""
        maps = Path(f'/proc/{self.guest.process.pid}/maps').read_text()
        return next((int(line.split('-')[0], 16) for line in maps.splitlines()
                     if str(self.path) in line), 0)

    def end(self) -> None:
        self.guest.qmp('object-del', id='huge0')
        limit = Limit(10)
        while self.mapping():
            assert not limit.over(), 'the file stays mapped'
            time.sleep(0.005)

    def use(self, turn: int) -> None:
        """As a guest does, which leaves bytes behind."""
        with open(f'/proc/{self.guest.process.pid}/mem', 'r+b',
                  buffering=0) as f:
            for page in range(turn % 2, 4, 2):
                f.seek(self.mapping() + page * 2 * MIB + turn)
                f.write(bytes([turn % 255 + 1]) * 100)

    def check_clean(self) -> None:
        data = self.path.read_bytes()
        if data.count(0) != len(data):
            raise Wrong('a byte of an earlier run')

    def begin(self) -> None:
        self.start()
        self.check_clean()


@pytest.fixture
def huge_files(request, folder, faults):
    path = request.getfixturevalue('ramfile')
    with Driven(folder) as guest:
        yield HugeFiles(guest, path, folder / 'state')


@pytest.mark.long('the unit test of hugefile has faults, too')
def test_hugefile_start(huge_files, faults):
    """It is refused, with nothing left, or all bytes of before are gone."""
    files = huge_files

    turns = itertools.count(1)

    def after() -> None:
        files.use(next(turns))
        files.end()

    sweep = Sweep('hugefile, start', faults, files.guest, lambda turn: None,
                  files.start, files.check_clean, after=after)
    assert sweep.run(LONG).rows['flock'].outcomes['refused']


@pytest.mark.long('the unit test of hugefile has faults, too')
def test_hugefile_end(huge_files, faults):
    """The next start finds no byte, whatever becomes of the record."""
    files = huge_files

    def prepare(turn: int) -> None:
        files.begin()
        files.use(turn)

    def check() -> None:
        files.begin()
        files.end()

    sweep = Sweep('hugefile, end', faults, files.guest, prepare, files.end,
                  check, again=False)
    assert sweep.run(LONG).rows['pwrite'].injected


# Bugs that are planted: the call says that all is well, and has done nothing
@pytest.mark.any_value
@pytest.mark.parametrize('strategy,memory,kind,found', (
    ('madvise', 'private', 'madvise', 'wrong byte'),
    ('madvise', 'shared', 'fallocate', 'wrong byte'),
    ('memset', 'private', 'ioctl', 'wrong byte'),
    ('memset', 'private', 'close', 'descriptors: more'),
    ('remap', 'shared', 'munmap', 'bytes of files are mapped more')))
def test_planted(request, folder, faults, strategy, memory, kind, found):
    with started(request, folder, faults, strategy, memory, '') as guest:
        sweep = Loads('planted', faults, guest)
        sweep.table.rows[kind] = Row()
        with pytest.raises(Wrong, match=found):
            for nth in range(1, 10):
                sweep.inject(kind, nth, 0, LIE)


def test_planted_in_template(request, folder, faults):
    templates = made(folder)
    with started(request, folder, faults, 'memset', 'private',
                 f',template-dir={templates}') as guest:
        sweep = Loads('planted', faults, guest)
        for file in templates.iterdir():
            file.unlink()
        dirty(guest, 1)
        # the first two are the index and its head, without which it is none
        faults.arm('pwrite', 3, 0, LIE)
        guest.load('s')
        assert faults.disarm()[0] == 1
        dirty(guest, 2)
        guest.load('s')
        with pytest.raises(Wrong, match='wrong byte'):
            sweep.same_ram()
