# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a load is not a rewind: id, sentence, detail and remedy."""

# Takes: 3 s

from contextlib import contextmanager

import pytest

from lib.machine import MIB, Machine

TAG = 's'


@contextmanager
def started(workdir, options='', args=()):
    with Machine(workdir, accel='tcg', ram=64 * MIB, strategy='auto',
                 options=',rewind=on' + options, args=('-S', *args)) as guest:
        yield guest


def check(guest, info, name, detail):
    """@info is of last-load or rewind, and HMP says the same."""
    parts = info['blocker-info']
    assert parts['id'] == name
    assert detail in parts.get('detail', '')
    text = parts['sentence']
    if 'detail' in parts:
        text += ': ' + parts['detail']
    assert info['blocker'] == text
    shown = ' '.join(guest.hmp('info ram-reset').split())
    assert f'[{name}]' in shown
    assert text in shown and parts['remedy'] in shown


def last_of(guest):
    guest.load(TAG)
    last = guest.last_load()
    assert not last['rewound']
    return last


def test_nothing_has_been_loaded(tmp_path):
    with started(tmp_path) as guest:
        check(guest, guest.qmp('query-ram-reset')['rewind'], 'nothing-loaded',
              '')


def test_unknown_snapshot(tmp_path):
    with started(tmp_path) as guest:
        guest.save(TAG)
    with started(tmp_path) as guest:
        guest.save('other')
        check(guest, last_of(guest), 'unknown-snapshot', '')


def test_limit(tmp_path):
    with started(tmp_path, ',rewind-limit=4k') as guest:
        warning = guest.hmp(f'savevm {TAG}')
        check(guest, last_of(guest), 'rewind-limit', 'rewind-limit=4096')
    assert 'raise rewind-limit=' in warning     # the remedy


def test_part_without_rewind(tmp_path):
    with started(tmp_path, args=(
            '-m', 'slots=1,maxmem=1G',
            '-object', 'memory-backend-ram,id=mem1,size=2M',
            '-device', 'pc-dimm,memdev=mem1',
            '-object', 'ram-reset-memset,id=off,memdev=mem1')) as guest:
        guest.save(TAG)
        check(guest, last_of(guest), 'rewind-off', "'mem1': off")


def test_plugged_device(tmp_path):
    with started(tmp_path) as guest:
        guest.save(TAG)
        guest.qmp('device_add', driver='virtio-rng-pci', id='rng')
        guest.qmp('device_del', id='rng')
        check(guest, guest.qmp('query-ram-reset')['rewind'], 'device-plugged',
              '')
