# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests with rewind=on, and whether a load was one that undoes."""

import contextlib
import re
from collections import Counter
from pathlib import Path

import pytest

from lib.guests import Ring3
from lib.machine import MIB, RAM, Machine, kvm_usable

RAM_SIZE = 32 * MIB
START = Ring3.FIRST_FREE
ACCELS = ('kvm', 'kvm,dirty-ring-size=1024', 'tcg')


@pytest.fixture(params=ACCELS)
def tracker(request) -> str:
    """The tracker that knows which pages have been written to."""
    if request.param.startswith('kvm') and not kvm_usable():
        pytest.skip('/dev/kvm cannot be opened for reading and writing')
    return request.param


def boot(workdir: Path, accel: str, memory: str = 'shared',
         strategy: str = 'auto', options: str = '', **kwargs) -> Ring3:
    return Ring3(workdir, accel=accel, memory=memory, strategy=strategy,
                 ram=RAM_SIZE, options=f',rewind=on{options}', **kwargs)


def assert_rewound(guest: Ring3) -> dict:
    last = guest.last_load()
    assert last['rewound'], last.get('blocker')
    return next(b for b in last['blocks'] if RAM in b['name'])


def footprint(guest: Machine) -> dict[str, int]:
    """Figures of QEMU's process, memory in KiB."""
    folder = Path(f'/proc/{guest.process.pid}')
    status = dict(line.split(':', 1)
                  for line in (folder / 'status').read_text().splitlines())
    return {'anonymous': int(status['RssAnon'].split()[0]),
            'shared': int(status['RssShmem'].split()[0]),
            'threads': int(status['Threads']),
            'mappings': len((folder / 'maps').read_text().splitlines()),
            'descriptors': len(list((folder / 'fd').iterdir()))}


def descriptors(guest: Machine) -> Counter[str]:
    """Open files of QEMU's process, by name, with N for a number."""
    found: Counter[str] = Counter()
    for fd in Path(f'/proc/{guest.process.pid}/fd').iterdir():
        # it may have been closed meanwhile
        with contextlib.suppress(FileNotFoundError):
            found[re.sub(r'\d+', 'N', str(fd.readlink()))] += 1
    return found
