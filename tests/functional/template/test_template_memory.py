# SPDX-License-Identifier: GPL-2.0-or-later
"""The memory that RAM takes which is mapped from a template."""

# Takes: 10 s

import re
import time
from pathlib import Path

import pytest

from lib.content import assert_same_ram
from lib.dma import SCRATCH, Balloon, Qtest
from lib.guests import PAGE, Ring3
from lib.machine import MIB
from lib.templates import (RAM_SIZE, START, STORED, boot, dirty, files,
                           main_block, save, start)

THP = Path('/sys/kernel/mm/transparent_hugepage/enabled')


def shared_clean(guest: Ring3, file: Path) -> int:
    """KiB of @file that are in this process's memory, and not its own."""
    text = Path(f'/proc/{guest.process.pid}/smaps').read_text()
    return sum(int(re.search(r'^Rss:\s+(\d+)', part, re.M)[1]) -
               int(re.search(r'^Anonymous:\s+(\d+)', part, re.M)[1])
               for part in re.split(r'^(?=[0-9a-f]+-[0-9a-f]+ )', text,
                                    flags=re.M) if str(file) in part)


def test_clean_pages_are_shared(tmp_path, templates):
    """Pages that are only read take no memory of the process."""
    save(tmp_path, templates)
    file, = files(templates)
    with boot(tmp_path, templates, loadvm='s') as guest:
        guest.ask('check-fill', START, STORED, 1)
        assert shared_clean(guest, file) >= STORED // 1024
        guest.ask('fill', START, STORED, 2)
        assert shared_clean(guest, file) < MIB // 1024


def anonymous_hugepages(guest: Ring3) -> int:
    """KiB of private memory that are in transparent hugepages."""
    text = Path(f'/proc/{guest.process.pid}/smaps').read_text()
    return sum(int(kib) for kib in
               re.findall(r'^AnonHugePages:\s+(\d+)', text, re.M))


def test_hugepages_are_for_those_who_write_densely(tmp_path, templates,
                                                   fast_accel):
    """A page here and there does not clear 2 MiB; later writes in bulk do."""
    if '[never]' in THP.read_text():
        pytest.skip(f'transparent hugepages are off: {THP}')
    ram = 256 * MIB
    save(tmp_path, templates, accel=fast_accel, ram=ram)
    with boot(tmp_path, templates, fast_accel, loadvm='s', ram=ram) as guest:
        before = anonymous_hugepages(guest)
        guest.ask('tag', 32 * MIB, 50, 2 * MIB, 1)
        assert anonymous_hugepages(guest) == before
        for at in range(32 * MIB, 224 * MIB, 2 * MIB):
            guest.ask('fill', at, MIB, 1)
            if anonymous_hugepages(guest) > before:
                break
            time.sleep(0.02)
        assert anonymous_hugepages(guest) > before


@pytest.mark.each_value
@pytest.mark.parametrize('strategy', ('memset', 'madvise', 'remap', 'auto'))
def test_discarded_pages_are_zero(tmp_path, templates, strategy, rewind):
    """A balloon gives pages away that show zeros, and no template, after."""
    scratch = RAM_SIZE - SCRATCH
    page = [START + i * PAGE for i in range(200)]
    away = page[:3] + page[10:90:2] + page[150:]
    qtest, balloon = Qtest(tmp_path), Balloon(scratch)
    args = (*qtest.args, *balloon.args)
    with boot(tmp_path, templates, args=args) as guest:
        guest.ask('fill', START, STORED, 1)
        guest.stop()
        guest.save('s')
        image = guest.ram_image()
    with boot(tmp_path, templates, strategy=strategy, options=rewind,
              args=(*args, '-S'), loadvm='s') as guest:
        assert main_block(guest)['mapped-pages'] >= STORED // PAGE
        for _ in range(3):
            qtest.connect()
            balloon.inflate(qtest, away)
            qtest.close()
            now = guest.ram_image()
            for at in page:
                wanted = bytes(PAGE) if at in away else image[at:at + PAGE]
                assert now[at:at + PAGE] == wanted, hex(at)
            guest.load('s')
            assert_same_ram(guest.ram_image(), image)
            guest.save('t')
            assert_same_ram(guest.ram_image(), image)
            guest.load('s')


def mappings(guest: Ring3, template: Path) -> int:
    """Of RAM: threads come and go, with stacks and heaps of their own."""
    lines = Path(f'/proc/{guest.process.pid}/maps').read_text().splitlines()
    mapped = [i for i, line in enumerate(lines) if line.endswith(str(template))]
    return mapped[-1] - mapped[0] + 1


def test_discarding_again(tmp_path, templates):
    """It is an ordinary discard, which takes no mapping, nor memory."""
    qtest, balloon = Qtest(tmp_path), Balloon(RAM_SIZE - SCRATCH)
    args = (*qtest.args, *balloon.args)
    away = [START + i * PAGE for i in range(0, 1000, 2)]
    save(tmp_path, templates, args=args)
    file, = files(templates)
    with start(tmp_path, templates, args=args) as guest:
        qtest.connect()
        balloon.inflate(qtest, away)
        before = mappings(guest, file), guest.rss()
        for at in away:
            qtest.write(at, bytes((7,)) * PAGE)
        for _ in range(3):
            balloon.inflate(qtest, away)
        qtest.close()
        assert mappings(guest, file) <= before[0] + 8
        assert guest.rss() < before[1] + MIB


def test_savevm_of_mapped_ram(tmp_path, templates):
    """All of it is saved: what is mapped, what was written, what is zero."""
    save(tmp_path, templates)
    with boot(tmp_path, templates, loadvm='s') as guest:
        dirty(guest)
        guest.stop()
        image = guest.ram_image()
        guest.save('t')
    for file in files(templates):
        file.unlink()
    with boot(tmp_path, templates, loadvm='t', options=',verify=on',
              args=('-S',)) as guest:
        assert_same_ram(guest.ram_image(), image)
