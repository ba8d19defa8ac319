# SPDX-License-Identifier: GPL-2.0-or-later
"""A stored snapshot shares clusters with another one's VM state."""

# Takes: 40 s

import shutil
from hashlib import blake2b
from pathlib import Path

import pytest

from lib import products
from lib.effort import rounds, tried
from lib.machine import DISK, MIB, MachineError, run_quietly
from lib.rewinding import RAM_SIZE, START, Still, full_disk
from lib.sharing import STORED, Sharer, load_all
from lib.storing import (begin, check, finish, kinds, make_image, set_kind,
                         snapshots, state, store)
from lib.vmstate import END_OF_SECTION, SECTION_START, VMState

PAGES = (RAM_SIZE - START) // 4096


def mark_of_end(state: VMState) -> int:
    """The place of the mark at the end of RAM's last section."""
    at = state.section(SECTION_START, 'ram')
    footer = b'\x7e' + state.stream[at + 1:at + 5]
    return state.stream.rindex(bytes((*bytes(7), END_OF_SECTION)) + footer)


def shared(disk: Path, parent: str, child: str) -> tuple[int, int]:
    """Clusters of @child that @parent has, which are all that could be."""
    with VMState(disk, parent) as a, VMState(disk, child) as b:
        same = [x == y for x, y in zip(a.clusters, b.clusters)]
        both = set(a.clusters) & set(b.clusters)
        assert sum(same) == len(both)
        size = cluster_size(disk)
        for i in range(mark_of_end(a) // size):
            part = slice(i * size, (i + 1) * size)
            assert same[i] == (a.stream[part] == b.stream[part])
        return len(both), len(b.clusters) - len(both) + len(b.l2_tables)


def cluster_size(disk: Path) -> int:
    with open(disk, 'rb') as f:
        f.seek(20)
        return 1 << int.from_bytes(f.read(4), 'big')


@pytest.mark.parametrize('options', (
    'cluster_size=4k', 'cluster_size=64k', 'cluster_size=2M',
    'cluster_size=64k,extended_l2=on', 'cluster_size=64k,lazy_refcounts=on',
    'cluster_size=64k,compat=0.10')[::tried(1, 3)])
def test_shares_what_is_equal(tmp_path, options):
    make_image(tmp_path, options)
    with Sharer(tmp_path) as guest:
        for page in 3, 700, 701, 1500:
            guest.put(page, 201)
        guest.put(900, 0, 3)            # zero now
        guest.put(3000, 202, 5)         # zero before
        guest.put(PAGES - 1, 203)
        guest.remember('s')
        guest.put(0, 204, 300)
        store(guest, 's')
        assert kinds(guest)['s'] == 'image'
        counted = guest.counted()
        for tag in 'first', 's':
            guest.load(tag)
            assert guest.last_load()['rewound'] and guest.has(tag)
        disk, images = guest.disk, guest.images
    check(disk)
    assert shared(disk, 'first', 's') == counted
    assert counted[0] > 0 or '2M' in options
    load_all(tmp_path, images, products.stock())
    check(disk)
    for one, other in ('first', 's'), ('s', 'first'):
        folder = tmp_path / one
        folder.mkdir()
        shutil.copy(disk, folder)
        run_quietly(products.QEMU_IMG, 'snapshot', '-d', one,
                    folder / disk.name)
        check(folder / disk.name)
        load_all(folder, {other: images[other]}, products.stock())
        check(folder / disk.name)


def test_few_clusters_for_few_pages(tmp_path):
    with Sharer(tmp_path) as guest:
        for page in range(0, STORED, 200):
            guest.put(page + 50, 200)
        guest.remember('s')
        store(guest, 's')
        few, own = guest.counted()
        # a page may lie in two clusters; devices, the end of RAM, and a table
        assert own <= 2 * STORED // 200 + 12 < few
        job_bytes = own * 65536
        guest.remember('equal')
        begin(guest, 'equal')
        finish(guest)
        assert guest.counted()[1] < own
        assert job_bytes < snapshots(guest.disk)['s'] // 2


def test_chain(tmp_path):
    """The first one is stored as a whole; another QEMU goes on."""
    with Sharer(tmp_path, first=None) as guest:
        for n in range(4):
            guest.put(300 * n, 10 + n, 900)
            guest.put(300 * n, 0, 5)
            guest.remember(f's{n}')
        store(guest, 's0')
        assert guest.counted()[0] == 0
        for n in range(1, 4):
            store(guest, f's{n}')
            assert guest.counted()[0] > 0
        disk, images = guest.disk, guest.images
    check(disk)
    with Sharer(tmp_path, first=None, loadvm='s3') as guest:
        assert guest.rewind()['unread'], 'the places of its pages are known'
        guest.images.update(images)
        assert guest.has('s3')
        guest.put(1000, 99, 20)
        guest.put(PAGES - 5, 98, 5)
        guest.remember('s4')
        guest.load('s3')
        assert guest.has('s3')
        store(guest, 's4')
        counted = guest.counted()
        assert counted[0] > 0
        images = guest.images
    check(disk)
    assert shared(disk, 's3', 's4') == counted
    load_all(tmp_path, images, products.stock())
    for tag in 's3', 's0', 's2':
        run_quietly(products.QEMU_IMG, 'snapshot', '-d', tag, disk)
        check(disk)
        del images[tag]
        load_all(tmp_path, images, products.stock())
    with Still(tmp_path, ',verify=on', loadvm='s4') as guest:
        guest.put(0, 1, 2000)
        guest.load('s4')
        assert guest.last_load()['rewound']
        assert blake2b(guest.ram_image()).digest() == images['s4']


@pytest.mark.parametrize('why', ('refcounts', 'deleted', 'overwritten',
                                 'different', 'other-image'))
def test_shares_nothing(tmp_path, why):
    """And stores the snapshot all the same."""
    make_image(tmp_path, 'refcount_bits=2' if why == 'refcounts' else
               'cluster_size=64k')
    with Sharer(tmp_path) as guest:
        guest.put(5, 200, STORED if why == 'different' else 3)
        if why == 'other-image':
            other = tmp_path / 'other.qcow2'
            run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                        other, '1M')
            guest.qmp('blockdev-add', **{
                'driver': 'qcow2', 'node-name': 'other',
                'file': {'driver': 'file', 'filename': str(other)}})
            guest.snapshot_job('snapshot-save', 's', 'other')
            guest.images['s'] = blake2b(guest.ram_image()).digest()
        else:
            guest.remember('s')
        if why == 'deleted':
            guest.hmp('delvm first')
            del guest.images['first']
        elif why == 'overwritten':
            guest.remember('first')
        store(guest, 's')
        assert guest.counted()[0] == 0
        guest.load('s', 'qmp', 'other' if why == 'other-image' else DISK)
        assert guest.has('s')
        disk, images = guest.disk, guest.images
    check(disk)
    if why != 'other-image':
        load_all(tmp_path, {'s': images['s']}, products.stock())
        check(disk)


def test_no_room_for_references(tmp_path):
    """One bit: an image with data has no snapshot, but an empty one may."""
    make_image(tmp_path, 'refcount_bits=1')
    with Sharer(tmp_path, first=None) as guest:
        for n in range(2):
            guest.put(100 * n, 7 + n, 500)
            guest.remember(f's{n}')
        for n in range(2):
            store(guest, f's{n}')
            assert guest.counted()[0] == 0
        disk = guest.disk
    check(disk)
    assert min(snapshots(disk).values()) > 0


@pytest.mark.parametrize('ends', ('succeeds', 'cancelled', 'deleted', 'quit'))
def test_parent_is_deleted_meanwhile(tmp_path, ends):
    with Sharer(tmp_path) as guest:
        for page in range(0, STORED, 100):
            guest.put(page, 200)
        guest.put(2500, 201, 900)
        guest.remember('s')
        guest.load('first')     # the active layer has its tables, too
        begin(guest, 's', speed=MIB)
        while not state(guest)['current-progress']:
            pass
        guest.hmp('delvm first')
        # the room of what nobody holds is used again
        guest.hmp(f'qemu-io {DISK} "write -P 77 0 60M"')
        if ends == 'succeeds':
            finish(guest)
            assert guest.counted()[0] > 0
            guest.load('s')
            assert guest.has('s')
        elif ends != 'quit':
            guest.hmp('delvm s') if ends == 'deleted' else \
                guest.qmp('job-cancel', id='store')
            with pytest.raises(MachineError, match='cancel|deleted'):
                finish(guest)
        disk, images = guest.disk, guest.images
    check(disk)
    if ends == 'succeeds':
        load_all(tmp_path, {'s': images['s']}, products.stock())
        check(disk)
    else:
        assert not snapshots(disk).get('s')


def test_active_layer_at_the_parent(tmp_path):
    """A load shares the parent's tables with the active layer."""
    with Sharer(tmp_path) as guest:
        guest.put(5, 200, 10)
        guest.remember('s')
        guest.load('first')
        store(guest, 's')
        assert guest.counted()[0] > 0
        disk = guest.disk
        guest.hmp(f'qemu-io {DISK} "write -P 5 0 1M"')
        guest.hmp(f'qemu-io {DISK} flush')
        for tag in 'first', 's':
            copy = tmp_path / tag
            copy.mkdir()
            shutil.copy(disk, copy)
            check(copy / disk.name)
        guest.hmp('delvm first')
        guest.hmp(f'qemu-io {DISK} flush')
        shutil.copy(disk, tmp_path / 'copy')
        check(tmp_path / 'copy')
        set_kind(guest, 'image')
        guest.remember('third')
        guest.load('s')
        guest.load('third')
        guest.hmp('delvm s')
        images = guest.images
    check(disk)
    load_all(tmp_path, {'third': images['third']}, products.stock())
    check(disk)


def test_progress(tmp_path):
    """Counts the bytes that are to be written, not those that are shared."""
    with Sharer(tmp_path) as guest:
        guest.put(5, 200, 10)
        guest.remember('s')
        begin(guest, 's')
        while (job := state(guest))['status'] != 'concluded':
            pass
        guest.qmp('job-dismiss', id='store')
        assert job['current-progress'] == job['total-progress']
        assert job['current-progress'] < snapshots(guest.disk)['s'] // 2


def test_other_data_in_the_image(tmp_path):
    """Somebody has written there: nothing is shared the second time."""
    with Sharer(tmp_path) as guest:
        guest.put(5, 200, 10)
        guest.remember('s')
        guest.hmp(f'qemu-io {DISK} flush')
        with VMState(guest.disk, 'first') as parent:
            at = parent.stream.index(bytes((1,)) * 4096)
            for page in range(3, 20):
                parent.write(at + page * 4104 - 8, bytes(8))
        with pytest.raises(MachineError, match='other data'):
            store(guest, 's')
        store(guest, 's')
        assert guest.counted()[0] == 0
        guest.load('s')
        assert guest.has('s')
        disk, images = guest.disk, guest.images
    check(disk)
    load_all(tmp_path, {'s': images['s']}, products.stock())


def test_full_disk(tmp_path):
    with Sharer(tmp_path) as guest:
        guest.put(100, 200, 400)
        guest.put(3000, 200, 1000)
        guest.remember('s')
        with full_disk(guest), \
                pytest.raises(MachineError, match='in memory as before'):
            store(guest, 's')
        store(guest, 's')
        assert guest.counted()[0] > 0
        guest.load('s')
        assert guest.has('s')
        disk = guest.disk
    check(disk)


def test_walk(tmp_path, rng):
    """Saves, stores and deletions in any order, byte for byte."""
    with Sharer(tmp_path) as guest:
        total = 0
        for step in range(rounds(40, 15)):
            for _ in range(rng.randrange(1, 6)):
                count = 1 << rng.randrange(8)
                guest.put(rng.randrange(PAGES - count),
                          rng.choice((0, rng.randrange(256))), count)
            tag = f's{step}'
            guest.remember(tag)
            if rng.randrange(2):
                guest.load(rng.choice(list(guest.images)))
            store(guest, tag)
            total += guest.counted()[0]
            while len(guest.images) > 6:
                old = rng.choice(list(guest.images))
                guest.hmp(f'delvm {old}')
                del guest.images[old]
            tag = rng.choice(list(guest.images))
            guest.load(tag)
            assert guest.has(tag)
        assert total
        disk, images = guest.disk, guest.images
    check(disk)
    load_all(tmp_path, images, products.stock())
    check(disk)
