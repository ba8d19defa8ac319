# SPDX-License-Identifier: GPL-2.0-or-later
"""Fuzz the parsers of what may come from somebody else.

The description at the end of a VM state, the sections of devices, the summary
of a VM state with its RAM, the record of a hugepage file, and a template's
head.  Each input has a limit on time and memory by its size.  The status is 1
if there is a finding: a crash, a leak, undefined behaviour, or a limit.
"""

import argparse
import os
import re
import subprocess
from pathlib import Path

import fuzzbuild
from common import Failure, main, rel, say
from parserbuild import OUT, PLANTED, ROOT, TARGETS, Builder

CORPUS = ROOT / 'tests/fuzz/corpus'
# The time of a large input, and of the start and the end of a run
PATIENCE = 600
# libFuzzer's own; the harness has limits of time and memory
OPTIONS = ('-max_len=65536', '-timeout=200', '-rss_limit_mb=0',
           '-close_fd_mask=1')


def command_of(program, name, compiler, seconds, seed, keep):
    corpus = CORPUS / name
    if compiler == 'gcc':
        return [program, corpus, seconds, seed]
    found = keep / name
    found.mkdir(parents=True, exist_ok=True)
    return [program, *OPTIONS, f'-max_total_time={seconds}', f'-seed={seed}',
            f'-artifact_prefix={OUT}/', '-print_final_stats=1', found, corpus]


def executions(compiler, text):
    if compiler == 'gcc':
        found = re.search(r'^(\d+) executions', text, re.M)
    else:
        found = re.search(r'number_of_executed_units: (\d+)', text)
    if not found:
        raise Failure('the fuzzer does not tell what it has done:\n'
                      + text[-2000:])
    return int(found[1])


def fuzz(name, args, keep):
    """Returns (executions, what was found or None)."""
    program = Builder(args.compiler).build(name)
    finding = OUT / f'finding-{name}'
    env = dict(os.environ, FUZZ_FINDING=str(finding),
               ASAN_OPTIONS='allocator_may_return_null=1',
               UBSAN_OPTIONS='print_stacktrace=1')
    command = command_of(program, name, args.compiler, args.seconds, args.seed,
                         keep)
    run = subprocess.run([str(word) for word in command], env=env, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         errors='replace', timeout=args.seconds * 20 + PATIENCE)
    if run.returncode:
        lines = run.stdout.splitlines()
        start = next((i for i, line in enumerate(lines)
                      if re.search('ERROR: |runtime error:', line)), 0)
        say('\n'.join(lines[start:start + 40]))
        return 0, (f'{name}: see above; tests/fuzz/fuzz-parsers --compiler '
                   f'{args.compiler} --reproduce {rel(finding)} {name}')
    return executions(args.compiler, run.stdout), None


def reproduce(args):
    """Runs a corpus of one input for no time."""
    name, = args.targets
    folder = OUT / 'reproduce'
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    (folder / 'input').write_bytes(args.reproduce.read_bytes())
    program = Builder(args.compiler).build(name)
    files = [folder, '0', '0'] if args.compiler == 'gcc' else \
        [folder / 'input']
    return subprocess.run([str(word) for word in (program, *files)]).returncode


def parse():
    p = argparse.ArgumentParser(
        prog='fuzz-parsers', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('targets', metavar='PARSER', nargs='*',
                   help=f'of {", ".join(TARGETS)} (default: all)')
    p.add_argument('--seconds', metavar='N', type=int, default=60,
                   help='for each parser (default: 60)')
    p.add_argument('--seed', metavar='N', type=int, default=1,
                   help='another one makes other inputs (default: 1)')
    p.add_argument('--compiler', choices=('gcc', 'clang'), default='clang',
                   help="clang brings libFuzzer; with gcc the project's own "
                        'driver makes the inputs (default: clang)')
    p.add_argument('--keep-corpus', metavar='DIR', type=Path,
                   default=OUT / 'corpus', help='where libFuzzer leaves what '
                   'has reached new code (default: %(default)s)')
    p.add_argument('--reproduce', metavar='FILE', type=Path,
                   help='run one input that was found, with its PARSER')
    args = p.parse_args()
    unknown = {*args.targets} - {*TARGETS, *PLANTED}
    if unknown:
        raise Failure(f'{unknown.pop()} is no parser; name one of '
                      f'{", ".join(TARGETS)}')
    return args


def run():
    args = parse()
    if args.reproduce:
        if len(args.targets) != 1 or not args.reproduce.is_file():
            raise Failure('--reproduce needs a file and the name of its '
                          f'parser, one of {", ".join(TARGETS)}')
        return reproduce(args)
    if args.compiler == 'clang':
        fuzzbuild.install_packages()
    findings = []
    for name in args.targets or TARGETS:
        count, found = fuzz(name, args, args.keep_corpus.resolve())
        if found:
            findings.append(found)
        else:
            say(f'{name}: {count} executions in {args.seconds} s')
    for found in findings:
        say(found)
    say(f'{len(findings)} findings')
    return 1 if findings else 0


main(run)
