# SPDX-License-Identifier: GPL-2.0-or-later
"""Add a ram-reset object to the XML of a libvirt domain, or remove it; or
report which parts will be fast, which will not, and what to change.

No byte changes that need not.
"""

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ram_reset.domain.change import Wish, change, checked
from ram_reset.domain.fixes import FIXES, split_names
from ram_reset.domain.kubevirt import write_hook
from ram_reset.domain.object import DEFAULT
from ram_reset.errors import DomainError

HELP = 'add a ram-reset object to a libvirt domain'


def virsh(uri: str, *command: str, data: bytes = b'') -> bytes:
    if not shutil.which('virsh'):
        raise DomainError('virsh is missing, which --domain needs; install '
                          'libvirt-clients, or give a file')
    run = subprocess.run(['virsh', *(['-c', uri] if uri else []), '-q',
                          *command], input=data, capture_output=True,
                         check=False)
    if run.returncode:
        raise DomainError(f'virsh {command[0]} fails: '
                          f'{run.stderr.decode(errors="replace").strip()}')
    return run.stdout


def replace(path: Path, data: bytes) -> None:
    """Replace a file; whatever happens, it is the old one or the new one."""
    path = path.resolve()
    old = path.stat()
    handle, temporary = tempfile.mkstemp(dir=path.parent,
                                         prefix='.ram-reset-xml.')
    try:
        with open(handle, 'wb') as f:
            f.write(data)
            f.flush()
            if (old.st_uid, old.st_gid) != (os.getuid(), os.getgid()):
                os.fchown(f.fileno(), old.st_uid, old.st_gid)
            os.fchmod(f.fileno(), old.st_mode & 0o7777)
            os.fsync(f.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(options: argparse.Namespace) -> bytes:
    if options.domain:
        # without --security-info passwords would be lost
        return virsh(options.connect, 'dumpxml', '--inactive',
                     '--security-info', options.domain)
    if options.file == '-':
        return sys.stdin.buffer.read()
    return Path(options.file).read_bytes()


def show(name: str, old: bytes, new: bytes) -> None:
    before, after = (data.decode(errors='replace').splitlines(keepends=True)
                     for data in (old, new))
    for line in difflib.unified_diff(before, after, name, name):
        end = '' if line.endswith('\n') else '\n\\ No newline at end\n'
        sys.stdout.write(line + end)


class Call:
    """One call of the command."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.name = options.domain or ('stdin' if options.file == '-' else
                                       options.file)
        self.wish = Wish(options.object, options.emulator,
                         split_names(options.fix), options.remove)

    def say(self, text: str) -> None:
        print(f'{self.options.prog}: {self.name}: {text}', file=sys.stderr)

    def run(self) -> int:
        old = read(self.options)
        if self.options.check:
            lines, can_save = checked(old, self.wish)
            print('\n'.join(lines))
            return 0 if can_save else 1
        new, notes = change(old, self.wish)
        for note in notes:
            self.say(f'warning: {note}')
        self.write(old, new)
        return 0

    def write(self, old: bytes, new: bytes) -> None:
        options = self.options
        if options.dry_run:
            show(self.name, old, new)
        elif options.file == '-':
            sys.stdout.buffer.write(new)
        elif new == old:
            self.say('nothing to change')
        elif options.domain:
            # an older libvirt ignores unknown elements
            careful = ['--validate'] if 'nvram' in self.wish.fixes else []
            virsh(options.connect, 'define', *careful, '/dev/stdin', data=new)
            self.say('changed; it takes effect when the domain is started '
                     'next')
        else:
            replace(Path(options.file), new)


def run(options: argparse.Namespace) -> int:
    error = options.parser.error
    if [options.file, options.domain, options.hook].count(None) != 2:
        error('give one of FILE, --domain NAME and --hook FILE')
    if options.remove and (options.fix or options.check):
        error('--remove goes with neither --fix nor --check')
    if options.hook:
        write_hook(options.hook)
        return 0
    call = Call(options)
    try:
        return call.run()
    except DomainError as e:
        raise DomainError(f'{call.name}: {e}') from e
    except OSError as e:
        raise DomainError(f'{e.filename or call.name}: {e.strerror}; check '
                          'the path, and its owner') from e


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('file', metavar='FILE', nargs='?',
        help='the XML; - for stdin to stdout')
    add('--domain', metavar='NAME',
        help='change a domain through virsh instead')
    add('--connect', metavar='URI', default='', help="virsh's connection")
    add('--object', metavar='OPTIONS',
        help='as for -object; one with the same id is replaced (default: '
             f'what is there, or {DEFAULT})')
    add('--emulator', metavar='PATH', help='QEMU to use')
    add('--fix', metavar='WHAT', default='',
        help='with commas: ' + '; '.join(f'{name}: {what}' for name, (_, what)
                                         in FIXES.items()))
    add('--check', action='store_true',
        help='report what will be fast, what will not, and a remedy; the '
             'status is 1 if no snapshot can be saved')
    add('--remove', action='store_true', help='remove all ram-reset objects')
    add('--dry-run', action='store_true',
        help='show the change, write nothing')
    add('--hook', metavar='FILE',
        help="write KubeVirt's hook onDefineDomain, which is one file")
