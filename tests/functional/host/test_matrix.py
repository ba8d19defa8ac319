# SPDX-License-Identifier: GPL-2.0-or-later
"""The manual's table of strategies and memory, against what QEMU does."""

import csv
import re
import subprocess

import pytest

from lib import products
from lib.dma import PAGE, Qtest
from lib.machine import MIB, Machine, MachineError

MANUAL = products.REPO / 'docs/system/ram-reset-strategies.rst'
SIZE = 16 * MIB
REFUSED = 'refused at start'

# The options for each row of the table; {dir} and {huge} are new directories
MEMORY = {
    'memory-backend-ram': 'memory-backend-ram',
    'memory-backend-ram, prealloc=on': 'memory-backend-ram,prealloc=on',
    'memory-backend-ram, share=on': 'memory-backend-ram,share=on',
    'memory-backend-memfd, share=on': 'memory-backend-memfd,share=on',
    'memory-backend-memfd, share=on, prealloc=on':
        'memory-backend-memfd,share=on,prealloc=on',
    'memory-backend-memfd, share=off': 'memory-backend-memfd,share=off',
    'memory-backend-memfd, share=on, hugetlb=on':
        'memory-backend-memfd,share=on,hugetlb=on,hugetlbsize=2M',
    'memory-backend-memfd, share=off, hugetlb=on':
        'memory-backend-memfd,share=off,hugetlb=on,hugetlbsize=2M',
    'memory-backend-shm': 'memory-backend-shm,share=on',
    'memory-backend-file, share=on':
        'memory-backend-file,share=on,mem-path={dir}/ram',
    'memory-backend-file, share=off':
        'memory-backend-file,share=off,mem-path={dir}/ram',
    'memory-backend-file on hugetlbfs, share=on':
        'memory-backend-file,share=on,mem-path={huge}/ram',
    'memory-backend-file on hugetlbfs, share=off':
        'memory-backend-file,share=off,mem-path={huge}/ram',
    'memory-backend-file, mem-path= a directory on hugetlbfs, share=on':
        'memory-backend-file,share=on,mem-path={huge}',
    'memory-backend-file, mem-path= a directory on hugetlbfs, share=off':
        'memory-backend-file,share=off,mem-path={huge}',
    'any, with -overcommit mem-lock=on': 'memory-backend-ram',
}


def table() -> tuple[list[str], dict[str, list[str]]]:
    text = MANUAL.read_text()
    found = re.search(r'csv-table:: Strategies and memory\n\s+:header: ([^\n]*)\n'
                      r'(?:\s+:[^\n]*\n)*\n((?:  [^\n]*\n)+)', text)
    header, *_ = csv.reader([found[1]], skipinitialspace=True)
    rows = csv.reader((line.strip() for line in found[2].splitlines()),
                      skipinitialspace=True)
    return header[1:], {row[0].replace('``', ''): row[1:] for row in rows}


STRATEGIES, ROWS = table()


def test_every_row_is_checked():
    assert set(ROWS) == set(MEMORY)
    assert all(len(row) == len(STRATEGIES) for row in ROWS.values())


@pytest.fixture(scope='module')
def huge_dir(huge_pool, tmp_path_factory):
    path = tmp_path_factory.mktemp('huge')
    mount = subprocess.run(['mount', '-t', 'hugetlbfs', '-o', 'pagesize=2M',
                            'none', path], capture_output=True, text=True,
                           check=False)
    if mount.returncode:
        pytest.skip(f'hugetlbfs cannot be mounted: {mount.stderr.strip()}')
    yield path
    subprocess.run(['umount', path], check=True)


class Bare(Machine):
    """A machine whose RAM is any memory backend."""

    def __init__(self, workdir, backend: str, strategy: str, locked: bool):
        self._backend = backend
        if strategy == 'hugefile':
            options = f',memdev=mem0,state={workdir}/state'
        else:
            options = ''
        args = ('-overcommit', 'mem-lock=on') if locked else ()
        qtest = Qtest(workdir)
        super().__init__(workdir, accel='qtest', ram=SIZE, strategy=strategy,
                         options=options, args=(*args, *qtest.args))
        qtest.use(PAGE, PAGE)

    def _memory_args(self):
        return ['-object', f'{self._backend},id=mem0,size={SIZE}',
                '-M', 'pc,memory-backend=mem0']


@pytest.mark.parametrize('memory', MEMORY)
@pytest.mark.parametrize('strategy', STRATEGIES)
def test_cell(tmp_path, request, memory, strategy):
    cell = ROWS[memory][STRATEGIES.index(strategy)]
    huge = None
    if 'huge' in memory:
        huge = request.getfixturevalue('huge_dir')
        (huge / 'ram').unlink(missing_ok=True)
    (tmp_path / 'ram').write_bytes(bytes([1]) * SIZE)
    backend = MEMORY[memory].format(dir=tmp_path, huge=huge)
    try:
        with Bare(tmp_path, backend, strategy, 'mem-lock' in memory) as vm:
            vm.save('s')
            vm.load('s')
            block, = (b for b in vm.last_load()['blocks']
                      if b['name'] == 'mem0')
    except MachineError as e:
        assert cell == REFUSED, e
        assert 'ram-reset-hugefile' in str(e)
        return
    expected, _, why = cell.partition(': ')
    assert block['strategy'] == expected
    assert not block['fallback']
    if why:
        assert why in block['reason']
    else:
        assert block['reason'] == "asked for by 'rr0'"
