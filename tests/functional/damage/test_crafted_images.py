# SPDX-License-Identifier: GPL-2.0-or-later
"""
The description that a VM state ends with may be anybody's: an image's, or that
of a guest which writes one into a device.
"""

# Takes: 20 s

import resource
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from lib.guests import Ring3
from lib.machine import MIB, MachineError
from lib.mutations.stream import DESCRIPTION, Stream, put
from lib.rewinding import RAM_SIZE, assert_rewound, boot
from lib.vmstate import VMState

TAG = 's'
LOADS = 4                       # the third knows where devices are
MEMORY = 12                     # bytes for each of a VM state
# A name of 34 bytes: its length is a quote
NAME = b'0000:00:05.0:01.0:01.0/virtio-scsi'
BRIDGES = ('-device', 'pci-bridge,id=b1,chassis_nr=1,addr=5',
           '-device', 'pci-bridge,id=b2,bus=b1,chassis_nr=2,addr=1',
           '-device', 'virtio-scsi-pci,bus=b2,addr=1')


def described(text: bytes) -> bytes:
    """The bytes of a VM state from its end mark on."""
    return bytes((0, DESCRIPTION)) + struct.pack('>I', len(text)) + text


def craft(disk: Path, change: Callable[[Stream], bytes]) -> int:
    """Returns the length of the VM state."""
    with VMState(disk, TAG) as state:
        stream = change(Stream(state.stream))
        state.resize(stream)
    return len(stream)


def saved(workdir: Path, options: str = '', **kwargs) -> tuple[Path, int]:
    """The disk, and how many devices a rewind keeps."""
    with boot(workdir, 'tcg', options=options, **kwargs) as guest:
        guest.stop()
        guest.save(TAG)
        return guest.disk, load_often(guest)


def load_often(guest: Ring3) -> int:
    for i in range(LOADS):
        guest.load(TAG)
        if i:
            assert_rewound(guest)
    return guest.last_load()['devices-kept']


def limit_time(guest: Ring3, seconds: int) -> None:
    """Seconds of the processor, from now on."""
    stat = Path(f'/proc/{guest.process.pid}/stat').read_text()
    used = sum(map(int, stat.rsplit(')')[-1].split()[11:13]))
    most = used // 100 + seconds
    resource.prlimit(guest.process.pid, resource.RLIMIT_CPU, (most, most))


def most_memory(guest: Ring3) -> int:
    """The most memory that QEMU has ever had, in bytes."""
    status = Path(f'/proc/{guest.process.pid}/status').read_text()
    return int(status.split('VmHWM:')[1].split()[0]) << 10


def devices_in_front(elements: bytes) -> Callable[[Stream], bytes]:
    def change(stream: Stream) -> bytes:
        text = stream.data[stream.description + 6:]
        head, devices, rest = text.partition(b'"devices": [')
        return stream.data[:stream.description] + \
            described(head + devices + elements + rest)
    return change


@pytest.mark.parametrize('options', ('', ',verify=on'))
def test_sections_that_are_not_there_take_no_time(tmp_path, options):
    """They are passed over, each at the same cost."""
    disk, kept = saved(tmp_path, options)
    absent = b'{"name": "x", "instance_id": 0}, ' * 750000
    craft(disk, devices_in_front(absent))
    with boot(tmp_path, 'tcg', options=options) as guest:
        guest.stop()
        limit_time(guest, 20)
        assert load_often(guest) == kept > 0


def test_cpus_are_parsed(tmp_path):
    """In any order and spacing, and of devices only."""
    disk, kept = saved(tmp_path)
    craft(disk, devices_in_front(
        b'{"name": "x", "fields": [{"name": "cpu_common", "instance_id": 8,'
        b' "size": 1}]}, '))
    with boot(tmp_path, 'tcg') as guest:
        guest.stop()
        assert load_often(guest) == kept > 0
    craft(disk, devices_in_front(
        b'{"instance_id" :7,"vmsd_name": "c","name":"cpu_common"}, '))
    with boot(tmp_path, 'tcg') as guest:
        with pytest.raises(MachineError, match='it has CPU 7, this '
                                               'machine does not'):
            guest.load(TAG)


def test_objects_take_no_memory(tmp_path):
    """A description of small ones is refused, and no device is kept by it."""
    disk, _ = saved(tmp_path)
    size = craft(disk, devices_in_front(b'{}, ' * (4 * MIB)))
    with boot(tmp_path, 'tcg') as guest:
        guest.stop()
        limit_time(guest, 20)
        before = most_memory(guest)
        assert load_often(guest) == 0
        assert most_memory(guest) - before < MEMORY * size


def test_objects_cannot_be_verified(tmp_path):
    disk, _ = saved(tmp_path, ',verify=on')
    size = craft(disk, devices_in_front(b'{}, ' * (4 * MIB)))
    with boot(tmp_path, 'tcg', options=',verify=on') as guest:
        before = most_memory(guest)
        with pytest.raises(MachineError, match='description of the snapshot '
                                               'cannot be read'):
            guest.load(TAG)
        assert most_memory(guest) - before < MEMORY * size


def only_one_device(stream: Stream) -> bytes:
    """
    The end mark is in the footer of RAM, and the only device in the text, as a
    string.  A description of it begins before the place where devices do.
    """
    data = stream.data
    device = next(s for s in stream.sections
                  if s.name == f'4 {NAME.decode()}')
    body = data[device.start + 6:device.end - 5]
    assert b'"' not in body
    size = 0x41111
    ram_id = DESCRIPTION << 8
    section = struct.pack('>I', size)[2:] + b'{ '
    text = b'{ "' + body + b'\x7e' + section + b'\0": 0, "devices": [{' \
        b'"name": "%s", "instance_id": 0, "fields": [{"name": "x", ' \
        b'"size": %d}]}]' % (NAME, 1 << 38)
    text = text.ljust(size - 1) + b'}'
    rams = [s for s in stream.sections if s.name.endswith(' ram')]
    for ram in rams:
        data = put(put(data, ram.start + 1, 4, ram_id), ram.end - 4, 4, ram_id)
    # the length of the text begins with the last byte of RAM's number
    return data[:rams[-1].end] + struct.pack('>I', size)[1:] + text


def test_description_begins_before_the_devices(tmp_path):
    disk, _ = saved(tmp_path, args=BRIDGES)
    craft(disk, only_one_device)
    with boot(tmp_path, 'tcg', args=BRIDGES) as guest:
        guest.stop()
        for _ in range(LOADS):
            guest.load(TAG)
            assert guest.last_load()['devices-kept'] == 0


def write_cmos(guest: Ring3, at: int, data: bytes) -> None:
    """As a guest does, by ports."""
    for i, byte in enumerate(data, at):
        guest.hmp(f'o/b 0x70 {i:#x}')
        guest.hmp(f'o/b 0x71 {byte:#x}')


@pytest.mark.parametrize('text', (b'{"devices": []}', b'{"x": 1}'))
def test_a_guest_writes_a_description(tmp_path, text):
    """verify=on takes QEMU's, and so does a rewind."""
    with boot(tmp_path, 'tcg', options=',verify=on') as guest:
        guest.stop()
        guest.save(TAG)
        kept = load_often(guest)
        write_cmos(guest, 0x40, described(text))
        guest.save(TAG)
        with VMState(guest.disk, TAG) as state:
            assert state.stream.count(described(text)) == 1
        assert load_often(guest) == kept > 0
