# SPDX-License-Identifier: GPL-2.0-or-later
"""Check this host: which QEMU it has, which KVM, what makes loads fast or slow
here, and 1,000 loads of a guest, each of them verified.

Each line of the output is a finding: "ok", "slow" or "no", a fact, and what
mends it.  The guest is the Linux of --kernel, or else that of this host, if
its kernel can be read, or else a tiny guest that the program brings along.

The status is 0 if all loads were verified, 1 if a load failed or QEMU cannot
be used, and 2 for wrong usage.
"""

import argparse
import os
import signal
import tempfile
from pathlib import Path
from typing import Iterator, List, NoReturn, Tuple

from ram_reset.cli import check_host, check_qemu, check_trial, json_file
from ram_reset.cli.check_report import NO, OK, SLOW, Finding, Report, Trial
from ram_reset.cli.check_trial import Guest
from ram_reset.cli.results import Results
from ram_reset.errors import Error

HELP = 'check what makes loads fast or slow on this host'

LIMIT = 50.0            # seconds; the rest of the check takes some more


class Check:
    def __init__(self, options: argparse.Namespace, folder: Path):
        self.options = options
        self.report = Report()
        self._folder = folder
        self._tiny = check_trial.tiny(folder)
        self._boots_linux = False

    def _usable(self) -> bool:
        """Whether a machine can be started."""
        found = [self.report.add(f)
                 for f in check_qemu.findings(self.options.qemu)]
        return all(finding.state != NO for finding in found)

    def _kvm(self) -> List[str]:
        """The accelerators to be tried."""
        add = self.report.add
        if add(check_host.kvm()).state == NO:
            return ['tcg']
        if not check_qemu.has_kvm(self.options.qemu):
            add(Finding(NO, 'guests under KVM', 'this QEMU is built without '
                        'KVM', 'use a QEMU that is built with it'))
            return ['tcg']
        add(check_host.dirty_log())
        state = add(check_trial.guest_code(self._tiny, self.options.qemu)
                    ).state
        self._boots_linux = state == OK
        return ['tcg'] if state == NO else ['kvm', 'tcg']

    def _guests(self, accels: List[str]) -> Iterator[Tuple[Guest, str]]:
        """In the order in which they are tried."""
        options = self.options
        kernel = options.kernel or check_trial.host_kernel()
        if kernel and not options.tiny:
            guest = check_trial.linux(kernel, self._folder, options.initrd,
                                      options.append)
            yield guest, 'kvm' if self._boots_linux else 'tcg'
        for accel in accels:
            yield self._tiny, accel

    def _finding(self, guest: Guest, accel: str) -> Finding:
        name, fact = 'guest', f'{guest.name}, runs under {accel.upper()}'
        if accel == 'tcg':
            return Finding(SLOW, name, fact, 'see the lines of KVM above')
        if guest is self._tiny and self._boots_linux:
            return Finding(OK, name, f'{fact}; for a Linux give --kernel')
        return Finding(OK, name, fact)

    def _try(self, guest: Guest, accel: str) -> bool:
        """Whether the guest starts; then its loads are made."""
        options, add = self.options, self.report.add
        try:
            machine = guest.start(options.qemu, accel)
        except Error as e:
            add(Finding(NO, 'guest', f'{guest.name}, does not start under '
                        f'{accel.upper()}: {e}', 'mend what QEMU says'))
            return False
        with machine:
            problem = check_trial.boots(guest, machine, accel)
            if problem:
                add(Finding(NO, 'guest', f'{guest.name}, does not get to a '
                            f'prompt under {accel.upper()}: {problem}',
                            'give --kernel, --initrd and --append of a guest '
                            'whose shell reads the serial port'))
                return False
            add(self._finding(guest, accel))
            trial = self.report.trial = Trial(
                guest.name, accel, options.loads, Results('check', {}))
            for finding in check_trial.loads(trial, guest, machine,
                                             options.seconds):
                add(finding)
        return True

    def run(self) -> int:
        if not self._usable():
            return 1
        accels = self._kvm()
        for finding in check_host.all_but_kvm():
            self.report.add(finding)
        for guest, accel in self._guests(accels):
            with check_trial.limit(check_trial.BOOT[accel] +
                                   self.options.seconds):
                made = self._try(guest, accel)
            if made:
                break
        trial = self.report.trial
        good = trial and not trial.failure and \
            trial.verified == len(trial.results.iterations)
        return 0 if good else 1


def check_options(options: argparse.Namespace) -> None:
    error = options.parser.error
    if options.loads < 1 or not options.seconds > 0:
        error('--loads must be at least 1, and --seconds above 0')
    if (options.initrd or options.append) and not options.kernel:
        error('--initrd and --append need --kernel')
    if options.kernel and options.tiny:
        error('give either --kernel or --tiny')
    for file in filter(None, (options.kernel, options.initrd)):
        if not os.access(file, os.R_OK) or not file.is_file():
            error(f'{file} cannot be read; name a file that can')


def interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def run(options: argparse.Namespace) -> int:
    check_options(options)
    # QEMU would run on without this program
    for number in signal.SIGTERM, signal.SIGHUP:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, interrupt)
    json_file.claim(options.json)
    with tempfile.TemporaryDirectory(prefix='ram-reset-check.') as folder:
        check = Check(options, Path(folder))
        try:
            return check.run()
        finally:
            json_file.write(options.json, check.report.data())


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--qemu', metavar='PROGRAM', default=check_qemu.DEFAULT,
        help='the QEMU to check (default: %(default)s)')
    add('--loads', metavar='N', type=int, default=1000,
        help='number of loads (default: %(default)s)')
    add('--seconds', metavar='SECONDS', type=float, default=LIMIT,
        help='make no more loads after this time (default: %(default)s)')
    add('--kernel', metavar='FILE', type=Path, help='a Linux to load')
    add('--initrd', metavar='FILE', type=Path,
        help='its initial RAM disk, whose shell reads the serial port '
             "(default: one with this host's shell)")
    add('--append', metavar='TEXT', help='its command line (default: '
        f"'{check_trial.APPEND}', and rdinit= without --initrd)")
    add('--tiny', action='store_true', help='load the tiny guest')
    add('--json', metavar='FILE', type=Path,
        help='write all findings and loads as data')
