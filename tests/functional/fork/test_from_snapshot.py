# SPDX-License-Identifier: GPL-2.0-or-later
"""Machines that start from one snapshot in one image, each with an overlay."""

# Takes: 25 s

import contextlib
import shutil

import pytest

from lib.content import assert_same_ram
from lib.forks import (LATER, OPTION, SAVED, check_all, digests, fork, machine,
                       parent, use)
from lib.guests import Linux
from lib.kills import Disks, Kills, check_disks
from lib.machine import DISK, MIB, MachineError
from lib.migrating import wait_migration
from lib.templates import files

REWIND = ('', ',rewind=on,verify=on')
# Names that JSON, or QEMU's options, may take for something else
NAMES = ('1', 'two words', 'a,b=c', 'quote"d', 'back\\slash', 'ümläut', '{x}',
         '-n')


@pytest.mark.parametrize('options', REWIND, ids=('load', 'rewind'))
@pytest.mark.parametrize('disks', (1, 2))
def test_three_at_once(tmp_path, templates, options, disks):
    """They share the template of the image's own snapshot."""
    options += f',template-dir={templates}'
    image = parent(tmp_path / 'parent', disks, options=options)
    file, = files(templates)
    before = digests(image)
    children = [fork(image, tmp_path / str(n), 's') for n in range(3)]
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(machine(child, disks, loadvm='s',
                                              options=options))
                  for child in children]
        for guest in guests:
            assert guest.last_load()['template'] == str(file)
        for n, guest in enumerate(guests, 3):
            use(guest, n * 0x10, 'rewind' in options)
        for guest in guests:
            guest.load('s')
            assert_same_ram(guest.ram_image(), guests[0].ram_image())
    assert digests(image) == before
    check_all(image, *children)
    for n, child in enumerate(children, 3):
        with machine(child, disks, loadvm='own', options=options) as guest:
            assert guest.holds(SAVED, n * 0x10) == n * 0x10
    # the original goes on where it was
    with machine(image, disks, loadvm='s', options=options) as guest:
        assert guest.last_load()['template'] == str(file)
        assert guest.holds(SAVED, LATER) == SAVED


@pytest.mark.parametrize('options', REWIND, ids=('load', 'rewind'))
def test_without_templates(tmp_path, saved_image, options):
    """RAM is read from the image, and pages of the baseline later."""
    child = fork(saved_image, tmp_path / 'child', 's')
    with machine(child, options=options) as guest:
        assert guest.disk_io(DISK, f'read -P {SAVED} 0 128k')
        guest.fill(0x33)
        guest.load('s', 'qmp')
        use(guest, 0x40, bool(options))
    check_all(saved_image, child)


def test_without_an_object(tmp_path, saved_image):
    child = fork(saved_image, tmp_path / 'child', 's')
    with Disks(child, 1, loadvm='s') as guest:
        for number in 0x33, 0x44:
            assert guest.holds(SAVED, LATER) == SAVED
            guest.fill(number)
            guest.load('s')
    check_all(saved_image, child)


def test_temporary_overlay(tmp_path, saved_image):
    """-drive makes it."""
    before = digests(saved_image)
    folder = tmp_path / 'child'
    folder.mkdir()
    drive = (f'if=none,id=temporary,file={saved_image}/disk.qcow2,{OPTION}=s,'
             'snapshot=on')
    with machine(folder, args=('-drive', drive), loadvm='s',
                 options=f',rewind=on,keep-disks={DISK}') as guest:
        guest.disk_io('temporary', 'write -P 0x33 0 128k')
        guest.save('own')
        for tag, content in ('s', SAVED), ('own', 0x33), ('s', SAVED):
            guest.disk_io('temporary', 'write -P 0x44 0 128k')
            guest.load(tag)
            assert guest.disk_io('temporary', f'read -P {content} 0 128k')
    assert digests(saved_image) == before


def test_overlay_that_takes_all_from_the_image(tmp_path, saved_image):
    """Then it inherits nothing, and QEMU has only what it has read."""
    child = fork(saved_image, tmp_path / 'child', 's')
    with machine(child, loadvm='s', options=',rewind=on') as guest:
        guest.fill(0x33)
        guest.save('own')
        guest.qmp('block-stream', **{'job-id': 'j', 'device': DISK})
        while guest.event('JOB_STATUS_CHANGE')['status'] != 'null':
            pass
        with pytest.raises(MachineError, match='does not exist in one'):
            guest.load('s')
        shutil.rmtree(saved_image)
        for number in 0x44, 0x55:
            guest.fill(number)
            guest.load('own')
            assert guest.holds(SAVED, 0x33, number) == 0x33
    check_all(child)
    with machine(child, loadvm='own') as guest:
        assert guest.holds(SAVED, 0x33) == 0x33


def test_own_snapshot_of_the_name_comes_first(tmp_path, saved_image):
    child = fork(saved_image, tmp_path / 'child', 's')
    with machine(child, options=',rewind=on', loadvm='s') as guest:
        guest.fill(0x33)
        guest.save('s')
        guest.fill(0x44)
        guest.load('s')
        assert guest.holds(SAVED, 0x33, 0x44) == 0x33
        guest.hmp('delvm s')
        assert guest.tags() == [[]]
        guest.load('s')
        assert guest.holds(SAVED, 0x33, 0x44) == SAVED
    check_all(saved_image, child)


@pytest.mark.parametrize('tag', NAMES)
def test_name(tmp_path, tag):
    image = parent(tmp_path / 'parent', tag=tag)
    child = fork(image, tmp_path / 'child', tag)
    with machine(child) as guest:
        guest.fill(0x33)
        guest.load(tag, 'qmp')
        assert guest.holds(SAVED, LATER, 0x33) == SAVED


def test_incoming_migration(tmp_path, saved_image):
    """When it activates the disks, the node shows the snapshot once more."""
    child = fork(saved_image, tmp_path / 'child', 's')
    stream = tmp_path / 'stream'
    with machine(child, loadvm='s') as guest:
        guest.disk_io(DISK, 'write -P 0x33 128k 64k')
        guest.qmp('migrate', uri=f'file:{stream}')
        wait_migration(guest)
    with machine(child, args=('-incoming', f'file:{stream}')) as guest:
        while guest.status() != 'running':
            pass
        assert guest.holds(SAVED, LATER) == SAVED
        assert guest.disk_io(DISK, 'read -P 0x33 128k 64k')
        guest.load('s')
        assert guest.disk_io(DISK, 'read -P 0 128k 64k')
    check_all(saved_image, child)


@pytest.mark.parametrize('seed', (0, 1, 2), ids=('kill', 'power', 'power2'))
def test_kill_at_every_write_of_a_load(tmp_path, saved_image, monkeypatch,
                                       seed):
    """
    The overlay is as it was, or empty; only clusters leak.  With a seed the
    host loses its power.
    """
    kills = Kills(tmp_path, monkeypatch)
    outcomes = set()
    for nth in range(1, 100):
        child = fork(saved_image, tmp_path / f'child{nth}', 's')
        guest = machine(child)
        guest.fill(0x33)
        guest.save('own')
        guest.fill(0x44)
        guest.hmp(f'qemu-io {DISK} flush')
        kills.arm(nth, seed)
        ended = False
        with contextlib.suppress(MachineError):
            guest.load('s')
            ended = True
        kills.disarm()
        guest.close()
        check_disks(child)
        with machine(child) as guest:
            found = [number for number in (SAVED, 0x44)
                     if guest.disk_io(DISK, f'read -P {number} 0 128k')]
            outcomes.update(found)
            assert len(found) == 1
            guest.load('own')
            assert guest.holds(SAVED, 0x33, 0x44) == 0x33
            guest.load('s')
            assert guest.holds(SAVED, 0x33, 0x44) == SAVED
        if ended:
            break
    assert ended and nth > 2 and outcomes == {SAVED, 0x44}


def test_linux(tmp_path, templates, each_linux_accel):
    """Each guest knows what it is, and has its own disk."""
    machine_of = {'accel': each_linux_accel, 'ram': 192 * MIB,
                  'strategy': 'auto',
                  'options': f',rewind=on,template-dir={templates}',
                  'args': ('-device', f'virtio-blk-pci,drive={DISK}')}
    image = tmp_path / 'parent'
    image.mkdir()
    put = 'dd if=/run/state of=/dev/vda bs=1M conv=fsync 2>/dev/null'
    get = 'dd if=/dev/vda bs=1M count=4 iflag=direct 2>/dev/null | ' \
          'sha256sum | cut -c1-64'
    with Linux(image, **machine_of) as guest:
        guest.run('insmod /lib/virtio_blk.ko')
        guest.prepare_state(4)
        guest.run(put)
        guest.save('s')
        state = guest.state()
        guest.run('dd if=/dev/zero of=/dev/vda bs=1M count=4 conv=fsync '
                  '2>/dev/null')
    before = digests(image)
    children = [fork(image, tmp_path / str(n), 's') for n in range(2)]
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(Linux(child, loadvm='s', **machine_of))
                  for child in children]
        for guest in guests:
            assert guest.last_load()['template']
            assert guest.state() == state
            assert guest.run(get) == state.checksum
        for n, guest in enumerate(guests):
            # their random numbers are the same
            guest.run(f'echo {n} >/run/state')
            guest.run(put)
        sums = [guest.run(get) for guest in guests]
        assert len({*sums, state.checksum}) == 3
        for guest in guests:
            guest.load('s')
            assert guest.last_load()['rewound']
            assert guest.state() == state
            assert guest.run(get) == state.checksum
    assert digests(image) == before
    check_all(image, *children)
