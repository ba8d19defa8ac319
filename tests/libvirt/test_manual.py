# SPDX-License-Identifier: GPL-2.0-or-later
"""Each command of the documents about libvirt, typed as it is."""

# Takes: 45 s

import copy
import json
import os
import subprocess
import time

import pytest

from lib import products, sandbox
from lib.effort import ALL
from lib.documents import XML, documents
from lib.libvirtd import GENERATIONS, USER, Libvirtd, Unavailable
from lib.typist import Typist

LIBVIRT = {d.name: d for d in documents() if d.is_libvirt()}
MANUAL = 'docs/system/ram-reset-libvirt.rst'
TOOLS = 'docs/system/ram-reset-tools.rst'
RESTORE = 'docs/system/ram-reset-restore.rst'
TEMPLATES = '/dev/shm/templates/libvirt-'
EMULATOR = '/usr/local/bin/qemu-system-x86_64'
# how a block begins that older ones refuse
NEWER = '# libvirt 11.3'
PREPARE = f'''set -e
mkdir -p /var/lib/libvirt/images
# Debian's packages have the user in the group of /dev/kvm
mknod -m 666 {sandbox.SHARED}/kvm c $(stat -c "%Hr %Lr" /dev/kvm)
mount --bind {sandbox.SHARED}/kvm /dev/kvm
# as Debian's package ovmf has them
mkdir {sandbox.SHARED}/share {sandbox.SHARED}/work
mount -t overlay -o lowerdir=/usr/share,upperdir={sandbox.SHARED}/share,\
workdir={sandbox.SHARED}/work overlay /usr/share
mkdir -p /usr/share/OVMF
cp {products.FIRMWARE}/OVMF_*_4M.fd /usr/share/OVMF
'''


def started(*args) -> Libvirtd:
    try:
        return Libvirtd(*args)
    except Unavailable as e:
        pytest.skip(str(e))


@pytest.fixture
def daemon(generation):
    """A libvirtd for each test, as Debian configures it."""
    with started(generation, USER) as libvirtd:
        yield libvirtd


@pytest.fixture
def how(daemon):
    """How to enter the daemon's namespaces."""
    if not os.access('/dev/kvm', os.R_OK | os.W_OK):
        pytest.skip("the domains are KVM's, and /dev/kvm cannot be opened")
    enter = sandbox.enter(sandbox.child_of(daemon.pid))
    sandbox.private_mounts(enter)
    subprocess.run([*enter, 'sh', '-c', PREPARE], check=True)
    yield enter
    daemon.virsh('destroy', 'sandbox', check=False)


def part(document, wanted):
    """The blocks that are."""
    found = copy.copy(document)
    found.blocks = [b for b in document.blocks if wanted(b)]
    return found


def for_daemon(name, daemon):
    """Without the blocks that it is too old for."""
    return part(LIBVIRT[name], lambda b: '11.3' in daemon.root.name or
                not b.text.startswith(NEWER))


def type_all(document, how, *first):
    """@first: a part of it to begin with, and what to do then."""
    with Typist(how) as typist:
        rest = document
        for begin, check in first:
            typist.read(begin)
            check()
            rest = part(rest, lambda b, done=begin.blocks: b not in done)
        typist.read(rest)
    commands = document.commands()
    left = [c.text for c in commands if c.left_out()]
    print(f'{document.name}: {len(commands)} commands, {typist.run} run, '
          f'left out: {left}')
    assert typist.run + len(left) == len(commands)


def test_documents_are_known():
    assert set(LIBVIRT) == {MANUAL, TOOLS, RESTORE}


def query(daemon, command: str) -> dict:
    return json.loads(daemon.virsh('qemu-monitor-command', 'sandbox', json.dumps(
        {'execute': command})).stdout)['return']


def heading(document, text: str) -> int:
    lines = document.path.read_text().splitlines()
    return lines.index(text) + 1


# the newest takes all commands
@pytest.mark.parametrize('generation', GENERATIONS if ALL else GENERATIONS[-1:])
def test_manual(daemon, how):
    """The first ten minutes of it end with a rewind."""
    whole = for_daemon(MANUAL, daemon)
    end = heading(whole, 'What rewinds')
    begin = time.monotonic()

    def check() -> None:
        print(f'typed in {time.monotonic() - begin:.1f} s')
        assert daemon.virsh('domstate', 'sandbox').stdout.strip() == 'running'
        info = query(daemon, 'query-ram-reset')
        assert (info['loads'], info['last-load']['rewound']) == (1, True)

    type_all(whole, how, (part(whole, lambda b: b.line < end), check))
    info = query(daemon, 'query-ram-reset')
    assert info['last-load']['template'].startswith(TEMPLATES)
    for name in 'sandbox', 'uefi':
        daemon.virsh('destroy', name)


@pytest.mark.parametrize('generation', GENERATIONS)
def test_restore(daemon, how):
    """Of a domain that has templates; QEMU is not root."""
    manual = LIBVIRT[MANUAL]
    end = heading(manual, 'Memory')
    with Typist(how) as typist:
        typist.read(part(manual, lambda b: b.line < end))
    whole = for_daemon(RESTORE, daemon)
    formats = heading(whole, 'Formats')
    managed = heading(whole, 'Managed save')

    def check_template() -> None:
        incoming = query(daemon, 'query-ram-reset')['incoming']
        assert incoming['template'].startswith(TEMPLATES)

    def check_file() -> None:
        incoming = query(daemon, 'query-ram-reset')['incoming']
        if '11.3' in daemon.root.name:
            assert incoming['mapped'] and 'template' not in incoming

    type_all(whole, how,
             (part(whole, lambda b: b.line < formats), check_template),
             (part(whole, lambda b: formats < b.line < managed), check_file))
    assert query(daemon, 'query-ram-reset')['objects'][0]['rewind']


@pytest.mark.parametrize('generation', GENERATIONS)
def test_parts_of_a_domain_are_valid(generation, tmp_path):
    """XML that is not a file by itself goes into one."""
    blocks = [b for b in LIBVIRT[MANUAL].blocks if b.language == XML]
    whole = next(b.text for b in blocks if b.caption)
    parts = [b.text for b in blocks if not b.caption]
    assert len(parts) > 4
    path = tmp_path / 'part.xml'
    # as root: it would ask QEMU anew each time if that cannot open /dev/kvm
    with started(generation) as daemon:
        for text in parts:
            path.write_text(whole.replace('<vcpu>', f'{text}<vcpu>').replace(
                '<devices>', f'<devices><emulator>{products.QEMU}</emulator>'))
            daemon.virsh('define', '--validate', path)
            daemon.virsh('undefine', 'sandbox')


# the oldest has the least
@pytest.mark.long('a boot; test_manual types the same kinds of commands')
@pytest.mark.parametrize('generation', GENERATIONS if ALL else GENERATIONS[:1])
def test_tools(daemon, how, tmp_path):
    """With a domain that knows nothing of it yet."""
    subprocess.run([*how, 'ln', '-s', products.QEMU, EMULATOR], check=True)
    whole = next(b.text for b in LIBVIRT[MANUAL].blocks if b.caption)
    path = tmp_path / 'plain.xml'
    path.write_text(whole)
    daemon.virsh('define', path)
    type_all(LIBVIRT[TOOLS], how)
    assert EMULATOR in daemon.virsh('dumpxml', 'sandbox').stdout
    assert 'ram-reset-auto' in daemon.virsh('dumpxml', 'sandbox').stdout
