# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests whose RAM is a file on hugetlbfs, and the record that goes with it."""

import contextlib
import hashlib
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.dma import QtestMachine
from lib.guests import Ring3
from lib.hugepages import Lacking, mounted
from lib.machine import MIB, RAM, MachineError
from lib.patience import patience

HUGE = 2 * MIB
MARK = 0xa7
BOOT_ID = Path('/proc/sys/kernel/random/boot_id')
KEPT = ',unlink=never'
UNLINKS = KEPT, ',unlink=existing', ',unlink=always'
LEFT_DIRTY = KEPT + ',clear-on-exit=off'
DEFAULT_STATE = Path()        # no state=, QEMU is to choose
BACKEND = (f'memory-backend-file,id={RAM},size={{ram}},share=on,'
           'mem-path={path}')


@pytest.fixture(scope='session')
def huge_mount(tmp_path_factory, huge_pool) -> Iterator[Path]:
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(
                mounted(tmp_path_factory.mktemp('hugetlbfs')))
        except Lacking as e:
            pytest.skip(f'no hugetlbfs: {e}')
        yield folder


@pytest.fixture
def ramfile(huge_mount) -> Iterator[Path]:
    yield huge_mount / 'ram'
    for left in huge_mount.iterdir():
        left.unlink()


class HugeFile:
    """
    Mix-in for a Machine with its RAM in the file @path, looked after by a
    ram-reset-hugefile with @options, unless @strategy says otherwise.
    """

    def __init__(self, workdir: Path, path: Path, *, ram: int = 2 * HUGE,
                 options: str = '', backend: str = BACKEND,
                 memdev: str = f',memdev={RAM}', state: Path | None = None,
                 strategy: str = 'hugefile', **kwargs):
        workdir.mkdir(exist_ok=True)
        self.path = path
        self.state = state or workdir / 'state'
        self._backend = backend.format(ram=ram, path=path)
        if strategy == 'hugefile':
            options += memdev
            if self.state != DEFAULT_STATE:
                options += f',state={self.state}'
        # what an earlier QEMU has said is not to be found again
        (workdir / 'qemu.log').unlink(missing_ok=True)
        super().__init__(workdir, ram=ram, strategy=strategy, options=options,
                         memory='file', **kwargs)

    def _memory_args(self) -> list[str]:
        return ['-object', self._backend, '-M', f'pc,memory-backend={RAM}']

    def memfd(self) -> str:
        """The file, which may have no name any more."""
        for fd in Path(f'/proc/{self.process.pid}/fd').iterdir():
            if os.readlink(fd).removesuffix(' (deleted)') == str(self.path):
                return str(fd)
        raise MachineError(f'QEMU does not have {self.path} open')

    def open_files(self) -> set[str]:
        folder = Path(f'/proc/{self.process.pid}/fd')
        return {os.readlink(fd) for fd in folder.iterdir()}

    def end(self, how: str | int) -> None:
        """In order: by the monitor's "quit" or a signal."""
        if how == 'quit':
            self.qmp('quit')
        else:
            self.process.send_signal(how)
        self.process.wait(patience(20))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close()

    def info(self) -> dict:
        obj, = self.qmp('query-ram-reset')['objects']
        return obj['hugefile']


class HugeRing3(HugeFile, Ring3):
    """A guest that runs, and looks at its memory itself."""


class Still(HugeFile, QtestMachine):
    """A guest without a vCPU, which starts at once.  qtest writes to it."""

    def fill(self, start: int = 0, size: int = 0, byte: int = MARK) -> None:
        """Write @byte all over, as a device would."""
        size = size or self.ram - start
        self.qtest.ask(f'memset {start:#x} {size:#x} {byte:#x}')

    def view(self) -> bytes:
        """RAM as the guest sees it; below 1 MiB there are other things."""
        image = self.workdir / 'pmemsave'
        self.qmp('pmemsave', val=0, size=self.ram, filename=str(image))
        data = image.read_bytes()
        image.unlink()
        assert data[MIB:] == self.ram_image()[MIB:]
        return data

    def is_clean(self) -> bool:
        """No byte of RAM is other than zero, wherever the guest could look."""
        return not any(data.count(0) != len(data) for data in (
            self.ram_image(), self.view()[:0xa0000]))


def killed(workdir: Path, path: Path, **kwargs) -> Still:
    """A guest that was killed with its RAM full of marks."""
    guest = Still(workdir, path, options=KEPT, **kwargs)
    guest.fill()
    guest.kill()
    assert MARK in path.read_bytes()
    return guest


def refusal(*args, **kwargs) -> str:
    with pytest.raises(MachineError, match='QEMU ends with status 1: ') as e:
        Still(*args, **kwargs).close()
    return str(e.value)


def check_all_cleared(guest: Still, why: str) -> None:
    info = guest.info()
    assert info['dirty-pages'] == guest.ram // HUGE
    assert 'all pages may be dirty' in info['record']
    assert re.search(why, info['record'])
    assert guest.is_clean()


def write_record(state: Path, path: Path, *, version: int = 1,
                 in_use: bool = False, dirty: str = '', **changes) -> bytes:
    """
    A record that fits the RAM file @path and has it end in order, as
    system/ram-reset/hugefile/record.c would write it, but for @changes.
    """
    access_time = 123456789 * 10**9 + 987654321
    stat = path.stat()
    os.utime(path, ns=(access_time, stat.st_mtime_ns))
    fields = {
        'version': version,
        'in-use': 'true' if in_use else 'false',
        'pid': 1,
        'boot-id': BOOT_ID.read_text().strip(),
        'device': stat.st_dev,
        'inode': stat.st_ino,
        'page-size': HUGE,
        'pages': stat.st_size // HUGE,
        'access-time': access_time,
        'dirty': dirty,
    }
    fields.update({key.replace('_', '-'): value
                   for key, value in changes.items()})
    body = '[hugefile]\n' + ''.join(f'{key}={value}\n'
                                    for key, value in fields.items())
    record = body.encode()
    record += b'sha256=' + hashlib.sha256(record).hexdigest().encode() + b'\n'
    state.write_bytes(record)
    return record


def mark_by_mapping(path: Path, page: int) -> None:
    with open(path, 'r+b') as f, mmap.mmap(f.fileno(), 0) as m:
        m[page * HUGE:(page + 1) * HUGE] = bytes((MARK,)) * HUGE


def clean_end(workdir: Path, path: Path) -> None:
    """Leave a file and a record of pages that are all clear."""
    with Still(workdir, path, options=KEPT) as guest:
        guest.fill()
