# SPDX-License-Identifier: GPL-2.0-or-later
# Long: so it takes minutes, of which migration-test has most
# Takes: 200 s
# Timeout: 900 s
"""QEMU's own tests of what the hooks touch, with the built QEMU: monitors,
devices, the object model, migration, and internal snapshots.

A test that fails is tried with an unpatched QEMU too, if build/stock has one:
a failure there as well is stock's own, and does not count.
"""

import os
import re
import subprocess
import time
from functools import cache
from pathlib import Path

import pytest

from common import BUILD, ROOT

QTESTS = ('qmp-cmd-test', 'test-hmp', 'device-introspect-test',
          'device-plug-test', 'qom-test', 'migration-test')
IOTESTS = BUILD / 'qemu/tests/qemu-iotests/check'
GROUP = 'snapshot'
FAILED = re.compile(r'^(?:not ok .*|Bail out.*)', re.M)
PASSED = re.compile(r'^ok \d+ (?!.*# SKIP)', re.M)


@cache
def built() -> None:
    """QEMU's own tests, and what the iotests call, of the patched tree."""
    run = subprocess.run(
        [ROOT / 'scripts/build-qemu', *(f'tests/qtest/{t}' for t in QTESTS),
         'qemu-io', 'qemu-nbd'], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
    assert run.returncode == 0, run.stdout[-3000:]


def qtest(name: str, qemu: Path) -> tuple[str, int]:
    """The test's output with the QEMU of a build, and its status."""
    run = subprocess.run(
        [BUILD / 'qemu/tests/qtest' / name, '-m', 'quick', '--tap', '-k'],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        stdin=subprocess.DEVNULL, cwd=BUILD / 'qemu', timeout=600,
        env=os.environ | {
            'QTEST_QEMU_BINARY': str(qemu / 'qemu-system-x86_64'),
            'QTEST_QEMU_IMG': str(qemu / 'qemu-img'),
            'PYTHON': str(BUILD / 'venv/bin/python3')})
    return run.stdout, run.returncode


def of_stock(fails) -> str:
    """Ends the test as stock's own failure where there is a stock to try."""
    stock = BUILD / 'stock'
    if not (stock / 'qemu-system-x86_64').exists():
        return 'build/stock has no QEMU to compare with'
    if fails(stock):
        pytest.xfail("it fails with stock QEMU too: stock's own failure")
    return 'stock QEMU passes it'


@pytest.mark.parametrize('name', QTESTS)
def test_qtest(name):
    built()
    began = time.monotonic()
    output, status = qtest(name, BUILD / 'qemu')
    passed = len(PASSED.findall(output))
    print(f'{name}: {passed} passed in {time.monotonic() - began:.0f} s')
    bad = FAILED.findall(output)
    if bad or status:
        compared = of_stock(lambda stock: qtest(name, stock)[1] != 0)
        pytest.fail(f'{compared}; status {status}\n' + '\n'.join(bad) +
                    output[-2000:])
    assert passed


def iotests() -> list[str]:
    folder = BUILD / 'qemu-src/tests/qemu-iotests'
    tests = [p for p in (*folder.glob('[0-9][0-9][0-9]'),
                         *folder.glob('tests/*'))
             if p.suffix not in ('.out', '.pyc') and p.is_file()]
    return sorted(p.name for p in tests if re.search(
        rf'^# group:.*\b{GROUP}\b', p.read_text(errors='replace'), re.M))


def test_there_are_iotests():
    assert {'007', '267'} <= set(iotests())


def iotest(name: str, qemu: Path) -> tuple[str, int]:
    run = subprocess.run(
        [IOTESTS, '-qcow2', name], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True,
        cwd=IOTESTS.parent, timeout=300,
        env=os.environ | {'QEMU_PROG': str(qemu / 'qemu-system-x86_64'),
                          'QEMU_IMG_PROG': str(qemu / 'qemu-img')})
    return run.stdout, run.returncode


@pytest.mark.parametrize('name', iotests())
def test_iotest(name):
    built()
    began = time.monotonic()
    output, status = iotest(name, BUILD / 'qemu')
    print(f'iotest {name}: {time.monotonic() - began:.0f} s')
    if 'Not run:' in output:
        pytest.skip(re.search(r'not run.*', output)[0])
    if status:
        compared = of_stock(lambda stock: iotest(name, stock)[1] != 0)
        pytest.fail(f'{compared}\n{output[-3000:]}')
    assert 'Passed all 1 iotests' in output
