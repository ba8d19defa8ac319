# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU 10.2 and later drop translated code before a load, even if it is refused;
test_release_qtests.py runs this test."""

import pytest

from lib.machine import MIB, MachineError
from lib.smp import Smp


@pytest.mark.parametrize('thread', ('multi', 'single'))
def test_code_is_dropped_without_a_load(tmp_path, thread):
    """
    QEMU drops TCG's translated code when it stops the guest to load.  We leave
    that to the load, but there may be none.
    """
    place, shared, region = tmp_path / 'shmem', (0x11101af4, 2), 0xe0000000
    with Smp(tmp_path, accel=f'tcg,thread={thread}', cpus='2',
             strategy='auto', options=',rewind=on', args=(
            '-object', f'memory-backend-file,id=shmem,size={MIB},share=on,'
                       f'mem-path={place}',
            '-device', 'ivshmem-plain,memdev=shmem,master=on')) as guest:
        guest.ask('map-bar', *shared)
        guest.ask('code-put', region, 0)
        with place.open('r+b', buffering=0) as f:
            for n in range(4):
                f.seek(1)
                f.write(bytes((n, 0, 0, 0)))
                with pytest.raises(MachineError, match='nosuch'):
                    guest.hmp('loadvm nosuch')
                guest.cont()
                for cpu in range(guest.cpus):
                    assert int(guest.ask('code-run', cpu, region), 16) == n
