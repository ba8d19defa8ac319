# SPDX-License-Identifier: GPL-2.0-or-later
"""Nothing that a host's user can do lets a part of a snapshot run."""

# Takes: 20 s

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from lib.damage import damage_device, damaged
from lib.gdb import Debugger
from lib.guests import Ring3
from lib.machine import MIB, MachineError
from lib.vmstate import VMState

RAM_SIZE = 64 * MIB
AREA = Ring3.FIRST_FREE, 8 * MIB
PART = "a partial load of snapshot 'bad'"
FAILS = 'Error|Unknown|load'
# Debuggers have no answer: they are told of the next stop
BY_DEBUGGER = ('c', 's', 'vCont;c', 'vCont;s:1', 'vCont;s:1;c', 'D')
# QEMU's refusals; None if the command does something else than run the guest
BY_MONITOR = {
    'cont': PART, 'c': PART, 'system_wakeup': 'not in suspended state',
    'nmi': None, 'stop': None, 'system_powerdown': None, 'gdbserver none': None,
    'device_add qemu64-x86_64-cpu,socket-id=1,core-id=0,thread-id=0': None,
    'set_link net0 off': None, 'set_link net0 on': None,
    'info registers': None, 'savevm half': PART, 'migrate "exec:false"': PART,
    'loadvm absent': 'does not exist', 'loadvm bad': FAILS, 'cont ': PART,
}


def start(workdir: Path, **kwargs) -> Ring3:
    args = ('-smp', '1,maxcpus=2,sockets=2', '-netdev', 'hubport,id=net0,hubid=0',
            '-gdb', f'unix:{workdir / "gdb"},server=on,wait=off')
    return Ring3(workdir, ram=RAM_SIZE, args=args, **kwargs)


def registers(guest: Ring3) -> str:
    """Registers of the vCPU that the snapshot has."""
    guest.hmp('cpu 0')
    return guest.hmp('info registers')


def assert_stopped(guest: Ring3, before: str) -> None:
    assert not guest.qmp('query-status')['running']
    assert registers(guest) == before


def assert_stands_still(guest: Ring3, before: str) -> None:
    assert_stopped(guest, before)
    guest.serial.send('ping 0\n')
    assert guest.silent(0.1)
    assert_stopped(guest, before)


def fail_to_load(guest: Ring3, how: str) -> str:
    with pytest.raises(MachineError, match=FAILS):
        guest.load('bad', how)
    return registers(guest)


def assert_recovers(guest: Ring3) -> None:
    guest.load('good')
    guest.cont()
    guest.sync()
    guest.ask('check-fill', *AREA, 1)


@pytest.mark.parametrize('how', ('hmp', 'qmp'))
@pytest.mark.parametrize('stopped', (False, True), ids=('running', 'stopped'))
@pytest.mark.each_value
def test_by_the_monitor(tmp_path, fast_accel, served, snapshots, how, stopped):
    damaged(snapshots, tmp_path, damage_device)
    with start(tmp_path, accel=fast_accel, strategy=served) as guest:
        if stopped:
            guest.stop()
        before = fail_to_load(guest, how)
        for command, refusal in BY_MONITOR.items():
            if refusal:
                with pytest.raises(MachineError, match=refusal):
                    guest.hmp(command)
            else:
                guest.hmp(command)
            assert_stopped(guest, before)
        guest.qmp('dump-guest-memory', paging=False,
                  protocol=f'file:{tmp_path / "dump"}')
        assert_stands_still(guest, before)
        assert_recovers(guest)


@pytest.mark.parametrize('packet', BY_DEBUGGER)
@pytest.mark.each_value
def test_by_a_debugger(tmp_path, fast_accel, served, snapshots, packet):
    damaged(snapshots, tmp_path, damage_device)
    with start(tmp_path, accel=fast_accel, strategy=served) as guest:
        before = fail_to_load(guest, 'hmp')
        with Debugger(tmp_path / 'gdb') as gdb:
            gdb.ask_in_vain(packet)
            assert_stopped(guest, before)
        assert_stands_still(guest, before)
        if packet != 's':       # of which QEMU keeps that it is to be one step
            assert_recovers(guest)
            with Debugger(tmp_path / 'gdb') as gdb:
                gdb.send('c')
                guest.sync()


def test_by_starting_with_it(tmp_path, fast_accel, served, snapshots):
    """QEMU ends, whether or not it is asked to start the guest at once."""
    damaged(snapshots, tmp_path, damage_device)
    for args in ((), ('-S',)):
        with pytest.raises(MachineError, match='QEMU ends with status 1'):
            Ring3(tmp_path, accel=fast_accel, strategy=served, ram=RAM_SIZE,
                  args=args, loadvm='bad')


def record_and_replay(workdir: Path, served: str,
                      use: Callable[[Ring3, str], None]) -> None:
    """@use a guest that is recorded, then one that is replayed, stopped."""
    for mode, args in (('record', ()), ('replay', ('-S',))):
        guest = Ring3(workdir, accel='tcg', strategy=served, ram=RAM_SIZE,
                      loadvm='start' if mode == 'replay' else '', args=(
                          *args, '-icount',
                          f'shift=1,rr={mode},rrfile={workdir / "log"}'))
        with guest:
            use(guest, mode)


def test_by_seeking_in_a_replay(tmp_path, served):
    """It goes on whether or not it could load the snapshot on the way."""
    reached = 0

    def use(guest: Ring3, mode: str) -> None:
        nonlocal reached
        if mode == 'record':
            guest.stop()
            guest.save('start')
            guest.cont()
            guest.sync()
            guest.stop()
            guest.save('bad')
            guest.cont()
            guest.sync()
            guest.stop()
            reached = guest.qmp('query-replay')['icount']
            return
        # QEMU has read the table of snapshots, and not what they have
        with VMState(guest.disk, 'bad') as state:
            damage_device(state)
        with pytest.raises(MachineError, match=FAILS):
            guest.qmp('replay-seek', icount=reached)
        assert_stands_still(guest, registers(guest))
        with pytest.raises(MachineError, match=PART):
            guest.cont()
        assert re.search(f'warning: .*{PART}', guest.log())

    record_and_replay(tmp_path, served, use)
