# SPDX-License-Identifier: GPL-2.0-or-later
"""
Each write of the job that stores a snapshot fails: it says so and names the
snapshot, which is in memory as before, or it has stored all of it.  The guest
runs, all snapshots load right on RAM and disk, and a second try stores it.
"""

# Takes: 30 s

import errno
import shutil
from collections import Counter
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.faults import FROM_THEN_ON, ONCE, Faults, memset
from lib.kills import Disks
from lib.machine import MIB, PAGE, Machine, MachineError
from lib.rewinding import START, boot
from lib.sharing import STORED, Sharer
from lib.shm import in_memory
from lib.storing import (CORRUPTIONS, MEMORY, begin, finish, kinds, problems,
                         set_kind, snapshots, state, store)

RAM_SIZE = 8 * MIB
REWIND = {'strategy': 'auto', 'ram': RAM_SIZE, 'memory': 'shared',
          'options': ',rewind=on,verify=on'}
# Each with its number, which the disk has, too
SAVED = {'i': 'image', 'm': 'memory', 's': 'memory'}
LAST = len(SAVED) + 1
KINDS = 'disk_write', 'disk_other'
MOST = 200


class Subject:
    """A machine with snapshots of both kinds, and the RAM of each."""

    def __init__(self, guest: Disks):
        self.guest = guest
        self._images: dict[str, bytes] = {}
        for number, (tag, kind) in enumerate(SAVED.items(), 1):
            self._change(number)
            set_kind(guest, kind)
            guest.save(tag)
            self._images[tag] = guest.ram_image()
        self._change(LAST)

    def _change(self, number: int) -> None:
        self.guest.fill(number)
        for page in range(number, 300, 3):
            memset(self.guest, 5 * MIB + page * PAGE, PAGE, number)

    def check(self) -> None:
        for number, tag in enumerate(SAVED, 1):
            self._change(LAST)
            self.guest.load(tag)
            assert self.guest.last_load()['rewound']
            self.check_content(self.guest, number, tag)
        self._change(LAST)

    def check_content(self, guest: Disks, number: int, tag: str) -> None:
        assert_same_ram(guest.ram_image(), self._images[tag])
        assert guest.has(number) == [True, True]

    def check_in_another(self, folder: Path) -> None:
        """It has that of the image, and the one that was stored."""
        with Disks(folder, 1, **REWIND) as other:
            for number, tag in (3, 's'), (1, 'i'):
                other.load(tag)
                self.check_content(other, number, tag)


def copied(guest: Disks, folder: Path) -> Path:
    """The image as it is now, in a folder for another QEMU."""
    guest.disk_flush()
    folder.mkdir()
    return Path(shutil.copy(guest.disk, folder / guest.disk.name))


class Flushing(Disks):
    def disk_flush(self) -> None:
        self.hmp(f'qemu-io {self.nodes[0]} flush')


def try_to_store(guest: Machine) -> str:
    """What it says if it fails."""
    try:
        store(guest, 's')
        return ''
    except MachineError as error:
        return str(error)


def check_refused(said: str) -> None:
    assert "Snapshot 's' could not be stored" in said
    assert 'in memory as before' in said


def inject(folder: Path, faults: Faults, kind: str, nth: int, error: int,
           mode: int) -> str:
    """The outcome; nothing if there was no such call any more."""
    with Flushing(folder, 1, **REWIND) as guest:
        faults.watch_disk(guest.disk)
        subject = Subject(guest)
        faults.arm(kind, nth, error, mode)
        said = try_to_store(guest)
        fired, _ = faults.disarm()
        assert guest.status() == 'running'
        assert kinds(guest) == SAVED | ({} if said else {'s': 'image'})
        assert fired or not said, said
        if said:
            check_refused(said)
        image = copied(guest, folder / 'copy')
        after = problems(image)
        assert not after[CORRUPTIONS], said
        # after an error the image may have it already, but then all of it
        if snapshots(image)['s']:
            subject.check_in_another(image.parent)
        subject.check()
        if said:
            store(guest, 's')
            subject.check()
        disk = guest.disk
    assert problems(disk) == after
    subject.check_in_another(folder)
    if not fired:
        assert not after
        return ''
    # an old list of snapshots could not be written, or flags could not
    assert not after or mode == FROM_THEN_ON or not said, (said, after)
    return ('refused' if said else 'stored') + \
        (', and leaks' if after else '')


@pytest.mark.parametrize('mode', (ONCE, FROM_THEN_ON),
                         ids=('once', 'from-then-on'))
@pytest.mark.parametrize('error', (errno.ENOSPC, errno.EIO),
                         ids=errno.errorcode.get)
@pytest.mark.any_value
def test_each_write(monkeypatch, error, mode):
    outcomes: Counter[tuple[str, str]] = Counter()
    with in_memory('store-faults') as folder:
        for kind in KINDS:
            for nth in range(1, MOST):
                workdir = folder / f'{kind}{nth}'
                workdir.mkdir()
                outcome = inject(workdir, Faults(workdir, monkeypatch), kind,
                                 nth, error, mode)
                outcomes[kind, outcome] += 1
                shutil.rmtree(workdir)
                if not outcome:
                    break
            assert not outcome
    print(outcomes)
    assert sum(count for (kind, outcome), count in outcomes.items()
               if kind == 'disk_write' and 'refused' in outcome) > 2


def give_up_sharing(folder: Path, faults: Faults, kind: str, nth: int) -> bool:
    """
    The active layer is the last one to have the clusters of a parent that has
    been deleted.  Returns whether there was such a call.
    """
    with Sharer(folder) as guest:
        faults.watch_disk(guest.disk)
        for page in range(0, STORED, 100):
            guest.put(page, 200)
        guest.put(2500, 201, 900)
        guest.remember('s')
        guest.load('first')
        begin(guest, 's', speed=MIB)
        while not state(guest)['current-progress']:
            pass
        guest.hmp('delvm first')
        faults.arm(kind, nth, errno.EIO, ONCE)
        guest.qmp('job-cancel', id='store')
        with pytest.raises(MachineError):
            finish(guest)
        fired, _ = faults.disarm()
        guest.load('s')
        assert guest.has('s')
        disk = guest.disk
    assert not problems(disk)[CORRUPTIONS]
    return fired


@pytest.mark.parametrize('kind', ('disk_read', *KINDS))
def test_end_without_the_parent(monkeypatch, kind):
    with in_memory('store-faults') as folder:
        for nth in range(1, MOST):
            workdir = folder / str(nth)
            workdir.mkdir()
            if not give_up_sharing(workdir, Faults(workdir, monkeypatch), kind,
                                   nth):
                break
            shutil.rmtree(workdir)
        print(kind, nth)
        assert nth < MOST - 1


def test_guest_runs(tmp_path, monkeypatch, fast_accel):
    """A vCPU that checks what it has written."""
    faults = Faults(tmp_path, monkeypatch)
    with boot(tmp_path, fast_accel, options=MEMORY) as guest:
        faults.watch_disk(guest.disk)
        guest.start_loop(START, 256, 16)
        guest.save('s')
        for error in errno.EIO, errno.ENOSPC:
            faults.arm('disk_write', 2, error, FROM_THEN_ON)
            check_refused(try_to_store(guest))
            assert faults.disarm()[0]
            guest.next_pass()
            guest.load('s')
            guest.next_pass()
        store(guest, 's')
        guest.load('s')
        assert guest.last_load()['rewound']
        guest.next_pass()


def test_failed_flush(tmp_path, monkeypatch):
    """QEMU then takes the disk for damaged until it is opened again."""
    faults = Faults(tmp_path, monkeypatch)
    with Flushing(tmp_path, 1, **REWIND) as guest:
        faults.watch_disk(guest.disk)
        subject = Subject(guest)
        faults.arm('disk_flush', 1, errno.EIO, ONCE)
        check_refused(try_to_store(guest))
        assert faults.disarm()[0] == 1
        assert kinds(guest) == SAVED and guest.status() == 'running'
        disk = guest.disk
    assert not problems(disk)[CORRUPTIONS]
    with Disks(tmp_path, 1, **REWIND) as other:
        with pytest.raises(MachineError, match='disk-only'):
            other.load('s')
        other.load('i')
        subject.check_content(other, 1, 'i')
