# SPDX-License-Identifier: GPL-2.0-or-later
"""How a load of a damaged snapshot compares with stock's of the same one."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from lib.machine import PAGE, RAM
from lib.mutations.subjects import RAM_SIZE, Job, Outcome, with_stale

# Why ours may not load what stock loads
EXPLAINED = {
    'is not of this machine': r'does not fit, nothing has been changed',
    'RAM has no end': r'VM state has no end of RAM',
    'two snapshots have one ID': r'another snapshot has the ID',
    'is not what it says (verify=on)':
        r'(RAM is|devices are) not what the snapshot has|'
        r'(RAM|devices) cannot be verified',
    # a page of the baseline, which is read when it is restored first
    'a snapshot that is known has changed': r'the image has other data there',
}


@dataclass
class Result:
    """@verdict: how ours compares with stock; @findings: what must not be."""

    number: int
    kind: str
    config: str
    what: str
    ours: Outcome
    stock: Outcome
    verdict: str = ''
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (f'mutation {self.number}, {self.kind}, {self.config}: '
                f'{self.what}\n  ours: {self.ours.how} {self.ours.message}\n'
                f'  stock: {self.stock.how} {self.stock.message}\n  '
                + '; '.join(self.findings or (self.verdict,)))


def last_words(outcome: Outcome) -> tuple[str, str]:
    """How QEMU died, without what differs between two builds."""
    how, log = outcome.message.split(': ', 1)
    last = log.strip().splitlines()[-1] if log.strip() else ''
    return how, re.sub(r'\.\./[\w-]+-src/|:\d+|\d{9,}', '', last)


def only_unnamed(ours: bytes, stock: bytes, old: bytes, kept: bytes) -> bool:
    """
    Whether they differ only in pages that the snapshot does not name.  Stock
    leaves there what the guest had, @old; ours has zeroes, or @kept.
    """
    for at in range(0, len(ours), PAGE):
        page = ours[at:at + PAGE]
        if page != stock[at:at + PAGE] and (
                stock[at:at + PAGE] != old[at:at + PAGE] or
                any(page) and page != kept[at:at + PAGE]):
            return False
    return True


def differences(ours: dict[str, bytes], stock: dict[str, bytes]) -> str:
    """The first page in each block that differs, of how many, with bytes."""
    found = []
    for name in ours:
        pages = [at for at in range(0, len(ours[name]), PAGE)
                 if ours[name][at:at + PAGE] != stock[name][at:at + PAGE]]
        if pages:
            page = slice(pages[0], pages[0] + PAGE)
            at = next(i for i, (a, b) in enumerate(
                zip(ours[name][page], stock[name][page])) if a != b)
            found.append(f'{name} in {len(pages)} pages, at '
                         f'{pages[0] + at:#x} {ours[name][page][at:][:8].hex()} '
                         f'in place of {stock[name][page][at:][:8].hex()}')
    return ', '.join(found)


class Judge:
    """@good, @bad: RAM of the snapshots before any damage."""

    def __init__(self, good: dict[str, bytes], bad: dict[str, bytes]):
        self._good = good
        self._bad = bad

    def __call__(self, result: Result, job: Job | None) -> None:
        ours, stock = result.ours, result.stock
        # what a load spoils for those after it is QEMU's own, if stock's does
        result.findings += [finding for finding in ours.findings
                            if finding not in stock.findings or
                            not finding.startswith('then')]
        if ours.how == 'loaded' and ours.from_copy and ours.ram == self._bad:
            result.verdict = 'RAM is what was kept before the damage' \
                if stock.ram != ours.ram else 'same'
        elif ours.how == stock.how:
            result.verdict = 'same'
            if ours.how == 'loaded':
                self._compare(result, job)
            elif ours.how == 'crash' and last_words(ours) != last_words(stock):
                result.findings.append('dies another way than stock')
        elif ours.how in ('crash', 'hang', 'loaded', 'not opened'):
            result.findings.append(f'{ours.how}, unlike stock')
        elif stock.how == 'loaded':
            self._explain(result)
        else:
            result.verdict = f'{ours.how}, stock: {stock.how}'
        if ours.findings and not result.findings:
            result.verdict = 'same; no good load afterwards, of either'

    def _compare(self, result: Result, job: Job | None) -> None:
        ours, stock = result.ours.ram, result.stock.ram
        if ours == stock:
            return
        again = job and job.before
        before = self._bad if again else self._good
        old = with_stale(before, job)[RAM] if job else bytes(RAM_SIZE)
        # what a template has, until a record comes for it
        kept = self._bad[RAM] if again else bytes(RAM_SIZE)
        if all(ours[name] == stock[name] for name in ours if name != RAM) and \
                only_unnamed(ours[RAM], stock[RAM], old, kept):
            result.verdict = "zero, where stock has the old guest's bytes"
            return
        result.findings.append('RAM is not what stock has: '
                               + differences(ours, stock))

    @staticmethod
    def _explain(result: Result) -> None:
        for name, reason in EXPLAINED.items():
            if re.search(reason, result.ours.message):
                result.verdict = f'{result.ours.how}: {name}'
                return
        result.findings.append(f'{result.ours.how} what stock loads')


class Table:
    """Counts of results, to be printed."""

    def __init__(self) -> None:
        self.count = 0
        self._hows: dict[str, Counter] = defaultdict(Counter)
        self._verdicts: Counter = Counter()

    def add(self, result: Result) -> None:
        self.count += 1
        self._hows[result.kind][result.ours.how, result.stock.how] += 1
        self._verdicts['a finding' if result.findings else
                       result.verdict] += 1

    def __str__(self) -> str:
        lines = [f'{self.count} mutations', 'kind: ours / stock, how many']
        for kind, hows in sorted(self._hows.items()):
            lines.append(f'  {kind} ({hows.total()}): ' + ', '.join(
                f'{ours} / {stock} {n}'
                for (ours, stock), n in hows.most_common()))
        lines += [f'  {n:6} {verdict}'
                  for verdict, n in self._verdicts.most_common()]
        return '\n'.join(lines)
