# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the memory of device classes with what was read for kinds.c.

The source of each class is compiled once more, as this build compiles it, with
debugging information.  A class is known if each structure that its state is in
has the size and the members that the record of this release has.  The result is
a table in C.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
from debuginfo import Types, Unknown  # noqa: E402

POWER = ('AcpiCpuStatus', 'MemStatus', 'QEMUTimer')
VIRTIO = ('hw/virtio/virtio.c', 'VirtQueue')
# Class: the source and the structure of its instance; then other sources and
# structures that the code in kinds.c and virtio.c follows pointers to
CLASSES = {
    'ICH9-LPC': [('hw/isa/lpc_ich9.c', 'ICH9LPCState', *POWER)],
    'PIIX4_PM': [('hw/acpi/piix4.c', 'PIIX4PMState', *POWER)],
    'VGA': [('hw/display/vga-pci.c', 'PCIVGAState')],
    'base-xhci': [('hw/usb/hcd-xhci.c', 'XHCIState', 'QEMUTimer')],
    'i440FX': [('hw/pci-host/i440fx.c', 'PCII440FXState')],
    'ich9-ahci': [('hw/ide/ich.c', 'AHCIPCIState', 'AHCIDevice', 'QEMUTimer')],
    'mch': [('hw/pci-host/q35.c', 'MCHPCIState')],
    'pcie-root-port': [('hw/pci-bridge/gen_pcie_root_port.c',
                        'GenPCIERootPort')],
    'qemu-xhci': [('hw/usb/hcd-xhci-pci.c', 'XHCIPciState')],
    'usb-tablet': [('hw/usb/dev-hid.c', 'USBHIDState', 'QEMUTimer')],
    'virtconsole': [('hw/char/virtio-console.c', 'VirtConsole')],
    'virtio-blk-device': [('hw/block/virtio-blk.c', 'VirtIOBlock'), VIRTIO],
    'virtio-blk-pci': [('hw/virtio/virtio-blk-pci.c', 'VirtIOBlkPCI')],
    'virtio-net-device': [('hw/net/virtio-net.c', 'VirtIONet',
                           'VirtIONetQueue', 'QEMUTimer'), VIRTIO],
    'virtio-net-pci': [('hw/virtio/virtio-net-pci.c', 'VirtIONetPCI')],
    'virtio-serial-device': [('hw/char/virtio-serial-bus.c', 'VirtIOSerial'),
                             VIRTIO],
    'virtio-serial-pci': [('hw/virtio/virtio-serial-pci.c',
                           'VirtIOSerialPCI')],
    'virtserialport': [('hw/char/virtio-console.c', 'VirtConsole')],
    'vmmouse': [('hw/i386/vmmouse.c', 'VMMouseState')],
}
FLAGS = ['-g', '-gno-split-dwarf', '-fno-lto', '-w']


class Missing(Unknown):
    """The build does not have a class."""


class Build:
    """How a build compiles the sources."""

    def __init__(self, build):
        about = json.loads((build / 'meson-info/meson-info.json').read_text())
        self.source = Path(about['directories']['source'])
        self._commands = json.loads(
            (build / 'compile_commands.json').read_text())
        self.headers = {str(build / 'compile_commands.json')}

    def commands(self, source):
        """For each target that the source is compiled for."""
        wanted = os.path.abspath(self.source / source)
        return [command for command in self._commands
                if os.path.abspath(os.path.join(
                    command['directory'], command['file'])) == wanted]

    def types(self, command):
        words = iter(shlex.split(command['command']))
        with tempfile.TemporaryDirectory() as work:
            out, deps = f'{work}/out.o', f'{work}/out.d'
            kept = []
            for word in words:
                if word in ('-o', '-MF', '-MQ', '-MT'):
                    next(words)
                elif word not in ('-MD', '-MMD'):
                    kept.append(word)
            self._run([*kept, *FLAGS, '-MD', '-MF', deps, '-o', out],
                      command['directory'])
            text = Path(deps).read_text().replace('\\\n', ' ')
            self.headers |= set(text.partition(':')[2].split())
            return Types(self._run(['readelf', '--debug-dump=info', out]))

    def _run(self, command, folder=None):
        try:
            run = subprocess.run(command, cwd=folder, text=True,
                                 env=os.environ | {'LC_ALL': 'C'},
                                 stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        except OSError as e:
            raise Unknown(f'{command[0]} cannot be run: {e.strerror}')
        if run.returncode:
            raise Unknown(f'{Path(command[0]).name} fails for {command[-1]}')
        return run.stdout


def release(source):
    """10.2 for 10.2.1; 11.1 for 11.0.50, which precedes it."""
    major, minor, micro = map(int, (source / 'VERSION').read_text()
                              .strip().split('.')[:3])
    number = major * 3 + minor + (micro >= 50)
    return f'{number // 3}.{number % 3}'


class Record:
    """{structure: {(size, members...): releases}}"""

    def __init__(self, path):
        self._path, self._known = path, {}
        self.head, *paragraphs = path.read_text().strip().split('\n\n')
        for paragraph in paragraphs:
            head, *members = paragraph.split('\n')
            name, size, *releases = head.split()
            lines = size, *(tuple(m.split(maxsplit=3)) for m in members)
            self._known.setdefault(name, {})[lines] = releases

    def add(self, name, lines, of):
        releases = self._known.setdefault(name, {}).setdefault(lines, [])
        if of not in releases:
            releases.append(of)

    def write(self):
        text = [self.head]
        for name, variants in sorted(self._known.items()):
            for (size, *members), releases in variants.items():
                text.append('\n'.join((f'{name} {size} {" ".join(releases)}',
                                       *(f'    {" ".join(m)}'
                                         for m in members))))
        self._path.write_text('\n\n'.join(text) + '\n')

    def check(self, name, lines, of):
        """Raise Unknown if @name is not as in the record."""
        variants = [known for known, releases in
                    self._known.get(name, {}).items() if of in releases]
        if not variants:
            raise Unknown(f'nobody has read {name} of QEMU {of}')
        if lines not in variants:
            raise Unknown(f'{name} is not the one that was read of QEMU {of}: '
                          + difference(variants[0], lines))


def difference(known, found):
    """The first one, in words."""
    old, new = ({m[2]: m for m in lines[1:]} for lines in (known, found))
    for name in [*old, *new]:
        was, now = old.get(name), new.get(name)
        if not now:
            return f'{name} is gone'
        if not was:
            return f'{name} is new, {now[1]} bytes at {now[0]}'
        if was != now:
            return (f'{name} is {now[3]}, {now[1]} bytes at {now[0]}, not '
                    f'{was[3]}, {was[1]} bytes at {was[0]}')
    return f'it has {found[0]} bytes, not {known[0]}'


def structures(build, parts):
    """Yields {structure: (size, members...)} of a class, for each target."""
    for source, *names in parts:
        commands = build.commands(source)
        if not commands:
            raise Missing(f'{source} is not in this build')
        for command in commands:
            yield build.types(command).closure(names)


def problem(build, parts, record, of):
    """Why a class is not known; None if it is."""
    try:
        for found in structures(build, parts):
            # what is inside comes last, and is what has changed
            for name, lines in reversed(found.items()):
                record.check(name, lines, of)
    except Unknown as e:
        return str(e)
    return None


def write_table(path, problems):
    text = {name: json.dumps(why) if why else 'NULL'
            for name, why in problems.items()}
    lines = ''.join(f'    {{ "{name}", {why} }},\n'
                    for name, why in text.items())
    path.write_text('/* Made by layouts.py */\n\n#include "qemu/osdep.h"\n'
                    '#include "system/ram-reset/devices/layouts.h"\n\n'
                    'const DeviceLayout device_layouts[] = {\n' + lines +
                    '    { NULL, NULL },\n};\n')


def parse():
    p = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--build', type=Path, required=True, metavar='DIR',
                   help='a folder in which QEMU has been configured')
    p.add_argument('--record', type=Path, metavar='FILE',
                   default=Path(__file__).with_name('layouts.txt'),
                   help='what was read (default: layouts.txt)')
    p.add_argument('--output', type=Path, metavar='FILE',
                   help='write the table there')
    p.add_argument('--depfile', type=Path, metavar='FILE',
                   help='write there, for ninja, what the table depends on')
    p.add_argument('--update', action='store_true',
                   help="add to the record this build's structures, which you "
                   'have read')
    return p.parse_args()


def update(build, record, of):
    for parts in CLASSES.values():
        try:
            for found in structures(build, parts):
                for name, lines in found.items():
                    record.add(name, lines, of)
        except Missing as e:
            print(e)
    record.write()


def main():
    args = parse()
    build = Build(args.build)
    of = release(build.source)
    record = Record(args.record)
    if args.update:
        update(build, record, of)
        return
    with ThreadPoolExecutor(min(os.cpu_count() or 1, 4)) as pool:
        problems = dict(zip(CLASSES, pool.map(
            lambda parts: problem(build, parts, record, of),
            CLASSES.values())))
    unknown = [name for name, why in problems.items() if why]
    if unknown:
        print(f'RAM reset: {len(unknown)} of {len(CLASSES)} classes of devices '
              'are not the ones that were read; see '
              'docs/devel/ram-reset/inside.rst')
    if args.output:
        write_table(args.output, problems)
    else:
        print('\n'.join(f'{n}: {w or "known"}' for n, w in problems.items()))
    if args.depfile:
        args.depfile.write_text(f'{args.output}: ' +
                                ' '.join(sorted(build.headers)) + '\n')


if __name__ == '__main__':
    main()
