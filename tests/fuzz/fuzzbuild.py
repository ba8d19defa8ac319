# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds QEMU's fuzzer, with AddressSanitizer, in build/fuzz."""

import fcntl
import os
import platform
import shutil
import subprocess

from common import BUILD, Failure, QEMU_SRC, ROOT, qemu_version, rel, say

FUZZ = BUILD / 'fuzz'
PYTHON = BUILD / 'venv/bin/python3'
# the compiler, its sanitizers, and what turns addresses into lines
PACKAGES = ('ccache', 'clang', 'libclang-rt-dev', 'llvm', 'ninja-build')
FUZZER, IMG = 'qemu-fuzz-x86_64', 'qemu-img'

# The coverage that leads libFuzzer.  QEMU's own filter has all of hw/; a save
# and a load run so much of it, by timers too, that the device's part drowns.
FILTER = '''\
src:*/hw/misc/snapctl*
src:*/hw/pci/msix.c
src:*/hw/pci/pci.c
src:*/migration/ram-reset*
src:*/tests/qtest/fuzz/fuzz.c
fun:*
'''


def is_installed(package):
    run = subprocess.run(['dpkg-query', '-W', '-f', '${db:Status-Status}',
                          package], capture_output=True, text=True)
    return run.stdout == 'installed'


def install_packages():
    if not (shutil.which('apt-get') and shutil.which('dpkg-query')):
        raise Failure('apt-get is missing, and packages are installed with '
                      'it; use Debian 12 or 13')
    missing = [p for p in PACKAGES if not is_installed(p)]
    if not missing:
        return
    names, sudo = ' '.join(missing), []
    if os.geteuid():
        if not shutil.which('sudo'):
            raise Failure(f'these packages are missing: {names}; install '
                          'them as root, or run this as root or where sudo '
                          'is')
        sudo = ['sudo']
    say(f'Installing {names}')
    for what, command in (
            ('update', ['apt-get', '-q', 'update']),
            ('install', ['env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get',
                         '-q', '-y', 'install', '--no-install-recommends',
                         *missing])):
        if subprocess.run([*sudo, *command]).returncode:
            raise Failure(f'apt-get {what} failed, as it says above; check '
                          'the network and /etc/apt, then run this again')


def logged(command, log, what, **kwargs):
    """Run a command that speaks only if it fails."""
    with open(log, 'w') as out:
        run = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT,
                             **kwargs)
    if run.returncode:
        say('\n'.join(log.read_text(errors='replace').splitlines()[-20:]))
        raise Failure(f"{what} failed; its last lines are above, all of them "
                      f'in {rel(log)}')


def configure_command():
    return [str(QEMU_SRC / 'configure'), f'--python={PYTHON}',
            '--cc=ccache clang', '--cxx=ccache clang++',
            '--target-list=x86_64-softmmu', '--without-default-features',
            '--enable-system', '--enable-kvm', '--enable-tools',
            '--enable-fuzzing', '--enable-asan', '--disable-docs',
            '--disable-install-blobs', '-Doptimization=1', '-Ddebug=false',
            '--extra-cflags=-gline-tables-only -fno-omit-frame-pointer']


def configure():
    command = configure_command()
    done, text = FUZZ / '.configured', '\n'.join(command)
    if ((FUZZ / 'build.ninja').exists() and done.exists() and
            done.read_text() == text):
        return
    say(f'Configuring QEMU {qemu_version(QEMU_SRC)} for fuzzing in '
        f'{rel(FUZZ)}')
    logged(command, FUZZ / 'configure.log', "QEMU's configure", cwd=FUZZ)
    done.write_text(text)


def compile_all(env):
    ninja = ['ninja', '-C', str(FUZZ)]
    logged([*ninja, 'build.ninja'], FUZZ / 'regenerate.log', "QEMU's meson",
           env=env)
    # meson has just copied QEMU's there
    (FUZZ / 'instrumentation-filter').write_text(FILTER)
    if subprocess.run([*ninja, FUZZER, IMG], env=env).returncode:
        raise Failure("QEMU's fuzzer did not build; the compiler's messages "
                      'are above')


def build():
    """Have the fuzzer in build/fuzz; quick when nothing has changed."""
    if platform.machine() != 'x86_64':
        raise Failure(f'this is a {platform.machine()} machine, and only '
                      'x86_64 hosts are supported; use one of those')
    if not PYTHON.exists():
        raise Failure('build/venv is missing; run scripts/bootstrap')
    install_packages()
    FUZZ.mkdir(parents=True, exist_ok=True)
    # ccache does not look into the filter by itself
    env = dict(os.environ, CCACHE_NOHASHDIR='1',
               CCACHE_EXTRAFILES=str(FUZZ / 'instrumentation-filter'))
    env.setdefault('CCACHE_BASEDIR', str(ROOT))
    with open(FUZZ / '.lock', 'w') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f'Waiting for another run in {rel(FUZZ)}')
            fcntl.flock(lock, fcntl.LOCK_EX)
        if subprocess.run([ROOT / 'scripts/prepare-tree']).returncode:
            raise Failure("QEMU's source could not be prepared, as it says "
                          'above')
        configure()
        compile_all(env)
    return FUZZ / FUZZER, FUZZ / IMG
