# SPDX-License-Identifier: GPL-2.0-or-later
"""Migrations, by QMP."""

import time

from lib.machine import Machine, MachineError
from lib.patience import Limit


def set_capabilities(guest: Machine, *names: str, state: bool = True) -> None:
    guest.qmp('migrate-set-capabilities', capabilities=[
        {'capability': name, 'state': state} for name in names])


def wait_migration(guest: Machine, *wanted: str) -> None:
    """Until it is in a state of @wanted, by default 'completed'."""
    wanted = wanted or ('completed',)
    limit = Limit(60)
    while (status := guest.qmp('query-migrate').get('status')) not in wanted:
        if status in ('failed', 'cancelled') or limit.over():
            raise MachineError(f'{status}, not {wanted}: {guest.log()}')
        time.sleep(0.001)
