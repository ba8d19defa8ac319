# SPDX-License-Identifier: GPL-2.0-or-later
"""Paths of the programs under test, and guests built from guest/."""

import lzma
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).resolve().parent / 'guest'
HOST = Path(__file__).resolve().parent / 'host'
SNAPCTL = REPO / 'contrib/snapctl'
SNAPCTL_REGS = REPO / 'include/hw/misc/snapctl-regs.h'

CFLAGS = ('-m64 -O2 -Wall -Wextra -ffreestanding -fno-pic -no-pie '
          '-mno-red-zone -mgeneral-regs-only -fno-stack-protector '
          '-fcf-protection=none -fno-tree-loop-distribute-patterns '
          '-nostdlib -static -Wl,--build-id=none').split()

CFLAGS32 = ('-m32', *(flag for flag in CFLAGS
                      if flag not in ('-m64', '-mno-red-zone')))

BARE_HEADERS = (SOURCE / 'multiboot.h', SOURCE / 'serial.h')

# With a C library, and small, since the kernel unpacks it at each boot
HOSTED = ('-m64 -Os -Wall -Wextra -ffunction-sections -fdata-sections -static '
          '-s -Wl,--gc-sections').split()

# To be preloaded into QEMU
PRELOADED = '-m64 -O2 -g -Wall -Wextra -shared -fPIC'.split()

# Modules that Debian's kernel needs; in the guest they are /lib/NAME.ko
MODULES = ('drivers/block/virtio_blk', 'drivers/virtio/virtio_balloon',
           'drivers/virtio/virtio_mem', 'drivers/misc/pvpanic/pvpanic',
           'drivers/misc/pvpanic/pvpanic-pci')
# Each after those that it needs
IO_MODULES = (
    'drivers/block/virtio_blk', 'drivers/scsi/scsi_common',
    'drivers/scsi/scsi_mod', 'drivers/scsi/virtio_scsi', 'drivers/scsi/sd_mod',
    'drivers/ata/libata', 'drivers/ata/libahci', 'drivers/ata/ahci',
    'net/core/failover', 'drivers/net/net_failover', 'drivers/net/virtio_net',
    'drivers/char/hw_random/virtio-rng', 'drivers/virtio/virtio_balloon')
VSOCK_MODULES = ('net/vmw_vsock/vsock',
                 'net/vmw_vsock/vmw_vsock_virtio_transport_common',
                 'net/vmw_vsock/vmw_vsock_virtio_transport')
FULL_MODULES = (
    'fs/netfs/netfs', 'net/9p/9pnet', 'net/9p/9pnet_virtio', 'fs/9p/9p',
    'drivers/usb/common/usb-common', 'drivers/usb/core/usbcore',
    'drivers/usb/host/xhci-hcd', 'drivers/usb/host/xhci-pci',
    'drivers/scsi/scsi_common', 'drivers/scsi/scsi_mod', 'drivers/scsi/sd_mod',
    'drivers/usb/storage/usb-storage')


class Missing(Exception):
    """Something that these tests need is not there."""


def _setting(name: str, default: Path) -> Path:
    return Path(os.environ.get(name) or default).absolute()


BUILD = _setting('RAM_RESET_BUILD', REPO / 'build')
QEMU = _setting('RAM_RESET_QEMU', BUILD / 'qemu' / 'qemu-system-x86_64')
QEMU_IMG = _setting('RAM_RESET_QEMU_IMG', BUILD / 'qemu' / 'qemu-img')
QSD = _setting('RAM_RESET_QSD',
               BUILD / 'qemu' / 'storage-daemon' / 'qemu-storage-daemon')
VHOST_USER_BLK = _setting(
    'RAM_RESET_VHOST_USER_BLK',
    BUILD / 'qemu' / 'contrib' / 'vhost-user-blk' / 'vhost-user-blk')
FIRMWARE = _setting('RAM_RESET_FIRMWARE', BUILD / 'firmware')
GUEST = _setting('RAM_RESET_GUEST', BUILD / 'guest')
FULL = BUILD / 'guest-full'
E2FS = BUILD / 'guest-e2fs'
AGENT = BUILD / 'guest-agent'
PRODUCTS = BUILD / 'guest'


def stock() -> Path:
    """An unpatched QEMU if there is one, otherwise ours."""
    path = BUILD / 'stock' / 'qemu-system-x86_64'
    return path if path.exists() else QEMU


def require(*paths: Path) -> None:
    for path in paths:
        if not path.exists():
            raise Missing(f'{path} does not exist: run scripts/bootstrap, '
                          'which makes it')


def _outdated(product: Path, *sources: Path) -> bool:
    if not product.exists():
        return True
    newest = max(source.stat().st_mtime for source in sources)
    return product.stat().st_mtime < newest


def _replace(product: Path, data: bytes) -> None:
    """Write @product so that an interrupted run leaves no half of it."""
    product.parent.mkdir(parents=True, exist_ok=True)
    temporary = product.with_name(f'{product.name}.{os.getpid()}')
    temporary.write_bytes(data)
    temporary.replace(product)


def _compile(product: Path, sources: list[Path], script: Path | None = None,
             flags: Sequence[str] = CFLAGS, headers: Sequence[Path] = ()
             ) -> Path:
    inputs = [*sources, *headers] + ([script] if script else [])
    if _outdated(product, *inputs, Path(__file__)):
        product.parent.mkdir(parents=True, exist_ok=True)
        temporary = product.with_name(f'{product.name}.{os.getpid()}')
        command = ['gcc', *flags, '-o', temporary, *sources]
        if script:
            command += ['-Wl,-T,' + str(script)]
        subprocess.run(command, check=True)
        temporary.replace(product)
    return product


def cpio_entry(name: str, mode: int, data: bytes = b'') -> bytes:
    """A member of a "newc" archive, owned by root."""
    path = name.encode() + b'\0'
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b'070701' + b''.join(b'%08x' % field for field in fields) + path
    return head + b'\0' * (-len(head) % 4) + data + b'\0' * (-len(data) % 4)


def ring3_image() -> Path:
    return _compile(PRODUCTS / 'ring3.bin',
                    [SOURCE / 'ring3-boot.S', SOURCE / 'ring3.c',
                     SOURCE / 'ring3-code.c', SOURCE / 'ring3-flight.c',
                     SOURCE / 'ring3-hammer.c', SOURCE / 'ring3-pages.c',
                     SOURCE / 'ring3-regs.c', SOURCE / 'ring3-shmem.c',
                     SOURCE / 'ring3-smp.c', SOURCE / 'ring3-snapctl.c',
                     SOURCE / 'ring3-two.c'],
                    SOURCE / 'ring3.ld',
                    headers=[*BARE_HEADERS, SOURCE / 'ring3.h',
                             SOURCE / 'ring3-cpus.h', SOURCE / 'ring3-pci.h',
                             SOURCE / 'ring3-snapctl.h',
                             SNAPCTL_REGS])


def timers_image() -> Path:
    return _compile(PRODUCTS / 'timers.bin',
                    [SOURCE / 'timers-boot.S', SOURCE / 'timers.c'],
                    SOURCE / 'ring3.ld', headers=BARE_HEADERS, flags=CFLAGS32)


def vfio() -> Path:
    return _compile(PRODUCTS / 'vfio.so', [HOST / 'vfio.c'], flags=PRELOADED)


def tsc() -> Path:
    return _compile(PRODUCTS / 'tsc.so', [HOST / 'tsc.c'], flags=PRELOADED)


def vcpus() -> Path:
    return _compile(PRODUCTS / 'vcpus.so', [HOST / 'vcpus.c'], flags=PRELOADED)


def kernel() -> Path:
    return GUEST / 'vmlinuz'


def _module(name: str, guest: Path = GUEST) -> Path:
    found = sorted((guest / 'lib/modules').glob(f'*/kernel/{name}.ko*'))
    if not found:
        raise Missing(f'{guest} has no kernel module {name}: run '
                      'scripts/fetch-guest, which fetches it')
    return found[-1]


def module(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == '.xz' else data


def _module_entry(path: Path) -> bytes:
    return cpio_entry(f'lib/{path.name.split(".")[0]}.ko', 0o100644,
                      module(path))


def snapctl_programs() -> list[Path]:
    """contrib/snapctl, and what the harness runs."""
    flags = [*HOSTED, '-std=gnu11', f'-I{REPO / "include"}']
    headers = [*SNAPCTL.glob('*.h'), SNAPCTL_REGS]
    library = [SNAPCTL / name for name in ('libsnapctl.c', 'mmio.c', 'open.c')]
    return [
        _compile(PRODUCTS / 'snapctl', [SNAPCTL / 'snapctl-tool.c', *library],
                 flags=flags, headers=headers),
        _compile(PRODUCTS / 'snapctl-harness',
                 [SNAPCTL / 'harness.c', SNAPCTL / 'target.c', *library],
                 flags=flags, headers=headers),
        _compile(PRODUCTS / 'snaptarget', [SOURCE / 'snaptarget.c'],
                 flags=flags)]


def _tree_entries(root: Path) -> Iterator[bytes]:
    """All that is below @root, as it is there."""
    for path in sorted(root.rglob('*')):
        name = str(path.relative_to(root))
        yield cpio_entry(name, 0o40755) if path.is_dir() else \
            cpio_entry(name, 0o100755, path.read_bytes())


def _archive(product: Path, programs: Sequence[Path], modules: Sequence[Path],
             tree: Path | None = None) -> Path:
    busybox = GUEST / 'busybox'
    init = SOURCE / 'init'
    require(busybox, *([tree] if tree else []))
    if _outdated(product, busybox, *programs, init, *modules, Path(__file__),
                 *([tree] if tree else [])):
        _replace(product, b''.join((
            cpio_entry('bin', 0o40755, b''),
            cpio_entry('bin/busybox', 0o100755, busybox.read_bytes()),
            *(cpio_entry(f'bin/{path.name}', 0o100755, path.read_bytes())
              for path in programs),
            cpio_entry('init', 0o100755, init.read_bytes()),
            cpio_entry('lib', 0o40755, b''),
            *(_module_entry(module) for module in modules),
            *(_tree_entries(tree) if tree else ()),
            cpio_entry('TRAILER!!!', 0, b''))))
    return product


def initramfs() -> Path:
    return _archive(PRODUCTS / 'initramfs.cpio',
                    [_compile(PRODUCTS / 'ramtool', [SOURCE / 'ramtool.c']),
                     _compile(PRODUCTS / 'identtool', [SOURCE / 'identtool.c'],
                              flags=HOSTED),
                     *snapctl_programs()], [_module(name) for name in MODULES])


def _io_programs(*names: str) -> list[Path]:
    return [_compile(PRODUCTS / name, [SOURCE / f'{name}.c'],
                     flags=[*HOSTED, '-std=gnu11'],
                     headers=[SOURCE / 'rdrand.h'])
            for name in names or ('churn', 'chatter')]


def io_initramfs() -> Path:
    """For a guest whose devices are all at work."""
    return _archive(PRODUCTS / 'io-initramfs.cpio', _io_programs(),
                    [_module(name) for name in IO_MODULES])


def trust_initramfs() -> Path:
    """For a guest that checks its disks and file systems, and is talked to."""
    return _archive(PRODUCTS / 'trust-initramfs.cpio',
                    _io_programs('ledger', 'agent'),
                    [_module(name) for name in (*IO_MODULES, *VSOCK_MODULES)],
                    E2FS)


def agent_initramfs() -> Path:
    """For a guest with QEMU's guest agent."""
    return _archive(PRODUCTS / 'agent-initramfs.cpio', [], [], AGENT)


def full_kernel() -> Path:
    """It can USB and 9p, which cloud kernels leave out."""
    return FULL / 'vmlinuz'


def full_initramfs() -> Path:
    return _archive(PRODUCTS / 'full-initramfs.cpio', _io_programs(),
                    [_module(name, FULL) for name in FULL_MODULES])
