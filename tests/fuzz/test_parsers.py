# SPDX-License-Identifier: GPL-2.0-or-later
"""
Parsers read data of an image, a guest or another QEMU in bounds, and in time
and memory that follow from its size, whatever the data says.

RAM_RESET_LONG=1 tries for a minute with each parser.
"""

# Takes: 35 s
# Long: random input; unit tests have each kind
# Timeout: 900 s

import os
import random
import re
import subprocess
from pathlib import Path

import pytest

from lib.effort import LONG, rounds

PROGRAM = Path(__file__).with_name('fuzz-parsers')
CORPUS = Path(__file__).with_name('corpus')
PARSERS = ('description', 'sections', 'summary', 'record', 'template')
SECONDS = 60 if LONG else rounds(12, 1)
MOST_CORPUS = 512 << 10

# Faults of a parser, and the message about each
PLANTED = {'bounds': 'heap-buffer-overflow', 'time': 'it takes too much time',
           'memory': 'it takes too much memory', 'leak': 'memory leaks'}


def script(*args, **env):
    return subprocess.run([PROGRAM, *map(str, args)], text=True,
                          capture_output=True, check=False,
                          env={**os.environ, **env})


def test_parsers_are_named():
    done = script('--help')
    assert done.returncode == 0
    assert f'of {", ".join(PARSERS)} (default' in ' '.join(done.stdout.split())


def test_unknown_parser():
    done = script('no-such')
    assert done.returncode == 1 and done.stdout == ''
    assert 'no-such is no parser; name one of description' in done.stderr


def test_nothing_to_reproduce():
    assert '--reproduce needs a file' in \
        script('--reproduce', 'no-such-file', 'record').stderr


def test_corpus_is_small():
    files = [file for file in CORPUS.rglob('*') if file.is_file()]
    assert {file.parent.name for file in files} <= {*PARSERS}
    assert sum(file.stat().st_size for file in files) < MOST_CORPUS


@pytest.mark.parametrize('parser', PARSERS)
def test_parser(parser):
    """By the project's own driver, which needs no other compiler."""
    seed = os.environ.get('RAM_RESET_SEED') or random.randrange(1 << 31)
    done = script('--compiler', 'gcc', '--seconds', SECONDS, '--seed', seed,
                  parser)
    print(done.stdout)
    assert done.returncode == 0, \
        f'RAM_RESET_SEED={seed}\n{done.stdout}{done.stderr}'
    count, = re.findall(rf'^{parser}: (\d+) executions', done.stdout, re.M)
    assert int(count) > 100


@pytest.mark.parametrize('fault', PLANTED)
def test_planted_faults_are_found(fault):
    """Otherwise the tests above show nothing."""
    done = script('--compiler', 'gcc', '--seconds', 1, 'planted',
                  FUZZ_PLANTED=fault)
    assert done.returncode == 1, done.stdout + done.stderr
    assert PLANTED[fault] in done.stdout


def test_no_fault_is_found_where_there_is_none():
    done = script('--compiler', 'gcc', '--seconds', 1, 'planted')
    assert done.returncode == 0 and '0 findings' in done.stdout
