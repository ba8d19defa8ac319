# SPDX-License-Identifier: GPL-2.0-or-later
"""Snapshots whose RAM is taken from a file, by this QEMU or another one."""

# Takes: 30 s

import contextlib
import os
import random
import re
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.dma import SCRATCH, Balloon, Qtest
from lib.effort import rounds
from lib.guests import PAGE, Ring3
from lib.machine import MIB, RAM, MachineError, run_quietly
from lib.templates import (RAM_SIZE, REWIND, START, STORED,
                           assert_from_template, assert_not_from_template,
                           boot, dirty, files, main_block, save, start)

THP = Path('/sys/kernel/mm/transparent_hugepage/enabled')
STEPS = rounds(120, 50)
TAGS = ('a', 'b', 'c')


@pytest.mark.each_pair
@pytest.mark.parametrize('how', ('loadvm', 'hmp', 'qmp'))
def test_new_process(tmp_path, templates, accel, any_memory, rewind, how):
    """It has the snapshot's RAM, all of it, and the guest goes on."""
    setup = {'accel': accel, 'memory': any_memory,
             'options': f'{rewind},verify=on'}
    image = save(tmp_path, templates, **setup)
    file, = files(templates)
    options = {'loadvm': 's'} if how == 'loadvm' else {}
    with boot(tmp_path, templates, **setup, **options) as guest:
        if not options:
            dirty(guest)
            guest.stop()
            guest.load('s', how)
        else:
            guest.stop()
        assert_from_template(guest, file)
        assert main_block(guest)['strategy'] == \
            ('template' if any_memory == 'private' else 'memset')
        if how != 'loadvm':
            assert_same_ram(guest.ram_image(), image)
        guest.cont()
        guest.ask('check-fill', START, STORED, 1)
        for seed in range(3, 6):
            dirty(guest, seed)
            guest.stop()
            guest.load('s')
            assert_same_ram(guest.ram_image(), image)
            assert guest.last_load()['rewound'] == bool(rewind)
            guest.cont()
    assert files(templates) == [file]


def test_first_load_makes_it(tmp_path, templates, rewind):
    """As if it had been there when the snapshot was saved."""
    image = save(tmp_path, templates)
    file, = files(templates)
    file.unlink()
    for loads in range(2):
        with start(tmp_path, templates, options=rewind) as guest:
            assert_same_ram(guest.ram_image(), image)
            if loads:
                assert_from_template(guest, file)
            else:
                assert_not_from_template(guest)
            assert files(templates) == [file]


def test_is_private(tmp_path, templates):
    """What a guest writes is nobody else's."""
    save(tmp_path, templates)
    file, = files(templates)
    before = file.read_bytes()
    with boot(tmp_path, templates, loadvm='s') as guest:
        assert main_block(guest)['mapped-pages'] >= STORED // PAGE
        guest.ask('fill', START, 12 * MIB, 7)
        guest.sync()
    assert file.read_bytes() == before
    assert file.stat().st_mode & 0o777 == 0o600


def test_of_another_snapshot_of_that_name(tmp_path, templates, rewind):
    """It is told from the one before by more than what it is called."""
    save(tmp_path, templates, seed=1)
    old, = files(templates)
    older = shutil.copy(old, tmp_path / 'older')
    image = save(tmp_path, templates, seed=2)
    newer, = files(templates)
    assert newer != old
    # somebody gives it the name of the other
    for files_are_swapped in (False, True):
        with start(tmp_path, templates, options=rewind) as guest:
            assert_same_ram(guest.ram_image(), image)
            if files_are_swapped:
                assert_not_from_template(guest)
                assert 'another snapshot' in guest.log()
            else:
                assert_from_template(guest, newer)
        shutil.copy(older, newer)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def damage_index(file: Path) -> None:
    with file.open('r+b') as f:
        f.seek(60)
        f.write(b'\xff')


def write_to(file: Path) -> None:
    with file.open('r+b') as f:
        f.seek(-PAGE, os.SEEK_END)
        f.write(b'\xff')


def empty(file: Path) -> None:
    file.write_bytes(b'')


def let_others_write(file: Path) -> None:
    file.chmod(0o666)


def link(file: Path) -> None:
    file.rename(file.with_suffix('.elsewhere'))
    file.symlink_to(file.with_suffix('.elsewhere'))


@pytest.mark.parametrize('harm', (cut, damage_index, write_to, empty,
                                  let_others_write, link))
def test_untrusted(tmp_path, templates, harm):
    """It is not used, which is said, and made anew."""
    image = save(tmp_path, templates)
    file, = files(templates)
    harm(file)
    with start(tmp_path, templates) as guest:
        assert_same_ram(guest.ram_image(), image)
        assert_not_from_template(guest)
        assert f"template '{file}' is of no use, and will be made anew" \
            in guest.log()
    with start(tmp_path, templates) as guest:
        assert_same_ram(guest.ram_image(), image)
        assert_from_template(guest, file)
        assert guest.log().count('of no use') == 1


def test_wrong_content(tmp_path, templates):
    """What verify=on finds is not found again: the file is gone."""
    image = save(tmp_path, templates)
    file, = files(templates)
    times = file.stat().st_atime_ns, file.stat().st_mtime_ns
    with file.open('r+b') as f:
        at = f.read().index(image[START:START + 64])
        f.seek(at + 5)
        f.write(b'\x5a')
    os.utime(file, ns=times)
    with pytest.raises(MachineError, match='is not what the snapshot has'):
        start(tmp_path, templates, options=',verify=on')
    assert files(templates) == []
    for made in (False, True):
        with start(tmp_path, templates, options=',verify=on') as guest:
            assert_same_ram(guest.ram_image(), image)
            assert ('template' in guest.last_load()) == made


def test_others_that_map_the_file(tmp_path, templates):
    """What is loaded into one block shows in another: no template is made."""
    shared = tmp_path / 'shared'
    args = ['-m', 'slots=2,maxmem=1G']
    for i, share in enumerate(('on', 'off')):
        args += ['-object', f'memory-backend-file,id=m{i},size=16M,'
                            f'mem-path={shared},share={share}',
                 '-device', f'pc-dimm,memdev=m{i},id=d{i}']
    with boot(tmp_path, templates, args=tuple(args)) as guest:
        guest.ask('fill', START, STORED, 1)
        guest.save('s')
        info = guest.qmp('query-ram-reset')['template']
        assert 'file' not in info and 'RAM block' in info['problem']
        guest.ask('fill', START, STORED, 2)
        guest.load('s')
        guest.ask('check-fill', START, STORED, 1)
    assert files(templates) == []


def test_objects_that_come_and_go(tmp_path, templates):
    """A template is not taken for a copy of what is loaded without one."""
    with boot(tmp_path, templates) as guest:
        for tag, seed in (('t', 1), ('s', 2)):
            guest.ask('fill', START, STORED, seed)
            guest.save(tag)
        guest.qmp('object-del', id='rr0')
        guest.qmp('object-add', **{'qom-type': 'ram-reset-memset', 'id': 'rr1',
                                   'rewind': True})
        for _ in range(3):
            guest.load('t')
            guest.ask('check-fill', START, STORED, 1)
            dirty(guest)
        assert guest.last_load()['rewound']


def test_of_other_ram(tmp_path, templates):
    """A machine that it does not fit refuses the snapshot, as ever."""
    save(tmp_path, templates)
    with pytest.raises(MachineError, match='has 33554432 bytes in it'):
        start(tmp_path, templates, ram=2 * RAM_SIZE)


def test_deleted_snapshot(tmp_path, templates):
    """Its template does not bring it back."""
    save(tmp_path, templates)
    with boot(tmp_path, templates) as guest:
        guest.ask('fill', START, STORED, 3)
        guest.save('t')
        guest.ask('fill', START, STORED, 4)
        guest.hmp('delvm t')
        with pytest.raises(MachineError, match="'t'"):
            guest.load('t')
        guest.cont()
        guest.ask('check-fill', START, STORED, 4)
        guest.load('s')
        guest.ask('check-fill', START, STORED, 1)


def test_copies_of_the_image(tmp_path, templates):
    """Guests of one snapshot share a template, and each has its own RAM."""
    image = save(tmp_path, templates)
    file, = files(templates)
    with contextlib.ExitStack() as stack:
        guests = []
        for i in range(3):
            folder = tmp_path / str(i)
            folder.mkdir()
            shutil.copy(tmp_path / 'disk.qcow2', folder)
            guests.append(stack.enter_context(
                boot(folder, templates, loadvm='s')))
            assert_from_template(guests[i], file)
            dirty(guests[i], seed=20 + i)
        for i, guest in enumerate(guests):
            guest.ask('check-fill', START + MIB, 2 * MIB, 20 + i)
            guest.ask('check-fill', START, MIB, 1)
            guest.stop()
            guest.load('s')
            assert_same_ram(guest.ram_image(), image)
    assert files(templates) == [file]


def shared_clean(guest: Ring3, file: Path) -> int:
    """KiB of @file that are in this process's memory, and not its own."""
    text = Path(f'/proc/{guest.process.pid}/smaps').read_text()
    return sum(int(re.search(r'^Rss:\s+(\d+)', part, re.M)[1]) -
               int(re.search(r'^Anonymous:\s+(\d+)', part, re.M)[1])
               for part in re.split(r'^(?=[0-9a-f]+-[0-9a-f]+ )', text,
                                    flags=re.M) if str(file) in part)


def test_clean_pages_are_shared(tmp_path, templates):
    """What is only read takes no memory of the process."""
    save(tmp_path, templates)
    file, = files(templates)
    with boot(tmp_path, templates, loadvm='s') as guest:
        guest.ask('check-fill', START, STORED, 1)
        assert shared_clean(guest, file) >= STORED // 1024
        guest.ask('fill', START, STORED, 2)
        assert shared_clean(guest, file) < MIB // 1024


def anonymous_hugepages(guest: Ring3) -> int:
    """KiB of private memory that are in transparent hugepages."""
    text = Path(f'/proc/{guest.process.pid}/smaps').read_text()
    return sum(int(kib) for kib in
               re.findall(r'^AnonHugePages:\s+(\d+)', text, re.M))


def test_hugepages_are_for_those_who_write_densely(tmp_path, templates,
                                                   fast_accel):
    """A page here and there does not clear 2 MiB; later writes in bulk do."""
    if '[never]' in THP.read_text():
        pytest.skip(f'transparent hugepages are off: {THP}')
    ram = 256 * MIB
    save(tmp_path, templates, accel=fast_accel, ram=ram)
    with boot(tmp_path, templates, fast_accel, loadvm='s', ram=ram) as guest:
        before = anonymous_hugepages(guest)
        guest.ask('tag', 32 * MIB, 50, 2 * MIB, 1)
        assert anonymous_hugepages(guest) == before
        for at in range(32 * MIB, 224 * MIB, 2 * MIB):
            guest.ask('fill', at, MIB, 1)
            if anonymous_hugepages(guest) > before:
                break
            time.sleep(0.02)
        assert anonymous_hugepages(guest) > before


@pytest.mark.each_value
@pytest.mark.parametrize('strategy', ('memset', 'madvise', 'remap', 'auto'))
def test_discarded_pages_are_zero(tmp_path, templates, strategy, rewind):
    """A balloon gives pages away that show zeros, and no template, after."""
    scratch = RAM_SIZE - SCRATCH
    page = [START + i * PAGE for i in range(200)]
    away = page[:3] + page[10:90:2] + page[150:]
    qtest, balloon = Qtest(tmp_path), Balloon(scratch)
    args = (*qtest.args, *balloon.args)
    with boot(tmp_path, templates, args=args) as guest:
        guest.ask('fill', START, STORED, 1)
        guest.stop()
        guest.save('s')
        image = guest.ram_image()
    with boot(tmp_path, templates, strategy=strategy, options=rewind,
              args=(*args, '-S'), loadvm='s') as guest:
        assert main_block(guest)['mapped-pages'] >= STORED // PAGE
        for _ in range(3):
            qtest.connect()
            balloon.inflate(qtest, away)
            qtest.close()
            now = guest.ram_image()
            for at in page:
                wanted = bytes(PAGE) if at in away else image[at:at + PAGE]
                assert now[at:at + PAGE] == wanted, hex(at)
            guest.load('s')
            assert_same_ram(guest.ram_image(), image)
            guest.save('t')
            assert_same_ram(guest.ram_image(), image)
            guest.load('s')


def mappings(guest: Ring3) -> int:
    return len(Path(f'/proc/{guest.process.pid}/maps').read_text()
               .splitlines())


def test_discarding_again(tmp_path, templates):
    """It is an ordinary discard, which takes no mapping, nor memory."""
    qtest, balloon = Qtest(tmp_path), Balloon(RAM_SIZE - SCRATCH)
    args = (*qtest.args, *balloon.args)
    away = [START + i * PAGE for i in range(0, 1000, 2)]
    save(tmp_path, templates, args=args)
    with start(tmp_path, templates, args=args) as guest:
        qtest.connect()
        balloon.inflate(qtest, away)
        before = mappings(guest), guest.rss()
        for at in away:
            qtest.write(at, bytes((7,)) * PAGE)
        for _ in range(3):
            balloon.inflate(qtest, away)
        qtest.close()
        assert mappings(guest) <= before[0] + 8
        assert guest.rss() < before[1] + MIB


def test_savevm_of_mapped_ram(tmp_path, templates):
    """All of it is saved: what is mapped, what was written, what is zero."""
    save(tmp_path, templates)
    with boot(tmp_path, templates, loadvm='s') as guest:
        dirty(guest)
        guest.stop()
        image = guest.ram_image()
        guest.save('t')
    for file in files(templates):
        file.unlink()
    with boot(tmp_path, templates, loadvm='t', options=',verify=on',
              args=('-S',)) as guest:
        assert_same_ram(guest.ram_image(), image)


def test_limit(tmp_path, templates):
    """One that is loaded replaces those used longest ago, and no others."""
    limit = f',template-limit={STORED * 5 // 2}'
    disks = []
    for i in range(3):
        folder = tmp_path / str(i)
        folder.mkdir()
        save(folder, templates, options=limit)
        with start(folder, templates, options=limit) as guest:
            assert 'file' in guest.qmp('query-ram-reset')['template']
        disks.append(folder)
        used = sum(f.stat().st_blocks * 512 for f in files(templates))
        assert used <= STORED * 5 // 2
        for file in files(templates):
            os.utime(file, (file.stat().st_atime - 100,
                            file.stat().st_mtime))
    assert len(files(templates)) == 2
    with boot(disks[2], templates, options=f',template-limit={STORED}') as guest:
        guest.ask('fill', START, STORED, 5)
        assert 'has not been made' in guest.hmp('savevm t')
        info = guest.qmp('query-ram-reset')['template']
        assert 'MiB' in info['problem'] and 'file' not in info
        guest.ask('fill', START, STORED, 6)
        guest.load('t')
        guest.ask('check-fill', START, STORED, 5)


def test_saves_make_room(tmp_path, templates):
    """A snapshot that is saved anew and anew has a template each time."""
    with boot(tmp_path, templates,
              options=f',template-limit={STORED * 5 // 2}') as guest:
        for seed in range(1, 7):
            guest.ask('fill', START, STORED, seed)
            guest.save('s')
            assert 'file' in guest.qmp('query-ram-reset')['template']
            assert len(files(templates)) <= 2


def test_hugetlbfs(tmp_path, huge_pool, accel):
    """Whose pages are copied, never mapped."""
    place = tmp_path / 'huge'
    place.mkdir()
    try:
        run_quietly('mount', '-t', 'hugetlbfs', '-o', 'pagesize=2M,mode=0700',
                    'none', place)
    except (MachineError, FileNotFoundError) as e:
        pytest.skip(f'hugetlbfs cannot be mounted: {e}')
    try:
        image = save(tmp_path, place, accel=accel)
        for rewind in REWIND:
            with start(tmp_path, place, accel=accel,
                       options=f'{rewind},verify=on') as guest:
                assert_from_template(guest, files(place)[0])
                assert main_block(guest)['mapped-pages'] == 0
                guest.cont()
                dirty(guest)
                guest.stop()
                guest.load('s')
                assert_same_ram(guest.ram_image(), image)
    finally:
        run_quietly('umount', place)


def test_full_file_system(tmp_path):
    """No template is made, and nothing else goes wrong."""
    small = tmp_path / 'small'
    small.mkdir()
    try:
        run_quietly('mount', '-t', 'tmpfs', '-o', f'size={STORED // 2}', 'none',
                    small)
    except (MachineError, FileNotFoundError) as e:
        pytest.skip(f'a small tmpfs cannot be mounted: {e}')
    try:
        image = save(tmp_path, small, options=f',template-limit={RAM_SIZE}')
        assert files(small) == []
        with start(tmp_path, small) as guest:
            assert_same_ram(guest.ram_image(), image)
            assert_not_from_template(guest)
    finally:
        run_quietly('umount', small)


@pytest.mark.parametrize('mode, text', (
    (None, 'No such file'), (0o777, '0777'), (0o100, 'Not a directory')))
def test_directory(tmp_path, mode, text):
    """What is no safe place is an error at start that says what to do."""
    place = tmp_path / 'place'
    if mode == 0o100:
        place.touch()
    elif mode:
        place.mkdir()
        place.chmod(mode)
    with pytest.raises(MachineError, match=text) as caught:
        boot(tmp_path, place)
    assert str(place) in str(caught.value)
    assert 'Make a directory' in str(caught.value)


def test_different_directories(tmp_path, templates):
    other = tmp_path / 'other'
    other.mkdir(mode=0o700)
    with pytest.raises(MachineError, match='different template-dir'):
        boot(tmp_path, templates, args=(
            '-object', f'ram-reset-memset,id=rr1,memdev={RAM},'
                       f'template-dir={other}'))


class Fickle:
    """Guests that come and go, their snapshots, and templates that get lost"""

    def __init__(self, workdir: Path, templates: Path, accel: str,
                 rng: random.Random):
        self._workdir, self._templates = workdir, templates
        self._accel, self._rng = accel, rng
        self._saved: dict[str, bytes] = {}
        self._last = ''
        self.counts: Counter = Counter()
        self.guest = self._boot()

    def _boot(self, **kwargs) -> Ring3:
        memory = self._rng.choice(('private', 'private', 'shared'))
        strategy = self._rng.choice(('memset', 'madvise', 'remap', 'auto'))
        options = self._rng.choice(REWIND)
        return boot(self._workdir, self._templates, self._accel,
                    strategy=strategy, memory=memory,
                    options=f'{options},verify=on', **kwargs)

    def step(self) -> None:
        kinds = {self.write: 30, self.save: 10, self.load: 30,
                 self.restart: 14, self.lose: 4, self.damage: 4,
                 self.delete: 2}
        kind, = self._rng.choices(list(kinds), list(kinds.values()))
        self.counts[kind.__name__] += 1
        kind()

    def write(self) -> None:
        at = START + self._rng.randrange(0, 14 * MIB, PAGE)
        pages = self._rng.choice((1, 3, 50, 400))
        pages = min(pages, (RAM_SIZE - at) // PAGE)
        word = self._rng.choice(('fill', 'set'))
        value = self._rng.randrange(1, 99) if word == 'fill' else 0
        self.guest.ask(word, at, pages * PAGE, value)

    def save(self) -> None:
        tag = self._rng.choice(TAGS)
        self.guest.sync()
        self.guest.stop()
        self._saved[tag] = self.guest.ram_image()
        self.guest.save(tag)
        assert_same_ram(self.guest.ram_image(), self._saved[tag])
        self.guest.cont()

    def _tag(self) -> str:
        if self._last in self._saved and self._rng.randrange(2):
            return self._last
        self._last = self._rng.choice(sorted(self._saved)) if self._saved else ''
        return self._last

    def load(self) -> None:
        tag = self._tag()
        if tag:
            self.guest.stop()
            self.guest.load(tag, self._rng.choice(('hmp', 'qmp')))
            self._check(tag)

    def _check(self, tag: str) -> None:
        assert_same_ram(self.guest.ram_image(), self._saved[tag])
        self.counts['from templates'] += 'template' in self.guest.last_load()
        self.counts['rewound'] += self.guest.last_load()['rewound']
        self.guest.cont()
        self.guest.sync()

    def restart(self) -> None:
        tag = self._tag()
        self.guest.close()
        if tag:
            self.guest = self._boot(loadvm=tag, args=('-S',))
            self._check(tag)
        else:
            self.guest = self._boot()

    def lose(self) -> None:
        for file in files(self._templates):
            if self._rng.randrange(2):
                file.unlink()

    def damage(self) -> None:
        """By another one's content, for each a different one."""
        found = files(self._templates)
        if found:
            victim = self._rng.choice(found)
            other = self._rng.choice(found).read_bytes()
            # those who have it mapped must not see that
            victim.unlink()
            victim.write_bytes(other[:self._rng.choice((100, len(other)))])
            victim.chmod(0o600)

    def delete(self) -> None:
        tag = self._tag()
        if tag:
            self.guest.hmp(f'delvm {tag}')
            del self._saved[tag]


def test_random_sequence(tmp_path, templates, accel, rng):
    """RAM is always that of the snapshot, wherever it has come from."""
    play = Fickle(tmp_path, templates, accel, rng)
    try:
        for _ in range(STEPS):
            play.step()
    finally:
        play.guest.close()
    assert play.counts['from templates'] >= STEPS // 20, play.counts
    assert play.counts['rewound'], play.counts
