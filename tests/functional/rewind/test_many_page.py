# SPDX-License-Identifier: GPL-2.0-or-later
"""The manual's page about many snapshots keeps its promises."""

# Takes: 60 s
# Long: it types a page; other tests have each behaviour that it shows

import re

import pytest

from lib import products, sandbox
from lib.documents import MONITOR, SHOWN, Command, Document
from lib.typist import Typist

PAGE = products.REPO / 'docs/system/ram-reset-many.rst'
KNOWN = re.compile(r'^ +([a-z]+) +\d+ +\d+ +(\d+|current)(  pinned)?$',
                   re.MULTILINE)


class Reader(Typist):
    """Keeps all that is answered."""

    def __init__(self, enter: list[str]):
        super().__init__(enter)
        self.answers: list[tuple[Command, str]] = []

    def type(self, command: Command) -> str:
        said = super().type(command)
        self.answers.append((command, said))
        return said

    def answers_to(self, begin: str) -> list[str]:
        return [said for command, said in self.answers
                if command.text.startswith(begin)]


@pytest.fixture(scope='module')
def reader():
    try:
        with sandbox.sandbox() as how, Reader(how) as typist:
            typist.read(Document(PAGE))
            yield typist
    except sandbox.Unavailable as e:
        pytest.skip(str(e))


def log_lines(said: str) -> list[str]:
    return [line for line in said.splitlines()
            if line in ('plan', 'first way', 'second way')]


def known(said: str) -> list[tuple[str, str, str]]:
    """Names, the column "differs by", and whether it is pinned."""
    return KNOWN.findall(said.partition('\nKnown')[2])


def test_the_agent_goes_from_way_to_way(reader):
    assert [log_lines(said) for said in reader.answers_to('cat /tmp/log')] == [
        ['plan'], ['plan', 'first way'], ['plan', 'second way'], ['plan']]


def test_lab_knows_its_snapshots(reader):
    first, second, third = map(known, reader.answers_to('info ram-reset'))
    assert [name for name, *_ in first] == ['configured', 'clean', 'installed']
    assert [name for name, *_ in second] == ['configured', 'installed']
    assert [name for name, *_ in third] == ['installed', 'configured']
    for snapshots in first, second, third:
        assert [by for _, by, _ in snapshots].index('current') == 0
    assert [name for name, _, pin in first + second + third if pin] == \
        ['installed']


def test_loads_are_rewinds(reader):
    """All but the first of each snapshot in a new QEMU."""
    counts = [re.search(r'^Loads +(.*)$', said, re.MULTILINE)[1].strip()
              for said in reader.answers_to('info ram-reset')]
    assert counts == ['3 done, 3 of them by rewinding',
                      '4 done, 4 of them by rewinding',
                      '3 done, 1 of them by rewinding']


def test_stored_snapshot_is_in_the_image(reader):
    said, = reader.answers_to('qemu-img snapshot -l')
    line, = (line for line in said.splitlines() if ' step7 ' in line)
    assert 'MiB' in line and ' 0 B ' not in line


def test_page_shows_what_qemu_prints(reader):
    shown, = (block.text for block in Document(PAGE).blocks
              if block.language in SHOWN and 'Next load' in block.text)
    printed = reader.answers_to('info ram-reset')[0].partition('Next load')[2]
    for mine, real in zip(shown.partition('Next load')[2].splitlines(),
                          printed.splitlines()):
        assert re.sub(r'[\d ]+', ' ', mine) == re.sub(r'[\d ]+', ' ', real)


def test_each_load_of_the_page_is_counted(reader):
    """A load that is added to the page must be in a list above."""
    loads = [c.text for c, _ in reader.answers
             if c.prompt == MONITOR and c.text.startswith('loadvm')]
    assert len(loads) == 3 + 1 + 2
