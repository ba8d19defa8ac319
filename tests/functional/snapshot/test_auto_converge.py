# SPDX-License-Identifier: GPL-2.0-or-later
# Takes: 20 s
# Long: it waits for a timer of 5 s
"""A live migration that slows the guest down is nobody's savevm.

With auto-converge a timer of the main thread, where savevm saves, looks at the
dirty log while the guest runs, if a pass takes longer than 5 s.
"""

import time

import pytest

from lib.effort import ALL
from lib.guests import Ring3
from lib.machine import MIB
from lib.patience import Limit

RAM_SIZE = 128 * MIB
WORK = Ring3.FIRST_FREE, 56 * MIB
SPEED = 8 * MIB
PATIENCE = 60


@pytest.mark.parametrize('served', ('stock', 'auto') if ALL else ('auto',))
def test_live_migration(tmp_path, fast_accel, served):
    with Ring3(tmp_path, accel=fast_accel, strategy=served,
               ram=RAM_SIZE) as guest:
        guest.qmp('migrate-set-capabilities', capabilities=[
            {'capability': 'auto-converge', 'state': True}])
        guest.qmp('migrate-set-parameters',
                  **{'max-bandwidth': SPEED, 'downtime-limit': 1})
        guest.ask('fill', *WORK, 1)
        start, length = WORK
        guest.serial.send(f'loop {start:x} {length // 4096:x} 1000 40000000\n')
        guest.qmp('migrate', uri='exec:cat >/dev/null')
        limit = Limit(PATIENCE)
        while not limit.over():
            info = guest.qmp('query-migrate')
            assert info['status'] in ('setup', 'active')
            if info.get('ram', {}).get('dirty-sync-count', 0) >= 4:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f'not in {limit.seconds():.0f} s: {info}')
        guest.qmp('migrate_cancel')
