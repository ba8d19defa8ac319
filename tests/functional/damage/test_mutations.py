# SPDX-License-Identifier: GPL-2.0-or-later
"""
No damage to a snapshot makes ours do what stock does not, nor run half of it.

RAM_RESET_LONG=1 tries 10,000 mutations, or RAM_RESET_MUTATIONS of them;
RAM_RESET_SEED repeats a run, and RAM_RESET_MUTATION one mutation of it.
"""

# Takes: 25 s
# Long: random damage; test_damage.py has each kind

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lib.effort import rounds
from lib.mutations.stream import Image, put
from lib.mutations.sweep import Sweep
from lib.mutations.verdict import Table
from lib.shm import SHM

FIXED, SHORT, LONG = 100, rounds(100, 50), 10000
FIXED_SEED = 14


@pytest.fixture(scope='module')
def workdir(tmp_path_factory) -> Iterator[Path]:
    """Images are written anew for each load: not to a disk, if possible."""
    if os.access(SHM, os.W_OK):
        with tempfile.TemporaryDirectory(dir=SHM, prefix='ram-reset-') as name:
            yield Path(name)
    else:
        yield tmp_path_factory.mktemp('mutations')


@pytest.fixture(scope='module')
def sweep(workdir) -> Iterator[Sweep]:
    """For damage that is not left to chance."""
    folder = workdir / 'chosen'
    folder.mkdir()
    with Sweep(folder, 0, None) as sweep:
        yield sweep


def numbers() -> range:
    if os.environ.get('RAM_RESET_MUTATION'):
        first = int(os.environ['RAM_RESET_MUTATION'])
        return range(first, first + 1)
    count = LONG if os.environ.get('RAM_RESET_LONG') else SHORT
    return range(int(os.environ.get('RAM_RESET_MUTATIONS') or count))


@pytest.fixture(scope='module')
def huge(request) -> Path | None:
    """Without hugepages everything else is tried."""
    try:
        return request.getfixturevalue('huge_mount')
    except pytest.skip.Exception as e:
        print(e)
        return None


def run(workdir: Path, seed: int, numbers: range, huge: Path | None) -> None:
    table = Table()
    findings = []
    folder = workdir / f'seed-{seed}'
    folder.mkdir()
    with Sweep(folder, seed, huge) as sweep:
        for number in numbers:
            result = sweep.run(number)
            table.add(result)
            if result.findings:
                findings.append(str(result))
                print(result, flush=True)
    print(table)
    assert not findings, f'RAM_RESET_SEED={seed}\n' + '\n'.join(findings)


def test_fixed_mutations(workdir, huge):
    run(workdir, FIXED_SEED, range(FIXED), huge)


def test_mutations(workdir, huge, seed):
    run(workdir, seed, numbers(), huge)


@pytest.mark.parametrize('size', (1, 4096, 1 << 62, (1 << 63) - 1, 1 << 63,
                                  (1 << 64) - 1))
def test_size_of_the_vm_state(sweep, size):
    """
    An image's own statement is not believed; stock does not look at it.  With
    verify=on the snapshot is not what the image says.
    """
    image = sweep.image.with_size(size)
    for config in sweep.configs():
        result = sweep.load_image(config, image)
        assert result.stock.how == 'loaded', str(result)
        if 'verify' in config:
            assert 'no description of devices at its end' in \
                result.ours.message, str(result)
        else:
            assert result.ours.how == 'loaded', str(result)
        assert not result.findings, str(result)


def at_place(name: str, value: int) -> Callable[[Image], bytes]:
    def damage(image: Image) -> bytes:
        place = image.stream.place(name)
        return image.with_stream(put(image.stream.data, place.at, place.size,
                                     value), image.data)
    return damage


def at_device(name: str, offset: int, size: int, value: int
              ) -> Callable[[Image], bytes]:
    def damage(image: Image) -> bytes:
        at = image.stream.state_of(name) + offset
        return image.with_stream(put(image.stream.data, at, size, value),
                                 image.data)
    return damage


def large_table(image: Image) -> bytes:
    name = b'fw_cfg/acpi_mr'
    at = image.stream.data.index(name) + len(name) + 4
    return image.with_stream(put(image.stream.data, at, 8, 1 << 40),
                             image.data)


@pytest.mark.parametrize('config', (
    'rewind', 'rewind, shared', 'template, rewind', 'verify'))
@pytest.mark.parametrize('again', (False, True), ids=('pages', 'and its end'))
def test_ram_behind_its_end(sweep, config, again):
    """
    Pages that come after devices are in RAM, and in no point: QEMU does not
    rewind from there.
    """
    stream, data = sweep.image.stream, sweep.image.stream.data
    pages, = (s for s in stream.sections if s.name == '2 ram')
    end, = (s for s in stream.sections if s.name == '3 ram')
    device, = (s for s in stream.sections if s.name.endswith('ps2mouse'))
    moved = data[pages.start:pages.end] + data[end.start:end.end] * again
    behind = (data[:pages.start] + data[pages.end:device.end] + moved +
              data[device.end:])
    good, bad = (sweep.image.with_date(date) for date in (1000, 1001))
    bad = sweep.image.with_stream(behind, bad)
    for image in good, bad, bad, good, bad:
        result = sweep.load_image(config, image)
        assert not result.findings, str(result)
    assert ('verify' in config) == (result.ours.how == 'failed'), str(result)


def active_l1(image: Image) -> bytes:
    return put(image.data, int.from_bytes(image.data[40:48], 'big'), 8, 1)


# listed in docs/devel/ram-reset/qemu-bugs.rst
QEMUS_OWN = {
    'L1 entry without an offset': active_l1,
    'long machine type': at_place('length of the machine type', 1 << 31),
    'small ROM': at_place('size of RAM block /rom@etc/table-loader', 0),
    'large ROM': at_place('size of RAM block /rom@etc/table-loader',
                          (1 << 64) - 1),
    'large table of ACPI': large_table,
    'interrupt counted by a PCI bus': at_device('PCIBUS', 4, 4, 1),
    'PCI device of a lower version': at_device('ide', 0, 4, 1),
}


@pytest.mark.parametrize('damage', QEMUS_OWN)
def test_of_qemus_own(sweep, damage):
    """An image that kills or spoils stock does no more to ours."""
    for config in ('memset', 'template, rewind'):
        result = sweep.load_image(config, QEMUS_OWN[damage](sweep.image))
        print(result)
        assert not result.findings, str(result)
