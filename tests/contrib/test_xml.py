# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset xml: it adds its lines, and leaves every other byte."""

import xml.etree.ElementTree as ET

import pytest

from lib.xmltool import DOMAINS, OBJECT, arguments, domain, piped, refusal, run

DECLARED = b" xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"

# The bytes behind which something is inserted, and the inserted text
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


def behind(data: bytes, anchor: bytes, new: bytes) -> bytes:
    head, found, tail = data.rpartition(anchor)
    assert found, anchor
    return head + anchor + new + tail


@pytest.mark.parametrize('name', ADDED)
def test_adds_only_its_bytes(name):
    anchor, text = ADDED[name]
    expected = behind(domain(name), anchor, text.encode())
    if name in DECLARATION:
        at = expected.index(DECLARATION[name]) + len(DECLARATION[name])
        expected = expected[:at] + DECLARED + expected[at:]
    assert piped(domain(name)) == expected
    assert arguments(expected)[-2:] == ['-object', OBJECT]


@pytest.mark.any_value
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


@pytest.mark.any_value
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


def test_many_nested_elements():
    deep = b'<a>' * 3000 + b'</a>' * 3000
    data = domain('virt-install').replace(b'<metadata>', b'<metadata>' + deep)
    assert piped(piped(data), '--remove') == data


def test_warns_of_templates_in_a_directory_for_all():
    data = domain('virt-install')
    root = ET.fromstring(data)

    def warned(path: str) -> str:
        return run('-', '--object', f'ram-reset-memset,id=rr0,template-dir={path}',
                   data=data).stderr.decode()

    assert 'template-dir=/dev/shm/templates may be shared with other domains' \
        in warned('/dev/shm/templates')
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
    assert 'not an absolute path' in \
        refusal(run('-', '--emulator', 'qemu', data=data))
