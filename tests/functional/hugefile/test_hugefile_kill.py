# SPDX-License-Identifier: GPL-2.0-or-later
"""
QEMU killed at any instant, and records that have been damaged: whatever does
not prove that a hugepage is clean has it cleared before a guest can see it.
"""

# Takes: 25 s
# Long: it kills QEMU at random, again and again

import contextlib
import os
import random
import re
import shutil
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from lib.effort import rounds
from lib.guests import Ring3
from lib.hugefile import (DEFAULT_STATE, HUGE, KEPT, LEFT_DIRTY, MARK,
                          HugeFile, Still, check_all_cleared, killed, refusal,
                          write_record)
from lib.machine import MIB, MachineError
from lib.patience import patience

KILLS = rounds(200, 40)
MOST = 6 * KILLS        # runs, of which some end before they are killed
RAM_SIZE = 24 * MIB
START = 3 * MIB // 2        # what is below is used by the guest itself
ALL = START, RAM_SIZE - START
STORED = 5 * MIB, 6 * MIB   # in the snapshot
MAGIC = 0x4d41474d          # of every mark, beside the number of its run
SNAPSHOT = 0xffffffff       # such a number
PHASES = ('start', 'load', 'run', 'exit')
OPTIONS = (KEPT, KEPT, LEFT_DIRTY, LEFT_DIRTY, ',unlink=existing')


def mark(number: int) -> int:
    return MAGIC | number << 32


class Victim(HugeFile, Ring3):
    """Can be killed at any time, also before its monitor answers."""

    def __init__(self, *args, killed_after: float | None = None, **kwargs):
        if killed_after is not None:
            self.kill_after(killed_after)
        try:
            super().__init__(*args, ram=RAM_SIZE, **kwargs)
        except MachineError:
            # the next one would find the file in use
            self.process.wait(patience(20))
            self.close()
            raise

    # Machine has its own of this name, and adds to it
    def _memory_args(self) -> list[str]:
        return [*super()._memory_args(), '-trace', 'ram_reset_*']

    def kill_after(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds

        def kill() -> None:
            time.sleep(max(0, deadline - time.monotonic()))
            while not hasattr(self, 'process'):
                time.sleep(0.001)
            self.process.kill()

        threading.Thread(target=kill, daemon=True).start()

    def write(self, number: int) -> None:
        self.ask('set', *ALL, mark(number))


def check_by_guest(guest: Victim, loaded: bool) -> None:
    end = sum(STORED)
    for area in (((START, STORED[0] - START, 0), (*STORED, mark(SNAPSHOT)),
                  (end, RAM_SIZE - end, 0)) if loaded else ((*ALL, 0),)):
        guest.ask('check-set', *area)


def check_by_file(guest: Victim, loaded: bool) -> None:
    image = guest.ram_image()
    if loaded:
        image = image.replace(mark(SNAPSHOT).to_bytes(8, 'little'), bytes(8))
    at = image.find(MAGIC.to_bytes(4, 'little'))
    assert at < 0, f'{at:#x}: mark of run {image[at + 4:at + 8].hex()}'


class Hunt:
    """A sequence of runs on one file."""

    def __init__(self, workdir: Path, path: Path, accel: str,
                 rng: random.Random):
        self.rng = rng
        self.hits = Counter()
        self.half_cleared = Counter()
        self.checks = 0
        self.runs = 0
        self._machine = {'workdir': workdir, 'path': path, 'accel': accel}
        self._log = workdir / 'qemu.log'
        self._disk = workdir / 'disk.qcow2'
        self._good_disk = workdir / 'good.qcow2'
        self._seconds = self._prepare()

    def _prepare(self) -> dict[str, float]:
        """Save the snapshot, and see how long things take."""
        times = [time.monotonic()]
        with Victim(**self._machine, options=LEFT_DIRTY) as guest:
            times.append(time.monotonic())
            guest.write(0)
            times.append(time.monotonic())
            guest.ask('set', *ALL, 0)
            guest.ask('set', *STORED, mark(SNAPSHOT))
            guest.save('s')
            shutil.copy(self._disk, self._good_disk)
            guest.write(0)
            times.append(time.monotonic())
            guest.load('s')
            times.append(time.monotonic())
            guest.end('quit')
            times.append(time.monotonic())
        spans = [b - a for a, b in zip(times, times[1:])]
        return dict(zip(('start', 'run', 'save', 'load', 'exit'), spans))

    def check(self, guest: Victim, loaded: bool) -> None:
        check_by_guest(guest, loaded)
        check_by_file(guest, loaded)
        self.checks += 1

    def _phase(self, asked: str, answered: bool) -> str:
        """The phase in which QEMU was killed."""
        log = self._log.read_text()
        if log.count('ram_reset_load_begin') > log.count('ram_reset_load_end'):
            return 'load'
        if asked == 'exit':
            return 'exit'
        return 'run' if answered else 'start'

    def _half_cleared(self) -> bool:
        path = self._machine['path']
        image = path.read_bytes() if path.exists() else b''
        marked = sum(MAGIC.to_bytes(4, 'little') in image[at:at + HUGE]
                     for at in range(0, len(image), HUGE))
        return 0 < marked < RAM_SIZE // HUGE

    def one_run(self) -> None:
        self.runs += 1
        rarest = min(PHASES, key=lambda phase: self.hits[phase])
        asked = self.rng.choice((rarest, *PHASES))
        loadvm = self.rng.choice(('', 's'))
        delay = self.rng.uniform(0, self._seconds[asked])
        options = self.rng.choice(OPTIONS)
        # a kill amid a load may leave the disk in any state: not our matter
        shutil.copy(self._good_disk, self._disk)
        try:
            guest = Victim(**self._machine, options=options, loadvm=loadvm,
                           killed_after=delay if asked == 'start' else None)
        except MachineError as e:
            answered = 'from the guest' in str(e)
            if asked != 'start' or not (answered or 'status -9' in str(e)):
                raise
            status = -signal.SIGKILL
        else:
            answered = True
            status = self._use(guest, asked, delay, bool(loadvm))
        phase = self._phase(asked, answered) if status else 'over'
        self.hits[phase] += 1
        self.half_cleared[phase] += self._half_cleared()
        print(self.runs, options, loadvm, f'{asked} {delay:.4f} s: {phase}')
        self._aim(asked, phase, loads=self._log.read_text().count('load_end'),
                  expected=1 + bool(loadvm))

    def is_enough(self) -> bool:
        """Whether it has seen all that it looks for, and often enough."""
        return sum(self.hits[phase] for phase in PHASES) >= KILLS and \
            min(self.hits[phase] for phase in PHASES) >= KILLS // 10 and \
            any(self.half_cleared[p] for p in ('start', 'load', 'exit')) and \
            self.checks >= KILLS // 2

    def _aim(self, asked: str, phase: str, loads: int, expected: int) -> None:
        """A phase takes another time later, and on another host."""
        late = {'start': phase == 'run', 'load': loads == expected,
                'run': False, 'exit': phase == 'over'}
        if asked != 'run':
            self._seconds[asked] *= 0.8 if late[asked] else 1.05

    def _use(self, guest: Victim, asked: str, delay: float,
             loaded: bool) -> int:
        actions = {
            'start': lambda: None,
            'run': lambda: guest.write(self.runs),
            'load': lambda: guest.load('s', self.rng.choice(('hmp', 'qmp'))),
            'exit': lambda: guest.end(self.rng.choice(('quit',
                                                       signal.SIGTERM))),
        }
        with guest:
            if asked != 'start':
                self.check(guest, loaded)
                if asked != 'run':
                    guest.write(self.runs)
                guest.kill_after(delay)
            with contextlib.suppress(MachineError, OSError):
                actions[asked]()
            status = guest.process.wait(patience(20))
        assert status == -signal.SIGKILL or (asked == 'exit' and not status)
        return status


def test_killed_at_any_instant(tmp_path, ramfile, fast_accel, rng):
    hunt = Hunt(tmp_path, ramfile, fast_accel, rng)
    while not hunt.is_enough() and hunt.runs < MOST:
        hunt.one_run()
    with Victim(tmp_path, ramfile, accel=fast_accel, options=KEPT) as guest:
        hunt.check(guest, loaded=False)
    print(dict(hunt.hits), 'half cleared:', dict(hunt.half_cleared),
          'checks:', hunt.checks)
    assert hunt.is_enough()


@pytest.mark.parametrize('check', (check_by_guest, check_by_file))
@pytest.mark.parametrize('loadvm', ('', 's'))
def test_old_marks_are_found(tmp_path, ramfile, fast_accel, check, loadvm):
    """Both checks fail once a false record keeps QEMU from clearing."""
    kwargs = dict(accel=fast_accel, options=KEPT)
    with Victim(tmp_path, ramfile, **kwargs) as guest:
        guest.ask('set', *STORED, mark(SNAPSHOT))
        guest.save('s')
        guest.write(1)
        guest.kill()
    write_record(guest.state, ramfile)
    with Victim(tmp_path, ramfile, loadvm=loadvm, **kwargs) as guest:
        assert guest.info()['dirty-pages'] == 0
        with pytest.raises(AssertionError):
            check(guest, bool(loadvm))


# The state file

def make_link(state: Path) -> None:
    state.rename(state.with_name('real'))
    state.symlink_to('real')


def make_fifo(state: Path) -> None:
    state.unlink()
    os.mkfifo(state, 0o600)


STATE_TROUBLES = (
    (make_link, 'symbolic link'),
    (make_fifo, 'not a regular file'),
    (lambda state: state.write_text('[mine]\n'), 'not a state file'),
    (lambda state: state.chmod(0o640), 'its mode is 0640, not 0600'),
    (lambda state: os.chown(state, 1, -1), 'belongs to user 1, not to '),
    (lambda state: os.link(state, state.with_name('2')), 'more than one name'))


@pytest.mark.parametrize('make, why', STATE_TROUBLES)
def test_state_of_others(tmp_path, ramfile, make, why):
    state = killed(tmp_path, ramfile).state
    make(state)
    record = b'' if state.is_fifo() else state.read_bytes()
    for options in (KEPT, ',unlink=existing'):
        said = refusal(tmp_path, ramfile, options=options)
        assert re.search(f"'rr0': cannot use '{state}'.*: .*{why}", said)
    assert MARK in ramfile.read_bytes()
    assert state.is_fifo() or state.read_bytes() == record


def test_default_state(tmp_path, ramfile, monkeypatch):
    run = tmp_path / 'run'
    monkeypatch.setenv('XDG_RUNTIME_DIR', str(run))
    kwargs = dict(state=DEFAULT_STATE, options=KEPT)
    said = refusal(tmp_path, ramfile, **kwargs)
    assert 'cannot create' in said and 'state=FILE' in said
    run.mkdir()
    with Still(tmp_path, ramfile, **kwargs) as guest:
        state = Path(guest.info()['state'])
        assert state.parent == run / 'qemu-ram-reset'
        assert state.name.startswith('ram-')
        assert state.stat().st_mode & 0o777 == 0o600
        assert state.parent.stat().st_mode & 0o777 == 0o700
    with Still(tmp_path, ramfile, **kwargs) as guest:
        assert 'exited cleanly' in guest.info()['record']
    state.parent.chmod(0o770)
    said = refusal(tmp_path, ramfile, **kwargs)
    assert 'only this user' in said and 'state=FILE' in said


def redo_record(workdir: Path, path: Path, **changes) -> bytes:
    """All of the file is dirty, and its record says that nothing is."""
    return write_record(killed(workdir, path).state, path, **changes)


def test_record_is_believed(tmp_path, ramfile):
    """The tests below could fail: this is what they would find."""
    redo_record(tmp_path, ramfile)
    with Still(tmp_path, ramfile, options=KEPT) as guest:
        assert guest.info()['dirty-pages'] == 0
        assert MARK in guest.view() and not guest.is_clean()


@pytest.mark.parametrize('changes, why', (
    ({'in_use': True, 'pid': 7}, 'process 7 did not exit cleanly'),
    ({'boot_id': '0'}, 'host has been restarted'),
    ({'device': 0}, 'another file'), ({'inode': 1}, 'another file'),
    ({'page_size': 4096}, 'another file'), ({'pages': 3}, 'another file'),
    ({'access_time': 1}, 'another process'), ({'version': 2}, 'version 2'),
    ({'pages': 0}, 'are invalid'), ({'pages': 1 << 62}, 'are invalid'),
    ({'dirty': '0-2'}, 'are invalid'), ({'dirty': '1-0'}, 'are invalid'),
    ({'dirty': ','}, 'are invalid'), ({'in-use': 'no'}, 'no')))
def test_record_of_something_else(tmp_path, ramfile, changes, why):
    redo_record(tmp_path, ramfile, **changes)
    with Still(tmp_path, ramfile, options=KEPT) as guest:
        check_all_cleared(guest, why)


def test_damaged_record(tmp_path, ramfile):
    """A bit of each byte is flipped, or a write was cut short."""
    state = killed(tmp_path, ramfile).state
    size = len(write_record(state, ramfile))
    damages = [*range(0, size, rounds(1, 9)),
               *(slice(n) for n in range(11, size, rounds(16, 48)))]
    for at in damages:
        record = bytearray(write_record(state, ramfile))
        if isinstance(at, slice):
            record = record[at]
        else:
            record[at] ^= 1 << at % 8
        state.write_bytes(record)
        with Still(tmp_path, ramfile, options=KEPT) as guest:
            check_all_cleared(guest, 'may be dirty')
            assert re.search(f"warning: .*'rr0': '{state}' is damaged: .*"
                             f"all of '{ramfile}' is cleared", guest.log()), at
            guest.fill()
            guest.kill()
