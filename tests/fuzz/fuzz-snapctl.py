# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzz the snapctl device with QEMU's own generic fuzzer.

Builds the fuzzer with clang and AddressSanitizer in build/fuzz, for which it
installs the packages that are missing, then runs it on one configuration of
the device after the other.  The status is 1 if there is a finding: a crash, a
leak, a hang, or a command that failed.
"""

import argparse
import os
import re
import shlex
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import fuzzbuild
from common import Failure, main, rel, say
from fuzzrun import CONFIGS, FREE, Run, SOURCES

FINDINGS = fuzzbuild.FUZZ / 'findings'
# How the seconds are divided; the others have one share
SHARES = {'q35': 3, 'pc': 2, 'region': 2, 'rewind': 3, 'rewind-region': 2}
PARTS = sum(SHARES.get(name, 1) for name in CONFIGS)
LEAST = 5 * PARTS
REPORT_LINES = 60


def scratch():
    place = '/dev/shm'
    if (not os.access(place, os.W_OK) or
            shutil.disk_usage(place).free < 4 * FREE):
        place = fuzzbuild.FUZZ
    if re.search(r'[\s*?[\]$`"\'\\]', str(place)):
        raise Failure(f'{place} would be taken apart by a shell; clone to a '
                      'folder with a plain name')
    return tempfile.TemporaryDirectory(dir=place, prefix='fuzz-snapctl-')


def report_of(log):
    """The sanitizer's or libFuzzer's report, and what QEMU said before."""
    lines = log.read_text(errors='replace').splitlines()
    at = next((i for i, line in enumerate(lines)
               if re.search(r'ERROR: |Assertion|runtime error:', line)),
              len(lines))
    return lines[max(at - 5, 0):at + REPORT_LINES]


def keep_finding(run, corpus):
    """Keep what is needed to see it again; returns the name of the input."""
    FINDINGS.mkdir(exist_ok=True)
    inputs = sorted(run.artifacts.iterdir())
    if inputs:
        file = FINDINGS / inputs[0].name
        shutil.copy(inputs[0], file)
    else:
        file = FINDINGS / f'{run.name}-{time.time_ns()}'
        for folder in run.seeds, corpus:
            shutil.copytree(folder, f'{file}.corpus', dirs_exist_ok=True)
    shutil.copy(run.log, f'{file}.log')
    if run.disk.exists():
        shutil.copy(run.disk, f'{file}.qcow2')
    return file


def describe(run, progress, file):
    """The findings, for the end."""
    failed = progress.failed(run.name)
    what = ('it hung' if progress.hung else
            ', '.join(failed) if failed else 'see the report above')
    found = f'{run.name}: {what}; log and disk are beside {rel(file)}'
    if file.exists():
        return (f'{found}\n    tests/fuzz/fuzz-snapctl --reproduce '
                f'{shlex.quote(rel(file))}')
    return (f'{found},\n    which was not written; inputs that may show it '
            f'are in {rel(file)}.corpus')


def fuzz_config(binaries, name, seconds, corpus):
    """Returns (progress, what was found or None)."""
    say(f'{name}: {seconds} s')
    with scratch() as work:
        run = Run(binaries, name, Path(work))
        folder = corpus / name if corpus else run.work / 'corpus'
        folder.mkdir(parents=True, exist_ok=True)
        progress, status = run.fuzz(seconds, folder)
        text = run.log.read_text(errors='replace')
        if status and 'INFO: seed corpus' not in text:
            say('\n'.join(text.splitlines()[-10:]))
            raise Failure(f'the fuzzer did not start with {name}, as it says '
                          'above; see whether this tree has the device')
        say(f'  {progress}')
        for line in progress.errors[:3]:
            say(f'  {line}')
        if not status and not progress.failed(name):
            return progress, None
        if not progress.failed(name):
            # else the guest stands still, and what follows tells nothing
            say('\n'.join(report_of(run.log)))
        file = keep_finding(run, folder)
        return progress, describe(run, progress, file)


def say_coverage(all_progress):
    edges, missed = {}, {}
    for p in all_progress:
        edges |= p.edges
        for function, places in p.missed.items():
            missed[function] = missed.get(function, places) & places
    if not edges:
        return
    total = sum(edges[f] for f in missed)
    left = sum(missed.values(), Counter())
    lines, here = {}, 0
    for function, places in missed.items():
        for place, count in places.items():
            m = SOURCES.search(place)
            if m and int(m[2]):
                lines.setdefault(f'{m[1]}: {function}', set()).add(int(m[2]))
                here += count
    say(f'The device: {total - left.total()} of {total} edges reached, and '
        f'{left.total() - here} of the others are in inlined headers or '
        'between lines; not reached:')
    for function, numbers in lines.items():
        say(f'  {function}: ' + ', '.join(map(str, sorted(numbers))))
    say('  nor these functions: ' +
        ', '.join(sorted(edges.keys() - missed.keys())))


def fuzz_all(binaries, seconds, corpus):
    results, findings = {}, []
    for name in CONFIGS:
        results[name], found = fuzz_config(
            binaries, name, seconds * SHARES.get(name, 1) // PARTS, corpus)
        if found:
            findings.append(found)
    say('')
    for name, progress in results.items():
        say(f'{name:14} {progress}')
    say_coverage(results.values())
    if findings:
        say(f'{len(findings)} findings:')
        for found in findings:
            say(f'  {found}')
        return 1
    say('No findings')
    return 0


def reproduce(binaries, file):
    name = next((n for n in sorted(CONFIGS, key=len, reverse=True)
                 if file.name.startswith(n + '-')), None)
    if not name:
        raise Failure(f'the name of {file} does not begin with that of a '
                      f'configuration ({", ".join(CONFIGS)}); give it the '
                      'name that it was found by')
    kept = Path(f'{file}.qcow2')
    for disk in (None, kept) if kept.exists() else (None,):
        say(f'With {rel(disk) if disk else "an empty disk"}:')
        with scratch() as work:
            if Run(binaries, name, Path(work)).reproduce(file, disk):
                return 1
    say('It is not seen again')
    return 0


def parse():
    p = argparse.ArgumentParser(
        prog='fuzz-snapctl', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--seconds', metavar='N', type=int, default=600,
                   help='for all configurations together (default: 600)')
    p.add_argument('--build-only', action='store_true',
                   help='build the fuzzer, do not run it')
    p.add_argument('--keep-corpus', metavar='DIR', type=Path,
                   help='begin with the inputs in DIR, and leave there what '
                        'has reached new code')
    p.add_argument('--reproduce', metavar='FILE', type=Path,
                   help='run one input that was found')
    return p.parse_args()


def run():
    args = parse()
    if args.reproduce and not args.reproduce.is_file():
        raise Failure(f'{args.reproduce} does not exist; name a file in '
                      f'{rel(FINDINGS)}')
    if args.seconds < LEAST:
        raise Failure(f'{args.seconds} s are too few for {len(CONFIGS)} '
                      f'configurations; give --seconds at least {LEAST}')
    corpus = args.keep_corpus and args.keep_corpus.resolve()
    binaries = fuzzbuild.build()
    if args.build_only:
        return 0
    if args.reproduce:
        return reproduce(binaries, args.reproduce.resolve())
    return fuzz_all(binaries, args.seconds, corpus)


main(run)
