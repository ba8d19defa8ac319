# SPDX-License-Identifier: GPL-2.0-or-later
"""The unit tests in a guest whose kernel has pages of another size."""

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from lib import products
from lib.patience import patience
from lib.products import cpio_entry

CROSS = products.BUILD / 'cross'
ARM64 = CROSS / 'arm64'
PROGRAMS = ARM64 / 'out'
QEMU = products.BUILD / 'aarch64/qemu-system-aarch64'
INIT = products.SOURCE / 'init-unit'
# Hugepages of the size that the tests are written for: what the kernel has by
# itself are those of 32 MiB
APPEND = 'console=ttyAMA0 loglevel=1 panic=-1 hugepagesz=2M hugepages=96'
TIMEOUT = 800


class Incomplete(Exception):
    """The guest has not done all that it was to do."""


@dataclass
class Program:
    """The output of a program in the guest."""

    status: int
    said: str
    # by the names of tests: 'ok', 'not ok', or 'SKIP' and why
    results: dict[str, str] = field(default_factory=dict)


def programs() -> list[Path]:
    return sorted(path for path in PROGRAMS.glob('test-*') if path.is_file())


def names(program: Path) -> list[str]:
    """The tests of a program."""
    listing = subprocess.run(
        [CROSS / 'qemu-user/qemu-aarch64', '-L', ARM64 / 'sysroot', program,
         '-l'], capture_output=True, text=True, check=True).stdout
    return re.findall(r'^/\S+$', listing, re.MULTILINE)


def _needed(path: Path) -> set[str]:
    text = subprocess.run(['aarch64-linux-gnu-objdump', '-p', path],
                          capture_output=True, text=True, check=True).stdout
    return set(re.findall(r'^\s+NEEDED\s+(\S+)', text, re.MULTILINE))


def libraries() -> dict[str, Path]:
    """Libraries that the programs are linked with, by their names."""
    found: dict[str, Path] = {}
    missing = set().union(*(_needed(path) for path in programs()))
    while missing:
        name = missing.pop()
        places = [path for folder in ('lib', 'usr/lib') for path in
                  ARM64.glob(f'sysroot/{folder}/aarch64-linux-gnu/{name}')]
        products.require(*places[:1] or [ARM64 / f'sysroot/lib/{name}'])
        found[name] = places[0]
        missing |= _needed(places[0]) - found.keys()
    return found


def initramfs(folder: Path) -> Path:
    guest = ARM64 / 'guest'
    costs = products.REPO / 'tests/unit/costs'
    executable = {'init': INIT, 'bin/busybox': guest / 'busybox',
                  **{f'lib/{name}': path
                     for name, path in libraries().items()},
                  **{f'tests/{path.name}': path for path in programs()}}
    plain = {f'costs/{path.name}': path for path in costs.iterdir()}
    modules = sorted(guest.glob('*.ko*'))
    path = folder / 'initramfs'
    path.write_bytes(b''.join((
        *(cpio_entry(name, 0o40755)
          for name in ('bin', 'lib', 'tests', 'costs', 'modules')),
        *(cpio_entry(name, 0o100755, file.read_bytes())
          for name, file in executable.items()),
        *(cpio_entry(name, 0o100644, file.read_bytes())
          for name, file in plain.items()),
        *(cpio_entry(f'modules/{file.name}', 0o100644, products.module(file))
          for file in modules),
        cpio_entry('TRAILER!!!', 0))))
    return path


def boot(folder: Path) -> str:
    """The guest's output until it turns itself off."""
    kernel = ARM64 / 'guest/vmlinuz'
    products.require(QEMU, kernel, INIT)
    limit = patience(TIMEOUT)
    try:
        run = subprocess.run(
            [QEMU, '-M', 'virt', '-cpu', 'max,pauth-impdef=on', '-smp', '2',
             '-m', '1G', '-nodefaults', '-display', 'none', '-no-reboot',
             '-serial', 'stdio', '-kernel', kernel, '-initrd',
             initramfs(folder), '-append', APPEND],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=limit)
        said = run.stdout
        why = f'QEMU ended, status {run.returncode}: {run.stderr.decode()}'
    except subprocess.TimeoutExpired as e:
        said = e.stdout or b''
        why = f'it was not done within {limit:.0f} s'
    text = said.decode(errors='replace').replace('\r', '')
    (folder / 'said').write_text(text)
    if '\n= done\n' not in text:
        raise Incomplete(f'{why}; the end of what the guest said: '
                         f'{text[-2000:]}')
    return text


def parse(text: str) -> dict[str, Program]:
    """By the names of programs."""
    found = {}
    for name, said, status in re.findall(
            r'^= begin (\S+)\n(.*?)^= end (\d+)$', text,
            re.MULTILINE | re.DOTALL):
        found[name] = program = Program(int(status), said)
        for ok, test, skip in re.findall(
                r'^(ok|not ok) \d+ (\S+)(?: # (SKIP.*))?$', said,
                re.MULTILINE):
            program.results[test] = skip or ok
    return found
