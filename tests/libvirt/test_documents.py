# SPDX-License-Identifier: GPL-2.0-or-later
"""Each command of the documents about libvirt, typed as it is."""

# Takes: 90 s

import json
import os
import re
import subprocess

import pytest

from lib import hugepages, products, sandbox
from lib.documents import XML, documents
from lib.libvirtd import GENERATIONS, USER, Libvirtd, Unavailable
from lib.typist import Typist

LIBVIRT = {d.name: d for d in documents() if d.is_libvirt()}
MANUAL = 'docs/system/ram-reset-libvirt.rst'
TOOLS = 'docs/system/ram-reset-tools.rst'
TEMPLATES = '/dev/shm/templates/libvirt-'
EMULATOR = '/usr/local/bin/qemu-system-x86_64'
# how much memory the manual's domains have, in hugepages
WANTED_PAGES = 512
PREPARE = f'''set -e
mkdir -p /var/lib/libvirt/images
# Debian's packages have the user in the group of /dev/kvm
mknod -m 666 {sandbox.SHARED}/kvm c $(stat -c "%Hr %Lr" /dev/kvm)
mount --bind {sandbox.SHARED}/kvm /dev/kvm
'''


@pytest.fixture(params=GENERATIONS)
def daemon(request):
    """One of its own for each test, as Debian configures it."""
    try:
        libvirtd = Libvirtd(request.param, USER)
    except Unavailable as e:
        pytest.skip(str(e))
    with libvirtd:
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


def type_all(document, how, variant=0):
    with Typist(how) as typist:
        typist.read(document, variant)
    commands = document.commands()
    left = [c.text for c in commands if c.left_out()]
    print(f'{document.name}: {len(commands)} commands, {typist.run} run, '
          f'left out: {left}')
    assert typist.run + len(left) == len(commands)


def test_documents_are_known():
    assert set(LIBVIRT) == {MANUAL, TOOLS}


@pytest.mark.each_value
@pytest.mark.parametrize('variant', range(LIBVIRT[MANUAL].variants()))
def test_manual(daemon, how, variant):
    domain = [b for b in LIBVIRT[MANUAL].blocks if b.caption][variant]
    with hugepages.lent(WANTED_PAGES if '<hugepages>' in domain.text else 0
                        ) as free:
        if '<hugepages>' in domain.text and free < WANTED_PAGES:
            pytest.skip(f'{WANTED_PAGES} free hugepages are needed, and the '
                        f'host gives {free}')
        type_all(LIBVIRT[MANUAL], how, variant)
        assert daemon.virsh('domstate', 'sandbox').stdout.strip() == 'running'
        info = json.loads(daemon.virsh(
            'qemu-monitor-command', 'sandbox',
            '{"execute": "query-ram-reset"}').stdout)['return']
        assert info['last-load']['template'].startswith(TEMPLATES)
        daemon.virsh('destroy', 'sandbox')


def test_parts_of_a_domain_are_valid(daemon, tmp_path):
    """What is not a file by itself goes into one."""
    blocks = [b for b in LIBVIRT[MANUAL].blocks if b.language == XML]
    whole = next(b.text for b in blocks if b.caption)
    parts = [b.text for b in blocks if not b.caption]
    assert parts
    for part in parts:
        path = tmp_path / 'part.xml'
        path.write_text(whole.replace('<qemu:commandline>',
                                      f'{part}<qemu:commandline>', 1)
                        .replace(EMULATOR, str(products.QEMU)))
        daemon.virsh('define', '--validate', path)
        daemon.virsh('undefine', 'sandbox')


def test_tools(daemon, how, tmp_path):
    """With a domain that knows nothing of it yet."""
    subprocess.run([*how, 'ln', '-s', products.QEMU, EMULATOR], check=True)
    whole = next(b.text for b in LIBVIRT[MANUAL].blocks if b.caption)
    path = tmp_path / 'plain.xml'
    path.write_text(re.sub('<qemu:commandline>.*</qemu:commandline>', '',
                           whole, flags=re.DOTALL))
    daemon.virsh('define', path)
    type_all(LIBVIRT[TOOLS], how)
    assert EMULATOR in daemon.virsh('dumpxml', 'sandbox').stdout
    assert 'ram-reset-auto' in daemon.virsh('dumpxml', 'sandbox').stdout
