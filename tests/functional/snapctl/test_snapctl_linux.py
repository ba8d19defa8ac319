# SPDX-License-Identifier: GPL-2.0-or-later
"""A Linux guest that saves itself and takes itself back, from user space."""

# Takes: 80 s

import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lib import products
from lib.effort import ALL, rounds
from lib.guests import Linux
from lib.machine import MIB, MachineError
from lib.patience import Limit, patience

RAM_SIZE = 256 * MIB
REGION = 8 * MIB
FEED = sys.executable, products.REPO / 'contrib/python/ram-reset', 'feed'
REWIND = {'strategy': 'auto', 'options': ',rewind=on'}
ITERATIONS = rounds(1000, 15)
FEW = rounds(100, 8)
PATIENCE = 60.0


def machine_with(workdir: Path, accel: str, device: str, *args: str,
                 **kwargs) -> Linux:
    return Linux(workdir, accel=accel, ram=RAM_SIZE, args=(
        '-object', f'memory-backend-file,id=ring,size={REGION},'
                   f'mem-path={workdir / "region"},share=on',
        '-device', f'snapctl,slots=a:b,memdev=ring,{device}',
        '-qmp', f'unix:{workdir / "qmp"},server=on,wait=off', *args),
        **kwargs)


def write_booted(workdir: Path, accel: str, machine: str, state: Path) -> None:
    with machine_with(workdir, accel, 'allow=both', machine=machine) as guest:
        guest.qmp('migrate', uri=f'file:{state}.part')
        wait_until(lambda: guest.qmp('query-migrate')['status'] == 'completed',
                   'the guest is not written')
    state.with_name(f'{state.name}.part').rename(state)


def boot(workdir: Path, accel: str, device: str = 'allow=both',
         devices: tuple = (), machine: str = 'pc', **kwargs) -> Linux:
    """In ./test guests that boot alike boot once; the others resume that."""
    if ALL or devices or 'append' in kwargs:
        return machine_with(workdir, accel, device, *devices, machine=machine,
                            **kwargs)
    state = workdir.parent / f'booted-{accel}-{machine}'
    if not state.exists():
        write_booted(workdir, accel, machine, state)
    guest = machine_with(workdir, accel, device, '-incoming', f'file:{state}',
                         machine=machine, boot_timeout=0, **kwargs)
    try:
        wait_until(lambda: guest.status() == 'running', 'the guest is not read')
    except BaseException:
        guest.close()
        raise
    return guest


def wait_until(done: Callable[[], bool], complaint: str) -> None:
    limit = Limit(PATIENCE)
    while not done():
        if limit.over():
            raise MachineError(complaint)
        time.sleep(0.01)


def loaded(guest: Linux) -> int:
    """The shell waits for "snapctl save" again, which says the generation."""
    said = guest.serial.wait(r'^loaded, generation (\d+)\r?\n= \d+ 0\r?\n',
                             PATIENCE)
    return int(said[1])


def facts(guest: Linux) -> dict[str, str]:
    return dict(line.split(': ', 1)
                for line in guest.run('snapctl info').splitlines())


def error(guest: Linux, command: str, status: int = 1) -> str:
    """The one sentence of a command that fails."""
    said = guest.run(f'{command} 2>&1; [ $? = {status} ]')
    assert len(said.splitlines()) == 1, said
    return said


# The command line

@pytest.mark.any_value
@pytest.mark.parametrize('machine', ('pc', 'q35'))
def test_taken_back_by_itself(tmp_path, each_linux_accel, machine):
    with boot(tmp_path, each_linux_accel, machine=machine, **REWIND) as guest:
        info = facts(guest)
        assert re.search(r'/0000:00:\w\w\.0$', info.pop('device'))
        assert info == {
            'version': '1', 'save': 'allowed', 'load': 'allowed',
            'slots': '2', 'min-interval': '0 ms', 'region': f'{REGION} bytes',
            'msi-x': 'yes', 'status': 'idle', 'error': 'none',
            'generation': '0', 'load-time': '0 ns', 'random': '0' * 64}

        guest.run('echo before >/run/file')
        assert guest.run('snapctl save') == 'saved, generation 0'
        seen = {info['random']}
        for i in range(1, 5):
            guest.run(f'echo after >/run/file; echo {i} | snapctl write 0x1000')
            guest.serial.send('x snapctl load\n')
            assert loaded(guest) == i
            assert guest.run('cat /run/file; snapctl read 4096 2; '
                             'snapctl generation').split() == \
                ['before', str(i), str(i)]
            assert guest.last_load()['rewound']
            info = facts(guest)
            assert info['status'] == 'loaded'
            assert 0 < int(info['load-time'].split()[0]) < 60e9
            seen.add(guest.run('snapctl random'))
            assert info['random'] in seen
        assert len(seen) == 5

        # the host's user does it, which no command of the guest's has to
        guest.load('a')
        assert loaded(guest) == 5
        assert guest.run('snapctl save 1') == 'saved, generation 5'
        guest.serial.send('x snapctl load 1\n')
        assert loaded(guest) == 6
        found = guest.qmp('query-snapctl')
        assert (found['saves'], found['loads'], found['generation']) == \
            (2, 5, 6)


def test_wait_for_a_load(tmp_path, linux_accel):
    with boot(tmp_path, linux_accel) as guest:
        assert 'nothing has happened' in error(
            guest, 'snapctl --timeout 0.1 wait')
        guest.run('{ snapctl wait >/run/new; echo rekeyed; } &')
        time.sleep(1)       # for it to have read the generation
        guest.save('s')
        guest.load('s')
        guest.serial.wait('^rekeyed', PATIENCE)
        assert guest.run('cat /run/new; snapctl wait 0').split() == ['1', '1']


def test_refused(tmp_path, linux_accel):
    with boot(tmp_path, linux_accel, 'allow=load') as guest:
        assert 'host does not allow it' in error(guest, 'snapctl save')
        assert 'does not exist' in error(guest, 'snapctl load')
        assert 'no such slot' in error(guest, 'snapctl load 2')
        assert 'only' in error(guest, f'snapctl read {REGION - 9} 10')
        assert 'ends before' in error(
            guest, f'echo too long | snapctl write {REGION - 4}')
        assert 'beyond the region' in error(guest,
                                            f'snapctl read {REGION + 1} 0')
        assert 'No such file' in error(guest, 'snapctl --device /x info')
        for usage in ('', 'fly', 'load -1', 'load 0x100000000', 'read 1',
                      'save 0 0', '--timeout x info'):
            error(guest, f'snapctl {usage}', status=2)
        assert guest.qmp('query-snapctl')['refused'] == 3
        assert facts(guest)['error'] == 'slot'
    with Linux(tmp_path, accel=linux_accel, ram=RAM_SIZE) as guest:
        assert 'there is no device snapctl' in error(guest, 'snapctl info')


def test_failed_and_too_soon(tmp_path, linux_accel):
    with boot(tmp_path, linux_accel, 'allow=both,min-interval=3000') as guest:
        raw = tmp_path / 'raw'
        raw.write_bytes(bytes(MIB))
        guest.qmp('blockdev-add', **{'driver': 'raw', 'node-name': 'raw',
                                     'file': {'driver': 'file',
                                              'filename': str(raw)}})
        assert 'could not save' in error(guest, 'snapctl save')
        assert facts(guest)['status'] == 'failed'
        last = guest.qmp('query-snapctl')['last']
        assert not last['success'] and 'raw' in last['error']
        guest.qmp('blockdev-del', **{'node-name': 'raw'})
        assert guest.run('snapctl save') == 'saved, generation 0'
        assert 'too short a time' in error(guest, 'snapctl --timeout 0 save')
        assert guest.run('snapctl save 1') == 'saved, generation 0'
        assert guest.qmp('query-snapctl')['refused'] > 2


# The harness

@dataclass
class Fed:
    """The results of ram-reset feed."""

    statuses: list[str]
    generations: list[int]
    outputs: list[str]
    stdout: str
    stderr: str


def feed(workdir: Path, inputs: list[str], *args, status: int = 0) -> Fed:
    folder, results = workdir / 'inputs', workdir / 'results'
    folder.mkdir()
    for i, text in enumerate(inputs):
        (folder / f'{i:05}').write_text(text)
    done = subprocess.run(
        [*FEED, '--region', workdir / 'region', '--results',
         results, *(str(a) for a in args), folder], capture_output=True,
        text=True, timeout=900, check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == status and 'Traceback' not in done.stderr
    lines = [re.fullmatch(r'(\d+) (.+?); generation (\d+), [\d.]+ ms, (\d+) '
                          r'bytes: (.+)', line)
             for line in (results / 'results.txt').read_text().splitlines()]
    assert [(int(m[1]), Path(m[5]).name) for m in lines] == \
        [(i + 1, f'{i:05}') for i in range(len(lines))]
    return Fed([m[2] for m in lines], [int(m[3]) for m in lines],
               [(results / f'{m[1]}.out').read_text() for m in lines],
               done.stdout, done.stderr)


def answer(text: str) -> str:
    total = 0x811c9dc5
    for byte in text.encode():
        total = (total ^ byte) * 0x01000193 & 0xffffffff
    return f'{total:08x} {len(text)}\n'


def wait_generation(guest: Linux, number: int) -> dict:
    limit = Limit(PATIENCE)
    while (found := guest.qmp('query-snapctl'))['generation'] != number \
            or found['pending']:
        if limit.over():
            raise MachineError(f'{found} instead of generation {number}')
        time.sleep(0.01)
    return found


def iterate(workdir: Path, accel: str, count: int, **kwargs) -> None:
    """Inputs are distinct, and each finds a guest without its file."""
    inputs = [f'input {i} ' + 'x' * (i * 37 % 3000) for i in range(count)]
    with boot(workdir, accel, **kwargs) as guest:
        guest.run('snapctl-harness -- snaptarget /run/dirty &')
        fed = feed(workdir, inputs)
        assert fed.statuses == ['exit 0'] * count
        assert fed.outputs == [answer(text) for text in inputs]
        # one load between two of them, and none besides
        assert fed.generations == list(range(count))
        found = wait_generation(guest, count)
        assert (found['saves'], found['loads'], found['failures'],
                found['refused']) == (1, count, 0, 0)
        if kwargs:
            info = guest.qmp('query-ram-reset')
            assert (info['loads'], info['rewinds']) == (count, count), \
                info['last-load'].get('blocker')
        guest.run('[ ! -e /run/dirty ]')


def test_harness(tmp_path):
    iterate(tmp_path, 'tcg', ITERATIONS, **REWIND)


@pytest.mark.long('test_wait_for_a_load has no object, either')
def test_harness_without_an_object(tmp_path):
    iterate(tmp_path, 'tcg', FEW)


@pytest.mark.long('a boot; test_snapctl.py has this machine')
def test_harness_on_q35(tmp_path, linux_accel):
    count = ITERATIONS if linux_accel == 'kvm' else FEW // 4
    iterate(tmp_path, linux_accel, count, machine='q35', **REWIND)


def test_every_end_of_a_target(tmp_path, linux_accel):
    cases = {'exit 3': 'exit 3', 'signal 11': 'signal 11', 'sleep': 'timeout',
             'flood 300000': 'exit 0', 'fork': 'exit 0', '': 'exit 0'}
    with boot(tmp_path, linux_accel, **REWIND) as guest:
        guest.run(f'snapctl-harness --timeout {patience(2):.0f} -- '
                  'snaptarget &')
        fed = feed(tmp_path, list(cases), '--output-size', 1000)
        assert fed.statuses == list(cases.values())
        assert fed.outputs == ['', '', '', 'x' * 1000, '', answer('')]
        assert '300000 bytes' in (tmp_path / 'results/results.txt').read_text()
        wait_generation(guest, len(cases))
    # once more, with what cannot be run
    for name in ('inputs', 'results'):
        (tmp_path / name).rename(tmp_path / f'{name}-1')
    with boot(tmp_path, linux_accel, **REWIND) as guest:
        guest.run('snapctl-harness /no/target &')
        assert feed(tmp_path, ['a', 'b']).statuses == \
            ['error (No such file or directory)'] * 2


@pytest.mark.long('other tests have a hang or a panic each')
def test_guest_that_hangs_or_panics(tmp_path, linux_accel):
    timeout = round(patience(2))
    inputs = ['first', 'panic', 'second', 'freeze', 'panic', 'third']
    with boot(tmp_path, linux_accel, append='panic=-1', **REWIND) as guest:
        guest.run(f'snapctl-harness --timeout {4 * timeout} -- '
                  'snaptarget /run/dirty &')
        fed = feed(tmp_path, inputs, '--qmp', tmp_path / 'qmp',
                   '--snapshot', 'a', '--timeout', timeout)
        assert fed.statuses == ['exit 0', 'crash', 'exit 0', 'hang', 'crash',
                                'exit 0']
        assert [o for o in fed.outputs if o] == [
            answer(i) for i in ('first', 'second', 'third')]
        assert fed.stderr.count('the guest shut down or reset') == 2
        assert f'no answer within {timeout} s' in fed.stderr
        # three by the guest, three by the host
        assert wait_generation(guest, len(inputs))['loads'] == 3


# A guest's kernel command line, and --timeout
PANICS = {'by-console': ('', 5), 'by-reset': ('panic=-1', 60)}
# It waits for time-outs while the guest spins; other tests have one each
BY_CONSOLE = pytest.mark.long('by-reset reads the console, too')


@pytest.mark.parametrize('how', (
    pytest.param('by-console', marks=BY_CONSOLE), 'by-reset'))
def test_panic_is_no_hang(tmp_path, how):
    """By what the console says, which is kept."""
    append, timeout = PANICS[how]
    console = tmp_path / 'console'
    inputs = ['first', 'panic', 'second', 'third']
    if how == 'by-console':
        inputs.insert(3, 'freeze')
    # beside the port that the test talks to
    with boot(tmp_path, 'tcg', append=f'{append} console=ttyS1', devices=(
            '-chardev', f'file,id=console,path={console}',
            '-device', 'isa-serial,index=1,chardev=console'),
            **REWIND) as guest:
        guest.run('snapctl-harness -- snaptarget /run/dirty &')
        fed = feed(tmp_path, inputs, '--qmp', tmp_path / 'qmp', '--snapshot',
                   'a', '--timeout', timeout, '--console', console)
        assert fed.statuses == [
            {'panic': 'panic', 'freeze': 'hang'}.get(text, 'exit 0')
            for text in inputs]
        # a panic is known at once if it resets the guest
        assert fed.stderr.count('no answer within') == \
            (0 if how == 'by-reset' else 2)
        assert fed.stderr.count("its console says 'Kernel panic - not "
                                "syncing: sysrq triggered crash'") == 1
        kept = tmp_path / 'results/000002.console'
        assert 'Call Trace:' in kept.read_text()
        assert [path.name for path in tmp_path.glob('results/*.console')
                if path.stat().st_size] == [kept.name]
        wait_generation(guest, len(inputs))


def test_panic_that_qemu_is_told(tmp_path):
    """At once, without a console and without panic=-1."""
    with boot(tmp_path, 'tcg', devices=('-device', 'pvpanic-pci'),
              **REWIND) as guest:
        guest.run('insmod /lib/pvpanic.ko; insmod /lib/pvpanic-pci.ko')
        guest.run('snapctl-harness -- snaptarget /run/dirty &')
        fed = feed(tmp_path, ['a', 'panic', 'b'], '--qmp', tmp_path / 'qmp',
                   '--snapshot', 'a', '--timeout', 60)
        assert fed.statuses == ['exit 0', 'panic', 'exit 0']
        assert 'the guest panicked' in fed.stderr
        info = guest.qmp('query-ram-reset')
        assert info['loads'] == info['rewinds'], \
            info['last-load'].get('blocker')


def test_hang_without_a_monitor(tmp_path, linux_accel):
    with boot(tmp_path, linux_accel) as guest:
        guest.run('snapctl-harness -- snaptarget &')
        fed = feed(tmp_path, ['a', 'freeze', 'b'], '--timeout', 3, status=1)
        assert fed.statuses == ['exit 0']
        assert '--qmp would load the snapshot' in fed.stderr


def test_the_host_saves(tmp_path, linux_accel):
    inputs = [f'input {i}' for i in range(10)]
    with boot(tmp_path, linux_accel, 'allow=load', **REWIND) as guest:
        guest.run('snapctl-harness -- snaptarget /run/dirty &')
        fed = feed(tmp_path, inputs, '--qmp', tmp_path / 'qmp', '--snapshot',
                   'a', '--save')
        assert fed.outputs == [answer(text) for text in inputs]
        assert wait_generation(guest, 10)['saves'] == 0
