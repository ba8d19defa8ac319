# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's archive through an apt configuration of our own below build/apt.

The system's apt does not change: lists, cache and sources are private.  The
mirror is that of the system's apt, and apt checks signatures.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from common import BUILD, Failure, c_locale, remove, say

KEYRING = Path('/usr/share/keyrings/debian-archive-keyring.gpg')
GENERIC = ('stable', 'oldstable', 'testing', 'unstable', 'sid')


def codename():
    for line in Path('/etc/os-release').read_text().splitlines():
        if line.startswith('VERSION_CODENAME='):
            return line.split('=', 1)[1].strip('"')
    return 'sid'


def mirrors():
    """(main, security) repositories of the system's apt; either may be None."""
    if not shutil.which('apt-get'):
        raise Failure('apt-get is missing, so this is not a Debian system; '
                      'give QEMU\'s source with --qemu-src')
    listing = subprocess.run(
        ['apt-get', '--no-release-info', 'indextargets', '--format',
         '$(REPO_URI) $(RELEASE) $(COMPONENT)', 'Created-By: Packages'],
        capture_output=True, text=True, env=c_locale()).stdout
    home = codename()
    found = {}
    for line in listing.splitlines():
        uri, release, component = (line.split() + ['', '', ''])[:3]
        if component == 'main' and not uri.startswith('cdrom'):
            found.setdefault(release.replace('/updates', '-security'), uri)
    main = next((found[r] for r in (home, *GENERIC) if r in found), None)
    security = next((found[r + '-security'] for r in (home, *GENERIC)
                     if r + '-security' in found), None)
    if not main:
        raise Failure("the system's apt names no Debian mirror; add one to "
                      'its sources, or give --qemu-src')
    return main, security


class Apt:
    """One private apt: its own sources, lists and cache."""

    def __init__(self, name, kind, suites, security=True, machine='amd64'):
        self.dir = BUILD / 'apt' / name
        self.conf = self.dir / 'apt.conf'
        self.kind = kind
        self.suites = suites
        self.security = security
        self.machine = machine

    def _line(self, uri, suite):
        target = 'Packages' if self.kind == 'deb' else 'Sources'
        return (f'{self.kind} [signed-by={KEYRING} lang=none target={target}] '
                f'{uri} {suite} main\n')

    def _configure(self, everything):
        if not KEYRING.exists():
            raise Failure(f'{KEYRING} is missing, so nothing from Debian '
                          'could be trusted; install debian-archive-keyring')
        main, security = mirrors()
        # without security updates an old version is wanted, and so may the
        # lists be old; they are signed all the same
        fresh = 'true' if self.security else 'false'
        lines = [self._line(main, s) for s in self.suites]
        if everything and security and self.security:
            lines += [self._line(security, s + '-security')
                      for s in self.suites]
        for sub in ('lists/partial', 'cache/archives/partial'):
            (self.dir / sub).mkdir(parents=True, exist_ok=True)
        # an empty dpkg status: installed packages must not matter
        (self.dir / 'status').write_text('')
        (self.dir / 'sources.list').write_text(''.join(lines))
        self.conf.write_text(f'''\
#clear APT::Update;
#clear DPkg::Post-Invoke;
APT::Architecture "{self.machine}";
APT::Architectures {{ "{self.machine}"; }};
Dir::Etc::SourceList "{self.dir}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State "{self.dir}";
Dir::State::lists "{self.dir}/lists";
Dir::State::status "{self.dir}/status";
Dir::Cache "{self.dir}/cache";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Sandbox::User "root";
APT::Get::AllowUnauthenticated "false";
Acquire::Check-Valid-Until "{fresh}";
Acquire::Retries "2";
''')

    def update(self):
        stamp = self.dir / 'updated'
        stamp.unlink(missing_ok=True)
        say(f"Reading Debian's package lists ({', '.join(self.suites)})")
        # a mirror need not have security updates of a release not its own
        for everything in (True, False) if self.security else (False,):
            self._configure(everything)
            run = self._run(['apt-get', '-q', '-o', 'APT::Update::Error-Mode=any',
                             'update'])
            if run.returncode == 0:
                stamp.touch()
                return
        raise Failure(
            f"apt could not read Debian's {', '.join(self.suites)} from this "
            f"machine's mirror ({last_error(run)}); check the network and "
            'the mirror, then run it again')

    def _run(self, command, **kwargs):
        return subprocess.run(
            [command[0], '-c', str(self.conf), *command[1:]],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env=c_locale(), **kwargs)

    def _current(self):
        """Lists were read, and the repo has not been moved since."""
        return ((self.dir / 'updated').exists() and
                f'"{self.dir}"' in self.conf.read_text())

    def query(self, *command):
        """Output of a command such as apt-cache; lists are there after."""
        if not self._current():
            self.update()
        return self._run(list(command)).stdout

    def versions(self, names, follow, spec=lambda name: name):
        """{package: version} of these, and of their dependencies if follow().

        spec() is how apt is asked for one, such as NAME/SUITE.
        """
        found, asked, level = {}, set(), set(names)
        while level:
            asked |= level
            # apt prints nothing for virtual packages
            text = self.query('apt-cache', 'show', '--no-all-versions',
                              *(spec(name) for name in sorted(level)))
            level = set()
            for stanza in text.split('\n\n'):
                fields = dict(re.findall(r'^([\w-]+): (.*)', stanza, re.M))
                if 'Package' not in fields:
                    continue
                found[fields['Package']] = fields['Version']
                for clause in fields.get('Depends', '').split(', '):
                    name = re.split(r'[ :(|]', clause, maxsplit=1)[0]
                    if name and follow(name):
                        level.add(name)
            level -= asked
        return found

    def fetch(self, *command, into, otherwise='use another mirror'):
        """Run an apt-get that downloads; once more with fresh lists if the
        archive has moved on since they were read.  @otherwise says what to do
        if the mirror lacks the file."""
        into.mkdir(parents=True, exist_ok=True)
        fresh = not self._current()
        for attempt in range(2):
            if fresh or attempt:
                self.update()
            run = self._run(['apt-get', '-q', *command], cwd=into)
            if run.returncode == 0:
                return
            if fresh:
                break
        failed = f'apt could not fetch {command[-1]} ({last_error(run)})'
        if re.search(r'\b404\b', last_error(run)):
            raise Failure(f'{failed}, which the mirror lacks; {otherwise}')
        raise Failure(f'{failed}; check the network and run it again')

    def unpack(self, *packages, into):
        """Unpack all packages without installing them."""
        debs = into / 'debs'
        self.fetch('download', *packages, into=debs)
        for deb in sorted(debs.glob('*.deb')):
            unpack_deb(deb, into)
        remove(debs)


def find(root, *patterns):
    """The file of a package at one of several places."""
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            return path
    raise Failure(f"Debian's packages do not hold {patterns[0]}; report this "
                  f'with what is in {root}')


def last_error(run):
    lines = [line[3:] for line in run.stderr.splitlines()
             if line.startswith(('E: ', 'W: '))]
    text = lines[0] if lines else f'status {run.returncode}'
    return ' '.join(text.split())


def unpack_deb(deb, target):
    run = subprocess.run(['dpkg-deb', '-x', str(deb), str(target)],
                         capture_output=True, text=True)
    if run.returncode:
        os.unlink(deb)
        raise Failure(f'{Path(deb).name} is damaged and was removed; '
                      'run it again to fetch it')
