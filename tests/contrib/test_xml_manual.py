# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset xml --check, against the tables of the manual about libvirt."""

import pytest

from lib import inventory
from lib.xmltool import MEMFD, NAMED, SHARED, said

# For each row of the manual's tables, what its options add to the domain:
# (where, what), or what to the devices
UEFI = 'os', ("<loader readonly='yes' type='pflash'>/code.fd</loader>"
              "<nvram template='/vars.fd'>/vars.fd</nvram>")
AUTOMATIC = 'os firmware', ''


def backing(*elements: str) -> tuple[str, str]:
    return 'domain', f'<memoryBacking>{"".join(elements)}</memoryBacking>'


def disk(bus: str, kind: str = 'qcow2', device: str = 'disk',
         more: str = '') -> str:
    return (f"<disk type='file' device='{device}'><driver name='qemu' "
            f"type='{kind}'/><source file='/more'/><target dev='vdb' "
            f"bus='{bus}'/>{more}</disk>")


ROWS = {
    'default': '',
    'i440FX': '',
    'UEFI': AUTOMATIC,
    'UEFI, Secure Boot': AUTOMATIC,
    'UEFI, no Secure Boot': UEFI,
    'Windows 11': AUTOMATIC,
    'TPM 2.0': "<tpm model='tpm-crb'><backend type='emulator'/></tpm>",
    'TPM 1.2': "<tpm model='tpm-tis'><backend type='emulator' version='1.2'/>"
               '</tpm>',
    'IOMMU': "<iommu model='intel'/>",
    'virtio-scsi': disk('scsi'),
    'SATA': disk('sata'),
    'IDE': disk('ide'),
    'USB disk': disk('usb'),
    'CD': disk('sata', 'raw', 'cdrom', '<readonly/>'),
    'raw, read-only': disk('virtio', 'raw', more='<readonly/>'),
    'raw': disk('virtio', 'raw'),
    'NVMe': ('domain', "<q:commandline xmlns:q='http://libvirt.org/schemas/"
             "domain/qemu/1.0'><q:arg value='-device'/><q:arg "
             "value='nvme,serial=a,addr=0x1e'/></q:commandline>"),
    'VNC': "<graphics type='vnc'/>",
    'no display': '',
    **{name: f"<video><model type='{name.lower()}'/></video>"
       for name in ('VGA', 'QXL', 'Bochs', 'Cirrus', 'ramfb')},
    'two QXLs': "<video><model type='qxl' primary='yes'/></video>"
                "<video><model type='qxl'/></video>",
    'EHCI, no redirection': "<controller type='usb' model='ich9-ehci1'/>",
    'smartcard': "<smartcard mode='passthrough' type='spicevmc'/>",
    'AC97': "<sound model='ac97'/>",
    'USB sound': "<sound model='usb'/>",
    'virtio sound': "<sound model='virtio'/>",
    'DIMM': "<memory model='dimm'><target><size>1</size></target></memory>",
    'virtio-mem': "<memory model='virtio-mem'><target><size>1</size></target>"
                  '</memory>',
    'balloon, free page reporting':
        "<memballoon model='virtio' freePageReporting='on'/>",
    'shared, no source': backing(SHARED),
    'memfd, shared': backing(MEMFD, SHARED),
    'memfd, private': backing(MEMFD),
    'file': backing("<source type='file'/>", SHARED),
    'hugepages': backing('<hugepages/>'),
    'hugepages, shared': backing('<hugepages/>', SHARED),
    'hugepages, memfd': backing('<hugepages/>', MEMFD, SHARED),
    'memory of two guests': "<shmem name='a'><model type='ivshmem-plain'/>"
                            "<size unit='M'>4</size></shmem>",
    'e1000e': "<interface type='user'><model type='e1000e'/></interface>",
    '9p': "<filesystem><source dir='/d'/><target dir='here'/></filesystem>",
    'virtiofs': "<filesystem><driver type='virtiofs'/><source dir='/d'/>"
                "<target dir='here'/></filesystem>",
    'watchdog': "<watchdog model='i6300esb' action='reset'/>",
    "random numbers of QEMU's":
        "<rng model='virtio'><backend model='builtin'/></rng>",
    'panic device': '<panic/>',
    'crypto device': "<crypto model='virtio' type='qemu'>"
                     "<backend model='builtin'/></crypto>",
}
TABLE = inventory.table()


def row_domain(name: str) -> bytes:
    where, text = ROWS[name] if isinstance(ROWS[name], tuple) else \
        ('devices', ROWS[name])
    xml = (f"<domain type='qemu'>DOMAIN<name>debian12</name><memory>1</memory>"
           "<os><type arch='x86_64'>hvm</type>OS</os><devices>"
           f"{disk('virtio')}<interface type='user'><model type='virtio'/>"
           '</interface>DEVICES</devices></domain>')
    if where == 'os firmware':
        xml = xml.replace('<os>', "<os firmware='efi'>")
    for mark in 'domain', 'os', 'devices':
        xml = xml.replace(mark.upper(), text if mark == where else '')
    return xml.encode()


@pytest.mark.parametrize('name', TABLE)
def test_check_agrees_with_the_manual(name):
    """If two libvirts differ, --check warns of the stricter one's refusals."""
    lines = said(row_domain(name), object=NAMED)
    refuses = any(': no savevm: ' in line for line in lines)
    whole = any(': whole loads: ' in line for line in lines)
    by_monitor = any("by the monitor's savevm" in line for line in lines)
    reads_all = any('reads all of the snapshot' in line for line in lines)
    for generation in '9.0', '11.3':
        saved, loaded, created, reverted = TABLE[name].expected(generation)
        if saved.startswith('no start'):
            continue
        assert refuses == saved.startswith('refused'), lines
        if loaded != inventory.NOTHING:
            assert whole == loaded.startswith('whole'), lines
        if saved == 'works':
            assert by_monitor == created.startswith('refused'), lines
        if reverted != inventory.NOTHING:
            assert reads_all == reverted.startswith('whole'), lines


def test_check_has_no_row_that_the_manual_lacks():
    assert set(ROWS) == set(TABLE)
