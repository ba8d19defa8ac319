# SPDX-License-Identifier: GPL-2.0-or-later
"""The abilities of a domain's snapshots, put into words."""

import csv
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from lib import products
from lib.libvirtd import Libvirtd, LibvirtError
from lib.virtinst import TAG, Installed, Installer, Refused

MANUAL = products.REPO / 'docs/system/ram-reset-domains.rst'
LOADS = 2
NOTHING = '-'


@dataclass(frozen=True)
class Row:
    """
    A row of the manual's table: options added to virt-install's command, and
    the cell of each column, in the order of measure().
    """

    options: str
    cells: tuple[str, ...]

    def expected(self, generation: str) -> list[str]:
        return [self._of(cell, generation) for cell in self.cells]

    @staticmethod
    def _of(cell: str, generation: str) -> str:
        """A cell that differs is "9.0: this; 11.3: that"."""
        parts = dict(re.findall(r'(\d+\.\d+): (.*?)(?:; (?=\d+\.\d+: )|$)',
                                cell))
        return parts.get(generation, cell)


def combined(rows: Sequence[Row]) -> Row:
    """A row that stands for all of @rows, for one domain."""
    return Row(' '.join(row.options for row in rows), rows[0].cells)


def table() -> dict[str, Row]:
    """By what the domain is called."""
    text = MANUAL.read_text()
    rows: dict[str, Row] = {}
    for found in re.finditer(r'\.\. csv-table::[^\n]*\n(?:\s+:[^\n]*\n)*\n'
                             r'((?:   [^\n]*\n)+)', text):
        for name, options, *cells in csv.reader(
                (line.strip() for line in found[1].splitlines()),
                skipinitialspace=True):
            rows[name] = Row(options.replace('``', ''), tuple(
                cell.replace('``', '') for cell in cells))
    return rows


def fits(found: str, expected: str) -> bool:
    """The manual has the beginning of a sentence, without what varies."""
    kind, _, why = expected.partition(': ')
    return found.startswith(kind) and why in found and \
        bool(why) == (': ' in found)


def one_line(text: object) -> str:
    return re.sub(r'\s*(\n\s*)*error: |\s+', ' ', str(text)).strip()


def measure(daemon: Libvirtd, installer: Installer, row: Row) -> list[str]:
    """The results of savevm, loadvm, snapshot-create-as, snapshot-revert."""
    with Installed(daemon, installer, shlex.split(row.options)) as domain:
        try:
            domain.start()
        except (Refused, LibvirtError) as e:
            return [f'no start: {one_line(e)}', *[NOTHING] * 3]
        domain.wait_firmware()
        saved, loaded = try_monitor(domain)
        created = try_create(domain)
        reverted = try_revert(domain) if created == 'works' else NOTHING
        return [saved, loaded, created, reverted]


def try_monitor(domain: Installed) -> tuple[str, str]:
    answer = one_line(domain.hmp('savevm by-hand'))
    if 'Error' in answer:
        assert_alive(domain)
        return f'refused: {answer}', NOTHING
    for _ in range(LOADS):
        answer = one_line(domain.hmp('loadvm by-hand'))
        assert_alive(domain)
        if 'Error' in answer:
            return 'works', f'refused: {answer}'
    last = domain.query()['last-load']
    if last['rewound']:
        return 'works', 'rewinds'
    return 'works', f'whole: {last["blocker"]}'


def try_create(domain: Installed) -> str:
    try:
        domain.virsh('snapshot-create-as', TAG)
        return 'works'
    except LibvirtError as e:
        return f'refused: {one_line(e)}'
    finally:
        assert_alive(domain)


def try_revert(domain: Installed) -> str:
    """There is a template since the snapshot was saved, if there can be one."""
    try:
        domain.virsh('snapshot-revert', TAG)
    except LibvirtError as e:
        return f'refused: {one_line(e)}'
    assert_alive(domain)
    info = domain.query()
    if 'template' in info['last-load']:
        return 'template'
    return f'whole: {info["template"]["problem"]}'


def assert_alive(domain: Installed) -> None:
    """An error is one thing, an end of QEMU another."""
    domain.hmp('info status')
