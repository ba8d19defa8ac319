# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs of Debian's that are unpacked, not installed, and their libraries.

A library of this host is used if there is one; others lie below the programs'
own root.
"""

import os
import re
import subprocess

from common import Failure, c_locale, remove, replace, say
from debian import unpack_deb

LIBRARIES = 'usr/lib/x86_64-linux-gnu'
DONE = '.complete'


def host_sonames():
    """Names of the libraries that this host has."""
    cache = subprocess.run(['/sbin/ldconfig', '-p'], capture_output=True,
                           text=True, env=c_locale()).stdout
    return {line.split()[0] for line in cache.splitlines()[1:]
            if 'x86-64' in line}


def host_packages():
    listing = subprocess.run(
        ['dpkg-query', '-W', '-f', '${db:Status-Status} ${Package}\n'],
        capture_output=True, text=True, env=c_locale()).stdout
    return {line.split()[1] for line in listing.splitlines()
            if line.startswith('installed ')}


def drop_known(folder, known):
    """The host's own libraries go first: others are built against those."""
    for path in folder.glob('*.so*'):
        if path.name in known:
            path.unlink()


def merge_usr(root):
    """Packages of Debian 12 still have files in /lib, /bin and /sbin."""
    for name in ('lib', 'bin', 'sbin'):
        if not (root / name).is_dir():
            continue
        for folder, _, files in os.walk(root / name):
            to = root / 'usr' / os.path.relpath(folder, root)
            to.mkdir(parents=True, exist_ok=True)
            for file in files:
                os.rename(os.path.join(folder, file), to / file)


def unresolved(programs, *folders):
    """Names of libraries that these need and that are not to be found."""
    run = subprocess.run(
        ['ldd', *programs], capture_output=True, text=True,
        env=dict(c_locale(), LD_LIBRARY_PATH=':'.join(
            str(folder) for folder in folders)))
    # what needs a symbol of a later release says so on its standard error
    later = re.findall(r"(\S+): version `(\S+)' not found", run.stdout +
                       run.stderr)
    return sorted({*re.findall(r'(\S+) => not found', run.stdout),
                   *(f'{version} of {os.path.basename(library)}'
                     for library, version in later)})


def download(apt, found, into):
    """@found: {package: version}"""
    apt.fetch('download', *(f'{name}={version}' for name, version
                            in sorted(found.items())), into=into)


def unpack(debs, root):
    for deb in sorted(debs.glob('*.deb')):
        unpack_deb(deb, root)
    merge_usr(root)


def provide(final, what, fill, content=''):
    """
    Make @final by fill(folder), unless it exists with the same @content.  On
    failure @final.missing has the reason.
    """
    done = final / DONE
    if done.exists() and done.read_text() == content:
        return
    reason, partial = (final.with_name(name) for name in
                       (f'{final.name}.missing', f'.{final.name}.partial'))
    remove(reason)
    remove(partial)
    partial.mkdir(parents=True)
    try:
        fill(partial)
    except Failure as e:
        replace(reason, f'{e}\n'.encode())
        say(f'No tests with {what}: {e}')
        return
    remove(partial / 'debs')
    (partial / DONE).write_text(content)
    remove(final)
    partial.rename(final)
