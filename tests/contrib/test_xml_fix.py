# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset xml --fix, and what it keeps of an object that is there."""

from ram_reset.domain.change import Wish, change

from lib.xmltool import (CELLS, MEMFD, NAMED, OBJECT, SHARED, arguments,
                         changed, checked, domain, fixed, piped,
                         refusal, run, summary, with_cells, with_firmware,
                         with_memory)


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
    both = Wish(fixes=('memfd', 'locked'))
    assert f'<memoryBacking>{SHARED}{MEMFD}</memoryBacking>'.encode() in \
        change(with_memory(SHARED + '<locked/>'), both)[0]


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
    assert 'unknown fix' in \
        refusal(run('-', '--fix', 'all', data=domain('virt-install')))
    assert run('-', '--fix', 'locked', '--remove').returncode == 2
