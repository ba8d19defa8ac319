# SPDX-License-Identifier: GPL-2.0-or-later
"""A domain with the ring-3 guest, and what virsh can do to it."""

import contextlib
import dataclasses
import itertools
import json
import os
import select
import shlex
import shutil
import socket
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lib import products
from lib.content import check_state, dirty, write_state
from lib.guests import Ring3Words
from lib.libvirtd import Libvirtd, LibvirtError, read_status
from lib.machine import MIB, MONITOR_TIMEOUT, Serial, run_quietly
from lib.patience import Limit, patience

RAM_SIZE = 64 * MIB
TAG = 'clean'
QEMU_NAMESPACE = 'http://libvirt.org/schemas/domain/qemu/1.0'

# The content of <memoryBacking>
HUGEPAGES = '<hugepages><page size="2" unit="M"/></hugepages>'
MEMFD = '<source type="memfd"/><access mode="shared"/>'
MEMORIES = {'private': '',
            'memfd': MEMFD,
            'hugepages': HUGEPAGES,
            'hugepages-memfd': HUGEPAGES + MEMFD}
# Arguments of -object; {folder} is a folder of the domain's own
OBJECTS = {'auto': ('ram-reset-auto,id=rr0,verify=on',),
           'rewind': ('ram-reset-auto,id=rr0,rewind=on,template-dir={folder}',)}


@dataclass(frozen=True)
class Config:
    """
    @objects: the values of -object, none for QEMU as it is otherwise
    @genid: with the device that tells the guest that it is another one
    """

    memory: str = 'private'
    objects: tuple[str, ...] = ()
    ram: int = RAM_SIZE
    virt: str = 'qemu'
    genid: bool = False
    qemu: Path = products.QEMU

    def xml(self, name: str, disk: Path, serial: Path) -> str:
        ET.register_namespace('qemu', QEMU_NAMESPACE)
        domain = ET.fromstring(f'''
            <domain type="{self.virt}">
              <name>{name}</name>
              <memory unit="b">{self.ram}</memory>
              <memoryBacking>{MEMORIES[self.memory]}</memoryBacking>
              <os>
                <type arch="x86_64" machine="pc">hvm</type>
                <loader readonly="yes" type="rom"/>
                <kernel/>
              </os>
              <features><acpi/></features>
              <devices>
                <emulator/>
                <disk type="file" device="disk">
                  <driver name="qemu" type="qcow2"/>
                  <source/>
                  <target dev="vda" bus="virtio"/>
                </disk>
                <controller type="usb" model="none"/>
                <serial type="unix"><source mode="connect"/></serial>
                <memballoon model="none"/>
              </devices>
            </domain>''')
        if self.genid:
            domain.insert(1, ET.Element('genid'))
        # qboot does not start where there is a vmgenid
        rom = 'bios-256k.bin' if self.genid else 'qboot.rom'
        for path, text in (('os/loader', products.FIRMWARE / rom),
                           ('os/kernel', products.ring3_image()),
                           ('devices/emulator', self.qemu)):
            domain.find(path).text = str(text)
        domain.find('devices/disk/source').set('file', str(disk))
        domain.find('devices/serial/source').set('path', str(serial))
        command = ET.SubElement(domain, f'{{{QEMU_NAMESPACE}}}commandline')
        for value in self.objects:
            for arg in ('-object', value):
                ET.SubElement(command, f'{{{QEMU_NAMESPACE}}}arg', value=arg)
        return ET.tostring(domain, encoding='unicode')


class Domain(Ring3Words):
    """A context: defined inside of it, running or not, and gone after."""

    _numbers = itertools.count(1)

    def __init__(self, daemon: Libvirtd, config: Config,
                 images: Path | None = None):
        self._daemon = daemon
        self.name = f'guest{next(self._numbers)}'
        self._folder = (images or daemon.work / 'images') / self.name
        self._folder.mkdir()
        self.disk = self._folder / 'disk.qcow2'
        self.file = self._folder / 'saved'
        self.config = dataclasses.replace(config, objects=tuple(
            value.format(folder=self._folder) for value in config.objects))
        self._pings = itertools.count(1)
        self.serial: Serial | None = None
        run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                    self.disk, '64M')
        # QEMU connects, each new one again, and needs no leave to do so; the
        # folder's path may be too long for a socket's address
        self._address = daemon.work / f'{self.name}.serial'
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._address))
        self._listener.listen(8)
        self._listener.settimeout(patience(self.TIMEOUT))
        self._xml = self._folder / 'domain.xml'
        self._xml.write_text(self.config.xml(self.name, self.disk,
                                             self._address))

    def __enter__(self) -> 'Domain':
        try:
            self._daemon.virsh('define', '--validate', self._xml)
        except BaseException:
            self._close_sockets()
            raise
        return self

    def __exit__(self, *unused) -> None:
        for command in ('destroy', 'undefine --snapshots-metadata --nvram'):
            verb, *options = command.split()
            self._daemon.virsh(verb, self.name, *options, check=False)
        self._close_sockets()
        shutil.rmtree(self._folder)

    def _close_sockets(self) -> None:
        if self.serial:
            self.serial.close()
        self._listener.close()
        self._address.unlink()

    def virsh(self, command: str, *args: str | Path) -> str:
        verb, *options = shlex.split(command)
        return self._daemon.virsh(verb, self.name, *options, *args).stdout

    def state(self) -> str:
        return self.virsh('domstate').strip()

    def connected(self) -> None:
        """A new QEMU has the serial port now, the last one to connect."""
        if self.serial:
            self.serial.close()
        end = self._listener.accept()[0]
        while select.select([self._listener], [], [], 0)[0]:
            end.close()
            end = self._listener.accept()[0]
        self.serial = Serial(end)

    def give_to(self, user: int) -> None:
        """What QEMU writes to, if it is not root."""
        self._folder.parent.chmod(0o711)
        self._folder.chmod(0o700)
        os.chown(self._folder, user, user)
        self._address.chmod(0o777)

    def start(self) -> None:
        self.virsh('start')
        self.connected()
        self.wait_ready()

    def save_file(self, options: str = '') -> None:
        self.virsh(f'save {options}', self.file)

    def restore(self, options: str = '') -> None:
        """Another QEMU, with RAM and devices of the file."""
        self._daemon.virsh('restore', *options.split(), self.file)
        self.connected()

    def virsh_revert(self, tag: str) -> None:
        """Without waiting for the guest."""
        self.virsh('snapshot-revert', tag)

    def revert(self, tag: str) -> None:
        self.virsh_revert(tag)
        self.connected()
        self.sync()

    def destroy(self) -> None:
        self.virsh('destroy')

    def snapshot(self, tag: str) -> None:
        self.virsh('snapshot-create-as', tag)

    def load_by_hmp(self, tag: str) -> None:
        answer = self.hmp(f'loadvm {tag}')
        if answer:
            raise LibvirtError(answer)

    def load_by_qmp(self, tag: str) -> None:
        """With libvirt's own names of disks, which it chooses anew each time"""
        disk, = (node['node-name']
                 for node in self.qmp('query-named-block-nodes')
                 if node['drv'] == 'qcow2')
        job = {'job-id': f'load-{tag}'}
        self.qmp('snapshot-load', tag=tag, vmstate=disk, devices=[disk], **job)
        limit = Limit(MONITOR_TIMEOUT)
        while True:
            state, = (j for j in self.qmp('query-jobs')
                      if j['id'] == job['job-id'])
            if state['status'] == 'concluded':
                break
            if limit.over():
                raise LibvirtError(f'snapshot-load does not end: {state}')
            time.sleep(0.02)
        self.qmp('job-dismiss', id=job['job-id'])
        if 'error' in state:
            raise LibvirtError(state['error'])

    def replace_in_snapshot(self, tag: str, old: str, new: str) -> None:
        """A part of the domain's definition, as the snapshot has it."""
        text = self.virsh('snapshot-dumpxml', tag)
        assert old in text
        path = self._folder / 'snapshot.xml'
        path.write_text(text.replace(old, new))
        self.virsh('snapshot-create', path, '--redefine')

    def pid(self) -> int:
        return int((self._daemon.work / 'run/qemu' /
                    f'{self.name}.pid').read_text())

    def process_status(self) -> dict[str, str]:
        pid = self._daemon.host_pid(self.pid())
        return read_status(Path(f'/proc/{pid}/status'))

    def hmp(self, line: str) -> str:
        """QEMU's answer, be it an error: virsh succeeds all the same."""
        return self.virsh('qemu-monitor-command --hmp', line).strip()

    def qmp(self, command: str, **arguments) -> object:
        text = json.dumps({'execute': command, 'arguments': arguments})
        answer = json.loads(self.virsh('qemu-monitor-command', text))
        if 'error' in answer:
            raise LibvirtError(f"{command}: {answer['error']['desc']}")
        return answer['return']


@contextlib.contextmanager
def saved(daemon: Libvirtd, config: Config) -> Iterator[Domain]:
    """It runs, and TAG is of what check_state() looks for."""
    with Domain(daemon, config) as domain:
        domain.start()
        write_state(domain)
        domain.snapshot(TAG)
        yield domain


def assert_runs(domain: Domain) -> None:
    assert domain.state() == 'running'
    check_state(domain)
    dirty(domain, 9)
