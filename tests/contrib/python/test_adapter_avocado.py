# SPDX-License-Identifier: GPL-2.0-or-later
"""avocado-vt's own command line, with the lines of the manual."""

# Takes: 20 s

import shlex
import subprocess
import time

from ram_reset import Error, Machine

from lib import package, products
from lib.clients import client
from lib.machine import run_quietly
from lib.patience import Limit, patience

qemu_vm = client('virttest.qemu_vm')
utils_params = client('virttest.utils_params')

# what its own configuration files would say of a small guest
SMALL = {'vm_type': 'qemu', 'machine_type': 'q35', 'mem': '192', 'smp': '1',
         'display': 'nographic', 'vga': 'none', 'monitors': 'qmp',
         'monitor_type': 'qmp', 'main_monitor': 'qmp', 'serials': '',
         'nics': '', 'images': '', 'cdroms': '', 'usbs': '',
         'pci_controllers': '', 'defaults': 'no', 'sandbox': 'off',
         'auto_cpu_model': 'no', 'vm_accelerator': 'tcg'}
OURS = {'qemu_binary': package.QEMU,
        'extra_params': '-object ram-reset-auto,id=rr0,rewind=on'}


def attach(path: str, **kwargs) -> Machine:
    limit = Limit(30)
    while True:
        try:
            return Machine.attach(path, **kwargs)
        except Error:
            if limit.over():
                raise
            time.sleep(0.05)


def test_loads_are_rewinds(tmp_path):
    serial = tmp_path / 'serial'
    disk = tmp_path / 'disk.qcow2'
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', disk, '64M')
    guest = package.shell()
    extra = (f'-L {products.FIRMWARE} -drive file={disk},if=none,id=d '
             f'-serial unix:{serial},server=on,wait=off '
             f'{shlex.join(guest[guest.index("-kernel"):])}')
    vm = qemu_vm.VM('vm1', utils_params.Params({
        **SMALL, **OURS, 'extra_params':
        f'{OURS["extra_params"]} {extra}'}), str(tmp_path), None)
    devices, *_ = vm.make_create_command()
    line = devices.cmdline()
    assert OURS['extra_params'] in line and package.QEMU in line
    monitor = next(word.split('path=')[1] for word in line.split()
                   if 'path=' in word and 'monitor-' in word)
    with subprocess.Popen(shlex.split(line), cwd=tmp_path,
                          stdin=subprocess.DEVNULL) as qemu:
        try:
            with attach(monitor, serial=serial) as machine:
                machine.resume()
                package.set_up_shell(machine)
                # as VM.savevm() and VM.loadvm() do it
                machine.pause()
                machine.human('savevm mine')
                machine.execute('system_reset')
                for _ in range(3):
                    begin = time.monotonic()
                    machine.human('loadvm mine')
                    print(f'loadvm: {time.monotonic() - begin:.3f} s')
                    assert machine.last_load().rewound
                    machine.resume()
                    said = machine.run('cat /task; echo 1 >/task', patience(30))
                    assert 'No such file' in said.output
                    machine.pause()
        finally:
            qemu.kill()
