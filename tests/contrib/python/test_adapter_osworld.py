# SPDX-License-Identifier: GPL-2.0-or-later
"""OSWorld's provider, with OSWorld's classes and a guest that has a server."""

# Takes: 30 s

import time
import urllib.error
import urllib.request

import pytest

from lib import package, products
from lib.clients import client
from lib.patience import patience

providers = client('desktop_env.providers')

from ram_reset import Machine, UsageError  # noqa: E402
from ram_reset.adapters import osworld  # noqa: E402

NET = 'failover', 'net_failover', 'virtio_net'
SETUP = (f'for m in {" ".join(NET)}; do insmod /lib/$m.ko; done',
         'ip link set lo up; ip link set eth0 up; '
         'ip addr add 10.0.2.15/24 dev eth0',
         'mkdir /www; echo a picture >/www/screenshot; '
         'httpd -p 5000 -h /www')


def boot(machine: Machine) -> None:
    package.set_up_shell(machine)
    for line in SETUP:
        said = machine.run(line, patience(60))
        assert said.status == 0, said.output


@pytest.fixture
def provider(monkeypatch):
    monkeypatch.setattr(providers, 'create_vm_manager_and_provider',
                        providers.create_vm_manager_and_provider)
    osworld.install(args=package.shell(initramfs=products.io_initramfs()),
                    boot=boot, qemu=package.QEMU, serial=True,
                    boot_seconds=patience(60))
    manager, found = providers.create_vm_manager_and_provider(
        'docker', None, use_proxy=False)
    assert isinstance(manager, providers.VMManager)
    assert isinstance(found, providers.Provider)
    yield found
    found.stop_emulator('')


def get(provider, name: str) -> str:
    host, port, *others = provider.get_ip_address('').split(':')
    assert len(others) == 3
    with urllib.request.urlopen(f'http://{host}:{port}/{name}',
                                timeout=patience(20)) as reply:
        return reply.read().decode()


def test_reverts(provider):
    """As DesktopEnv does it, with its calls and their arguments."""
    with pytest.raises(UsageError, match='does not run; call start_emulator'):
        provider.get_ip_address('')
    provider.start_emulator('', True, 'Ubuntu')
    pid, address = provider.machine.pid, provider.get_ip_address('')
    assert get(provider, 'screenshot') == 'a picture\n'
    for number in range(3):
        provider.machine.run(f'echo {number} >/www/task', patience(20))
        assert get(provider, 'task') == f'{number}\n'
        begin = time.monotonic()
        assert provider.revert_to_snapshot('', 'init_state') == ''
        provider.start_emulator('', True, 'Ubuntu')
        assert get(provider, 'screenshot') == 'a picture\n'
        print(f'the server is back after {time.monotonic() - begin:.3f} s')
        with pytest.raises(urllib.error.HTTPError, match='404'):
            get(provider, 'task')
    assert provider.machine.pid == pid
    assert provider.get_ip_address('') == address
    assert provider.machine.last_load().rewound


def test_saved_states(provider):
    provider.start_emulator('', True, 'Ubuntu')
    provider.machine.run('echo half >/www/task', patience(20))
    provider.save_state('', 'half')
    provider.revert_to_snapshot('', 'init_state')
    with pytest.raises(urllib.error.HTTPError, match='404'):
        get(provider, 'task')
    provider.revert_to_snapshot('', 'half')
    assert get(provider, 'task') == 'half\n'
    provider.stop_emulator('')
    with pytest.raises(UsageError, match='does not run'):
        provider.revert_to_snapshot('', 'half')
