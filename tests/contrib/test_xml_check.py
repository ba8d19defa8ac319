# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset xml --check: what a domain can do, before it is started."""

import pytest

from ram_reset.domain.check import TAPS

from lib.xmltool import (CELLS, DISK, changed, checked, domain, fixed,
                         refusal, run, said, summary, with_cells, with_device,
                         with_firmware, with_memory)


def test_check_of_what_virt_install_makes():
    data = domain('virt-install')
    assert checked(data) == {
        'memory': 'rewinds', "disk 'vda' (qcow2)": 'goes back with the guest',
        'interface 1 (network)': 'rewinds: vhost logs its writes'}
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


DIMM = "<memory model='dimm'{}><target><node>0</node></target></memory>"


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
            *((kind, 'virtio', '', True) for kind in TAPS),
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


def test_check_tells_why_it_cannot_be_done():
    assert 'qcow2' in refusal(run('-', '--check',
                                  data=domain('refused/raw-disk')))
