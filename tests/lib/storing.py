# SPDX-License-Identifier: GPL-2.0-or-later
"""The job ram-reset-store, and what is in an image then."""

import json
import subprocess
import time
from collections import Counter
from pathlib import Path

from lib import products
from lib.kills import Kills
from lib.machine import Machine, MachineError, run_quietly
from lib.patience import Limit

MEMORY = ',save-kind=memory'
LEAKS, CORRUPTIONS = 'leaks', 'corruptions'


def make_image(folder: Path, options: str) -> None:
    """The disk of a machine there."""
    run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2', '-o',
                options, folder / 'disk.qcow2', '64M')


def snapshots(disk: Path) -> dict[str, int]:
    """Name and bytes of the VM state of each snapshot in the image."""
    info = json.loads(run_quietly(products.QEMU_IMG, 'info', '-U',
                                  '--output=json', disk))
    return {s['name']: s['vm-state-size'] for s in info.get('snapshots', ())}


def check(disk: Path) -> None:
    """Nothing is wrong, and nothing leaks."""
    run_quietly(products.QEMU_IMG, 'check', '-q', disk)


def problems(disk: Path) -> Counter[str]:
    """What qemu-img check has found, and how often."""
    run = subprocess.run([products.QEMU_IMG, 'check', '-U', '--output=json',
                          disk], capture_output=True, text=True, check=False)
    found = json.loads(run.stdout)
    assert not found['check-errors'], run.stderr
    return Counter({what: found.get(what, 0) for what in (LEAKS, CORRUPTIONS)
                    if found.get(what)})


def begin(guest: Machine, tag: str, **kwargs) -> None:
    guest.qmp('ram-reset-store', **{'job-id': 'store', 'tag': tag, **kwargs})


def state(guest: Machine) -> dict | None:
    jobs = [j for j in guest.qmp('query-jobs') if j['id'] == 'store']
    return jobs[0] if jobs else None


def finish(guest: Machine) -> None:
    limit = Limit(60)
    while (job := state(guest))['status'] != 'concluded':
        assert not limit.over(), job
        time.sleep(0.002)
    guest.qmp('job-dismiss', id='store')
    if 'error' in job:
        raise MachineError(job['error'])


def store(guest: Machine, tag: str, **kwargs) -> None:
    begin(guest, tag, **kwargs)
    finish(guest)


def killed_while_storing(guest: Machine, tag: str, kills: Kills, nth: int
                         ) -> tuple[bool, bool]:
    """
    Whether QEMU ended at the @nth call, and whether the image has the VM state.
    Its leaks are mended.
    """
    kills.arm(nth)
    ended = False
    try:
        store(guest, tag)
    except (MachineError, OSError, EOFError):
        ended = True
    kills.disarm()
    try:
        guest.close()
    except MachineError:
        assert ended
    run_quietly(products.QEMU_IMG, 'check', '-q', '-r', 'leaks', guest.disk)
    return ended, snapshots(guest.disk)[tag] > 0


def kinds(guest: Machine) -> dict[str, str]:
    return {s['tag']: s['kind'] for s in
            guest.qmp('query-ram-reset')['rewind']['snapshots']}


def set_kind(guest: Machine, kind: str) -> None:
    """Of the saves that follow."""
    guest.qmp('qom-set', path='/objects/rr0', property='save-kind', value=kind)
