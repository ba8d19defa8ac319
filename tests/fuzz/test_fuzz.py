# SPDX-License-Identifier: GPL-2.0-or-later
"""fuzz-snapctl: usage, its inputs, and what it reads of a run."""

import re
import subprocess
from pathlib import Path

import pytest

import fuzzinputs
import fuzzrun

PROGRAM = Path(__file__).with_name('fuzz-snapctl')

# Sizes of the structures that QEMU's generic fuzzer reads, by operation
SIZES = {fuzzinputs.READ: 8, fuzzinputs.WRITE: 16, fuzzinputs.PCI_WRITE: 8,
         fuzzinputs.CLOCK_STEP: 0}
LOG = '''\
x86_64: snapctl: the guest's save of snapshot 'a': no space
INFO: seed corpus: files: 2 min: 43b max: 334b total: 1663b rss: 101Mb
#19\tINITED cov: 264 ft: 516 corp: 13/1663b exec/s: 0 rss: 154Mb
#255\tNEW    cov: 276 ft: 614 corp: 42/6185b lim: 600 exec/s: 63 rss: 359Mb
stat::number_of_executed_units: 300
COVERED_FUNC: hits: 6 edges: 2/4 regs_read /q/../hw/misc/snapctl.c:269
  UNCOVERED_PC: /q/../hw/misc/snapctl.c:272
  UNCOVERED_PC: /q/../hw/misc/snapctl.c:272
COVERED_FUNC: hits: 6 edges: 1/2 msix_reset /q/../hw/pci/msix.c:2
  UNCOVERED_PC: /q/../hw/pci/msix.c:3
UNCOVERED_FUNC: hits: 0 edges: 0/3 snapctl_exit /q/../hw/misc/snapctl.c:486
UNCOVERED_FUNC: hits: 0 edges: 0/5 execute /q/../hw/misc/snapctl-command.c:9
'''
TRACE = '''\
snapctl_accepted slot 0, command 1
snapctl_completed slot 0, command 1, success 0, 1200 ns
snapctl_accepted slot 0, command 1
snapctl_completed slot 0, command 1, success 1, 1200 ns
snapctl_accepted slot 0, command 2
snapctl_completed slot 0, command 2, success 1, 1200 ns
snapctl_refused slot 9, error 3
snapctl_ref'''


def script(*args):
    return subprocess.run([PROGRAM, *args], text=True,
                          capture_output=True, check=False, timeout=60)


def refusal(*args):
    done = script(*args)
    assert done.returncode == 1 and done.stdout == ''
    assert done.stderr.startswith('fuzz-snapctl: ')
    assert done.stderr.count('\n') == 1
    return done.stderr


def test_help():
    done = script('--help')
    assert done.returncode == 0 and '--keep-corpus DIR' in done.stdout


def test_too_few_seconds():
    assert re.search(r'3 s are too few .* give --seconds at least \d+',
                     refusal('--seconds', '3'))


def test_nothing_to_reproduce():
    assert 'does not exist; name a file in' in \
        refusal('--reproduce', 'tests/no-such-file')


@pytest.mark.parametrize('name', fuzzinputs.SEEDS)
def test_seeds_are_operations(name, tmp_path):
    fuzzinputs.write_seeds(tmp_path)
    data = (tmp_path / f'seed-{name}').read_bytes()
    assert len(data) <= fuzzrun.INPUT_SIZE
    operations = data.split(fuzzinputs.SEPARATOR)
    assert operations == fuzzinputs.SEEDS[name]
    for operation in operations:
        assert len(operation) == 1 + SIZES[operation[0]]


def test_dictionary(tmp_path):
    fuzzinputs.write_dictionary(tmp_path / 'words')
    for line in (tmp_path / 'words').read_text().splitlines():
        assert re.fullmatch(r'[\w-]+="(\\x[0-9a-f]{2})+"', line)


def test_progress(tmp_path):
    log, trace = tmp_path / 'log', tmp_path / 'trace'
    progress = fuzzrun.Progress(log, trace)
    assert not progress.update()
    log.write_text(LOG)
    trace.write_text(TRACE)
    assert progress.update()
    assert str(progress) == ('300 runs, cov 276, ft 614, 1 saves, 1 loads, '
                             '1 failed saves, 1 refused')
    assert progress.edges == {'regs_read': 4, 'snapctl_exit': 3,
                              'execute': 5}
    assert progress.missed['regs_read'].total() == 2
    assert len(progress.errors) == 1 and 'no space' in progress.errors[0]
    assert progress.failed('q35') == ['1 failed saves']
    assert progress.failed('no-disk') == []
    with open(trace, 'a') as f:
        f.write('used slot 9, error 3\n')
    assert progress.update()
    assert progress.counts['refused'] == 2


def test_configurations():
    for name, args in fuzzrun.CONFIGS.items():
        assert '-device snapctl,' in args
        assert ('{disk}' in args) == (name not in fuzzrun.SAVES_FAIL)
        # --reproduce tells them by the beginning of a file's name
        assert re.fullmatch(r'[a-z0-9-]+', name)
