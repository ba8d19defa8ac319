# SPDX-License-Identifier: GPL-2.0-or-later
"""A request that failed before a load is not tried again after the load."""

# Takes: 3 s

import time

import pytest

from lib.dma import QtestMachine
from lib.machine import DISK, MIB
from lib.patience import Limit

# The first disk of a pc
COUNT, SELECT, COMMAND = 0x1f2, 0x1f6, 0x1f7
READ_SECTORS = 0x20
FAILS_TO_READ = (
    '{"driver": "blkdebug", "node-name": "bad", '
    '"image": {"driver": "null-co", "size": 1048576}, '
    '"inject-error": [{"event": "none", "iotype": "read", "errno": 5}]}')


def start(workdir, strategy, options) -> QtestMachine:
    return QtestMachine(workdir, ram=16 * MIB, strategy=strategy,
                        options=options, args=(
        '-blockdev', FAILS_TO_READ,
        '-device', 'ide-hd,drive=bad,bus=ide.0,rerror=stop'))


def wait_for_error(guest) -> None:
    limit = Limit(guest.timeout)
    while guest.status() != 'io-error':
        assert not limit.over()
        time.sleep(0.01)


@pytest.mark.parametrize('strategy,options', (('stock', ''),
                                              ('auto', ',rewind=on')))
def test_is_not_tried_again(tmp_path, strategy, options):
    with start(tmp_path, strategy, options) as guest:
        guest.snapshot_job('snapshot-save', 'a', DISK)
        for _ in range(3):
            for port, value in ((COUNT, 1), (SELECT, 0xe0),
                                (COMMAND, READ_SECTORS)):
                guest.qtest.out('b', port, value)
            wait_for_error(guest)
            # without a load it is tried again
            guest.cont()
            wait_for_error(guest)
            guest.snapshot_job('snapshot-load', 'a', DISK)
            guest.cont()
            time.sleep(0.2)
            assert guest.status() == 'running'
