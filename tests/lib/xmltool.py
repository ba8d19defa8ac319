# SPDX-License-Identifier: GPL-2.0-or-later
"""ram-reset xml, as a program and as a module, and domains for it."""

import subprocess
import xml.etree.ElementTree as ET

from ram_reset.domain.change import Wish, change, checked as check

from lib import products
from lib.patience import patience
from lib.ramreset import COMMAND, ENVIRONMENT

DOMAINS = products.REPO / 'tests/contrib/domains'
QEMU = '{http://libvirt.org/schemas/domain/qemu/1.0}'
OBJECT = 'ram-reset-auto,id=rr0,rewind=on'


def run(*args, data: bytes = b'', **env: str
        ) -> subprocess.CompletedProcess:
    return subprocess.run([*COMMAND, 'xml', *args], input=data, check=False,
                          capture_output=True, timeout=patience(60),
                          env={**ENVIRONMENT, **env})


def piped(data: bytes, *args) -> bytes:
    done = run('-', *args, data=data)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(done: subprocess.CompletedProcess) -> str:
    text = done.stderr.decode()
    assert done.returncode == 1 and done.stdout == b'', text
    assert text.startswith('ram-reset xml: ') and 'Traceback' not in text
    assert text.count('\n') == 1, text
    return text


def domain(name: str) -> bytes:
    return (DOMAINS / f'{name}.xml').read_bytes()


def arguments(data: bytes) -> list[str]:
    return [arg.get('value') for arg in
            ET.fromstring(data).findall(f'{QEMU}commandline/{QEMU}arg')]


def said(data: bytes, **wish) -> list[str]:
    """By --check."""
    return check(data, Wish(**wish))[0]


def checked(data: bytes) -> dict[str, str]:
    """The verdict of --check on each thing."""
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


CELLS = "<cpu><numa><cell id='0' cpus='0' memory='1'{}/></numa></cpu>"


def with_cells(text: str) -> bytes:
    return domain('virt-install').replace(b'<os>', text.encode() + b'<os>')


DISK = "<disk type='{}'><driver name='qemu' type='raw'/>" \
       "<target dev='vdb' bus='{}'/></disk>"


def with_firmware(text: str) -> bytes:
    return domain('virt-install').replace(b'<boot ', text.encode() + b'<boot ')


NAMED = 'ram-reset-auto,id=rr0,rewind=on,template-dir=/dev/shm/debian12'


MEMFD = "<source type='memfd'/>"
SHARED = "<access mode='shared'/>"


def fixed(data: bytes, what: str, **wish) -> tuple[bytes, str]:
    wish = Wish(fixes=(what,), **wish)
    new, notes = change(data, wish)
    assert change(new, wish)[0] == new
    return new, '\n'.join(notes)


def changed(data: bytes, **wish) -> bytes:
    return change(data, Wish(**wish))[0]
