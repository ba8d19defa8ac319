# SPDX-License-Identifier: GPL-2.0-or-later
"""The baseline of a snapshot in an image: read when it is needed first."""

# Takes: 20 s

import contextlib
import mmap
import subprocess

import pytest

from lib import products
from lib.guests import PAGE, Ring3
from lib.machine import MachineError
from lib.migrating import wait_migration
from lib.rewinding import RAM_SIZE, START, Still, boot

# Pages that a snapshot stores, from START on
STORED = 600


def pattern(page: int) -> bytes:
    return (b'page %06d ' % page) * (PAGE // 12) + bytes(PAGE % 12)


def fill(guest: Still) -> None:
    for page in range(STORED):
        guest.qtest.write(START + page * PAGE, pattern(page))


def is_filled(guest: Still) -> bool:
    return guest.qtest.read(START, STORED * PAGE) == \
        b''.join(map(pattern, range(STORED)))


def unread(guest: Still) -> int:
    """In pages."""
    return guest.rewind()['unread'] // PAGE


@contextlib.contextmanager
def content_of(guest: Still, page: int):
    """The place in the image's file that has the content of @page."""
    with guest.disk.open('r+b') as file:
        with mmap.mmap(file.fileno(), 0) as image:
            place = image.find(pattern(page)[:64])
            assert place > 0
            yield image, place


def saved(tmp_path, **kwargs) -> None:
    with Still(tmp_path, **kwargs) as guest:
        fill(guest)
        guest.save('a')


@pytest.mark.parametrize('first', ('load', 'save'))
@pytest.mark.parametrize('memory', ('private', 'shared'))
def test_reads_exactly_what_it_restores(tmp_path, memory, first):
    if first == 'load':
        saved(tmp_path, memory=memory)
    with Still(tmp_path, memory=memory) as guest:
        if first == 'load':
            guest.load('a')
        else:
            fill(guest)
            guest.save('a')
        assert unread(guest) >= STORED
        # devices' own memory is copied
        assert guest.rewind()['baseline'] < STORED * PAGE
        for page, count in (0, 1), (7, 3), (100, 300), (599, 1):
            before = unread(guest)
            guest.put(page, 255, count)
            guest.load('a')
            assert guest.block()['copied-pages'] == count
            assert unread(guest) == before - count
            assert is_filled(guest)
        before = unread(guest)
        guest.put(100, 254, 300)
        guest.load('a')
        assert unread(guest) == before
        assert is_filled(guest)


def test_whole_load_of_the_same_reads_nothing_twice(tmp_path):
    """RAM is the baseline after that, without a comparison."""
    saved(tmp_path)
    with Still(tmp_path) as guest:
        guest.load('a')
        guest.put(0, 1, 5)
        guest.load('a')
        before = unread(guest)
        guest.put(0, 2, 10)
        guest.qmp('migrate', uri='exec:cat >/dev/null')
        wait_migration(guest)
        guest.cont()            # the disk is in use again
        guest.stop()
        guest.load('a')
        assert not guest.last_load()['rewound']
        assert unread(guest) == before
        guest.put(0, 3, 10)
        guest.load('a')
        assert guest.block()['copied-pages'] == 10
        assert unread(guest) == before - 5
        assert is_filled(guest)
        guest.hmp('delvm a')
        assert unread(guest) == guest.rewind()['baseline'] == 0


def test_other_snapshots_need_it(tmp_path):
    """Pages as in the baseline are read for another snapshot, too."""
    saved(tmp_path)
    with Still(tmp_path) as guest:
        guest.load('a')
        guest.put(0, 1, 10)
        guest.save('b')
        assert unread(guest) >= STORED, 'a save compares with no unread page'
        before = unread(guest)
        guest.put(20, 2, 10)
        guest.load('b')
        assert unread(guest) == before - 10
        assert guest.qtest.read(START, 10 * PAGE) == bytes([1]) * 10 * PAGE
        guest.load('a')
        assert is_filled(guest)


def remove(guest: Still, how: str) -> None:
    if how == 'delvm':
        guest.hmp('delvm a')
    elif how == 'blockdev':
        guest.qmp('blockdev-snapshot-delete-internal-sync', device='disk0',
                  name='a')
    else:
        guest.put(40, 4, 10)
        guest.save('a')


@pytest.mark.parametrize('how', ('delvm', 'blockdev', 'overwrite'))
@pytest.mark.parametrize('kind', ('image', 'memory'))
def test_deletion_reads_what_others_need(tmp_path, how, kind):
    saved(tmp_path)
    with Still(tmp_path, f',save-kind={kind}') as guest:
        guest.load('a')
        guest.put(0, 1, 10)
        guest.save('b')
        remove(guest, how)
        assert unread(guest) == 0
        guest.put(0, 9, STORED)
        guest.load('b')
        assert guest.block()['copied-pages'] == STORED
        guest.put(0, 0, 10)
        assert guest.qtest.read(START, STORED * PAGE) == \
            bytes(10 * PAGE) + b''.join(map(pattern, range(10, STORED)))


def test_deletion_of_the_only_one_reads_nothing(tmp_path):
    """An overwritten snapshot is read by nobody: the new one is the baseline."""
    saved(tmp_path)
    with Still(tmp_path) as guest:
        guest.load('a')
        for byte in range(1, 4):
            guest.put(0, byte, 10)
            guest.save('a')
            assert unread(guest) >= STORED
            guest.put(0, 99, 20)
            guest.load('a')
            assert guest.block()['copied-pages'] == 20
            assert guest.qtest.read(START, 10 * PAGE) == \
                bytes([byte]) * 10 * PAGE
        guest.hmp('delvm a')
        assert guest.rewind()['blocker-info']['id'] == 'unknown-snapshot'
        guest.save('b')
        guest.put(0, 99, 20)
        guest.load('b')
        assert guest.block()['copied-pages'] == 20


def test_damaged_image(tmp_path):
    """An error, and no load of half; the next load is whole."""
    saved(tmp_path)
    with Still(tmp_path) as guest:
        guest.load('a')
        # two pages: the head of the second one's record lies between them
        with content_of(guest, 51) as (image, place):
            head = image[place - 8:place]
            image[place - 8:place] = bytes(8)
        guest.put(50, 255, 2)
        with pytest.raises(MachineError, match="RAM block .*: page 4146 "
                           "cannot be read from snapshot 'a' in 'disk0': the "
                           "image has other data there"):
            guest.load('a')
        assert guest.qmp('query-status')['status'] != 'running'
        with pytest.raises(MachineError):
            guest.qmp('cont')
        assert guest.rewind()['blocker-info']['id'] == 'load-failed'
        with content_of(guest, 51) as (image, place):
            image[place - 8:place] = head
        guest.load('a')
        assert not guest.last_load()['rewound']
        assert is_filled(guest)
        guest.put(50, 255, 2)
        guest.load('a')
        assert guest.block()['copied-pages'] == 2
        assert is_filled(guest)


def test_snapshots_in_memory_need_no_image(tmp_path):
    """Their save reads the baseline, or fails and loses nothing."""
    saved(tmp_path)
    with Still(tmp_path, ',save-kind=memory') as guest:
        guest.load('a')
        guest.put(0, 1, 10)
        with content_of(guest, 300) as (image, place):
            head = image[place - 8:place]
            image[place - 8:place] = bytes(8)
        with pytest.raises(MachineError, match=r'page \d+ cannot be read'):
            guest.save('b')
        with content_of(guest, 300) as (image, place):
            image[place - 8:place] = head
        guest.load('a')
        assert guest.last_load()['rewound']
        assert is_filled(guest)
        guest.save('b')
        assert unread(guest) == 0


def test_disk_of_the_baseline_is_removed(tmp_path):
    saved(tmp_path)
    other = tmp_path / 'other.qcow2'
    subprocess.run([products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', other,
                    '16M'], check=True)
    with Still(tmp_path, args=('-blockdev', 'driver=qcow2,node-name=disk1,'
                               f'file.driver=file,file.filename={other}')) \
            as guest:
        guest.snapshot_job('snapshot-load', 'a')
        guest.put(0, 1, 10)
        guest.snapshot_job('snapshot-save', 'b', 'disk1')
        guest.put(0, 2, 20)
        guest.qmp('blockdev-del', **{'node-name': 'disk0'})
        for rewound in False, True:
            guest.snapshot_job('snapshot-load', 'b', 'disk1')
            assert guest.last_load()['rewound'] == rewound
            assert guest.qtest.read(START, 20 * PAGE) == \
                bytes([1]) * 10 * PAGE + b''.join(map(pattern, range(10, 20)))


def test_limit_counts_unread_pages(tmp_path):
    saved(tmp_path)
    with Still(tmp_path, f',rewind-limit={STORED * PAGE // 2}') as guest:
        guest.load('a')
        assert guest.rewind()['blocker-info']['id'] == 'rewind-limit'
        guest.load('a')
        assert is_filled(guest)


def test_running_guest(tmp_path, tracker):
    """A guest writes and checks; each first load of a QEMU is of the image."""
    with boot(tmp_path, tracker) as guest:
        guest.ask('fill', START, STORED * PAGE, 7)
        guest.stop()
        guest.save('a')
        image = guest.ram_image()
    for memory in 'private', 'shared':
        with Ring3(tmp_path, accel=tracker, memory=memory, strategy='auto',
                   ram=RAM_SIZE, options=',rewind=on,verify=on',
                   loadvm='a') as guest:
            for seed in range(1, 6):
                guest.sync()
                guest.ask('fill', START + seed * 50 * PAGE, 100 * PAGE, seed)
                guest.stop()
                guest.load('a')
                assert guest.last_load()['rewound']
                assert guest.ram_image() == image
                guest.cont()
            info = guest.qmp('query-ram-reset')['rewind']
            assert info['unread'] < STORED * PAGE
