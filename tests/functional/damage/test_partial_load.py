# SPDX-License-Identifier: GPL-2.0-or-later
"""A guest with a part of a snapshot does not run, nor is it passed on."""

from pathlib import Path

import pytest

from lib.damage import damage_device, damage_ram_records, damaged
from lib.guests import Ring3
from lib.machine import MIB, MachineError

RAM_SIZE = 64 * MIB
AREA = Ring3.FIRST_FREE, 8 * MIB
PART = "a partial load of snapshot 'bad'"
DAMAGES = {'ram': damage_ram_records, 'device': damage_device}


def fail_to_load(guest: Ring3) -> None:
    with pytest.raises(MachineError):
        guest.load('bad')


def assert_part(guest: Ring3, workdir: Path) -> None:
    state = workdir / 'state'
    for command, arguments in (('cont', {}),
                               ('migrate', {'uri': f'file:{state}'})):
        with pytest.raises(MachineError, match=PART):
            guest.qmp(command, **arguments)
    with pytest.raises(MachineError, match=PART):
        guest.save('half')
    with pytest.raises(MachineError, match=PART):
        guest.snapshot_job('snapshot-save', 'half')
    assert guest.status() != 'running'
    guest.serial.send('ping 0\n')
    assert guest.silent(0.1)
    assert 'half' not in guest.hmp('info snapshots')
    assert not state.exists()


@pytest.mark.parametrize('damage', DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize('stopped', (False, True), ids=('running', 'stopped'))
def test_only_a_good_load_helps(tmp_path, fast_accel, served, snapshots,
                                damage, stopped):
    """The guest does not run, whatever it was doing when the load failed."""
    damaged(snapshots, tmp_path, damage)
    with Ring3(tmp_path, accel=fast_accel, strategy=served, ram=RAM_SIZE
               ) as guest:
        for _ in range(2):
            if stopped:
                guest.stop()
            fail_to_load(guest)
            assert_part(guest, tmp_path)
            fail_to_load(guest)
            assert_part(guest, tmp_path)
            guest.load('good')
            guest.cont()
            guest.sync()
            guest.ask('check-fill', *AREA, 1)
            guest.save('whole')


def test_reset_helps(tmp_path, fast_accel, served, snapshots):
    damaged(snapshots, tmp_path, damage_device)
    with Ring3(tmp_path, accel=fast_accel, strategy=served, ram=RAM_SIZE
               ) as guest:
        guest.stop()
        fail_to_load(guest)
        assert_part(guest, tmp_path)
        guest.serial.take()
        guest.qmp('system_reset')
        guest.event('RESET')
        guest.cont()
        guest.wait_ready()
        guest.save('whole')


def test_refused_load_is_no_part(tmp_path, fast_accel, served, snapshots):
    """Nothing was changed, and the guest goes on."""
    damaged(snapshots, tmp_path, lambda state: None)
    with Ring3(tmp_path, accel=fast_accel, strategy=served, ram=RAM_SIZE
               ) as guest:
        guest.ask('fill', *AREA, 5)
        with pytest.raises(MachineError, match='does not exist'):
            guest.load('absent')
        with pytest.raises(MachineError, match='continue it, then migrate'):
            guest.qmp('migrate', uri='exec:cat >/dev/null')
        guest.cont()
        guest.sync()
        guest.ask('check-fill', *AREA, 5)
        guest.save('whole')
