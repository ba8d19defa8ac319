# SPDX-License-Identifier: GPL-2.0-or-later
"""
CAPE's machinery.  CAPE is no package that can be installed: a class here has
those parts of modules/machinery/qemu.py (4da22e64) that are used.
"""

# Takes: 20 s

import subprocess
import time
from types import SimpleNamespace

import pytest
from ram_reset import Machine
from ram_reset.adapters.cape import attach, rewinding

from lib import package, products
from lib.machine import run_quietly
from lib.patience import patience


class Qemu:
    """Starts a QEMU with -loadvm, and ends it."""

    folder = None

    def __init__(self):
        self.state = {}
        self.options = SimpleNamespace(vm1=SimpleNamespace(snapshot='base'))
        self.db = SimpleNamespace(view_machine_by_label=lambda label:
                                  SimpleNamespace(name=label.lower()))

    def start(self, label):
        self.state[label.lower()] = subprocess.Popen(
            [*command(self.folder), '-loadvm', 'base'],
            stdin=subprocess.DEVNULL)

    def stop(self, label):
        process, self.state[label.lower()] = self.state[label.lower()], None
        process.kill()
        process.wait()

    def shutdown(self):
        for name in [n for n, process in self.state.items() if process]:
            self.stop(name)


def command(folder):
    """@folder: with disk.qcow2"""
    return [package.QEMU, *package.shell(), '-monitor', 'none',
            '-drive', f'file={folder}/disk.qcow2,if=none,id=d',
            '-object', 'ram-reset-auto,id=rr0,rewind=on',
            '-qmp', f'unix:{folder}/vm1.qmp,server=on,wait=off',
            '-qmp', f'unix:{folder}/test.qmp,server=on,wait=off',
            '-serial', f'unix:{folder}/serial,server=on,wait=off']


@pytest.fixture
def machinery(tmp_path):
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                tmp_path / 'disk.qcow2', '64M')
    with subprocess.Popen(command(tmp_path), stdin=subprocess.DEVNULL):
        with attach(f'{tmp_path}/vm1.qmp') as found:
            machine = Machine.attach(f'{tmp_path}/test.qmp',
                                     serial=f'{tmp_path}/serial')
            package.set_up_shell(machine)
            machine.snapshot('base')
            machine.close()
            found.kill()
    Qemu.folder = tmp_path
    made = rewinding(f'{tmp_path}/{{vmname}}.qmp')(Qemu)()
    yield made
    made.shutdown()


def analyse(folder) -> str:
    """What is left of the analysis before."""
    with Machine.attach(f'{folder}/test.qmp',
                        serial=f'{folder}/serial') as machine:
        said = machine.run('cat /malware; echo 1 >/malware', patience(30))
    return said.output


def test_the_same_qemu(machinery, tmp_path):
    processes = set()
    for _ in range(4):
        begin = time.monotonic()
        machinery.start('VM1')
        print(f'started in {time.monotonic() - begin:.3f} s')
        processes.add(machinery.state['vm1'].pid)
        assert 'No such file' in analyse(tmp_path)
        machinery.stop('VM1')
        assert machinery.state['vm1'] is None
    assert len(processes) == 1


def test_a_qemu_that_has_ended(machinery, tmp_path):
    """It is started anew, in CAPE's own way."""
    machinery.start('VM1')
    first = machinery.state['vm1']
    first.kill()
    machinery.stop('VM1')
    machinery.start('VM1')
    assert machinery.state['vm1'].pid != first.pid
    assert 'No such file' in analyse(tmp_path)
    machinery.stop('VM1')
    second = machinery._processes['vm1']
    machinery.shutdown()
    assert second.poll() is not None
