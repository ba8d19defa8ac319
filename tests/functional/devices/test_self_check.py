# SPDX-License-Identifier: GPL-2.0-or-later
"""What a load is to leave alone for the first time is saved and compared with
the snapshot; unchanged-devices=off has all devices loaded."""

# Takes: 30 s

from pathlib import Path

from common import ROOT
from lib.dma import QtestMachine
from lib.guests import Ring3
from lib.machine import DISK
from lib.relink import relinked
from lib.rewinding import RAM_SIZE, assert_rewound

KINDS = 'system/ram-reset/devices/kinds.c'
KIND = '{ "PIIX4_PM", .size = sizeof(PIIX4PMState),'
# QEMU does not look at this member of a structure any more
BLIND = KIND + ' .holes = { HOLE_OF(PIIX4PMState, ar.pm1.evt.en) },'
ADDRESS, DATA = 0xcf8, 0xcfc
FUNCTION, PORT = 1 << 31 | 1 << 11 | 3 << 8, 0x600
ENABLE, RTC_ALARM = PORT + 2, 1 << 10
MEMORY = 'system/ram-reset/devices/memory.c'
CONFIG = '    device_sweep(s, pci->config, pci_config_size(pci));\n'
# QEMU does not look at this byte of any configuration space any more
LINE = 0x3c
BLIND_CONFIG = f"""\
    device_sweep(s, pci->config, {LINE});
    device_sweep(s, pci->config + {LINE + 1}, pci_config_size(pci) - {LINE + 1});
"""


class PowerManagement(QtestMachine):
    """A pc without firmware, whose PIIX4_PM is switched on."""

    def __init__(self, workdir: Path, **kwargs):
        super().__init__(workdir, ram=RAM_SIZE, machine='pc', strategy='auto',
                         options=',rewind=on',
                         args=('-device', f'virtio-blk-pci,drive={DISK}'),
                         **kwargs)
        for at, value in ((0x40, PORT | 1), (0x80, 1)):
            self.qtest.out('l', ADDRESS, FUNCTION | at)
            self.qtest.out('l', DATA, value)

    def enabled(self) -> int:
        return int(self.qtest.ask(f'inw {ENABLE:#x}'), 0)

    def load_changed(self, tag: str) -> int:
        """How many devices are left alone after a change."""
        self.qtest.out('w', ENABLE, RTC_ALARM)
        assert self.enabled() == RTC_ALARM
        self.load(tag)
        assert_rewound(self)
        return self.last_load()['devices-kept']

    def loaded_classes(self) -> dict[str, str]:
        found = self.qmp('query-ram-reset')['loaded-devices']
        return {c['class']: c['reason'] for c in found
                if 'does not know' not in c['reason']}


def checks(guest: Ring3, tag: str) -> int:
    """How many devices a load checks."""
    begin = len(guest.log())
    guest.load(tag)
    return guest.log()[begin:].count('ram_reset_self_check ')


def test_changed_device_is_found(tmp_path):
    """Its memory seems to be unchanged."""
    text = (ROOT / KINDS).read_text()
    assert text.count(KIND) == 1
    qemu = relinked(tmp_path, KINDS, text.replace(KIND, BLIND))
    with PowerManagement(tmp_path, qemu=qemu) as guest:
        guest.save('s')
        guest.load('s')
        kept = guest.load_changed('s')
        assert kept and guest.enabled() == 0
        assert list(guest.loaded_classes()) == ['PIIX4_PM']
        assert 'ar.pm1.evt.en' in guest.loaded_classes()['PIIX4_PM']
        guest.save('t')
        for tag in 'sssttt':
            guest.load(tag)
            guest.load_changed(tag)
            assert guest.enabled() == 0
        assert guest.load_changed('t') == kept
        assert guest.qmp('query-ram-reset')['self-check-failures'] == 1
        text = guest.hmp('info ram-reset')
        assert '1 failed self-check(s)' in text
        assert 'a self-check has failed' in text


def test_each_device_is_checked_once_for_a_snapshot(tmp_path):
    with Ring3(tmp_path, accel='tcg', ram=RAM_SIZE, strategy='auto',
               options=',rewind=on,verify=on') as guest:
        guest.stop()
        guest.save('s')
        guest.save('t')
        guest.hmp('trace-event ram_reset_self_check on')
        assert [checks(guest, 's') > 0 for _ in range(4)] == \
            [False, True, False, False]
        assert [checks(guest, 't') > 0 for _ in range(3)] == \
            [False, True, False]
        assert guest.last_load()['devices-kept']
        assert guest.qmp('query-ram-reset')['self-check-failures'] == 0


def test_all_devices_are_loaded_without_it(tmp_path):
    with Ring3(tmp_path, accel='tcg', ram=RAM_SIZE, strategy='auto',
               options=',rewind=on,verify=on,unchanged-devices=off') as guest:
        guest.stop()
        guest.save('s')

        def kept(value: bool) -> list[bool]:
            guest.qmp('qom-set', path='/objects/rr0',
                      property='unchanged-devices', value=value)
            found = []
            for _ in range(3):
                guest.load('s')
                assert_rewound(guest)
                found.append(guest.last_load()['devices-kept'] > 0)
            return found

        for _ in range(2):
            guest.load('s')
            assert guest.last_load()['devices-kept'] == 0
        assert kept(False) == [False] * 3
        assert kept(True) == [False, True, True]
        assert kept(False) == [False] * 3


class RootPorts(QtestMachine):
    """Two devices of one class, in slots 4 and 5."""

    def __init__(self, workdir: Path, **kwargs):
        ports = [f'pcie-root-port,id=p{n},chassis={n},addr={n}' for n in (4, 5)]
        super().__init__(workdir, ram=RAM_SIZE, machine='q35', strategy='auto',
                         options=',rewind=on',
                         args=('-device', ports[0], '-device', ports[1]),
                         **kwargs)

    def _select(self, slot: int) -> None:
        self.qtest.out('l', ADDRESS, 1 << 31 | slot << 11 | LINE)

    def line(self, slot: int) -> int:
        self._select(slot)
        return int(self.qtest.ask(f'inb {DATA:#x}'), 0)

    def set_line(self, slot: int, value: int) -> None:
        self._select(slot)
        self.qtest.out('b', DATA, value)


def test_failure_is_about_all_devices_of_the_class(tmp_path):
    text = (ROOT / MEMORY).read_text()
    assert text.count(CONFIG) == 1
    qemu = relinked(tmp_path, MEMORY, text.replace(CONFIG, BLIND_CONFIG))
    with RootPorts(tmp_path, qemu=qemu) as guest:
        guest.save('s')
        guest.load('s')
        guest.set_line(5, 7)
        for value in range(9, 12):
            guest.load('s')
            assert_rewound(guest)
            assert [guest.line(4), guest.line(5)] == [0, 0]
            guest.set_line(4, value)
            guest.set_line(5, value)
        assert guest.qmp('query-ram-reset')['self-check-failures'] == 1


def bytes_read(guest: QtestMachine) -> int:
    text = Path(f'/proc/{guest.process.pid}/io').read_text()
    return int(text.split('rchar: ')[1].split()[0])


def test_switch_keeps_the_vm_state_in_memory(tmp_path):
    """The objects and the monitor report it, and no load reads the image."""
    with QtestMachine(tmp_path, ram=RAM_SIZE, strategy='auto',
                      options=',rewind=on,unchanged-devices=off') as guest:
        guest.save('s')
        for _ in range(3):
            guest.load('s')
        before = bytes_read(guest)
        for _ in range(10):
            guest.load('s')
            assert_rewound(guest)
        assert bytes_read(guest) - before < 10 * 2048
        info = guest.qmp('query-ram-reset')
        assert not info['objects'][0]['unchanged-devices']
        assert sum(d['count'] for d in info['loaded-devices']) == \
            guest.last_load()['devices-loaded']
        assert 'unchanged-devices off' in guest.hmp('info ram-reset')
