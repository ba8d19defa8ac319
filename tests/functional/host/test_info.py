# SPDX-License-Identifier: GPL-2.0-or-later
"""info ram-reset, and what query-ram-reset has of devices and recent loads."""

# Takes: 10 s

import re

import pytest

from lib.machine import MIB, Machine, MachineError

TAG = 's'
RECENT = 100
HEADINGS = ['Objects', 'Loads', 'Next load', 'Known', 'Last load',
            'Time in ms', 'RAM of the last load',
            'Devices that each load loads']
OF_REWINDS = ('Next load', 'Known', 'Devices that each load loads')


def start(workdir, options='', args=()):
    return Machine(workdir, accel='tcg', ram=64 * MIB, strategy='auto',
                   options=options, args=('-S', *args))


def info_text(guest):
    return guest.hmp('info ram-reset').replace('\r', '')


def value_of(text, label):
    """What a line has behind its label."""
    return re.search(rf'^ *{re.escape(label)}  +(.*)$', text,
                     re.MULTILINE)[1].strip()


def times_of(text, phase):
    return [float(n) for n in value_of(text, phase).split()]


@pytest.mark.parametrize('rewind', (True, False))
def test_order_and_width(tmp_path, rewind):
    with start(tmp_path, ',rewind=on' if rewind else '') as guest:
        guest.save(TAG)
        guest.load(TAG)
        text = info_text(guest)
    headings = [line for line in text.splitlines()
                if line and not line.startswith(' ')]
    expected = [h for h in HEADINGS if rewind or h not in OF_REWINDS]
    assert len(headings) == len(expected)
    for line, heading in zip(headings, expected):
        assert line.startswith(heading)
    assert max(map(len, text.splitlines())) <= 110


def test_zeros_are_left_out(tmp_path):
    with start(tmp_path, ',rewind=on') as guest:
        guest.save(TAG)
        guest.load(TAG)
        text = info_text(guest)
    assert value_of(text, 'Loads') == '1 done, 1 of them by rewinding'
    assert 'verify' not in text and 'failed' not in text
    assert not re.search(r'\b0 [a-z]', text.partition('RAM of')[2])


def test_small_blocks_are_one_line(tmp_path):
    with start(tmp_path, ',rewind=on', ('-vga', 'std')) as guest:
        guest.save(TAG)
        guest.load(TAG)
        blocks = guest.last_load()['blocks']
        text = info_text(guest)
    small = [b for b in blocks if b['rom'] or b['size'] < MIB]
    assert any(b['rom'] for b in small)
    assert {b['name'].split('/')[-1] for b in blocks if b not in small} == \
        {'mem0', 'vga.vram'}
    assert f'  {len(small)} ROMs and small blocks ' in text
    for block in blocks:
        shown = re.search(rf'^  {re.escape(block["name"])} ', text,
                          re.MULTILINE)
        assert bool(shown) == (block not in small)


def load_twice(guest):
    """The first load of a snapshot leaves no device alone."""
    guest.save(TAG)
    for _ in range(2):
        guest.load(TAG)
    return guest.last_load()


def test_devices_are_counted(tmp_path):
    with start(tmp_path, ',rewind=on', ('-device', 'qemu-xhci', '-device',
                                        'usb-kbd')) as guest:
        last = load_twice(guest)
        loaded = guest.qmp('query-ram-reset')['loaded-devices']
        text = info_text(guest)
        guest.qmp('device_add', driver='virtio-rng-pci', id='more')
        after = load_twice(guest)
        assert any(entry['class'] == 'virtio-rng-pci' for entry in
                   guest.qmp('query-ram-reset')['loaded-devices'])
    assert last['devices-kept'] > 0
    assert value_of(text, 'devices') == \
        f'{last["devices-loaded"]} loaded, {last["devices-kept"]} left unchanged'
    assert sum(d['count'] for d in loaded) <= last['devices-loaded']
    for entry in loaded:
        assert entry['class'] in text and f'{entry["reason"]}:' in text
    assert [d['reason'] for d in loaded if d['class'] == 'qemu-xhci'] == \
        ["its part 'usb-kbd': RAM reset does not know the class"]
    assert sum(after[k] - last[k] for k in
               ('devices-loaded', 'devices-kept')) == 1


def test_whole_load_loads_all_devices(tmp_path):
    with start(tmp_path) as guest:
        guest.save(TAG)
        guest.load(TAG)
        last = guest.last_load()
        info = guest.qmp('query-ram-reset')
    assert last['devices-kept'] == 0 and last['devices-loaded'] > 5
    assert 'loaded-devices' not in info


def test_recent_loads(tmp_path):
    """Mean and slowest are those of the last RECENT loads."""
    with start(tmp_path, ',rewind=on') as guest:
        assert 'recent-loads' not in guest.qmp('query-ram-reset')
        guest.save(TAG)
        phases = []
        for _ in range(RECENT + 5):
            guest.load(TAG)
            info = guest.qmp('query-ram-reset')
            phases.append(info['last-load']['phases'])
            window = phases[-RECENT:]
            recent = info['recent-loads']
            assert recent['loads'] == len(window)
            assert recent['slowest'] == max(window, key=lambda p: p['total'])
            for phase, mean in recent['mean'].items():
                assert mean == sum(p[phase] for p in window) // len(window)
        text = info_text(guest)
    assert times_of(text, 'total') == \
        [round(t['total'] / 1e6, 3) for t in
         (phases[-1], recent['mean'], recent['slowest'])]


def test_refused_load_does_not_count(tmp_path):
    with start(tmp_path) as guest:
        guest.save(TAG)
        guest.load(TAG)
        before = guest.qmp('query-ram-reset')['recent-loads']
        with pytest.raises(MachineError):
            guest.load('none')
        assert guest.qmp('query-ram-reset')['recent-loads'] == before
