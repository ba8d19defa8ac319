# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs QEMU's generic fuzzer on one configuration of snapctl."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter

import fuzzbuild
import fuzzinputs
from common import Failure, say

# the device, every edge of which the fuzzer is to reach
SOURCES = re.compile(r'hw/misc/(snapctl(?:-command)?\.c):(\d+)')
DISK_SIZE, FREE = '1M', 256 << 20
INPUT_SIZE = 600        # some 30 operations, each of which may be a save
INPUT_TIMEOUT = 30      # seconds for one input, which takes milliseconds
RSS_MIB = 4096
HANGS_AFTER = 60        # seconds without a sign of life

DISK = '-drive if=none,id=disk0,format=qcow2,cache=unsafe,file={disk}'
IDE_DISK = DISK + ' -device ide-hd,drive=disk0'
BOTH = 'snapctl,allow=both,slots=a:b:c'
REGION = '-object memory-backend-ram,id=keep,size=64K'
REWIND = '-object ram-reset-auto,id=rr0,rewind=on'
CONFIGS = {
    'q35': f'-M q35 -m 16M {IDE_DISK} -device {BOTH}',
    'pc': f'-M pc -m 16M {DISK} -device {BOTH}',
    'region': f'-M q35 -m 16M {DISK} {REGION} -device {BOTH},memdev=keep',
    'rewind': f'-M q35 -m 32M {DISK} {REWIND} -device {BOTH}',
    'rewind-region': f'-M pc -m 16M {IDE_DISK} {REWIND} {REGION} '
                     f'-device {BOTH},memdev=keep',
    'interval': f'-M q35 -m 16M {DISK} -device {BOTH},min-interval=5',
    'save': f'-M q35 -m 16M {DISK} -device snapctl,allow=save,slots=a',
    'load': f'-M pc -m 16M {DISK} -device snapctl,allow=load,slots=a:b:c',
    'none': f'-M pc -m 16M {DISK} -device snapctl,allow=none,slots=a',
    'no-slots': f'-M q35 -m 16M {DISK} -device snapctl,allow=both',
    'no-disk': f'-M q35 -m 16M -device {BOTH}',
    'no-disk-save': '-M pc -m 16M -device snapctl,allow=save,slots=a:b:c',
}
SAVES_FAIL = ('no-disk', 'no-disk-save')


class Tail:
    """The lines that are added to a file."""

    def __init__(self, path):
        path.touch()
        self.file = open(path, 'rb')
        self.rest = b''

    def lines(self):
        *lines, self.rest = (self.rest + self.file.read()).split(b'\n')
        return [line.decode(errors='replace') for line in lines]


class Progress:
    """The output of libFuzzer and of the device's trace points."""

    def __init__(self, log, trace):
        self.log, self.trace = Tail(log), Tail(trace)
        self.runs = self.cov = self.ft = 0
        self.counts = dict.fromkeys(
            ('saves', 'loads', 'failed saves', 'failed loads', 'refused'), 0)
        self.edges = {}         # of the device: function: edges
        self.missed = {}        # of those: function: [file:line]
        self.errors = []
        self.function = None
        self.hung = False

    def update(self):
        """Whether there is anything new."""
        said, done = self.log.lines(), self.trace.lines()
        for line in said:
            self.see(line)
        for line in done:
            self.count(line)
        return bool(said or done)

    def see(self, line):
        if m := re.match(r'#(\d+)\s+\w+ +cov: (\d+) ft: (\d+)', line):
            self.runs, self.cov, self.ft = map(int, m.groups())
        elif m := re.match(r'stat::number_of_executed_units: (\d+)', line):
            self.runs = int(m[1])
        elif m := re.match(r'(COVERED|UNCOVERED)_FUNC: hits: \d+ edges: '
                           r'(\d+)/(\d+) (\S+) (\S+)', line):
            self.function = None
            if SOURCES.search(m[5]):
                self.edges[m[4]] = int(m[3])
            if SOURCES.search(m[5]) and m[1] == 'COVERED':
                self.function = m[4]
                self.missed[m[4]] = Counter()
        elif m := re.match(r'\s+UNCOVERED_PC: (\S+)', line):
            if self.function:
                self.missed[self.function][m[1]] += 1
        elif "snapctl: the guest's" in line and line not in self.errors:
            self.errors.append(line)

    def count(self, line):
        if 'snapctl_refused' in line:
            self.counts['refused'] += 1
        elif m := re.search(r'snapctl_completed.* command (\d+).* '
                            r'success (\d+)', line):
            what = 'saves' if m[1] == '1' else 'loads'
            self.counts[what if m[2] == '1' else 'failed ' + what] += 1

    def failed(self, name):
        """Failures that were not expected."""
        expected = ('failed saves',) if name in SAVES_FAIL else ()
        return [f'{n} {what}' for what, n in self.counts.items()
                if n and what.startswith('failed ') and what not in expected]

    def __str__(self):
        return (f'{self.runs} runs, cov {self.cov}, ft {self.ft}, ' +
                ', '.join(f'{n} {what}' for what, n in self.counts.items()
                          if n or 'failed' not in what))


class Run:
    """A run of a configuration, in a folder in memory."""

    def __init__(self, binaries, name, work):
        self.fuzzer, self.img = binaries
        self.name, self.work = name, work
        self.disk, self.log = work / 'disk.qcow2', work / 'log'
        self.trace, self.bios = work / 'trace', work / 'bios'
        self.seeds, self.artifacts = work / 'seeds', work / 'artifacts'
        self.seeds.mkdir()
        self.artifacts.mkdir()

    def make_bios(self):
        """There has to be one, but no vCPU runs under qtest."""
        self.bios.write_bytes(bytes(64 << 10))

    def make_disk(self, kept=None):
        if kept:
            shutil.copy(kept, self.disk)
            return
        fuzzbuild.logged(
            [self.img, 'create', '-q', '-f', 'qcow2', self.disk, DISK_SIZE],
            fuzzbuild.FUZZ / 'img.log', 'qemu-img',
            env=dict(os.environ, ASAN_OPTIONS='detect_leaks=0'))
        if 'allow=load' in CONFIGS[self.name]:
            self.save_snapshots()
            self.trace.unlink(missing_ok=True)

    def save_snapshots(self):
        """The guest will not be allowed to, so a machine like its does."""
        file = self.work / 'saves'
        file.write_bytes(fuzzinputs.SAVES)
        args = CONFIGS[self.name].replace('allow=load', 'allow=both')
        fuzzbuild.logged(self.command(file), fuzzbuild.FUZZ / 'saves.log',
                         'saving snapshots', env=self.environment(args))

    def environment(self, args):
        args = args.format(disk=self.disk)
        self.make_bios()
        env = dict(os.environ, G_SLICE='always-malloc',
                   QEMU_FUZZ_OBJECTS='snapctl*', QEMU_FUZZ_ARGS=(
            f'-nodefaults -bios {self.bios} {args} -trace snapctl_* '
            f'-D {self.trace}'))
        symbolizer = shutil.which('llvm-symbolizer')
        if symbolizer:
            env.setdefault('ASAN_SYMBOLIZER_PATH', symbolizer)
        return env

    def command(self, *arguments):
        return [self.fuzzer, '--fuzz-target=generic-fuzz',
                f'-artifact_prefix={self.artifacts}/{self.name}-',
                f'-timeout={INPUT_TIMEOUT}', f'-rss_limit_mb={RSS_MIB}',
                *map(str, arguments)]

    def fuzz(self, seconds, corpus):
        """Returns (progress, status of the fuzzer)."""
        self.make_disk()
        words = self.work / 'words'
        fuzzinputs.write_seeds(self.seeds)
        fuzzinputs.write_dictionary(words)
        command = self.command(
            f'-max_total_time={seconds}', f'-max_len={INPUT_SIZE}',
            f'-dict={words}', '-print_final_stats=1', '-print_coverage=1',
            '-reload=0', '-len_control=0', corpus, self.seeds)
        progress = Progress(self.log, self.trace)
        with open(self.log, 'wb') as log, subprocess.Popen(
                command, cwd=self.work, env=self.environment(CONFIGS[self.name]), stdout=log,
                stderr=log, stdin=subprocess.DEVNULL) as process:
            try:
                self.watch(process, progress)
            except BaseException:
                process.kill()
                raise
        progress.update()
        return progress, process.returncode

    def watch(self, process, progress):
        """Until it ends.  QEMU keeps libFuzzer's own alarm from going off."""
        begin = said = alive = time.monotonic()
        stop = signal.SIGABRT   # upon which it dumps the input and the stack
        while process.poll() is None:
            time.sleep(0.5)
            now = time.monotonic()
            if progress.update():
                alive = now
            if now - said >= 15:
                said = now
                say(f'  {now - begin:.0f} s: {progress}')
            if shutil.disk_usage(self.work).free < FREE:
                raise Failure(f'less than {FREE >> 20} MiB are free in '
                              f'{self.work}; free some space and run it again')
            if progress.counts['failed loads']:
                process.terminate()
            if now - alive > HANGS_AFTER:
                say(f'  it has done nothing for {HANGS_AFTER} s')
                progress.hung = True
                process.send_signal(stop)
                stop, alive = signal.SIGKILL, now

    def reproduce(self, file, kept):
        """Whether it is seen again."""
        self.make_disk(kept)
        progress = Progress(self.log, self.trace)
        run = subprocess.run(self.command(file), cwd=self.work,
                             env=self.environment(CONFIGS[self.name]))
        progress.update()
        say(f'{progress}')
        return run.returncode != 0 or bool(progress.failed(self.name))
