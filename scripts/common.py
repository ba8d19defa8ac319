# SPDX-License-Identifier: GPL-2.0-or-later
"""Functions shared by the scripts: paths, errors, and the patch series."""

import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / 'build'
PATCHES = ROOT / 'patches'
STOCK_SRC = BUILD / 'stock-src'
QEMU_SRC = BUILD / 'qemu-src'
STAMP = '.ram-reset.json'
# Releases that the overlay and the hooks support; the first is the default
RELEASES = ('10.0', '10.2', '11.1')
# Lines that all patches add, and lines that one hook adds
HOOKS_LIMIT = 160
HOOK_LIMIT = 3

# All files below these go into QEMU's tree at the same path.
OVERLAY_DIRS = ('include', 'qapi', 'system', 'migration', 'hw', 'contrib',
                'tests/unit', 'tests/qtest', 'docs/specs', 'docs/system',
                'docs/devel', 'configs')
# build and .egg-info are what pip leaves beside a package
IGNORED = re.compile(r'^\.|~$|\.orig$|\.rej$|\.pyc$|^__pycache__$|^build$|'
                     r'\.egg-info$')


class Failure(Exception):
    """Something the user can act on: one sentence, no traceback."""


def say(text):
    print(text, flush=True)


def main(function, interrupted='the next run continues from here'):
    """Run @function; @interrupted: the hint after Ctrl-C."""
    prog = Path(sys.argv[0]).stem
    try:
        sys.exit(function())
    except Failure as e:
        print(f'{prog}: {e}', file=sys.stderr)
    except KeyboardInterrupt:
        print(f'{prog}: interrupted; {interrupted}', file=sys.stderr)
        sys.exit(130)
    except OSError as e:
        hint = ('; free some space and run it again'
                if e.errno in (errno.ENOSPC, errno.EDQUOT) else '')
        print(f'{prog}: {e.filename or ""}: {e.strerror}{hint}',
              file=sys.stderr)
    sys.exit(1)


def rel(path):
    try:
        return str(Path(path).resolve().relative_to(ROOT))
    except ValueError:
        return str(path)


def digest(data):
    return hashlib.sha256(data).hexdigest()


def replace(path, data):
    """Write a file so that an interrupted run leaves the old one or the new."""
    tmp = path.with_name(f'.{path.name}.tmp')
    tmp.write_bytes(data)
    tmp.replace(path)


def remove(path):
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def read_stamp(tree):
    """The stamp of scripts/prepare-tree; incomplete without a source."""
    try:
        return json.loads((tree / STAMP).read_text())
    except (OSError, ValueError):
        return None


def qemu_version(tree):
    try:
        return (tree / 'VERSION').read_text().strip()
    except OSError:
        raise Failure(f'{tree} holds no readable VERSION file, so it is not '
                      'a QEMU source tree; give --qemu-src the top folder '
                      'of one')


def release_of(version):
    """The release that a version, such as 11.0.92, belongs to: 11.1."""
    match = re.match(r'(\d+)\.(\d+)\.(\d+)', version)
    if not match:
        raise Failure(f'QEMU calls its version {version}; use a release')
    major, minor, micro = map(int, match.groups())
    return f'{major}.{minor + (micro >= 50)}'


def prepared(place):
    stock = place / STOCK_SRC.name
    return stock if (read_stamp(stock) or {}).get('source') else None


def stock_of(release):
    """The untouched source of @release; fetched if it is missing."""
    for place in (BUILD, BUILD / 'releases' / release):
        stock = prepared(place)
        if stock and release_of(qemu_version(stock)) == release:
            return stock
    return fetch(place, f'debian:{release}')


def stocks(releases):
    """The untouched sources of @releases; if None, of all available ones."""
    for release in dict.fromkeys(releases or RELEASES):
        try:
            yield stock_of(release)
        except Failure as e:
            # a named release is needed
            if releases:
                raise
            say(f'QEMU {release} is left out: {e}')


def fetch(place, source):
    run = subprocess.run([ROOT / 'scripts/prepare-tree', '--stock', '--place',
                          place, '--qemu-src', source],
                         stderr=subprocess.PIPE, text=True)
    if run.returncode:
        raise Failure(run.stderr.strip().removeprefix('prepare-tree: '))
    return prepared(place)


def overlay_files():
    """Repo-relative paths of the files that are linked into QEMU's tree."""
    found = []
    for top in OVERLAY_DIRS:
        for path in sorted((ROOT / top).rglob('*')):
            if path.is_dir():
                continue
            name = path.relative_to(ROOT)
            if not any(IGNORED.search(part) for part in name.parts):
                found.append(str(name))
    return found


class Patch:
    def __init__(self, path):
        self.path = path
        self.name = path.name
        try:
            self.text = path.read_text()
        except OSError as e:
            raise Failure(f'{rel(path)} is named in patches/series but '
                          f'cannot be read ({e.strerror}); restore it or '
                          'remove its line')
        match = re.search(r'^(diff |--- (a/|/dev/null))', self.text, re.M)
        self.header = self.text[:match.start()] if match else self.text
        diff = self.text[len(self.header):]
        if re.search(r'^--- /dev/null|^\+\+\+ /dev/null', diff, re.M):
            raise Failure(f'{rel(path)} creates or deletes a file; patches '
                          'are for hooks, so put new files into the repo at '
                          'the path they would have in QEMU')
        self.files = re.findall(r'^\+\+\+ b/([^\t\n]+)', diff, re.M)
        self.added = len(re.findall(r'^\+(?!\+\+ )', diff, re.M))
        # lines in a row; other hooks are elsewhere
        self.longest = max((run.count('\n') for run in re.findall(
            r'(?:^\+(?!\+\+ ).*\n)+', diff, re.M)), default=0)
        self.removed = len(re.findall(r'^-(?!-- )', diff, re.M))


def series():
    path = PATCHES / 'series'
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split('#')[0].strip() for line in lines]
    return [Patch(PATCHES / name) for name in names if name]


def ours():
    """Names of our files in QEMU's tree, and of those that patches change."""
    return {*overlay_files(), *(f for p in series() for f in p.files)}


def compiled(build, source):
    """(name in @source, entry) of each file that QEMU's @build compiles."""
    for entry in json.loads((build / 'compile_commands.json').read_text()):
        # not resolved: our files are links in the source
        file = os.path.normpath(Path(entry['directory'], entry['file']))
        yield os.path.relpath(file, source), entry


def hook_errors(patches):
    """What of the hooks is too long: a sentence each."""
    added = sum(p.added for p in patches)
    if added > HOOKS_LIMIT:
        yield (f'patches/: {added} added lines, more than {HOOKS_LIMIT}; move '
               'code into files of our own')
    for patch in patches:
        if patch.longest > HOOK_LIMIT:
            yield (f'patches/{patch.name}: a hook of {patch.longest} lines, '
                   f'more than {HOOK_LIMIT}; make it a call of a function of '
                   'ours')


def series_digest(patches):
    return digest('\0'.join(p.name + '\0' + p.text for p in patches).encode())


def use_known():
    return f'use QEMU {", ".join(RELEASES[:-1])} or {RELEASES[-1]}'


def check_known(version):
    if release_of(version) not in RELEASES:
        say(f'QEMU {version} is of no release that this was tried with, and '
            f'need not compile; if it does not, {use_known()}')


def copy_named(patches, tree, work):
    """Copy the files that the patches name out of tree, into work."""
    for patch in patches:
        for name in patch.files:
            source, target = tree / name, work / name
            if not source.is_file():
                raise Failure(
                    f'patches/{patch.name} changes {name}, which QEMU '
                    f'{qemu_version(tree)} does not have; {use_known()}, or '
                    'move the hook')
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                shutil.copy2(source, target)


def apply_patch(patch, work, version):
    """Apply one patch in work; fuzz is an error, an offset is not."""
    if not patch.files:
        return
    run = subprocess.run(
        ['patch', '-p1', '-F0', '--force', '--no-backup-if-mismatch',
         '--reject-file=-', '-i', str(patch.path)],
        cwd=work, capture_output=True, text=True, env=c_locale())
    if run.returncode:
        current, bad = '?', []
        for line in run.stdout.splitlines():
            if line.startswith('patching file '):
                current = line.removeprefix('patching file ')
            elif 'FAILED' in line and current not in bad:
                bad.append(current)
        raise Failure(
            f'patches/{patch.name} does not fit {", ".join(bad) or current} '
            f'of QEMU {version} without fuzz; {use_known()}, or move the hook '
            'in that file and run scripts/refresh-patches')


def apply_series(patches, tree, work):
    """Return {name: bytes} of the files of tree as the patches leave them."""
    copy_named(patches, tree, work)
    version = qemu_version(tree)
    for patch in patches:
        apply_patch(patch, work, version)
    return {name: (work / name).read_bytes()
            for name in sorted({f for p in patches for f in p.files})}


def c_locale():
    import os
    return dict(os.environ, LC_ALL='C')
