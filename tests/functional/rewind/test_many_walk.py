# SPDX-License-Identifier: GPL-2.0-or-later
"""
Random steps over 64 snapshots of both kinds: save, overwrite, go to, delete,
write, discard, plug and unplug.  RAM and the disk are what a model has.

RAM_RESET_STEPS is how many, for each variant.
"""

# Takes: 10 s

import time

import pytest

from lib import products
from lib.machine import MIB, run_quietly
from lib.shm import in_memory
from lib.walking import RAM_SIZE, Walker, steps

STEPS = steps(400, 100)
# Room for all, for some of those in an image, and for few
LIMITS = {'all': ',rewind-limit=1G',
          'some': f',rewind-limit={RAM_SIZE + 3 * MIB}',
          'few': f',rewind-limit={RAM_SIZE // 2 + MIB // 2}'}


@pytest.mark.parametrize('verify', ('off', 'on'))
@pytest.mark.parametrize('limit', LIMITS)
@pytest.mark.each_value
def test_walk(rng, limit, verify):
    start = time.monotonic()
    with in_memory('walk') as workdir:
        with Walker(workdir, rng, LIMITS[limit] + f',verify={verify}'
                    ) as walker:
            for step in range(STEPS):
                walker.step()
                if step % 1000 == 999:
                    print(f'{step + 1} steps', flush=True)
            walker.check_all()
            print(f'{STEPS} steps, {time.monotonic() - start:.0f} s:',
                  dict(sorted(walker.counts.items())))
            counts = walker.counts
        run_quietly(products.QEMU_IMG, 'check', '-q', workdir / 'disk.qcow2')
    assert counts['rewound'] and counts['save'] > STEPS // 10
