# SPDX-License-Identifier: GPL-2.0-or-later
"""The built programs find their files when they are used from elsewhere."""

# Takes: 10 s

import json
import re
import socket
import subprocess
import time
from pathlib import Path

import pytest

from lib import products
from lib.machine import MachineError, run_quietly
from lib.patience import Limit, patience

PROGRAM = products.QEMU.name
OBJECT = ('-object', 'ram-reset-madvise,id=rr0')
TIMEOUT = 60
# of other machines
OTHER_BUSES = ('virtio-bus', 'xen-bus')
GRAPHICS = ('std', 'cirrus', 'vmware', 'qxl', 'virtio')
ADAPTERS = ('ati-vga', 'bochs-display', 'ramfb', 'secondary-vga')


class Qemu:
    """A context: a program somewhere, started somewhere else."""

    def __init__(self, workdir: Path, program: Path, *args: str):
        self.bios = workdir / 'bios.log'
        disk = workdir / 'disk.qcow2'
        run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', disk,
                    '64M')
        self.process = subprocess.Popen(
            [program, '-display', 'none', '-qmp', 'stdio', '-m', '64M',
             '-hda', disk, '-chardev', f'file,id=bios,path={self.bios}',
             '-device', 'isa-debugcon,iobase=0x402,chardev=bios', *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=workdir, env={})

    def __enter__(self) -> 'Qemu':
        assert 'QMP' in self._read()
        self.qmp('qmp_capabilities')
        return self

    def __exit__(self, *unused) -> None:
        self.process.terminate()
        self.said = self.process.communicate(timeout=patience(TIMEOUT))[1]

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise MachineError(self.process.communicate()[1])
        return json.loads(line)

    def qmp(self, command: str, **arguments):
        print(json.dumps({'execute': command, 'arguments': arguments}),
              file=self.process.stdin, flush=True)
        while True:
            answer = self._read()
            if 'event' not in answer:
                return answer['return']

    def wait_for_bios(self) -> None:
        """Until it has found its devices, and looks for something to boot."""
        limit = Limit(TIMEOUT)
        while not limit.over():
            text = self.bios.read_text()
            if 'Booting from' in text:
                assert text.startswith('SeaBIOS (version ')
                return
            assert self.qmp('query-status')['status'] == 'running'
            time.sleep(0.1)
        raise AssertionError(f'the BIOS has got as far as {text[-300:]!r}')


def devices(kind: str) -> dict[str, str]:
    """Names and buses of @kind, as -device help has them."""
    listing = subprocess.run([products.QEMU, '-device', 'help'],
                             capture_output=True, text=True, check=True).stdout
    section = re.search(rf'^{kind} devices:\n(.*?)(\n\n|\Z)', listing,
                        re.MULTILINE | re.DOTALL)[1]
    return dict(re.findall(r'name "([^"]+)"(?:, bus (\S+?))?(?:,|$)', section,
                           re.MULTILINE))


def test_link_to_it_runs_from_anywhere(tmp_path):
    link = tmp_path / 'bin' / 'qemu'
    link.parent.mkdir()
    link.symlink_to(products.QEMU)
    with Qemu(tmp_path, link, *OBJECT) as qemu:
        qemu.wait_for_bios()


def test_build_folder_can_be_moved(tmp_path):
    """Firmware is found by where the program is now."""
    moved = tmp_path / 'moved'
    (moved / 'qemu').mkdir(parents=True)
    run_quietly('cp', '-a', products.BUILD / 'firmware', moved)
    run_quietly('cp', '-a', products.BUILD / 'qemu/qemu-bundle', products.QEMU,
                moved / 'qemu')
    program = moved / 'qemu' / PROGRAM
    with Qemu(tmp_path, program, *OBJECT, '-k', 'de', '-nic',
              'user,model=virtio') as qemu:
        qemu.wait_for_bios()
        assert str(moved) in subprocess.run(
            [program, '-L', 'help'], capture_output=True, text=True,
            check=True).stdout


def test_every_network_card_starts(tmp_path):
    cards = {name: bus for name, bus in devices('Network').items()
             if bus not in OTHER_BUSES}
    assert {'e1000', 'virtio-net-pci', 'ne2k_isa', 'usb-net'} <= set(cards)
    for name, bus in cards.items():
        backend = [] if name == 'rocker' else ['-netdev', 'user,id=net0']
        card = name if name == 'rocker' else f'{name},netdev=net0'
        usb = ['-usb'] if bus == 'usb-bus' else []
        with Qemu(tmp_path, products.QEMU, *usb, '-nic', 'none', *backend,
                  '-device', card) as qemu:
            assert qemu.qmp('query-status')['status'] == 'running', name
        assert 'romfile' not in qemu.said, name


@pytest.mark.parametrize('card', (*GRAPHICS, *ADAPTERS))
def test_every_graphics_card_starts(tmp_path, card):
    args = ('-vga', card) if card in GRAPHICS else \
        ('-vga', 'none', '-device', card)
    with Qemu(tmp_path, products.QEMU, *args) as qemu:
        qemu.wait_for_bios()


def test_vnc_answers_with_a_keymap(tmp_path):
    address = tmp_path / 'vnc'
    with Qemu(tmp_path, products.QEMU, '-vnc', f'unix:{address}', '-k',
              'de-ch'), socket.socket(socket.AF_UNIX) as end:
        end.settimeout(patience(TIMEOUT))
        end.connect(str(address))
        assert end.recv(12) == b'RFB 003.008\n'


def test_uefi_starts(tmp_path):
    """As a BIOS, and as two flash chips."""
    with Qemu(tmp_path, products.QEMU, '-bios', 'OVMF.fd') as qemu:
        assert qemu.qmp('query-status')['status'] == 'running'
    variables = tmp_path / 'vars.fd'
    run_quietly('cp', products.FIRMWARE / 'edk2-i386-vars.fd', variables)
    code = products.FIRMWARE / 'edk2-x86_64-code.fd'
    with Qemu(tmp_path, products.QEMU, '-drive',
              f'if=pflash,format=raw,readonly=on,file={code}', '-drive',
              f'if=pflash,format=raw,file={variables}') as qemu:
        assert qemu.qmp('query-status')['status'] == 'running'


def test_features_for_who_has_no_screen():
    def helped(option: str) -> list[str]:
        return subprocess.run([products.QEMU, option, 'help'], text=True,
                              capture_output=True, check=True).stdout.split()

    assert {'user', 'tap', 'bridge', 'vde'} <= set(helped('-netdev'))
    assert {'none', 'curses', 'dbus'} <= set(helped('-display'))
    assert {'secret_keyring', 'tls-creds-x509'} <= set(helped('-object'))
    assert {'spicevmc', 'braille'} <= set(helped('-chardev'))
    every = devices('USB') | devices('Storage') | devices('Display')
    assert {'qemu-xhci', 'virtio-9p-pci', 'qxl', 'nvme'} <= set(every)
