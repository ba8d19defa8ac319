# SPDX-License-Identifier: GPL-2.0-or-later
"""
OSWorld's environments: a revert takes the same QEMU back.

>>> from ram_reset.adapters import osworld
>>> osworld.install(args=['-accel', 'kvm', '-m', '4G', ...])
>>> DesktopEnv(provider_name='docker', path_to_vm='Ubuntu.qcow2')
"""

import socket
import sys
import time
import urllib.error
import urllib.request
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from desktop_env import providers
from desktop_env.providers.base import Provider, VMManager

from ram_reset.errors import GuestError, UsageError
from ram_reset.spec import Snapshot
from ram_reset.sync import Machine

ARGS = ('-machine', 'q35', '-accel', 'kvm', '-cpu', 'host', '-smp', '4',
        '-m', '4G', '-display', 'none', '-vga', 'virtio', '-device',
        'qemu-xhci', '-device', 'usb-tablet')
# of the guest: OSWorld's server, Chromium, VNC and VLC
PORTS = (5000, 9222, 5900, 8080)
POLL = 0.1              # seconds
HOST = '127.0.0.1'


def free_ports(count: int) -> List[int]:
    """Of this host.  Nothing keeps them from others."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind((HOST, 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class RamResetProvider(Provider):
    """
    One machine.  A name that is not saved means its first state, when the
    server answered.

    :param args: of QEMU, without the disk and the network
    :param boot: is called with a machine that has started
    :param boot_seconds: until the server answers
    :param settings: of Machine.start()
    """

    def __init__(self, region: Optional[str] = None, *,
                 args: Sequence[str] = ARGS,
                 boot: Callable[[Machine], object] = lambda machine: None,
                 boot_seconds: float = 300.0, **settings: Any):
        super().__init__(region)
        self.machine: Optional[Machine] = None
        self._args, self._boot, self._settings = args, boot, settings
        self._boot_seconds = boot_seconds
        self._ports: List[int] = []
        self._saved: Dict[str, Snapshot] = {}
        self._first: Optional[Snapshot] = None

    def start_emulator(self, path_to_vm: str, headless: bool,
                       *unused: object) -> None:
        if self.machine:
            return      # it has been reverted
        self._ports = free_ports(len(PORTS))
        forwards = ''.join(f',hostfwd=tcp:{HOST}:{here}-:{there}'
                           for here, there in zip(self._ports, PORTS))
        settings = {'disks': [path_to_vm] if path_to_vm else None,
                    **self._settings}
        self.machine = Machine.start(
            [*self._args, '-netdev', f'user,id=net0{forwards}', '-device',
             'virtio-net-pci,netdev=net0'], **settings)
        try:
            self._boot(self.machine)
            self._wait()
            self._first = self.machine.snapshot()
        except BaseException:
            self.stop_emulator(path_to_vm)
            raise

    def _wait(self) -> None:
        """Until the server has a screenshot."""
        end = time.monotonic() + self._boot_seconds
        while True:
            try:
                with urllib.request.urlopen(
                        f'http://{HOST}:{self._ports[0]}/screenshot',
                        timeout=10) as reply:
                    if reply.status == 200:
                        return
            except (OSError, urllib.error.URLError):
                pass
            if time.monotonic() > end:
                raise GuestError(
                    f"OSWorld's server has not answered in "
                    f'{self._boot_seconds:g} s; check that the guest has '
                    'network, and that the server begins with it')
            time.sleep(POLL)

    def _running(self) -> Machine:
        if not self.machine:
            raise UsageError('the machine does not run; call start_emulator() '
                             'first')
        return self.machine

    def get_ip_address(self, path_to_vm: str) -> str:
        self._running()
        return ':'.join(['localhost', *map(str, self._ports)])

    def save_state(self, path_to_vm: str, snapshot_name: str) -> None:
        self._saved[snapshot_name] = self._running().snapshot()

    def revert_to_snapshot(self, path_to_vm: str, snapshot_name: str) -> str:
        machine = self._running()
        snapshot = self._saved.get(snapshot_name, self._first)
        assert snapshot
        machine.restore(snapshot, run=True)
        return path_to_vm

    def stop_emulator(self, path_to_vm: str, *unused: object) -> None:
        machine, self.machine = self.machine, None
        self._saved, self._first = {}, None
        if machine:
            machine.kill()


def install(**settings: Any) -> None:
    """
    Serve the provider 'docker' of OSWorld, which knows no other names.

    :param settings: of RamResetProvider
    """
    before = providers.create_vm_manager_and_provider

    def create(name: str, region: Optional[str], use_proxy: bool = False
               ) -> Tuple[VMManager, Provider]:
        if name.lower().strip() != 'docker':
            return before(name, region, use_proxy)  # type: ignore
        from desktop_env.providers.docker.manager import DockerVMManager
        return DockerVMManager(), RamResetProvider(region, **settings)

    providers.create_vm_manager_and_provider = create
    if 'desktop_env.desktop_env' in sys.modules:
        sys.modules['desktop_env.desktop_env'].__dict__[
            'create_vm_manager_and_provider'] = create
