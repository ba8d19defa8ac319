# SPDX-License-Identifier: GPL-2.0-or-later
"""The first process in namespaces of its own: makes mounts, runs libvirtd.

    inside.py ROOT WORK PATH [MORE...]

ROOT is an unpacked libvirt, WORK a folder for all that it writes, PATH where it
finds programs, MORE other unpacked programs.  When standard input ends, or libvirtd, then so does every
process in here, and WORK is removed.  Being the first process of a PID
namespace, this one is notified of the end of every domain, and reaps it at once.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

UNAVAILABLE = 77
USER = 'libvirt-qemu'


def mount(*args: str | Path, cwd: Path | None = None) -> None:
    run = subprocess.run(['mount', *args], cwd=cwd, capture_output=True,
                         text=True, check=False)
    if run.returncode:
        print(run.stderr.strip() or 'mount failed', file=sys.stderr)
        sys.exit(UNAVAILABLE)


def overlay(target: str, above: Path, *below: str | Path) -> None:
    """Read-only: files of @above, then those that were there, then @below."""
    layers = ':'.join(map(str, (above.name, target, *below)))
    mount('-t', 'overlay', '-o', f'lowerdir={layers}', 'overlay', target,
          cwd=above.parent)


def accounts(work: Path) -> None:
    """libvirt looks this user up whatever its configuration says."""
    for name, line in (('passwd', f'{USER}:x:64055:64055::/:/bin/false\n'),
                       ('group', f'{USER}:x:64055:\n')):
        text = Path('/etc', name).read_text()
        if f'{USER}:' not in text:
            text += line
        (work / 'etc' / name).write_text(text)


def make_mounts(root: Path, work: Path, more: list[Path]) -> None:
    # no control groups: those of the host are not to be changed
    subprocess.run(['umount', '--recursive', '--lazy', '/sys/fs/cgroup'],
                   stderr=subprocess.DEVNULL, check=False)
    modules = root / 'usr/lib/x86_64-linux-gnu/libvirt'
    schemas = root / 'usr/share/libvirt'
    overlay('/usr', root / 'usr', 'extra/usr', *(top / 'usr' for top in more))
    mount('--bind', schemas, '/usr/share/libvirt')
    mount('--bind', modules, '/usr/lib/x86_64-linux-gnu/libvirt')
    accounts(work)
    (work / 'etc/libvirt').mkdir()
    overlay('/etc', work / 'etc', *(top / 'etc' for top in more
                                    if (top / 'etc').is_dir()))
    mount('--bind', work / 'config', '/etc/libvirt')
    (work / 'above/log/swtpm').mkdir(parents=True)
    for name in ('lib', 'cache', 'log'):
        (work / 'above' / name / 'libvirt').mkdir(parents=True)
        overlay(f'/var/{name}', work / 'above' / name)
        (work / name).mkdir()
        mount('--bind', work / name, f'/var/{name}/libvirt')
    mount('-t', 'tmpfs', 'tmpfs', '/var/log/swtpm')
    # without the host's D-Bus, too
    mount('-t', 'tmpfs', 'tmpfs', '/run')
    for name in ('libvirt', 'hugepages'):
        Path('/run', name).mkdir()
    mount('--bind', work / 'run', '/run/libvirt')
    mount('-t', 'hugetlbfs', 'hugetlbfs', '/run/hugepages')


def end_with_input() -> None:
    sys.stdin.buffer.read()
    os.kill(-1, signal.SIGKILL)     # all but this process


def reap(daemon: int) -> None:
    try:
        while True:
            if os.wait()[0] == daemon:
                os.kill(-1, signal.SIGKILL)
    except (ChildProcessError, ProcessLookupError):
        pass    # nobody is left


def main() -> None:
    root, work, more = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[4:]
    make_mounts(root, work, [Path(top) for top in more])
    print('ready', flush=True)
    # what it knows of QEMU is forgotten when it starts on another kind of CPU
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    daemon = subprocess.Popen(
        ['/usr/sbin/libvirtd'], stdin=subprocess.DEVNULL, stdout=sys.stderr,
        env={'PATH': sys.argv[3], 'HOME': str(work), 'LC_ALL': 'C'})
    threading.Thread(target=end_with_input, daemon=True).start()
    try:
        reap(daemon.pid)
    finally:
        shutil.rmtree(work, ignore_errors=True)


main()
