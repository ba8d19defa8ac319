# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset-xml: it adds its lines, and leaves every other byte."""

import json
import os
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from lib import inventory, products
from lib.scripts import load

TOOL = products.REPO / 'contrib/ram-reset/ram-reset-xml'
# For what is tried with many domains
PROGRAM = load('ram-reset-xml', 'contrib/ram-reset')
DOMAINS = Path(__file__).resolve().parent / 'domains'
QEMU = '{http://libvirt.org/schemas/domain/qemu/1.0}'
OBJECT = 'ram-reset-auto,id=rr0,rewind=on'
DECLARED = b" xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"

# Where (behind these bytes, the last of them) what is put in
BLOCK = ("{i}<qemu:commandline>{i}{u}<qemu:arg value='-object'/>{i}{u}"
         "<qemu:arg value='" + OBJECT + "'/>{i}</qemu:commandline>")
TWO = "{i}<{p}arg value='-object'/>{i}<{p}arg value='" + OBJECT + "'/>"
ADDED = {
    'virt-install': (b'  </devices>', BLOCK.format(i='\n  ', u='  ')),
    'hugepages-numa': (b"relabel='yes'/>", BLOCK.format(i='\n  ', u='  ')),
    'external-users': (b'  </devices>', BLOCK.format(i='\n  ', u='  ')),
    'crlf': (b'    </devices>', BLOCK.format(i='\r\n    ', u='    ')),
    'kubevirt': (b'</iothreads>', BLOCK.format(i='\n\t', u='\t')),
    'one-line': (b'</devices>', BLOCK.format(i='', u='')),
    'odd': (b']]&gt; -->', BLOCK.format(i='', u='')),
    'commandline': (b'support=off"/>', TWO.format(i='\n    ', p='qemu:')),
    'prefix': (b"'-snapshot'/>", TWO.format(i='\n\t\t', p='q:')),
}
# Behind which bytes the namespace is declared, where it was not
DECLARATION = {'virt-install': b"<domain type='kvm'", 'odd': b"id='3'",
               'hugepages-numa': b"<domain type='kvm'",
               'external-users': b"<domain type='kvm'",
               'crlf': b"<domain type='kvm'",
               'one-line': b"<domain type='kvm'"}
REFUSED = {
    'aarch64': 'the guest is aarch64',
    'dangling': "the last <qemu:arg> is a '-object'",
    'dtd': 'it has a DTD',
    'empty': 'it is empty',
    'entity': 'undefined entity',
    'json-object': 'is not written as',
    'lxc': "of type 'lxc'",
    'network': 'its root is <network>',
    'one-argument': "does not follow a '-object'",
    'other-id': "object with the id 'mine'",
    'qom-type': 'is not written as',
    'raw-disk': 'no writable disk of type qcow2',
    'sev': 'confidential guest',
    'taken-id': "another object has the id 'rr0'",
    'truncated': 'not well-formed XML',
    'two-commandlines': 'two <qemu:commandline>',
    'two-objects': "two objects with the id 'rr0'",
}


def run(*args, data: bytes = b'', **kwargs) -> subprocess.CompletedProcess:
    return subprocess.run([TOOL, *args], input=data, capture_output=True,
                          check=False, timeout=60, **kwargs)


def piped(data: bytes, *args) -> bytes:
    done = run('-', *args, data=data)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(done: subprocess.CompletedProcess) -> str:
    text = done.stderr.decode()
    assert done.returncode == 1 and done.stdout == b'', text
    assert text.startswith('ram-reset-xml: ') and 'Traceback' not in text
    assert text.count('\n') == 1, text
    return text


def domain(name: str) -> bytes:
    return (DOMAINS / f'{name}.xml').read_bytes()


def behind(data: bytes, anchor: bytes, new: bytes) -> bytes:
    head, found, tail = data.rpartition(anchor)
    assert found, anchor
    return head + anchor + new + tail


def arguments(data: bytes) -> list[str]:
    return [arg.get('value') for arg in
            ET.fromstring(data).findall(f'{QEMU}commandline/{QEMU}arg')]


@pytest.mark.parametrize('name', ADDED)
def test_adds_only_its_bytes(name):
    anchor, text = ADDED[name]
    expected = behind(domain(name), anchor, text.encode())
    if name in DECLARATION:
        at = expected.index(DECLARATION[name]) + len(DECLARATION[name])
        expected = expected[:at] + DECLARED + expected[at:]
    assert piped(domain(name)) == expected
    assert arguments(expected)[-2:] == ['-object', OBJECT]


@pytest.mark.parametrize('name', ADDED)
def test_again_and_back(name):
    once = piped(domain(name))
    assert once != domain(name)
    assert piped(once) == once
    assert piped(once, '--remove') == domain(name)
    assert piped(domain(name), '--remove') == domain(name)


def test_empty_commandline_of_a_default_namespace():
    new = piped(domain('local-namespace'))
    assert arguments(new) == ['-object', OBJECT]
    assert piped(new) == new
    head, tail = domain('local-namespace').split(b'/>\n</domain>')
    assert new.startswith(head + b'>\n') and new.endswith(b'\n</domain>' + tail)


@pytest.mark.parametrize('name', ADDED)
def test_other_options_replace_the_object(name):
    other = 'ram-reset-memset,id=rr0,threads=4,verify=on'
    old = piped(domain(name))
    assert piped(old, '--object', other) == \
        old.replace(OBJECT.encode(), other.encode())


def test_replaces_in_double_quotes():
    data = piped(domain('kubevirt')).replace(f"'{OBJECT}'".encode(),
                                             f'"{OBJECT}"'.encode())
    assert piped(data) == data
    other = 'ram-reset-madvise,id=rr0'
    assert piped(data, '--object', other) == \
        data.replace(f'"{OBJECT}"'.encode(), f"'{other}'".encode())


@pytest.mark.parametrize('text', (
    'ram-reset-madvise,id=a.b-c_1,memdev=pc.ram',
    'ram-reset-auto,id=x,rewind=on,rewind-limit=1.5G,objective=latency,'
    "costs=/a b/it's <&> \"ü\" ,, 1",
    'ram-reset-auto,id=x,template-dir=/dev/shm,template-limit=512M'))
def test_options_arrive(text):
    assert arguments(piped(domain('odd'), '--object', text))[-1] == text


@pytest.mark.parametrize('text, reason', (
    ('', "of type ''"),
    ('ram-reset-auto', "no 'id='"),
    ('ram-reset-fast,id=rr0', "of type 'ram-reset-fast'"),
    ('id=rr0,qom-type=ram-reset-auto', "of type 'id=rr0'"),
    ('ram-reset-auto,id=rr0,rewind', "the option 'rewind'"),
    ('ram-reset-auto,id=rr0,', "the option ''"),
    ('ram-reset-auto,id=rr0,speed=9', "the option 'speed=9'"),
    ('ram-reset-memset,id=rr0,objective=total', "the option 'objective=total'"),
    ('ram-reset-auto,id=rr0,rewind=maybe', 'rewind=maybe'),
    ('ram-reset-auto,id=rr0,threads=65', 'threads=65'),
    ('ram-reset-auto,id=rr0,rewind-limit=lots', 'rewind-limit=lots'),
    ('ram-reset-auto,id=0rr', 'id=0rr'),
    ('ram-reset-auto,id=rr0,id=rr1', "'id=' twice"),
    ('ram-reset-auto,id=rr0,memdev=a\nb', 'control characters'),
    ('ram-reset-auto,id=rr0,memdev=', 'memdev='),
    ('ram-reset-hugefile,id=rr0', "no 'memdev='"),
    ('ram-reset-hugefile,id=rr0,memdev=pc.ram', 'memory-backend-file'),
    ('{"qom-type":"ram-reset-auto","id":"rr0"}', 'of type')))
def test_bad_options(text, reason):
    assert reason in refusal(run('-', '--object', text, data=domain('odd')))


def test_hugefile_with_memory_of_its_own():
    data = domain('commandline').replace(
        b'rng-random,id=rng9,filename=/dev/urandom',
        b'memory-backend-file,id=huge,size=8G,share=on,'
        b'mem-path=/dev/hugepages/vm')
    text = 'ram-reset-hugefile,id=rr0,memdev=huge,unlink=never'
    assert text in arguments(piped(data, '--object', text))


def test_every_refused_domain_is_listed():
    assert {p.stem for p in (DOMAINS / 'refused').iterdir()} == set(REFUSED)


@pytest.mark.parametrize('name', REFUSED)
def test_refuses(name, tmp_path):
    data = domain(f'refused/{name}')
    path = tmp_path / 'domain.xml'
    path.write_bytes(data)
    # without an object it would keep its own
    more = ('--object', OBJECT) if name == 'other-id' else ()
    assert REFUSED[name] in refusal(run(path, *more))
    assert path.read_bytes() == data


def test_remove_helps_where_an_object_is_in_the_way():
    for name in 'other-id', 'two-objects':
        cleared = piped(domain(f'refused/{name}'), '--remove')
        assert b'ram-reset' not in cleared and b'commandline' not in cleared
        assert arguments(piped(cleared)) == ['-object', OBJECT]


@pytest.mark.parametrize('data, reason', (
    (domain('crlf').decode('utf-8-sig').encode('utf-16'), 'UTF-16'),
    (b'<?xml version="1.0" encoding="klingon"?><domain/>', 'klingon'),
    (b'plain text', 'not well-formed'),
    (b"<domain xmlns='urn:x' type='kvm'/>", 'its root is'),
    (b'<domain/>', "of type ''")))
def test_refuses_other_data(data, reason):
    text = refusal(run('-', data=data))
    assert reason in text or 'encoding' in text


def test_warnings():
    text = run('-', data=domain('external-users')).stderr.decode()
    for what in ("disk 'vdb' (raw): no savevm", 'UEFI variables (raw): go back',
                 'most assigned host devices', '<locked/> memory: whole loads',
                 "virtiofs 'share': no savevm", '<vsock>: whole loads'):
        assert what in text
    assert 'sda' not in text and 'vhostuser' not in text
    for name in 'virt-install', 'commandline':
        assert run('-', data=domain(name)).stderr == b''


def said(data: bytes, **wish) -> list[str]:
    """By --check."""
    return PROGRAM.check(data, PROGRAM.Wish(**wish))[0]


def checked(data: bytes) -> dict[str, str]:
    """What it says of each thing."""
    return dict(line.split(': ', 1) for line in said(data)
                if line[:6] != 'in all')


def summary(data: bytes, **wish) -> list[str]:
    return [line[8:] for line in said(data, **wish)
            if line.startswith('in all: ')]


def with_device(text: str) -> bytes:
    return domain('virt-install').replace(b'<serial ', text.encode()
                                          + b'<serial ')


def with_memory(text: str) -> bytes:
    return domain('virt-install').replace(
        b'<os>', f'<memoryBacking>{text}</memoryBacking><os>'.encode())


def test_check_of_what_virt_install_makes():
    data = domain('virt-install')
    assert checked(data) == {
        'memory': 'rewinds', "disk 'vda' (qcow2)": 'goes back with the guest',
        'interface 1 (network)': 'rewinds: vhost logs what it writes'}
    assert summary(data) == [
        'loads in the QEMU that runs rewind',
        "'virsh snapshot-revert' starts a new QEMU, and reads all of the "
        'snapshot; template-dir= would help']
    assert summary(data, object='ram-reset-auto,id=rr0,rewind=on,'
                   'template-dir=/dev/shm/debian12')[1] == \
        "'virsh snapshot-revert' starts a new QEMU, with RAM from a template"
    assert summary(data, object='ram-reset-auto,id=rr0')[0] == \
        'loads in the QEMU that runs are whole: the object has no rewind=on'
    done = run('-', '--check', data=data)
    assert (done.returncode, done.stderr) == (0, b'')
    assert done.stdout.decode().splitlines() == said(data)


@pytest.mark.parametrize('memory, thing, verdict', (
    ('<hugepages/>', 'memory in hugepages', 'rewinds'),
    ("<hugepages/><source type='memfd'/><access mode='shared'/>",
     'memory in hugepages', 'rewinds'),
    ("<source type='memfd'/><access mode='shared'/>", 'shared memory',
     'rewinds'),
    ('<nosharepages/>', 'memory', 'rewinds'),
    ("<source type='file'/>", 'memory in files', 'whole loads'),
    ("<access mode='shared'/>", 'memory in files', 'whole loads'),
    ("<access mode='private'/>", 'memory in files', 'whole loads'),
    ("<source type='anonymous'/><access mode='shared'/>", 'memory in files',
     'whole loads'),
    ("<source type='file'/><locked/>", 'memory in files', 'whole loads'),
    ("<hugepages/><source type='file'/><access mode='shared'/>",
     'memory in hugepages', 'rewinds'),
    ('<locked/>', '<locked/> memory', 'whole loads')))
def test_check_of_memory(memory, thing, verdict):
    data = with_memory(memory)
    assert checked(data)[thing].split(':')[0] == verdict
    assert ('are whole' in summary(data)[0]) == (verdict != 'rewinds')


CELLS = "<cpu><numa><cell id='0' cpus='0' memory='1'{}/></numa></cpu>"
DIMM = "<memory model='dimm'{}><target><node>0</node></target></memory>"


def with_cells(text: str) -> bytes:
    return domain('virt-install').replace(b'<os>', text.encode() + b'<os>')


@pytest.mark.parametrize('data, verdict', (
    (with_cells(CELLS.format('')), 'rewinds'),
    (with_cells(CELLS.format(" memAccess='private'")), 'whole loads'),
    (with_cells(CELLS.format(" memAccess='shared'")), 'whole loads'),
    (with_device(DIMM.format('')), 'rewinds'),
    (with_device("<memory model='nvdimm' access='shared'/>"), 'rewinds'),
    (with_device(DIMM.format(" access='shared'")), 'whole loads')))
def test_check_of_memory_of_nodes(data, verdict):
    found = checked(data)
    assert (found.get('memory') or found['memory in files']
            ).split(':')[0] == verdict
    new = fixed(data, 'memfd')[0]
    assert (b"<source type='memfd'/>" in new) == (verdict != 'rewinds')
    assert 'rewinds' in checked(new).values()


DISK = "<disk type='{}'><driver name='qemu' type='raw'/>" \
       "<target dev='vdb' bus='{}'/></disk>"


@pytest.mark.parametrize('device, thing, begin', (
    ("<interface type='vhostuser'/>", 'interface 2 (vhostuser)', 'rewinds: if'),
    ("<interface type='vdpa'/>", 'interface 2 (vdpa)', 'whole loads: '),
    ("<interface type='hostdev'/>", 'interface 2 (hostdev)', 'no savevm: '),
    ("<interface type='user'><model type='virtio'/></interface>",
     'interface 2 (user)', 'rewinds'),
    (DISK.format('file', 'virtio'), "disk 'vdb' (raw)", 'no savevm: cannot'),
    (DISK.format('file', 'nvme').replace('raw', 'qcow2'),
     "disk 'vdb' (qcow2)", 'goes back'),
    (DISK.format('vhostuser', 'virtio'), "disk 'vdb' (vhost-user)",
     'memory rewinds, but the disk stays'),
    ("<filesystem><driver type='virtiofs'/><target dir='s'/></filesystem>",
     "virtiofs 's'", 'no savevm: '),
    ("<filesystem><target dir='s'/></filesystem>", "9p 's'",
     'savevm is refused while the guest has it mounted'),
    ("<interface type='vhostuser'><driver iommu='on'/></interface>",
     'interface 2 (vhostuser)', 'whole loads: '),
    ("<interface type='vhostuser'><backend type='passt'/></interface>",
     'interface 2 (vhostuser)', 'no savevm: passt'),
    ('<vsock/>', '<vsock>', 'whole loads: '),
    ("<shmem><model type='ivshmem-doorbell'/></shmem>", '<shmem>',
     'no savevm: '),
    ("<shmem role='master'><model type='ivshmem-plain'/></shmem>", '<shmem>',
     'whole loads: '),
    ("<sound model='usb'/>", 'sound (usb)', 'no savevm: '),
    ("<tpm model='tpm-crb'><backend type='passthrough'/></tpm>",
     "the host's TPM", 'stays as it is'),
    ("<memory model='nvdimm'><source><path>/f</path></source></memory>",
     'NVDIMM', 'whole loads: '),
    ("<memory model='virtio-pmem'/>", 'virtio-pmem', 'stays as it is'),
    ("<memory model='virtio-mem'/>", 'virtio-mem', 'no template: loads rewind'),
    ("<input type='passthrough' bus='virtio'/>", 'input of the host',
     'no savevm: '),
    ("<channel type='qemu-vdagent'/>", 'channel (qemu-vdagent)',
     'no savevm: '),
    ("<serial type='pty'><target type='usb-serial'/></serial>",
     'serial port by USB', 'no savevm: '),
    ("<interface type='user'><model type='usb-net'/></interface>",
     'interface 2 (user)', 'no savevm: '),
    ("<interface type='mcast'><model type='virtio'/></interface>",
     'interface 2 (mcast)', 'rewinds'),
    ("<interface type='user'><model type='virtio'/><driver iommu='on'/>"
     '</interface>', 'interface 2 (user)', 'rewinds'),
    ("<hostdev type='scsi_host'/>", 'vhost-scsi', 'no savevm: '),
    ("<hostdev type='mdev'/>", 'host device (mdev)', 'no savevm: '),
    ("<video><model><acceleration accel3d='yes'/></model></video>",
     'video with 3D acceleration', 'no savevm: ')))
def test_check_of_devices(device, thing, begin):
    found = checked(with_device(device))
    assert found[thing].startswith(begin)
    lines = '\n'.join(said(with_device(device)))
    assert ('no snapshot can be saved' in lines) == (': no savevm: ' in lines)
    assert "'nvme'" not in device or 'NVMe' in lines


def test_check_of_interfaces_that_have_vhost():
    tap = "<interface type='{}'><model type='{}'/>{}</interface>"
    for kind, model, driver, vhost in (
            *((kind, 'virtio', '', True) for kind in PROGRAM.TAPS),
            ('bridge', 'virtio-transitional', '', True),
            ('bridge', 'e1000e', '', False),
            ('bridge', 'virtio', "<driver name='qemu'/>", False),
            ('udp', 'virtio', '', False)):
        data = with_device(tap.format(kind, model, driver))
        said_of_it = f'interface 2 ({kind})'
        assert ('vhost' in checked(data)[said_of_it]) == vhost
        assert checked(data.replace(b"<domain type='kvm'",
                                    b"<domain type='qemu'")
                       )[said_of_it] == 'rewinds'


def test_check_of_empty_floppy_drives():
    floppy = ("<disk type='file' device='floppy'>"
              "<driver name='qemu' type='raw'/>{}<target dev='fda'/></disk>")
    for source in '', '<source/>', "<source startupPolicy='optional'/>":
        data = with_device(floppy.format(source))
        assert "disk 'fda' (raw)" not in checked(data)
        assert b'keep-disks' not in fixed(data, 'keep-disks')[0]
    data = with_device(floppy.format("<source file='/a.img'/>"))
    assert checked(data)["disk 'fda' (raw)"].startswith('no savevm')


def with_firmware(text: str) -> bytes:
    return domain('virt-install').replace(b'<boot ', text.encode() + b'<boot ')


@pytest.mark.parametrize('text, thing', (
    ("<loader readonly='yes' type='pflash' stateless='yes'>/c</loader>", None),
    ("<loader type='rom'>/bios</loader>", None),
    ("<loader readonly='yes' type='pflash'>/c</loader>",
     'the UEFI variables (raw, which libvirt makes, for there is no <nvram>)'),
    ("<loader readonly='no' type='pflash'>/c</loader>",
     "the UEFI variables (raw, in the loader's file)"),
    ("<loader readonly='no' type='pflash' format='qcow2'>/c</loader>",
     'the UEFI variables (qcow2)'),
    ("<nvram type='file'><source file='/v.fd'/></nvram>",
     'the UEFI variables (raw)'),
    ("<nvram type='file' format='qcow2'><source file='/v'/></nvram>",
     'the UEFI variables (qcow2)')))
def test_check_of_uefi_variables(text, thing):
    found = checked(with_firmware(text))
    assert [name for name in found if 'UEFI' in name] == \
        ([thing] if thing else [])
    assert thing is None or found[thing].startswith('go back')


def test_check_tells_what_virsh_refuses():
    """Raw variables, which the monitor saves; it is not about a disk."""
    uefi = with_firmware("<nvram type='file'><source file='/v.fd'/></nvram>")
    disk = DISK.format('vhostuser', 'virtio').encode()
    both = uefi.replace(b'<serial ', disk + b'<serial ')
    for data, what in (
            (uefi, 'raw UEFI variables'),
            (with_device(disk.decode()), 'disks that stay as they are'),
            (both, 'disks that stay as they are and raw UEFI variables')):
        assert summary(data) == [
            'loads in the QEMU that runs rewind',
            "snapshots by the monitor's savevm and loadvm only, since 'virsh "
            f"snapshot-create-as' refuses {what}"]


@pytest.mark.parametrize('more, fixes, status', (
    ('', (), 0),
    ('<vsock/>', (), 0),
    ("<sound model='usb'/>", (), 1),
    (DISK.format('file', 'virtio'), (), 1),
    (DISK.format('file', 'virtio'), ('--fix', 'keep-disks'), 0)))
def test_status_of_check(more, fixes, status):
    """Scripts ask it whether a snapshot can be saved."""
    done = run('-', '--check', *fixes, data=with_device(more))
    assert (done.returncode, done.stderr) == (status, b'')
    assert (b'no snapshot can be saved' in done.stdout) == bool(status)


@pytest.mark.parametrize('value, refused', (
    ('nvme,serial=a', True), ('driver=nvme', True), ('usb-audio', True),
    ('{&quot;id&quot;: &quot;a&quot;, &quot;driver&quot;: &quot;nvme&quot;}',
     True), ('nvme-other', False), ('e1000e,id=nvme', False), ('{}', False)))
def test_check_of_devices_of_the_command_line(value, refused):
    data = changed(domain('virt-install')).replace(
        b'</qemu:commandline>', b"<qemu:arg value='-device'/><qemu:arg value='"
        + value.encode() + b"'/></qemu:commandline>")
    assert any(': no savevm: ' in line for line in said(data)) == refused


NAMED = 'ram-reset-auto,id=rr0,rewind=on,template-dir=/dev/shm/debian12'
# For each row of the manual's tables, what its options add to the domain:
# (where, what), or what to the devices
UEFI = 'os', ("<loader readonly='yes' type='pflash'>/code.fd</loader>"
              "<nvram template='/vars.fd'>/vars.fd</nvram>")
AUTOMATIC = 'os firmware', ''


def backing(*elements: str) -> tuple[str, str]:
    return 'domain', f'<memoryBacking>{"".join(elements)}</memoryBacking>'


MEMFD = "<source type='memfd'/>"
SHARED = "<access mode='shared'/>"


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
    """Where libvirts differ, it warns of what the stricter one refuses."""
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


def test_check_tells_why_it_cannot_be_done():
    assert 'qcow2' in refusal(run('-', '--check',
                                  data=domain('refused/raw-disk')))


def fixed(data: bytes, what: str, **wish) -> tuple[bytes, str]:
    wish = PROGRAM.Wish(fixes=(what,), **wish)
    new, notes = PROGRAM.change(data, wish)
    assert PROGRAM.change(new, wish)[0] == new
    return new, '\n'.join(notes)


def changed(data: bytes, **wish) -> bytes:
    return PROGRAM.change(data, PROGRAM.Wish(**wish))[0]


def test_fix_of_memory():
    plain = changed(domain('virt-install'))
    for backing, what, new in (
            ('<locked/>', 'locked', ''),
            ("<hugepages/><locked/>", 'locked', '<hugepages/>'),
            ("<source type='file'/>", 'memfd', "<source type='memfd'/>")):
        assert fixed(with_memory(backing), what)[0] == plain.replace(
            b'<os>', f'<memoryBacking>{new}</memoryBacking><os>'.encode())
    same = with_memory("<hugepages/><source type='file'/>")
    assert fixed(same, 'memfd')[0] == changed(same)


def test_fix_of_files_that_only_access_makes():
    plain = changed(domain('virt-install'))
    assert fixed(with_memory(SHARED), 'memfd')[0] == plain.replace(
        b'<os>', f'<memoryBacking>{SHARED}{MEMFD}</memoryBacking><os>'.encode())
    cells = CELLS.format(" memAccess='shared'")
    for old, new in (
            *((old, f'\n  <memoryBacking>\n    {MEMFD}\n  </memoryBacking>')
              for old in ('', '\n  <memoryBacking/>', '\n  <memoryBacking />',
                          '\n  <memoryBacking>\n  </memoryBacking>')),
            ('\n  <memoryBacking>\n    <nosharepages/>\n  </memoryBacking>',
             f'\n  <memoryBacking>\n    <nosharepages/>\n    {MEMFD}'
             '\n  </memoryBacking>')):
        after = b'</currentMemory>'
        data = with_cells(cells).replace(after, after + old.encode())
        assert fixed(data, 'memfd')[0] == changed(with_cells(cells)).replace(
            after, after + new.encode())
    both = PROGRAM.Wish(fixes=('memfd', 'locked'))
    assert f'<memoryBacking>{SHARED}{MEMFD}</memoryBacking>'.encode() in \
        PROGRAM.change(with_memory(SHARED + '<locked/>'), both)[0]


def test_again_with_another_emulator_keeps_the_object():
    text = NAMED + ',keep-disks=vda'
    data = changed(domain('virt-install'), object=text)
    new = piped(data, '--emulator', '/usr/local/bin/qemu-rr')
    assert arguments(new)[-1] == text
    assert piped(data) == data


def test_another_object_keeps_what_keep_disks_has_named():
    data = fixed(domain('external-users'), 'keep-disks')[0]
    new = changed(data, object=NAMED)
    assert arguments(new)[-1] == f'{NAMED},keep-disks=ua-keep-vdb'
    assert changed(new, object=NAMED) == new
    assert changed(new, remove=True) == domain('external-users')
    # both of them at once, and a disk that has gone
    assert fixed(data, 'keep-disks', object=NAMED)[0] == new
    gone = data.replace(b"<alias name='ua-keep-vdb'/>", b'')
    assert arguments(changed(gone, object=NAMED))[-1] == NAMED
    mine = changed(domain('kubevirt'),
                   object=f'{OBJECT},keep-disks=ua-cloudinitdisk')
    assert arguments(changed(mine, object=NAMED))[-1] == NAMED


def test_remove_leaves_names_that_it_has_not_given():
    own = domain('external-users').replace(
        b"<target dev='vdb' bus='virtio'/>",
        b"<target dev='vdb' bus='virtio'/><alias name='ua-keep-mine'/>")
    assert changed(changed(own), remove=True) == own
    assert changed(own, remove=True) == own


def test_fix_of_a_disk_without_a_name():
    data = domain('external-users').replace(b"dev='vdb'", b"dev=''")
    assert '<target> has no name' in \
        refusal(run('-', '--fix', 'keep-disks', data=data))


def test_many_nested_elements():
    deep = b'<a>' * 3000 + b'</a>' * 3000
    data = domain('virt-install').replace(b'<metadata>', b'<metadata>' + deep)
    assert piped(piped(data), '--remove') == data


def test_fix_of_raw_disks():
    """By a name of their own, which they get if they have none."""
    new = fixed(domain('external-users'), 'keep-disks')[0]
    assert arguments(new)[-1] == f'{OBJECT},keep-disks=ua-keep-vdb'
    assert b"<target dev='vdb' bus='virtio'/>\n      " \
        b"<alias name='ua-keep-vdb'/>\n" in new
    assert checked(new)["disk 'vdb' (raw)"].startswith('stays as it is')
    assert changed(new, remove=True) == domain('external-users')
    new = fixed(domain('kubevirt'), 'keep-disks')[0]
    assert summary(new)[1].startswith("snapshots by the monitor's savevm")
    assert arguments(new)[-1] == f'{OBJECT},keep-disks=ua-cloudinitdisk'
    auto = domain('external-users').replace(
        b"<target dev='vdb' bus='virtio'/>",
        b"<target dev='vdb' bus='virtio'/><alias name='virtio-disk1'/>")
    assert b"<alias name='ua-keep-vdb'/>" in fixed(auto, 'keep-disks')[0]


def test_fix_keeps_the_object_that_is_there():
    text = 'ram-reset-auto,id=mine,rewind=on,template-dir=/dev/shm/own'
    data = changed(domain('external-users'), object=text)
    assert arguments(fixed(data, 'keep-disks')[0])[-1] == \
        f'{text},keep-disks=ua-keep-vdb'
    more = 'ram-reset-auto,id=mine,keep-disks=vda,keep-disks=ua-keep-vdb'
    assert arguments(fixed(data, 'keep-disks', object=more)[0])[-1] == more


def test_fix_of_uefi_variables():
    new, notes = fixed(domain('external-users'), 'nvram')
    path = '/var/lib/libvirt/qemu/nvram/external-users_VARS'
    assert f"<nvram format='qcow2'>{path}.qcow2</nvram>".encode() in new
    assert f'qemu-img convert -f raw -O qcow2 {path}.fd {path}.qcow2' in notes
    assert checked(new)['the UEFI variables (qcow2)'].startswith('go back')
    assert 'has no path' in refusal(run('-', '--fix', 'nvram',
                                        data=domain('hugepages-numa')))
    for text, reason in (
            ("<loader readonly='yes' type='pflash'>/c</loader>", 'has no path'),
            ("<loader readonly='no' type='pflash'>/c</loader>",
             "in the loader's file"),
            ("<nvram type='block'><source dev='/dev/v'/></nvram>", 'no file')):
        assert reason in refusal(run('-', '--fix', 'nvram',
                                     data=with_firmware(text)))
    for old, path in (('/v.fd', '/v.qcow2'), ('/v', '/v.qcow2'),
                      ('/v.qcow2', '/v.converted.qcow2')):
        for text in (f'<nvram>{old}</nvram>',
                     f"<nvram type='file'><source file='{old}'/></nvram>"):
            new, notes = fixed(with_firmware(text), 'nvram')
            wanted = text.replace('<nvram', "<nvram format='qcow2'")
            assert new == changed(with_firmware(wanted.replace(old, path)))
            assert f' {old} {path}' in notes
    stateless = with_firmware("<loader type='pflash' stateless='yes'/>")
    assert fixed(stateless, 'nvram')[0] == changed(stateless)
    assert fixed(domain('virt-install'), 'nvram')[0] == \
        changed(domain('virt-install'))


def test_fix_that_is_unknown():
    assert 'nothing that can be mended' in \
        refusal(run('-', '--fix', 'all', data=domain('virt-install')))
    assert run('-', '--fix', 'locked', '--remove').returncode == 2


def test_warns_of_templates_in_a_directory_for_all():
    data = domain('virt-install')
    root = ET.fromstring(data)

    def warned(path: str) -> str:
        return run('-', '--object', f'ram-reset-memset,id=rr0,template-dir={path}',
                   data=data).stderr.decode()

    assert "template-dir=/dev/shm/templates is not this domain's" in \
        warned('/dev/shm/templates')
    for own in (root.find('name').text, f"libvirt-{root.find('uuid').text}"):
        assert warned(f'/dev/shm/templates/{own}') == ''


def test_emulator():
    path = '/usr/local/bin/qemu-rr'
    data = domain('virt-install')
    new = piped(data, '--emulator', path)
    assert piped(new, '--remove') == \
        data.replace(b'/usr/bin/qemu-system-x86_64', path.encode())
    assert piped(new, '--emulator', path) == new
    none = piped(domain('kubevirt'), '--emulator', path)
    assert b'<devices>\n\t\t<emulator>/usr/local/bin/qemu-rr</emulator>\n' \
        in none
    assert 'no absolute path' in \
        refusal(run('-', '--emulator', 'qemu', data=data))


def test_file_keeps_its_mode_and_owner(tmp_path):
    path, link = tmp_path / 'd.xml', tmp_path / 'link.xml'
    path.write_bytes(domain('odd'))
    path.chmod(0o640)
    if os.getuid() == 0:
        os.chown(path, 1234, 2345)
    link.symlink_to(path)
    before = path.stat()
    done = run(link)
    assert done.returncode == 0 and done.stdout == b'', done.stderr
    assert path.read_bytes() == piped(domain('odd'))
    after = path.stat()
    assert (before.st_mode, before.st_uid, before.st_gid) == \
        (after.st_mode, after.st_uid, after.st_gid)
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(p.name for p in tmp_path.iterdir()) == ['d.xml', 'link.xml']
    assert b'nothing to change' in run(path).stderr
    assert path.stat().st_mtime_ns == after.st_mtime_ns


def test_dry_run(tmp_path):
    path = tmp_path / 'd.xml'
    path.write_bytes(domain('one-line'))
    done = run('--dry-run', path)
    assert done.returncode == 0
    added = [line for line in done.stdout.splitlines()
             if line.startswith(b'+<')]
    assert added == [b'+' + piped(domain('one-line'))]
    assert path.read_bytes() == domain('one-line')
    path.write_bytes(piped(domain('one-line')))
    assert run('--dry-run', path).stdout == b''


def test_missing_file_and_usage(tmp_path):
    assert 'No such file' in refusal(run(tmp_path / 'none.xml'))
    for args in (), ('a.xml', '--domain', 'b'), ('--frobnicate', '-'):
        done = run(*args)
        assert done.returncode == 2 and b'usage:' in done.stderr


@pytest.fixture
def virsh(tmp_path) -> dict:
    """A virsh that knows one domain; what it is told lies in tmp_path."""
    script = tmp_path / 'bin' / 'virsh'
    script.parent.mkdir()
    (tmp_path / 'sandbox.xml').write_bytes(domain('virt-install'))
    script.write_text(f'''#!/bin/sh
cd {tmp_path}
echo "$@" >>calls
case "$*" in
*"dumpxml --inactive --security-info sandbox") cat sandbox.xml ;;
*"define "*/dev/stdin) cat /dev/stdin >defined ;;
*) echo "error: failed to get domain" >&2; exit 1 ;;
esac
''')
    script.chmod(0o755)
    return dict(os.environ, PATH=f'{script.parent}:{os.environ["PATH"]}')


def test_domain(tmp_path, virsh):
    done = run('--domain', 'sandbox', '--connect', 'qemu:///system', env=virsh)
    assert done.returncode == 0 and b'started next' in done.stderr
    assert (tmp_path / 'defined').read_bytes() == piped(domain('virt-install'))
    assert (tmp_path / 'calls').read_text().splitlines() == [
        '-c qemu:///system -q dumpxml --inactive --security-info sandbox',
        '-c qemu:///system -q define /dev/stdin']


def test_domain_is_validated_where_libvirt_may_not_know_it(tmp_path, virsh):
    (tmp_path / 'sandbox.xml').write_bytes(domain('external-users'))
    assert run('--domain', 'sandbox', '--fix', 'nvram', env=virsh
               ).returncode == 0
    assert (tmp_path / 'calls').read_text().splitlines()[1] == \
        '-q define --validate /dev/stdin'


def test_domain_that_is_not_defined_anew(tmp_path, virsh):
    assert run('--dry-run', '--domain', 'sandbox', env=virsh).stdout
    (tmp_path / 'sandbox.xml').write_bytes(piped(domain('virt-install')))
    assert b'nothing' in run('--domain', 'sandbox', env=virsh).stderr
    assert 'failed to get domain' in \
        refusal(run('--domain', 'other', env=virsh))
    assert not (tmp_path / 'defined').exists()


def test_virsh_is_missing():
    done = subprocess.run([sys.executable, TOOL, '--domain', 'x'], check=False,
                          capture_output=True, env={'PATH': '/nowhere'})
    assert 'virsh is missing' in refusal(done)


def vmi(**annotations) -> str:
    return json.dumps({
        'apiVersion': 'kubevirt.io/v1', 'kind': 'VirtualMachineInstance',
        'metadata': {'name': 'sandbox-7', 'annotations': {
            'hooks.kubevirt.io/hookSidecars': '[]',
            **{f'ram-reset.vm.kubevirt.io/{key}': value
               for key, value in annotations.items()}}}})


def hook(tmp_path: Path, json_text: str, data: bytes):
    """As the shim calls it: one file by that name, from elsewhere."""
    path = tmp_path / 'onDefineDomain'
    path.write_bytes(TOOL.read_bytes())
    path.chmod(0o755)
    return subprocess.run([path, '--vmi', json_text, '--domain', data],
                          capture_output=True, cwd='/', check=False,
                          env={'PATH': os.environ['PATH']})


def test_hook(tmp_path):
    done = hook(tmp_path, vmi(), domain('kubevirt'))
    assert done.returncode == 0
    assert done.stdout == piped(domain('kubevirt'))
    assert b"disk 'vdb' (raw): no savevm" in done.stderr
    done = hook(tmp_path, vmi(fix='keep-disks,locked'), domain('kubevirt'))
    assert arguments(done.stdout)[-1] == f'{OBJECT},keep-disks=ua-cloudinitdisk'
    text = 'ram-reset-memset,id=rr0,threads=2'
    done = hook(tmp_path, vmi(object=text, emulator='/opt-qemu'),
                domain('kubevirt'))
    assert arguments(done.stdout) == ['-object', text]
    assert ET.fromstring(done.stdout).findtext('devices/emulator') == \
        '/opt-qemu'


@pytest.mark.parametrize('json_text, name, reason', (
    ('{', 'kubevirt', 'in JSON'),
    ('[]', 'kubevirt', 'in JSON'),
    (vmi(object='ram-reset-auto'), 'kubevirt', "no 'id='"),
    (vmi(Object='ram-reset-auto,id=rr0'), 'kubevirt', 'is unknown'),
    (vmi(), 'refused/raw-disk', 'qcow2'),
    (vmi(), 'refused/truncated', 'well-formed')))
def test_hook_refuses(tmp_path, json_text, name, reason):
    assert reason in refusal(hook(tmp_path, json_text, domain(name)))


def test_hook_without_annotations(tmp_path):
    done = hook(tmp_path, '{"metadata": {}}', domain('kubevirt'))
    assert arguments(done.stdout) == ['-object', OBJECT]


def test_hook_tells_the_log_of_its_container(tmp_path):
    """The shim is process 1 there, and drops a hook's stderr."""
    path = tmp_path / 'onDefineDomain'
    path.write_bytes(TOOL.read_bytes())
    path.chmod(0o755)
    shim = ('import subprocess, sys; sys.exit(subprocess.run(["%s", "--vmi", '
            '"{}", "--domain", sys.stdin.read()], '
            'stderr=subprocess.DEVNULL).returncode)' % path)
    done = subprocess.run(
        ['unshare', '-pf', '--mount-proc', sys.executable, '-c', shim],
        input=domain('refused/raw-disk'), capture_output=True, check=False)
    if b'unshare failed' in done.stderr:
        pytest.skip('no PID namespace can be made here: run as root')
    assert 'no writable disk of type qcow2' in refusal(done)
