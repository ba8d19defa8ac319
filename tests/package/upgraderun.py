# SPDX-License-Identifier: GPL-2.0-or-later
"""An upgrade while a QEMU runs, which then loads its modules."""

import json
import re
import socket
import subprocess
from pathlib import Path

from guestrun import WORK, Broken, say, wait_for

# A type of a module of each package
TYPES = 'usb-host', 'qxl-vga'
STAMP = re.compile(rb'(?<=qemu_stamp_)[0-9a-f]{40}')


def next_version(version: str) -> str:
    """A higher one of the same length: ~deb13 is made ~deb14."""
    return version[:-1] + chr(ord(version[-1]) + 1)


def changed(data: bytes, old: str, new: str) -> bytes:
    """A file of version @old as a build of @new would have it."""
    return STAMP.sub(lambda stamp: stamp[0][::-1],
                     data.replace(old.encode(), new.encode()))


def repack(deb: str) -> tuple[str, str, str]:
    """(path, old version, new version) of a package that is a build newer."""
    old = subprocess.run(['dpkg-deb', '-f', deb, 'Version'], check=True,
                         capture_output=True, text=True).stdout.strip()
    new = next_version(old)
    tree, target = WORK / 'tree', WORK / Path(deb).name.replace(old, new)
    subprocess.run(['rm', '-rf', tree], check=True)
    subprocess.run(['dpkg-deb', '-R', deb, tree], check=True)
    # what is deepest first, as folders are renamed too
    for path in sorted(tree.rglob('*'), reverse=True):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            if (after := changed(data, old, new)) != data:
                path.write_bytes(after)
        if old in path.name:
            path.rename(path.with_name(path.name.replace(old, new)))
    subprocess.run(['dpkg-deb', '-Zgzip', '-z1', '-b', tree, target],
                   check=True, stdout=subprocess.DEVNULL)
    return str(target), old, new


def ask(stream, command: str, **arguments: str) -> object:
    stream.write(json.dumps({'execute': command, 'arguments': arguments})
                 + '\n')
    stream.flush()
    while line := stream.readline():
        answer = json.loads(line)
        if 'event' not in answer:
            break
    if not line or 'return' not in answer:
        raise Broken(f'QEMU answers {line!r} to {command} after the upgrade')
    return answer['return']


def check(monitor: Path, pid: int, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(monitor))
        stream = end.makefile('rw')
        stream.readline()
        ask(stream, 'qmp_capabilities')
        # which loads all modules that have types
        names = {t['name'] for t in ask(stream, 'qom-list-types')}
    maps = Path(f'/proc/{pid}/maps').read_text()
    loaded = set(re.findall(rf'{re.escape(str(folder))}/(\S+)\.so', maps))
    if not names.issuperset(TYPES) or not loaded:
        raise Broken(f'a QEMU that ran before the upgrade has the modules '
                     f'{sorted(loaded)}, and not all of {", ".join(TYPES)}')
    say(f'an upgrade while QEMU runs: it has loaded {len(loaded)} modules '
        f'after that, from {folder.parent}')


def upgrades(launcher: str, debs: list[str], apt) -> None:
    """With /run as Debian mounts it; @apt runs apt-get."""
    subprocess.run(['mount', '-o', 'remount,noexec', '/run'], check=True)
    packages = [repack(deb) for deb in debs]
    monitor = WORK / 'upgraded'
    with subprocess.Popen(
            [launcher, '-S', '-nodefaults', '-display', 'none', '-accel',
             'tcg', '-qmp', f'unix:{monitor},server=on,wait=off']) as process:
        try:
            wait_for('there', lambda: 'there' if monitor.exists() else '',
                     'the monitor')
            apt('install', *(path for path, *_ in packages))
            check(monitor, process.pid,
                  Path(f'/run/qemu/qemu-ram-reset_{packages[0][1]}'))
        finally:
            process.kill()
    subprocess.run(['mount', '-o', 'remount,exec', '/run'], check=True)
