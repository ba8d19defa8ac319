# SPDX-License-Identifier: GPL-2.0-or-later
"""Guests that the installed programs start, take back and feed."""

import io
import json
import lzma
import os
import re
import socket
import subprocess
import time
from pathlib import Path

GUEST = Path('/guest')
WORK = Path('/tmp/trial')
PROGRAMS = Path('/usr/lib/qemu-ram-reset/guest')
MODULES = ('net/core/failover', 'drivers/net/net_failover',
           'drivers/net/virtio_net', 'drivers/block/virtio_blk')
APPEND = 'console=ttyS0 loglevel=1 edd=off'
PATIENCE = 180.0
INPUTS = 50
INIT = '''#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in {modules}; do insmod /$module.ko; done
stty -F /dev/ttyS0 -echo
[ ! -e /sys/class/net/eth0 ] || ip link set eth0 up
[ ! -e /sys/class/net/eth0 ] || udhcpc -q -n -i eth0 -s /bound >/dev/null && tftp -g -r hello 10.0.2.2 &&
    echo "from the network: $(cat hello)"
echo ready
while read -r line; do eval "$line"; done
'''
BOUND = '''#!/bin/busybox sh
[ "$1" != bound ] || { ip addr add $ip/24 dev eth0; echo "address: $ip" >&2; }
'''


class Broken(Exception):
    """Something does not go as it should."""


def say(*lines: str) -> None:
    print(*lines, sep='\n', flush=True)


def member(name: str, mode: int, data: bytes = b'') -> bytes:
    """An entry of a cpio archive as Linux unpacks it."""
    name_bytes = name.encode() + b'\0'
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name_bytes), 0)
    head = b'070701' + b''.join(b'%08x' % f for f in fields) + name_bytes
    return (head + bytes(-len(head) % 4)) + data + bytes(-len(data) % 4)


def initramfs() -> Path:
    path = WORK / 'initramfs'
    if path.exists():
        return path
    WORK.mkdir(parents=True, exist_ok=True)
    out = io.BytesIO()
    names = [os.path.basename(m) for m in MODULES]
    for folder in ('bin', 'dev', 'proc', 'sys'):
        out.write(member(folder, 0o40755))
    out.write(member('dev/console', 0o20600))
    kernel, = (GUEST / 'lib/modules').iterdir()
    for module, name in zip(MODULES, names):
        data = (kernel / 'kernel' / f'{module}.ko.xz').read_bytes()
        out.write(member(f'{name}.ko', 0o100644, lzma.decompress(data)))
    for name, source in (('busybox', GUEST / 'busybox'),
                         ('snapctl', PROGRAMS / 'snapctl'),
                         ('snapctl-harness', PROGRAMS / 'snapctl-harness')):
        out.write(member(f'bin/{name}', 0o100755, source.read_bytes()))
    out.write(member('init', 0o100755,
                     INIT.format(modules=' '.join(names)).encode()))
    out.write(member('bound', 0o100755, BOUND.encode()))
    out.write(member('TRAILER!!!', 0))
    path.write_bytes(out.getvalue())
    (WORK / 'tftp').mkdir()
    (WORK / 'tftp/hello').write_text('user networking works\n')
    return path


def disk(name: str) -> Path:
    path = WORK / name
    if not path.exists():
        subprocess.run(['/usr/lib/qemu-ram-reset/bin/qemu-img', 'create', '-q',
                        '-f', 'qcow2', path, '64M'], check=True)
    return path


def options(name: str, network: bool = True) -> list[str]:
    """The command of a QEMU with a Linux guest, without a display."""
    kernel = initramfs()
    return ['-accel', 'tcg', '-m', '256M', '-display', 'none',
            '-kernel', str(GUEST / 'vmlinuz'), '-initrd', str(kernel),
            '-append', APPEND, '-drive', f'file={disk(name)},if=virtio',
            '-nic', f'user,model=virtio-net-pci,tftp={WORK / "tftp"}'
            if network else 'none']


def wait_for(pattern: str, read, what: str) -> re.Match:
    deadline = time.monotonic() + PATIENCE
    while not (match := re.search(pattern, text := read(), re.M)):
        if time.monotonic() > deadline:
            raise Broken(f'{what}: no {pattern!r} within {PATIENCE:.0f} s, '
                         f'but {text[-1500:]!r}')
        time.sleep(0.1)
    return match


def objects(path: Path) -> list[str]:
    """Types of the objects that the QEMU has whose monitor is at @path."""
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(str(path))
        stream = end.makefile('rw')
        stream.readline()
        for line in ('{"execute": "qmp_capabilities"}',
                     '{"execute": "qom-list", '
                     '"arguments": {"path": "/objects"}}'):
            stream.write(line + '\n')
            stream.flush()
            answer = json.loads(stream.readline())
    return [re.sub(r'child<(.*)>', r'\1', item['type'])
            for item in answer['return']]


def boots(launcher: str) -> None:
    log, monitor = WORK / 'serial.log', WORK / 'qmp'
    command = [launcher, *options('boot.qcow2'), '-serial', f'file:{log}',
               '-qmp', f'unix:{monitor},server=on,wait=off']
    with subprocess.Popen(command, cwd='/') as process:
        try:
            wait_for('^ready', lambda: log.read_text(errors='replace')
                     if log.exists() else '', 'the guest')
            added = [t for t in objects(monitor) if t.startswith('ram-reset')]
        finally:
            process.kill()
    text = log.read_text(errors='replace')
    heard = re.search('from the network: .*', text)
    if not heard or added != ['ram-reset-auto']:
        raise Broken(f'a guest has booted, with the objects {added}, but '
                     f'without a network: {text!r}')
    say('a guest boots; ' + re.search('address: .*', text)[0].strip() + '; ' +
        heard[0].strip() + '; objects: ' + ', '.join(added))


def loops(launcher: str) -> None:
    run = subprocess.run(
        ['ram-reset', 'loop', '--ready', r'^ready\r?\n', '--ready-timeout',
         str(int(PATIENCE)), '--iterations', '100', '--send',
         r'echo $((6 * 7))\n', '--until', r'^42\r?\n', '--', launcher,
         *options('loop.qcow2')], capture_output=True, text=True, check=False)
    if run.returncode or not all(line in run.stdout for line in (
            'errors:    0', 'rewinds:   100 of 100')):
        raise Broken(f'ram-reset loop: {run.stdout}{run.stderr}')
    say('ram-reset loop:', *(f'  {line}' for line in run.stdout.splitlines()))


def harness(launcher: str) -> None:
    """A program in the guest gets inputs, each in a guest as it was."""
    region, inputs, results = (WORK / n for n in ('region', 'in', 'out'))
    inputs.mkdir()
    for i in range(INPUTS):
        (inputs / f'{i:02}').write_text(f'{i}\n')
    log, console = WORK / 'harness.log', WORK / 'console'
    command = [
        launcher, *options('harness.qcow2', network=False), '-object',
        f'memory-backend-file,id=ring,size=8M,mem-path={region},share=on',
        '-device', 'snapctl,allow=both,slots=start,memdev=ring', '-chardev',
        f'socket,id=c0,path={console},server=on,wait=off,logfile={log}',
        '-serial', 'chardev:c0']
    with subprocess.Popen(command) as process:
        try:
            wait_for('^ready', lambda: log.read_text(errors='replace')
                     if log.exists() else '', 'the guest')
            with socket.socket(socket.AF_UNIX) as end:
                end.connect(str(console))
                end.sendall(b'snapctl-harness -- /bin/sh -c '
                            b'\'read n; echo $((n * n)); [ -e /was ] || '
                            b'echo new; touch /was\'\n')
                feed = subprocess.run(
                    ['ram-reset', 'feed', '--region', str(region),
                     '--results', str(results), str(inputs)], capture_output=True,
                    text=True, check=False, timeout=PATIENCE)
        finally:
            process.kill()
    check_results(feed, results)


def check_results(feed: subprocess.CompletedProcess, results: Path) -> None:
    texts = [p.read_text(errors='replace')
             for p in sorted(results.rglob('*')) if p.is_file()]
    good = sum(any(f'{i * i}\nnew\n' in text for text in texts)
               for i in range(INPUTS))
    if feed.returncode or good != INPUTS:
        raise Broken(f'ram-reset feed: {good} of {INPUTS} results are right; '
                     f'{feed.stdout}{feed.stderr}')
    say('ram-reset feed: ' + feed.stdout.strip().splitlines()[0])
