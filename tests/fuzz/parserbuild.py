# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds the programs that fuzz parsers, with sanitizers, without QEMU."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from common import BUILD, Failure, ROOT, rel

HARNESS = ROOT / 'tests/fuzz/parsers'
OUT = BUILD / 'fuzz-parsers'
QEMU = BUILD / 'qemu'

VMSTATE = 'migration/ram-reset/vmstate/'
VERIFY = 'migration/ram-reset/verify/'
ENGINE = 'system/ram-reset/'
# The parsers that are fuzzed, with QEMU's headers or without
TARGETS = {
    'description': ('qemu', (VMSTATE + 'vmdesc',)),
    'sections': ('qemu', (VMSTATE + 'vmdesc', VMSTATE + 'device-sections',
                          VERIFY + 'devices')),
    'summary': ('qemu', (VMSTATE + 'vmdesc', VMSTATE + 'device-sections',
                         VMSTATE + 'summary', VMSTATE + 'stream',
                         VMSTATE + 'stream-mapped-ram')),
    'record': ('plain', (ENGINE + 'hugefile/record',)),
    'template': ('plain', tuple(f'{ENGINE}template/{part}' for part in
                                ('file', 'read', 'write', 'name', 'dir'))),
}
# To see whether faults are found
PLANTED = {'planted': ('plain', ())}
HELPERS = {'sections': ('vmstub',), 'summary': ('vmstub',)}
# Files that code without QEMU is linked with
PLAIN = ('prim/*', 'block/copy', 'block/overlay-map', 'flags')

SANITIZE = ('-fsanitize=address,undefined', '-fno-sanitize-recover=all')
CFLAGS = ('-g', '-O1', '-fno-omit-frame-pointer', '-w')
# How a compiler reports where a parser goes, and what drives the parser
COVERAGE = {'gcc': '-fsanitize-coverage=trace-pc',
            'clang': '-fsanitize=fuzzer-no-link'}
DRIVER = {'gcc': 'driver', 'clang': 'libfuzzer'}
LINK = {'gcc': (), 'clang': ('-fsanitize=fuzzer',)}


def output(*command):
    return shlex.split(subprocess.run(command, capture_output=True, text=True,
                                      check=True).stdout)


def plain_flags():
    return ['-std=gnu11', f'-I{ROOT}', f'-I{ROOT}/include',
            f'-I{ROOT}/tests/unit/shim',
            *output('pkg-config', '--cflags', 'glib-2.0')]


def qemu_flags():
    """The flags of QEMU's build for its part of the migration."""
    path = QEMU / 'compile_commands.json'
    if not path.exists() or not (QEMU / 'libqemuutil.a').exists():
        raise Failure(f'{rel(path)} is missing; run scripts/build-qemu')
    entry = next(e for e in json.loads(path.read_text())
                 if e['file'].endswith(f'{VMSTATE}stream.c'))
    words = iter(shlex.split(entry['command']))
    kept = ['-iquote', str(HARNESS / 'shim')]
    for word in words:
        if word in ('-I', '-isystem', '-iquote', '-include'):
            kept += [word, next(words)]
        elif word.startswith(('-I', '-D', '-std', '-m', '-fno-strict',
                              '-fno-common', '-fwrapv')):
            kept.append(word)
    return [*kept, f'-I{HARNESS}', '-iquote', str(QEMU.parent /
                                                 'qemu-src/migration')]


def sources(name):
    """(path, whether the fuzzer is to know where it goes)"""
    kind, ours = {**TARGETS, **PLANTED}[name]
    where = ROOT if kind == 'plain' else BUILD / 'qemu-src'
    for path in ours:
        yield where / f'{path}.c', True
    for pattern in PLAIN if kind == 'plain' else ():
        for path in sorted((ROOT / ENGINE).glob(f'{pattern}.c')):
            yield path, False
    yield HARNESS / f'{name}.c', False
    for part in ('fuzz', 'mutate', *HELPERS.get(name, ())):
        yield HARNESS / f'{part}.c', False


class Builder:
    """For the compiler @cc, gcc or clang."""

    def __init__(self, cc):
        if not shutil.which(cc):
            raise Failure(f'{cc} is missing; install the package {cc}')
        self._cc = cc
        self._command = ['ccache', cc] if shutil.which('ccache') else [cc]
        self._out = OUT / cc
        self._flags = {'plain': plain_flags, 'qemu': qemu_flags}

    def build(self, name):
        """Returns the program."""
        kind, _ = {**TARGETS, **PLANTED}[name]
        folder = self._out / name
        folder.mkdir(parents=True, exist_ok=True)
        flags = self._flags[kind]()
        driver = HARNESS / f'{DRIVER[self._cc]}.c', False
        objects = []
        for path, covered in (*sources(name), driver):
            objects.append(folder / f'{path.parent.name}-{path.stem}.o')
            self._run(*self._command, *flags, *CFLAGS, *SANITIZE,
                      *self._own_flags(covered), '-c', path, '-o', objects[-1])
        program = folder / name
        libraries = output('pkg-config', '--libs', 'glib-2.0')
        if kind == 'qemu':
            libraries = [QEMU / 'libqemuutil.a', *libraries]
        self._run(self._cc, *SANITIZE, *LINK[self._cc], *objects, *libraries,
                  '-lm', '-pthread', '-o', program)
        return program

    def _own_flags(self, covered):
        flags = [COVERAGE[self._cc]] if covered else []
        if self._cc == 'clang':
            # GLib calls what it was given as a function of another type
            flags.append('-fno-sanitize=function')
        return flags

    @staticmethod
    def _run(*command):
        run = subprocess.run([str(word) for word in command], text=True,
                             capture_output=True, cwd=QEMU,
                             env=dict(os.environ, LC_ALL='C'))
        if run.returncode:
            raise Failure(f'{command[-1]} was not built:\n{run.stderr}')
