# SPDX-License-Identifier: GPL-2.0-or-later
"""Prove the packages, as root in a fresh root of Debian (./package --try).

    trial.py RELEASE

/packages has them, /guest a kernel and busybox, and /results is where the
feature lists go.  Ends with status 0 if all went as it should; the last line
says what could not be tried.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import features
from guestrun import Broken, boots, harness, loops, say
from libvirtrun import reverts
from upgraderun import upgrades

PACKAGES = ('qemu-ram-reset', 'qemu-ram-reset-modules')
OTHERS = ('apparmor', 'libvirt-clients', 'libvirt-daemon-system',
          'qemu-block-extra', 'qemu-system-gui', 'qemu-system-x86',
          'qemu-utils')
DEBIANS = {'12': (), '13': ('qemu-system-modules-opengl',
                            'qemu-system-modules-spice')}
QEMU = '/usr/bin/qemu-ram-reset-system-x86_64'
LAUNCHER = '/usr/bin/qemu-ram-reset'
PROGRAM = 'ram-reset'
# Files that others than the packages change: logs, caches, dpkg's state
CHANGES = re.compile(
    '/(dev|proc|sys|run|tmp|packages|guest|trial|results|root'
    '|var/(tmp|log|cache|lib/(dpkg|apt|libvirt|systemd))'
    '|etc/(ld.so.cache|libvirt/(qemu|nwfilter|secrets|storage)))(/|$)')


def command(*words: str, check: bool = True) -> subprocess.CompletedProcess:
    run = subprocess.run(words, text=True, stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         check=False,
                         env=dict(os.environ, DEBIAN_FRONTEND='noninteractive'))
    if check and run.returncode:
        raise Broken(f'{" ".join(words)} ended with status {run.returncode}:\n'
                     f'{run.stdout[-3000:]}')
    return run


def apt(*words: str, check: bool = True) -> str:
    return command('apt-get', '-q', '-y', '--no-install-recommends', *words,
                   check=check).stdout


def debs(folder: str = '/packages') -> list[str]:
    found = [str(p) for name in PACKAGES
             for p in sorted(Path(folder).glob(f'{name}_*.deb'))]
    if folder == '/packages' and len(found) != 2:
        raise Broken(f'{len(found)} packages were found in build/package; '
                     'build both with ./package')
    return found


def files() -> dict[str, str]:
    """{path: digest, link or kind} of all that is installed."""
    found = {}
    for folder, names, leaves in os.walk('/'):
        names[:] = [n for n in names
                    if not CHANGES.match(os.path.join(folder, n))]
        for name in names + leaves:
            path = Path(folder, name)
            if CHANGES.match(str(path)):
                continue
            if path.is_symlink():
                found[str(path)] = os.readlink(path)
            elif path.is_file() and str(path).startswith('/etc/'):
                found[str(path)] = hashlib.sha1(path.read_bytes()).hexdigest()
            else:
                found[str(path)] = 'there'
    return found


def changed(before: dict, after: dict) -> list[str]:
    return sorted(name for name in before.keys() | after.keys()
                  if before.get(name) != after.get(name))


# --- the steps --------------------------------------------------------------

LEFT_OUT = []


def leave_out(what: str, why: str) -> None:
    LEFT_OUT.append(what)
    say(f'{what}: not tried, as {why}')


def of_another_release(release: str) -> None:
    if release != '12':
        return
    others = debs('/results/13')
    if not others:
        leave_out("apt's refusal of packages for Debian 13",
                  'there are none; ./package --in 13 makes them')
        return
    text = apt('--simulate', 'install', *others, check=False)
    reasons = [line.strip() for line in text.splitlines()
               if 'Depends:' in line]
    if not reasons:
        raise Broken(f'apt took packages of Debian 13:\n{text}')
    say(f"Debian 13's packages are refused by apt, which says {len(reasons)} "
        'times what is missing, such as:', *reasons[:2])


def install(release: str) -> dict[str, str]:
    """Ours first, with what they need; the files without them are the result."""
    text = apt('install', *debs())
    say('apt install ./qemu-ram-reset*.deb: ' + re.search(
        r'^\d+ upgraded, \d+ newly installed.*', text, re.M)[0])
    apt('install', *OTHERS, *DEBIANS[release])
    for name in ('qemu-system-x86_64', LAUNCHER):
        say(f'{name} -version: ' +
            command(name, '-version').stdout.splitlines()[0])
    apt('purge', *PACKAGES)
    without = files()
    apt('install', *debs())
    return without


def compare(release: str) -> None:
    ours, known = features.ask(QEMU), Path('/results/debian-features.json')
    if release == '13':
        theirs = features.ask('qemu-system-x86_64')
        known.write_text(json.dumps(theirs, indent=1))
    elif known.exists():
        theirs = json.loads(known.read_text())
    else:
        leave_out("comparison with Debian 13's features",
                  'they are not known; ./package --try 13 asks for them')
        return
    say("features, compared with Debian 13's QEMU:",
        features.table(ours, theirs))
    wrong = features.surprises(ours, theirs, release)
    if wrong:
        raise Broken('\n'.join(wrong))


def apparmor() -> None:
    profile = Path('/tmp/libvirt-domain')
    profile.write_text('#include <tunables/global>\nprofile domain {\n'
                       '#include <abstractions/libvirt-qemu>\n}\n')
    parser = ('/sbin/apparmor_parser', '-K', '-I', '/etc/apparmor.d')
    text = command(*parser, '-p', str(profile)).stdout
    for path in (LAUNCHER, QEMU):
        if f'{path} rmix' not in text:
            raise Broken(f"libvirt's AppArmor rules do not allow {path}")
    command(*parser, '-Q', '-M',
            '/usr/share/apparmor-features/features', str(profile))
    say("AppArmor: libvirt's rules for domains allow the programs")


def write_bytecode() -> None:
    """As root does who runs the program, which the trial itself does not."""
    env = {k: v for k, v in os.environ.items()
           if k != 'PYTHONDONTWRITEBYTECODE'}
    subprocess.run([PROGRAM, '--help'], env=env, check=True,
                   stdout=subprocess.DEVNULL)
    if not list(Path('/usr/share/qemu-ram-reset').rglob('*.pyc')):
        raise Broken('the program has left no bytecode to be removed')


def remove(without: dict[str, str]) -> None:
    write_bytecode()
    apt('remove', *PACKAGES)
    kept = changed(without, files())
    say('apt remove: left are ' + ', '.join(kept))
    strangers = [p for p in kept if not p.startswith((
        '/etc/qemu-ram-reset', '/etc/apparmor.d/abstractions/libvirt-qemu.d'))]
    apt('purge', *PACKAGES)
    rest = changed(without, files()) + [
        str(p) for p in Path('/run/qemu').glob('qemu-ram-reset*')]
    say(f'apt purge: {len(rest)} files are left or changed, of '
        f'{len(without)}')
    if rest or strangers:
        raise Broken('left: ' + ', '.join(rest + strangers))


def main() -> None:
    release = sys.argv[1]
    version = Path('/etc/debian_version').read_text().strip()
    began = time.monotonic()
    say(f'Debian {version}, ' + ', '.join(os.path.basename(p)
                                          for p in debs()))
    of_another_release(release)
    without = install(release)
    compare(release)
    apparmor()
    boots(LAUNCHER)
    loops(LAUNCHER)
    harness(LAUNCHER)
    reverts(LAUNCHER)
    upgrades(LAUNCHER, debs(), apt)
    remove(without)
    took = f'{time.monotonic() - began:.0f} s'
    say(f'What was tried went as it should, in {took}; not tried: '
        f'{", ".join(LEFT_OUT)}' if LEFT_OUT else
        f'All went as it should, in {took}')


if __name__ == '__main__':
    try:
        main()
    except Broken as e:
        print(f'trial: {e}', file=sys.stderr)
        sys.exit(1)
