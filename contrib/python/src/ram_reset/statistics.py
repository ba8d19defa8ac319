# SPDX-License-Identifier: GPL-2.0-or-later
"""QEMU's account of its loads, as data."""

from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ram_reset.errors import RefusedError
from ram_reset.monitor import Monitor


@dataclass(frozen=True)
class Blocker:
    """
    The reason why a load was not a rewind.

    :ivar reason: QEMU's sentence
    :ivar id: of the reason, as query-ram-reset lists them
    :ivar remedy: QEMU's advice, if it has any
    """

    reason: str
    id: str = ''
    remedy: str = ''


@dataclass(frozen=True)
class Load:
    """
    One load of a snapshot.

    :ivar tag: the snapshot's name
    :ivar rewound: whether QEMU undid only the changes
    :ivar seconds: in QEMU
    :ivar dirty_pages: pages that the guest had changed
    :ivar copied_pages: pages that QEMU has written
    :ivar blocker: why it was not a rewind, if an object has rewind=on
    :ivar template: the file that RAM was mapped from, or None
    :ivar raw: QEMU's own structure, RamResetLoadInfo
    """

    tag: str
    rewound: bool
    seconds: float
    dirty_pages: int
    copied_pages: int
    blocker: Optional[Blocker]
    template: Optional[str]
    raw: Mapping[str, Any]

    @classmethod
    def parse(cls, info: Mapping[str, Any]) -> 'Load':
        blocker = None
        if 'blocker' in info:
            parts = info.get('blocker-info', {})
            blocker = Blocker(info['blocker'], parts.get('id', ''),
                              parts.get('remedy', ''))
        blocks = info['blocks']
        return cls(info['tag'], info['rewound'],
                   info['phases']['total'] / 1e9,
                   sum(block['dirty-pages'] for block in blocks),
                   sum(block['copied-pages'] for block in blocks),
                   blocker, info.get('template'), info)


@dataclass(frozen=True)
class Statistics:
    """
    All loads of a QEMU since it has started.

    :ivar loads: loads that succeeded
    :ivar failed_loads: loads that failed when they had begun to change RAM
    :ivar rewinds: the loads that undid only the changes
    :ivar fallbacks: failures of a strategy while a load ran
    :ivar mean_seconds: of the last loads, in QEMU; 0 before the first
    :ivar slowest_seconds: of the last loads
    :ivar last_load: the last load, or None
    :ivar raw: QEMU's own structure, RamResetInfo
    """

    loads: int
    failed_loads: int
    rewinds: int
    fallbacks: int
    mean_seconds: float
    slowest_seconds: float
    last_load: Optional[Load]
    raw: Mapping[str, Any]

    @classmethod
    def parse(cls, info: Mapping[str, Any]) -> 'Statistics':
        recent = info.get('recent-loads')
        last = info.get('last-load')
        return cls(info['loads'], info['failed-loads'], info['rewinds'],
                   info['fallbacks'],
                   recent['mean']['total'] / 1e9 if recent else 0.0,
                   recent['slowest']['total'] / 1e9 if recent else 0.0,
                   Load.parse(last) if last else None, info)


async def query(monitor: Monitor) -> Optional[Statistics]:
    """None for a QEMU without RAM reset."""
    try:
        return Statistics.parse(await monitor.execute('query-ram-reset'))
    except RefusedError:
        return None
