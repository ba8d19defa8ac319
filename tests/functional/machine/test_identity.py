# SPDX-License-Identifier: GPL-2.0-or-later
"""Random numbers, and what tells a guest that it has been loaded."""

# Takes: 40 s

import uuid
from collections import Counter
from typing import NamedTuple

import pytest

from lib.effort import LONG, rounds
from lib.guests import Linux, Ring3
from lib.machine import MIB, MachineError
from lib.snapctl_guest import LOAD, LOADED, SAVE

RAM_SIZE = 128 * MIB
SMALL = 32 * MIB
LOADS = 1000 if LONG else rounds(200, 6)
FEW = 5
# Loads that must be seen within SOON_MS: on a busy host, time passes while a
# guest has nothing to do
SOON = LOADS if LONG else 1
ACPI_TIMER, TICKS_A_MS, TIMER_MASK = 0x608, 3579.545, 0xffffff
SOON_MS = 10
# The guest's kernel needs this time to react to the load
PAUSE_US = 3000
PATIENCE = 300.0
DRAWN = r'drawn (\w+) (\w{128}) ([\w-]{36}) ([\w-]{36}) ([\w-]{36})\n'
VMGENID_OFFSET = 40         # in its page, see docs/specs/vmgenid.rst
VMCLOCK_MARKER = 0xfeffb000 + 16
VMCLOCK_PAGE = 0xfeffb000, 0x1000


def new_vmgenid(guest, on: bool) -> None:
    guest.qmp('qom-set', path='/objects/rr0', property='new-vmgenid', value=on)


def vmgenid(guest) -> uuid.UUID:
    return uuid.UUID(guest.qmp('query-vm-generation-id')['guid'])


class Drawn(NamedTuple):
    """Numbers that a guest has drawn, and how many ms after a load."""

    after: float
    values: tuple[str, ...]


class Drawing:
    """
    A Linux guest that was saved when it waited to be told to draw.  Its time
    is that of the instructions that it executes (-icount), so that what comes
    after what in it does not depend on how busy the host is.
    """

    ARGS = ('-icount', 'shift=0', '-device', 'vmgenid')

    def __init__(self, guest: Linux):
        self._guest = guest
        guest.serial.send(f'x exec identtool {PAUSE_US}\n')
        guest.serial.wait('^waiting\n', PATIENCE)
        guest.stop()
        guest.save('a')

    def _timer(self) -> int:
        return int(self._guest.hmp(f'i/w {ACPI_TIMER}').split('=')[1], 16)

    def load(self) -> list[Drawn]:
        """Numbers that it draws at once, and after PAUSE_US."""
        self._guest.stop()
        self._guest.load('a')
        # it has the line when the monitor answers, and sees it when it runs
        self._guest.serial.send('\n')
        loaded = self._timer()
        self._guest.cont()
        found = [self._guest.serial.wait(DRAWN, PATIENCE) for _ in range(2)]
        return [Drawn(((int(one[1], 16) - loaded) & TIMER_MASK) / TICKS_A_MS,
                      one.groups()[1:]) for one in found]


def count_different(draws: list[Drawn]) -> Counter:
    return Counter(value for drawn in draws for value in drawn.values)


@pytest.mark.long('the new id is QEMU\'s, the numbers are Linux\'s')
def test_new_random_numbers_after_each_load(tmp_path):
    """64 bytes and three UUIDs differ; without the option they are the same."""
    with Linux(tmp_path, accel='tcg', ram=RAM_SIZE, strategy='auto',
               options=',rewind=on', args=Drawing.ARGS, boot_timeout=PATIENCE
               ) as guest:
        drawing = Drawing(guest)
        draws = [drawing.load()[1] for _ in range(FEW)]
        assert len(count_different(draws)) < 4 * FEW

        new_vmgenid(guest, True)
        at_once, later, ids = [], [], set()
        for _ in range(2 * LOADS):
            first, second = drawing.load()
            at_once.append(first)
            later.append(second)
            ids.add(vmgenid(guest))
            soon = [drawn for drawn in later if drawn.after <= SOON_MS]
            if len(later) >= LOADS and len(soon) >= SOON:
                break
        assert len(soon) >= SOON
        assert len(ids) == len(later)
        assert guest.qmp('query-ram-reset')['rewinds'] == FEW + len(later)
        assert set(count_different(later).values()) == {1}
        same = [n for n in count_different(at_once).values() if n > 1]
        print(f'{len(later)} loads, {len(soon)} within {SOON_MS} ms; drawn at '
              f'once, after {min(at_once).after:.2f} ms and more, '
              f'{sum(same) // 4} are the same')


# The device, with a guest that does nothing for it

def boot(workdir, accel: str = 'tcg', **kwargs) -> Ring3:
    """With SeaBIOS: qboot does not start where there is a vmgenid."""
    args = ('-device', 'vmgenid', *kwargs.pop('args', ()))
    return Ring3(workdir, accel=accel, ram=SMALL,
                 args=('-bios', 'bios-256k.bin', *args), **kwargs)


def ids_in_ram(guest: Ring3, known: set[uuid.UUID]) -> set[uuid.UUID]:
    """IDs of @known that lie where the guest looks for the ID."""
    guest.stop()
    image = guest.ram_image()
    at = range(VMGENID_OFFSET, len(image), 4096)
    there = {image[i:i + 16] for i in at}
    return {one for one in known if one.bytes_le in there}


@pytest.mark.parametrize('options', (
    '', ',rewind=on', ',verify=on', ',rewind=on,verify=on', ',template-dir='))
def test_new_id_is_in_ram_after_each_load(tmp_path, options):
    if options.endswith('='):
        (tmp_path / 'templates').mkdir(0o700)
        options += str(tmp_path / 'templates')
    known = set()
    with boot(tmp_path, strategy='auto', options=f',new-vmgenid=on{options}'
              ) as guest:
        guest.sync()            # it has said all that it has to say
        known.add(vmgenid(guest))
        assert ids_in_ram(guest, known) == known
        guest.save('a')
        for how in ('hmp', 'qmp', 'hmp'):
            guest.load('a', how)
            new = vmgenid(guest)
            assert new not in known
            known.add(new)
            assert ids_in_ram(guest, known) == {new}
        # firmware writes it anew, and it is still the last one
        guest.qmp('system_reset')
        guest.cont()
        guest.wait_ready()
        assert vmgenid(guest) == new
        assert ids_in_ram(guest, known) == {new}
        guest.save('b')
    for _ in range(2):
        with boot(tmp_path, strategy='auto', loadvm='b',
                  options=f',new-vmgenid=on{options}') as guest:
            new = vmgenid(guest)
            assert new not in known
            known.add(new)
            assert ids_in_ram(guest, known) == {new}


def test_new_id_after_a_load_of_the_guests(tmp_path):
    with boot(tmp_path, strategy='auto', options=',rewind=on,new-vmgenid=on',
              args=('-device', 'snapctl,allow=both,slots=a')) as guest:
        ids = {vmgenid(guest)}
        guest.snap(0, SAVE)
        assert {vmgenid(guest)} == ids
        for i in range(FEW):
            guest.tell('snap', 0, LOAD)
            assert guest.snap_answer(guest.next_answer())[0] == LOADED
            ids.add(vmgenid(guest))
            assert len(ids) == i + 2


def test_same_id_without_the_option(tmp_path, served):
    guid = uuid.uuid4()
    with boot(tmp_path, strategy=served,
              args=('-global', f'vmgenid.guid={guid}')) as guest:
        guest.save('a')
        for _ in range(2):
            guest.load('a')
            assert vmgenid(guest) == guid


def test_same_id_after_a_load_that_is_refused(tmp_path):
    with boot(tmp_path, strategy='auto', options=',new-vmgenid=on') as guest:
        before = vmgenid(guest)
        with pytest.raises(MachineError, match='does not exist'):
            guest.load('absent')
        assert vmgenid(guest) == before


def test_without_the_device_it_is_refused(tmp_path, fast_accel):
    refusal = 'new-vmgenid=on needs a vmgenid device'
    with pytest.raises(MachineError, match=refusal):
        Ring3(tmp_path, accel=fast_accel, ram=RAM_SIZE, strategy='auto',
              options=',new-vmgenid=on')
    with Ring3(tmp_path, accel=fast_accel, ram=RAM_SIZE) as guest:
        add = {'qom-type': 'ram-reset-auto', 'id': 'rr0'}
        with pytest.raises(MachineError, match=refusal):
            guest.qmp('object-add', **add, **{'new-vmgenid': True})
        guest.qmp('object-add', **add)
        with pytest.raises(MachineError, match=refusal):
            new_vmgenid(guest, True)
        new_vmgenid(guest, False)


# vmclock

def marker(guest) -> int:
    return int(guest.hmp(f'xp/gx {VMCLOCK_MARKER}').split(':')[1], 16)


@pytest.mark.parametrize('options', (
    '', ',rewind=on', ',verify=on', ',rewind=on,verify=on'))
@pytest.mark.parametrize('served', ('stock', 'auto', 'memset', 'madvise',
                                    'remap'))
@pytest.mark.each_value
def test_disruption_marker_is_one_more(tmp_path, accel, served, options):
    """The marker grows with each load: the guest sees that it is another."""
    if served == 'stock':
        options = ''
    with Ring3(tmp_path, accel=accel, ram=RAM_SIZE, strategy=served,
               options=options, args=('-device', 'vmclock')) as guest:
        saved, content = marker(guest), guest.checksum(*VMCLOCK_PAGE)
        guest.save('a')
        assert guest.checksum(*VMCLOCK_PAGE) == content
        seen = set()
        for how in ('hmp', 'qmp', 'hmp', 'qmp'):
            guest.load('a', how)
            assert marker(guest) == saved + 1
            seen.add(guest.checksum(*VMCLOCK_PAGE))
        assert len(seen) == 1 and content not in seen
        if 'rewind' in options:
            assert guest.last_load()['rewound']
        guest.save('b')
        guest.load('b')
        assert marker(guest) == saved + 2
        guest.load('a')
        assert marker(guest) == saved + 1
