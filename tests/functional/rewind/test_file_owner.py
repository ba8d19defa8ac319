# SPDX-License-Identifier: GPL-2.0-or-later
"""Rewinding where RAM is a file: QEMU's own, or one that others may use."""

# Takes: 5 s

import os
import secrets
import shutil

import pytest

from lib.dma import QtestMachine
from lib.hugefile import huge_mount   # noqa: F401
from lib.machine import MIB, PAGE

SIZE = 32 * MIB
START = 4 * MIB

DIRECTORY = 'memory-backend-file,mem-path={huge}'
OWN = {
    'directory, private': f'{DIRECTORY},share=off',
    'directory, shared': f'{DIRECTORY},share=on',
    'directory, preallocated': f'{DIRECTORY},share=off,prealloc=on',
    'directory, shared, preallocated': f'{DIRECTORY},share=on,prealloc=on',
    'small pages in a directory': 'memory-backend-file,mem-path={dir},share=on',
    'memfd': 'memory-backend-memfd,hugetlb=on,hugetlbsize=2M,share=on',
    'private memfd': 'memory-backend-memfd,hugetlb=on,hugetlbsize=2M,share=off',
}
FOREIGN = {
    'name': ('memory-backend-file,mem-path={huge}/ram,share=on', ''),
    'private': ('memory-backend-file,mem-path={huge}/ram,share=off', ''),
    'locked': ('memory-backend-ram', 'mem-lock=on'),
}
HELP = {'name': 'give mem-path= a directory',
        'private': 'give mem-path= a directory',
        'locked': 'leave out -overcommit mem-lock=on'}


@pytest.fixture
def folders(huge_mount, tmp_path) -> dict[str, object]:
    own = huge_mount / 'own'
    own.mkdir()
    yield {'huge': own, 'dir': tmp_path}
    shutil.rmtree(own)


class Guest(QtestMachine):
    """RAM is any memory backend, or one for each of two NUMA cells."""

    def __init__(self, workdir, backend: str, cells: int = 1, args=()):
        self._backend, self._cells = backend, cells
        super().__init__(workdir, ram=SIZE, strategy='auto', args=args,
                         options=',rewind=on,verify=on')

    def _memory_args(self):
        size = SIZE // self._cells
        args = ['-M', 'pc' + (',memory-backend=mem0' if self._cells == 1
                              else '')]
        for n in range(self._cells):
            args += ['-object', f'{self._backend},id=mem{n},size={size}']
            if self._cells > 1:
                args += ['-numa', f'node,nodeid={n},memdev=mem{n}']
        return args


def fill(guest: Guest, pages: int) -> dict[int, bytes]:
    """Some data in each MiB."""
    data = {at: secrets.token_bytes(pages * PAGE)
            for at in range(START, SIZE, MIB)}
    for at, piece in data.items():
        guest.qtest.write(at, piece)
    return data


def check_rewinds(guest: Guest) -> None:
    """Twice, the bytes that were there, and undone page by page."""
    saved = fill(guest, 2)
    guest.save('s')
    for _ in range(2):
        fill(guest, 3)
        guest.load('s')
        last = guest.last_load()
        assert last['rewound'], last.get('blocker')
        blocks = [b for b in last['blocks'] if b['name'].startswith('mem')]
        dirty = sum(b['dirty-pages'] for b in blocks)
        assert 3 * len(saved) <= dirty < SIZE // PAGE // 4
        for at, piece in saved.items():
            assert guest.qtest.read(at, 3 * PAGE) == piece + bytes(PAGE)


@pytest.mark.each_value
@pytest.mark.parametrize('cells', (1, 2))
@pytest.mark.parametrize('kind', OWN)
def test_file_of_qemus_own_is_rewound(tmp_path, folders, kind, cells):
    with Guest(tmp_path, OWN[kind].format(**folders), cells) as guest:
        check_rewinds(guest)
    assert not os.listdir(folders['huge'])


@pytest.mark.parametrize('kind', FOREIGN)
def test_refusal_says_what_to_change(tmp_path, folders, kind):
    backend, overcommit = FOREIGN[kind]
    args = ('-overcommit', overcommit) if overcommit else ()
    with Guest(tmp_path, backend.format(**folders), args=args) as guest:
        guest.save('s')
        fill(guest, 1)
        guest.load('s')
        last = guest.last_load()
        assert not last['rewound']
        assert HELP[kind] in last['blocker'] + last['blocker-info']['remedy']


def test_name_that_has_been_removed_since(tmp_path, folders):
    """Somebody may have it open, who could be overlooked."""
    file = folders['huge'] / 'ram'
    with Guest(tmp_path, f'memory-backend-file,mem-path={file},share=on'
               ) as guest:
        file.unlink()
        guest.save('s')
        assert 'give mem-path= a directory' in \
            guest.qmp('query-ram-reset')['rewind']['blocker']
        # nor if a directory is there by now
        file.mkdir()
        guest.save('s')
        assert 'give mem-path= a directory' in \
            guest.qmp('query-ram-reset')['rewind']['blocker']


def test_file_that_another_process_has_opened(tmp_path, folders):
    """By way of /proc: what is written by it, nobody would tell."""
    with Guest(tmp_path, OWN['directory, shared'].format(**folders)) as guest:
        proc = f'/proc/{guest.process.pid}/fd'
        path, = (f'{proc}/{fd}' for fd in os.listdir(proc)
                 if 'qemu_back_mem' in os.readlink(f'{proc}/{fd}'))
        fd = os.open(path, os.O_RDWR)
        try:
            guest.save('s')
            assert 'another process has opened its file' in \
                guest.qmp('query-ram-reset')['rewind']['blocker']
        finally:
            os.close(fd)
        guest.save('s')
        guest.load('s')
        assert guest.last_load()['rewound']
