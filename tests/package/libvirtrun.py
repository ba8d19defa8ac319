# SPDX-License-Identifier: GPL-2.0-or-later
"""A domain whose <emulator> is the installed program, and virsh."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

from guestrun import APPEND, GUEST, Broken, initramfs, say, wait_for

IMAGES = Path('/var/lib/libvirt/images')
# No systemd, no log daemon and no AppArmor in here
CONFIG = '''
stdio_handler = "file"
security_driver = "none"
cgroup_controllers = []
'''
DOMAIN = '''
<domain type='qemu'>
  <name>trial</name>
  <memory unit='MiB'>256</memory>
  <os>
    <type arch='x86_64' machine='pc'>hvm</type>
    <kernel>{kernel}</kernel>
    <initrd>{initrd}</initrd>
    <cmdline>{append}</cmdline>
  </os>
  <features><acpi/></features>
  <devices>
    <emulator>{emulator}</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='{disk}'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <interface type='user'><model type='virtio'/></interface>
    <serial type='file'><source path='{log}' append='on'/></serial>
    <graphics type='vnc' port='-1' listen='127.0.0.1'/>
  </devices>
</domain>
'''


def virsh(*words: str, check: bool = True) -> str:
    run = subprocess.run(['virsh', '-q', '-c', 'qemu:///system', *words],
                         stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, check=False, timeout=120)
    if check and run.returncode:
        logs = ''.join(p.read_text(errors='replace')[-1500:] for p in
                       Path('/var/log/libvirt/qemu').glob('*.log'))
        raise Broken(f'virsh {" ".join(words)}: {run.stderr}{logs}')
    return run.stdout if not run.returncode else ''


def loads() -> dict:
    answer = virsh('qemu-monitor-command', 'trial',
                   '{"execute": "query-ram-reset"}')
    return json.loads(answer)['return']


def define(emulator: str) -> Path:
    disk, log = IMAGES / 'trial.qcow2', IMAGES / 'trial.log'
    kernel, initrd = IMAGES / 'vmlinuz', IMAGES / 'initramfs'
    for source, target in ((GUEST / 'vmlinuz', kernel),
                           (initramfs(), initrd)):
        target.write_bytes(source.read_bytes())
    subprocess.run(['qemu-img', 'create', '-q', '-f', 'qcow2', disk, '64M'],
                   check=True)
    xml = IMAGES / 'trial.xml'
    xml.write_text(DOMAIN.format(
        kernel=kernel, initrd=initrd, append=APPEND, emulator=emulator,
        disk=disk, log=log))
    virsh('define', str(xml))
    return log


def use(emulator: str) -> None:
    log = define(emulator)
    virsh('start', 'trial')
    wait_for('^ready', lambda: log.read_text(errors='replace')
             if log.exists() else '', 'the domain')
    virsh('snapshot-create-as', 'trial', 'clean')
    virsh('qemu-monitor-command', 'trial', '--hmp', 'loadvm clean')
    inside = loads()
    virsh('snapshot-revert', 'trial', 'clean')
    after = loads()
    state = virsh('domstate', 'trial').strip()
    if (inside['rewinds'], after['loads'], state) != (1, 1, 'running'):
        raise Broken(f'the domain is {state} after {inside["rewinds"]} rewinds '
                     f'and {after["loads"]} loads')
    version = re.search('Using library: (.*)', virsh('version'))[1]
    say('virsh define, start, snapshot-create-as, snapshot-revert: '
        f'the domain is {state}; {version}; ' + ', '.join(
            f'{b["name"]}: {b["strategy"]}'
            for b in after['last-load']['blocks'] if b['name'] == 'pc.ram'))
    virsh('destroy', 'trial')
    virsh('snapshot-delete', 'trial', 'clean')
    virsh('undefine', 'trial')


def reverts(emulator: str) -> None:
    with open('/etc/libvirt/qemu.conf', 'a+') as conf:
        conf.seek(0)
        was = conf.read()
        conf.write(CONFIG)
    Path('/run/libvirt').mkdir(exist_ok=True)
    with open('/var/log/libvirtd.log', 'wb') as log:
        daemon = subprocess.Popen(['/usr/sbin/libvirtd'], stdout=log,
                                  stderr=log, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not virsh('uri', check=False):
            if daemon.poll() is not None or time.monotonic() > deadline:
                raise Broken('libvirtd does not answer: ' + Path(
                    '/var/log/libvirtd.log').read_text()[-2000:])
            time.sleep(0.1)
        use(emulator)
    finally:
        virsh('destroy', 'trial', check=False)
        # it has no domains left, and can take its time where all is busy
        daemon.kill()
        daemon.wait()
        Path('/etc/libvirt/qemu.conf').write_text(was)
        for path in IMAGES.glob('*'):
            os.unlink(path)
