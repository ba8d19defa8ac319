# SPDX-License-Identifier: GPL-2.0-or-later
"""save-kind=memory: RAM and devices of a snapshot are in QEMU only."""

# Takes: 20 s

import json
import time

import pytest

from lib import products
from lib.guests import PAGE, Ring3
from lib.machine import DISK, MIB, MachineError, run_quietly
from lib.rewinding import RAM_SIZE, START, Explorer, Still, boot, full_disk
from lib.shm import in_memory

MEMORY = ',save-kind=memory'


def snapshots(guest) -> dict[str, int]:
    """Name and bytes of the VM state of each snapshot in the image."""
    info = json.loads(run_quietly(products.QEMU_IMG, 'info', '-U',
                                  '--output=json', guest.disk))
    return {s['name']: s['vm-state-size'] for s in info.get('snapshots', ())}


@pytest.mark.long('test_both_kinds walks, too')
def test_random_walk(tmp_path, tracker, rng):
    with boot(tmp_path, tracker, options=',verify=on' + MEMORY) as guest:
        guest.stop()
        explorer = Explorer(guest, rng)
        for _ in range(explorer.STEPS // 2):
            explorer.step()
        explorer.check_all()
        assert set(snapshots(guest).values()) <= {0}


@pytest.mark.any_value
def test_both_kinds(tmp_path, tracker, rng):
    """The kind changes from save to save."""
    with boot(tmp_path, tracker, options=',verify=on') as guest:
        guest.stop()
        explorer = Explorer(guest, rng)
        for i in range(explorer.STEPS // 2):
            guest.qmp('qom-set', path='/objects/rr0', property='save-kind',
                      value=rng.choice(('memory', 'image')))
            explorer.step()
        explorer.check_all()
        kinds = {s['tag']: s['kind'] for s in guest.qmp(
            'query-ram-reset')['rewind']['snapshots']}
        assert set(kinds.values()) == {'memory', 'image'}
        assert {tag: 'image' if size else 'memory' for tag, size
                in snapshots(guest).items()} == kinds


@pytest.mark.parametrize('default', ('image', 'memory'))
def test_kind_of_one_save(tmp_path, default):
    """An argument of snapshot-save; the property holds for all others."""
    other, = {'image', 'memory'} - {default}
    with Still(tmp_path, f',verify=on,save-kind={default}') as guest:
        kinds = {'a': other, 'b': default, 'c': default, 'd': other}
        for byte, (tag, kind) in enumerate(kinds.items(), 1):
            guest.put(0, byte, 10)
            if tag == 'b':
                guest.snapshot_job('snapshot-save', tag)
            elif tag == 'c':
                guest.save(tag)
            else:
                guest.snapshot_job('snapshot-save', tag, kind=kind)
        assert {t: s['kind'] for t, s in guest.known().items()} == kinds
        assert {t: 'image' if size else 'memory'
                for t, size in snapshots(guest).items()} == kinds
        for byte, tag in enumerate(kinds, 1):
            guest.load(tag)
            assert guest.last_load()['rewound']
            assert guest.qtest.read(START, 1)[0] == byte


def test_kind_needs_rewind(tmp_path):
    """A save that fails leaves its kind to no other."""
    with Still(tmp_path, ',rewind=off') as guest:
        with pytest.raises(MachineError, match='rewind=on'):
            guest.snapshot_job('snapshot-save', 's', kind='memory')
        guest.snapshot_job('snapshot-save', 's')
        assert snapshots(guest)['s']


def test_disk_goes_back_too(tmp_path, fast_accel):
    with boot(tmp_path, fast_accel, options=MEMORY) as guest:
        for pattern in 1, 2:
            guest.hmp(f'qemu-io {DISK} "write -P {pattern} 0 64k"')
            guest.ask('fill', START, MIB, pattern)
            guest.save(f's{pattern}')
        for pattern in 1, 2, 1:
            guest.load(f's{pattern}')
            assert guest.last_load()['rewound']
            guest.ask('check-fill', START, MIB, pattern)
            guest.hmp(f'qemu-io {DISK} "read -P {pattern} 0 64k"')
            # qemu-io writes to QEMU's output
            assert 'Pattern verification failed' not in guest.log()
        guest.hmp(f'qemu-io {DISK} "read -P 7 0 64k"')
        assert 'Pattern verification failed' in guest.log()


def test_another_qemu_refuses(tmp_path):
    """Also stock QEMU: it sees a snapshot of the disk only."""
    with Still(tmp_path, MEMORY) as guest:
        guest.save('s')
        guest.load('s')
        assert guest.last_load()['rewound']
        assert snapshots(guest) == {'s': 0}
    with Still(tmp_path, MEMORY) as guest:
        assert not guest.known()
        with pytest.raises(MachineError, match='disk-only snapshot'):
            guest.load('s')
        guest.put(0, 1)
        guest.save('s')         # takes the place of the old one
        guest.put(0, 2)
        guest.load('s')
        assert guest.qtest.read(START, 1) == b'\1'
    with pytest.raises(MachineError, match='disk-only snapshot'):
        Still(tmp_path, loadvm='s')


def reasons():
    """What ends a rewind: (name, what to do)."""
    def plug(guest):
        guest.qmp('device_add', driver='virtio-rng-pci', id='rng')
        guest.qmp('device_del', id='rng')

    def switch(guest):
        for value in False, True:
            guest.qmp('qom-set', path='/objects/rr0', property='rewind',
                      value=value)

    def migrate(guest):
        guest.qmp('migrate-set-parameters', **{'max-bandwidth': 1})
        guest.qmp('migrate', uri='exec:cat >/dev/null')
        guest.qmp('migrate_cancel')
        while guest.qmp('query-migrate')['status'] != 'cancelled':
            time.sleep(0.01)

    def switch_off(guest):
        guest.qmp('qom-set', path='/objects/rr0', property='rewind',
                  value=False)

    def fail(guest):
        guest.put(1000, 9, 1000)
        guest.qmp('qom-set', path='/objects/rr0', property='save-kind',
                  value='image')
        with pytest.raises(MachineError), full_disk(guest):
            guest.save('full')

    return plug, switch, migrate, switch_off, fail


@pytest.mark.parametrize('what', reasons(), ids=lambda f: f.__name__)
def test_is_not_lost(tmp_path, what):
    """Where an image would be loaded as a whole, RAM is compared."""
    with Still(tmp_path, ',verify=on' + MEMORY) as guest:
        guest.put(0, 1, 10)
        guest.save('a')
        guest.put(5, 2, 10)
        guest.save('b')
        image = guest.ram_image()
        what(guest)
        guest.put(0, 3, 100)
        guest.load('b')
        assert guest.ram_image() == image
        assert guest.qtest.read(START, 1) == b'\1'
        guest.put(0, 4, 100)
        guest.load('a')
        assert guest.qtest.read(START + 10 * PAGE, 1) == b'\0'
        guest.load('b')
        assert guest.ram_image() == image
        if what.__name__ != 'switch_off':
            assert guest.last_load()['rewound']


def test_needs_rewind(tmp_path):
    with Still(tmp_path, ',rewind=off' + MEMORY) as guest:
        with pytest.raises(MachineError, match='rewind=on'):
            guest.save('s')
        assert not snapshots(guest)


def test_no_room(tmp_path):
    """A save fails, and loses nothing, that of the same name included."""
    with Still(tmp_path) as guest:
        guest.save('root')
        base = guest.rewind()['baseline']
    limit = f',rewind-limit={base + 10 * PAGE}'
    with Still(tmp_path, ',verify=on' + MEMORY + limit) as guest:
        guest.put(0, 1, 5)
        guest.save('s')
        guest.put(0, 2, 20)
        with pytest.raises(MachineError, match='rewind-limit'):
            guest.save('s')
        assert snapshots(guest)['s'] == 0
        with pytest.raises(MachineError, match='rewind-limit'):
            guest.save('t')
        assert 't' not in snapshots(guest)
        guest.load('s')
        assert guest.qtest.read(START, 1) == b'\1'
        guest.hmp('delvm s')
        with pytest.raises(MachineError, match='does not exist|disk-only'):
            guest.load('s')


def test_digest_finds_a_change(tmp_path):
    """verify=on covers such loads: a save without it cannot be verified."""
    with Still(tmp_path, MEMORY) as guest:
        guest.save('s')
        guest.qmp('qom-set', path='/objects/rr0', property='verify', value=True)
        with pytest.raises(MachineError, match='saved with verify=off'):
            guest.load('s')
        guest.qmp('qom-set', path='/objects/rr0', property='verify',
                  value=False)
        guest.load('s')         # nothing has been changed
        assert guest.last_load()['rewound']


def test_running_guest(tmp_path, fast_accel):
    """It runs on after the save, and again after each load."""
    with Ring3(tmp_path, accel=fast_accel, ram=RAM_SIZE, memory='shared',
               strategy='auto', options=',rewind=on' + MEMORY) as guest:
        guest.start_loop(START, 256, 16)
        guest.save('s')
        for _ in range(20):
            guest.load('s', 'qmp')
            assert guest.last_load()['rewound']
            guest.next_pass()


def test_first_save_reads_no_ram(tmp_path, fast_accel):
    """All of it is dirty in the log that such a save starts."""
    with boot(tmp_path, fast_accel, options=MEMORY) as guest:
        guest.stop()
        before = guest.rss()
        guest.save('s')
        assert guest.rss() - before < 4 * MIB
        guest.load('s')
        assert guest.last_load()['rewound']


@pytest.mark.parametrize('machine', ('microvm', 'q35,suppress-vmdesc=on'))
def test_short_vm_state(tmp_path, machine):
    """Its end is within what QEMU reads ahead."""
    with Still(tmp_path, MEMORY, machine=machine) as guest:
        guest.put(0, 1)
        guest.save('s')
        guest.put(0, 2)
        guest.load('s')
        assert guest.last_load()['rewound']
        assert guest.qtest.read(START, 1) == b'\1'


def test_two_of_a_name(tmp_path):
    """As two saves within a second have if they are given none."""
    with Still(tmp_path, ',verify=on' + MEMORY) as guest:
        tags = set()
        while len(tags) != 1:
            tags.clear()
            for i in 1, 2:
                guest.put(0, i)
                guest.hmp(f'qemu-io {DISK} "write -P {i} 0 64k"')
                guest.hmp('savevm')
                tags.add(max(snapshots(guest)))
        guest.load(tags.pop())
        value, = guest.qtest.read(START, 1)
        guest.hmp(f'qemu-io {DISK} "read -P {value} 0 64k"')
        assert 'Pattern verification failed' not in guest.log()


@pytest.mark.parametrize('image', (True, False))
def test_reset_removes_ram(tmp_path, image):
    """The system reset of the load ends an unplug that was asked for."""
    kind = 'image' if image else 'memory'
    nic = {'driver': 'virtio-net-pci', 'id': 'nic', 'romfile':
           str(products.FIRMWARE / 'efi-virtio.rom')}
    with Still(tmp_path, f',save-kind={kind}') as guest:
        guest.qmp('device_add', **nic)
        guest.save('s')
        guest.qmp('device_del', id='nic')
        with pytest.raises(MachineError):
            guest.load('s')
        assert guest.status() != 'running'
        with pytest.raises(MachineError, match='RAM block|other blocks|fit'):
            guest.load('s')


def test_no_vm_state_stays_allocated(tmp_path):
    """A load of an image leaves its VM state in the active layer."""
    with Still(tmp_path) as guest:
        guest.put(0, 1, 1000)
        guest.save('image')
        guest.load('image')
        guest.qmp('qom-set', path='/objects/rr0', property='save-kind',
                  value='memory')
        guest.save('memory')
        guest.hmp('delvm image')
    assert (tmp_path / 'disk.qcow2').stat().st_blocks * 512 < 2 * MIB


@pytest.mark.parametrize('what', ('limit', 'options'))
def test_template_is_of_the_load(tmp_path, what):
    """RAM was that of a template; it is not when the guest has written."""
    with in_memory('templates') as folder:
        options = f',template-dir={folder},verify=off' + MEMORY
        with Still(tmp_path, f',template-dir={folder}') as guest:
            guest.save('s')
        limit = ',rewind-limit=64K' if what == 'limit' else ''
        with Still(tmp_path, options + limit, strategy='memset',
                   memory='private') as guest:
            guest.load('s')
            assert 'template' in guest.last_load()
            guest.put(0, 1, 100)
            if what == 'options':
                guest.qmp('qom-set', path='/objects/rr0',
                          property='rewind-limit', value=RAM_SIZE)
                guest.save('m')
            else:
                with pytest.raises(MachineError, match='rewind-limit'):
                    guest.save('m')
                return
            guest.put(0, 2, 100)
            guest.load('m')
            assert guest.qtest.read(START, 1) == b'\1'


def test_switched_off_frees_all(tmp_path):
    """Also if QEMU did not know the changes of RAM any more."""
    with Still(tmp_path, MEMORY) as guest:
        guest.put(0, 1, 2000)
        guest.save('s')
        guest.qmp('qom-set', path='/objects/rr0', property='save-kind',
                  value='image')
        full = guest.rss()
        guest.qmp('device_add', driver='virtio-rng-pci', id='rng')
        guest.qmp('qom-set', path='/objects/rr0', property='rewind',
                  value=False)
        assert guest.rss() > full - 4 * MIB     # the snapshot in memory
        guest.hmp('delvm s')
        assert guest.rss() < full - 7 * MIB


def test_failed_save_without_a_name(tmp_path):
    """Within a second its name is that of the one before, which stays."""
    with Still(tmp_path) as guest:
        guest.save('root')
        base = guest.rewind()['baseline']
    with Still(tmp_path, MEMORY + f',rewind-limit={base + 10 * PAGE}') as guest:
        guest.hmp('delvm root')
        time.sleep(1.01 - time.time() % 1)
        guest.hmp('savevm')
        guest.put(0, 1, 100)
        with pytest.raises(MachineError):
            guest.hmp('savevm')
        assert len(snapshots(guest)) == 1
        guest.load(*snapshots(guest))
        assert guest.qtest.read(START, 1) == b'\0'
