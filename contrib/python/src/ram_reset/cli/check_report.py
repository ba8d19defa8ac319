# SPDX-License-Identifier: GPL-2.0-or-later
"""The findings of ram-reset check, on the terminal and as data."""

import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

from ram_reset.cli.results import Results, load_data, percentile, reason_data

FORMAT = 'ram-reset-check'
VERSION = 1
OK, SLOW, NO = 'ok', 'slow', 'no'


@dataclass(frozen=True)
class Finding:
    """
    :ivar state: OK, SLOW or NO
    :ivar remedy: of what is not OK
    """

    state: str
    name: str
    fact: str
    remedy: str = ''

    def line(self) -> str:
        text = f'{self.state:4}  {self.name}: {self.fact}'
        text = f'{text}; {self.remedy}' if self.remedy else text
        # QEMU's last output may have several lines
        return re.sub(r'\s*\n\s*', ' | ', text)


@dataclass
class Trial:
    """
    The loads of one guest.

    :ivar results: times, and why loads were no rewinds
    :ivar verify: for each load, the seconds that QEMU compared for
    """

    guest: str
    accel: str
    asked: int
    results: Results
    verify: List[float] = field(default_factory=list)
    failure: Optional[str] = None

    @property
    def verified(self) -> int:
        return sum(seconds > 0 for seconds in self.verify)

    def times(self) -> str:
        """A sentence of the durations."""
        whole = [i.load for i in self.results.iterations]
        rest = [load - verify for load, verify in zip(whole, self.verify)]

        def spread(seconds: List[float]) -> str:
            return (f'median {percentile(seconds, .5):.2f} ms, '
                    f'99th percentile {percentile(seconds, .99):.2f} ms')

        return f'{spread(rest)}; with verification {spread(whole)}'

    def data(self) -> Dict[str, Any]:
        results = self.results
        return {
            'guest': self.guest, 'accel': self.accel, 'asked': self.asked,
            'verified': self.verified, 'failure': self.failure,
            'seconds': results.seconds, 'rewinds': results.rewinds,
            'reasons': [reason_data(results.blockers[reason], times)
                        for reason, times in results.reasons.most_common()],
            'loads': [{**load_data(load), 'verify-seconds': verify}
                      for load, verify in zip(results.iterations,
                                              self.verify)]}


@dataclass
class Report:
    """All findings, each printed when it is made."""

    findings: List[Finding] = field(default_factory=list)
    trial: Optional[Trial] = None

    def add(self, finding: Finding) -> Finding:
        self.findings.append(finding)
        print(finding.line(), flush=True)
        return finding

    def data(self) -> Dict[str, Any]:
        return {'format': FORMAT, 'version': VERSION,
                'findings': [vars(finding) for finding in self.findings],
                'trial': self.trial.data() if self.trial else None}
