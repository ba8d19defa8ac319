# SPDX-License-Identifier: GPL-2.0-or-later
"""A Linux guest, all of whose devices are at work."""

import itertools
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib import products
from lib.guests import Linux
from lib.io.channels import Channel, Datagrams, Frames, Stream, Tap
from lib.machine import MIB, run_quietly
from lib.patience import Limit

RAM_SIZE = 192 * MIB
DISK_MIB = 2
BOOTED = 'booted'
DEPTH = 12
# A load restores this clock: requests that time out are another matter
CLOCK = 'tsc=unstable clocksource=acpi_pm'
# By name: QEMU's device on the disk, what it is in the guest
DISKS = {
    'blk': ('virtio-blk-pci', '/dev/vda'),
    'iothread': ('virtio-blk-pci,iothread=io0', '/dev/vdb'),
    'scsi': ('scsi-hd,bus=scsi0.0', '/dev/sda'),
    'ahci': ('ide-hd,bus=ahci0.0', '/dev/sdb'),
}
NETS = {'cable': Frames, 'user': lambda _: Datagrams(), 'tap': lambda _: Tap()}
WAYS = {'stock': {},
        'rewind': {'strategy': 'auto', 'options': ',rewind=on,verify=on'}}
SMALL, LARGE = RAM_SIZE - 8 * MIB, RAM_SIZE - 4 * MIB
# A guest that answers more often, and for longer (see patience.py), without any
# progress in something is stuck there.  That is long: a comparison of a disk is
# 150 requests until there is progress, and a starved guest gets little done
# between two answers.
ANSWERS = 30
SECONDS = 10.0
# A request that is lost stays so: Linux would repeat it after 30 s
REQUEST_TIMEOUT = 86400


class Stuck(AssertionError):
    """A device does nothing while the guest runs."""


class WrongContent(AssertionError):
    """A disk does not have what the guest has written."""


@dataclass
class Files:
    """How QEMU does the I/O of the disks."""

    cache: str = 'writeback'
    aio: str = 'threads'
    slow: Path | None = None

    def blockdev(self, name: str, path: Path) -> str:
        direct = 'on' if self.cache in ('none', 'directsync') else 'off'
        no_flush = 'on' if self.cache == 'unsafe' else 'off'
        cache = f'cache.direct={direct},cache.no-flush={no_flush}'
        below = f'driver=file,filename={path},aio={self.aio},{cache}'
        if self.slow:
            below = f'driver=blkdebug,config={self.slow},' + \
                ','.join(f'image.{part}' for part in below.split(','))
        return f'driver=qcow2,node-name={name},{cache},' + \
            ','.join(f'file.{part}' for part in below.split(','))

    @property
    def write_cache(self) -> str:
        return 'off' if self.cache in ('writethrough', 'directsync') else 'on'


def copy_disks(source: Path, target: Path) -> None:
    for disk in source.glob('*.qcow2'):
        shutil.copy(disk, target)


def boot(kind: type['Churning'], tmp_path_factory) -> Path:
    """A folder with disks, and in them the snapshot BOOTED of such a guest."""
    workdir = tmp_path_factory.mktemp('booted')
    with kind(workdir) as guest:
        guest.set_up()
        guest.save(BOOTED)
    return workdir


class Churning(Linux):
    """@disks: by name, what each is in the guest."""

    disks: dict[str, str]

    def __init__(self, workdir: Path, *, args: Iterable[str] = (), **kwargs):
        super().__init__(workdir, accel='tcg', ram=RAM_SIZE, append=CLOCK,
                         args=('-cpu', 'qemu64,+rdrand', *args), **kwargs)

    def load_drivers(self, modules: Sequence[str]) -> None:
        for module in modules:
            self.run(f'insmod /lib/{Path(module).name}.ko')
        for device in self.disks.values():
            self.until(f'[ -b {device} ]')

    def keep_requests(self) -> None:
        """They do not time out, however slow the host is."""
        self.run('for limit in /sys/block/sd*/device/timeout; do '
                 f'echo {REQUEST_TIMEOUT} >$limit; done')

    def churn(self) -> None:
        for name, device in self.disks.items():
            self.run(f'churn {device} {DEPTH} /run/churn.{name} & '
                     f'churn_{name}=$!')
        for name in self.disks:
            self.until(f'[ -s /run/churn.{name} ]')

    def churned(self) -> dict[str, tuple[int, int]]:
        """Requests of each disk that have ended, comparisons of all of it."""
        said = self.run('cd /run; for f in churn.*; do read -r line <$f; '
                        'echo $f $line; done')
        result = {}
        for line in said.splitlines():
            name, done, compared, *bad = line.split()
            if bad:
                raise WrongContent(f'{name}: {" ".join(bad)}')
            result[name.removeprefix('churn.')] = int(done), int(compared)
        assert result.keys() == self.disks.keys()
        return result

    def compare_disks(self) -> None:
        """All that is on them."""
        before = self.churned()
        # a program that has just found a difference has ended; its report has it
        self.run('kill -USR1 ' + ' '.join(f'$churn_{n}' for n in self.disks)
                 + ' || true')
        self.wait_for(lambda: {
            name: done for name, (done, compared) in self.churned().items()
            if compared == before[name][1]})

    def until(self, condition: str) -> None:
        self.run(f'n=0; until {condition}; do sleep 0.1; n=$((n+1)); '
                 '[ $n -lt 600 ] || break; done; ' + condition)

    def wait_for(self, missing: Callable[[], dict[str, object]]) -> None:
        """
        @missing: what is to come, by name, and how far it is, until there is
        nothing more.  A busy host makes all slow: what is stuck gets no
        further while the guest does a lot else.
        """
        since: dict[str, tuple[object, Limit, int]] = {}
        for answers in itertools.count():
            left = missing()
            if not left:
                return
            for name, state in left.items():
                if name not in since or since[name][0] != state:
                    since[name] = state, Limit(SECONDS), answers
                _, limit, first = since[name]
                if answers > first + ANSWERS and limit.over():
                    raise Stuck(f'{name}: nothing for {limit.seconds():.0f} s, '
                                'in which the guest has answered '
                                f'{answers - first} times')


class Busy(Churning):
    """
    It has each of DISKS, and @net, one of NETS.  @files are those of one disk
    after another.
    """

    disks = {name: device for name, (_, device) in DISKS.items()}

    def __init__(self, workdir: Path, *, files: Sequence[Files] = (Files(),),
                 net: str = 'cable', limit: str = 'max-bytes=4096,period=5',
                 **kwargs):
        self._base = workdir
        self.net = NETS[net](workdir)
        self.port = Stream(workdir / 'port')
        self.channels: dict[str, Channel] = {net: self.net,
                                             'serial': self.port}
        try:
            super().__init__(
                workdir, initrd=products.io_initramfs(), args=(
                    *self._disk_args(files), *self._other_args(),
                    '-device', f'virtio-rng-pci,{limit}'), **kwargs)
        except BaseException:
            self._close_channels()
            raise

    def _disk_args(self, files: Sequence[Files]) -> Iterable[str]:
        yield from ('-object', 'iothread,id=io0')
        yield from ('-device', 'virtio-scsi-pci,id=scsi0')
        yield from ('-device', 'ahci,id=ahci0')
        for (name, (device, _)), way in zip(DISKS.items(),
                                            itertools.cycle(files)):
            path = self._base / f'{name}.qcow2'
            if not path.exists():
                run_quietly(products.QEMU_IMG, 'create', '-q', '-f', 'qcow2',
                            path, f'{DISK_MIB}M')
            yield from ('-blockdev', way.blockdev(name, path))
            yield from ('-device', f'{device},drive={name},'
                                   f'write-cache={way.write_cache}')

    def _other_args(self) -> Iterable[str]:
        yield from ('-netdev', f'{self.net.netdev},id=net0')
        yield from ('-device', 'virtio-net-pci,netdev=net0,romfile=')
        yield from ('-chardev', f'{self.port.chardev},id=port0')
        yield from ('-device', 'virtio-serial-pci')
        yield from ('-device', 'virtserialport,chardev=port0,name=port0')
        yield from ('-device', 'virtio-balloon-pci')

    def _close_channels(self) -> None:
        for channel in self.channels.values():
            channel.close()

    def close(self) -> None:
        super().close()
        self._close_channels()

    def set_up(self) -> None:
        """Ends when the guest has drivers of its devices."""
        self.load_drivers(products.IO_MODULES)
        self.keep_requests()
        self.run('ip link set eth0 up && ip addr add 10.0.2.15/24 dev eth0')

    def chatter(self) -> None:
        way = f'udp {self.net.GATEWAY} {self.net.port}' \
            if isinstance(self.net, Datagrams) else 'ethernet eth0'
        self.run(f'chatter {way} & chatter serial /dev/vport*p1 & '
                 'chatter read /dev/hwrng /run/chatter.rng &')
        self.until('[ -s /run/chatter.rng ]')
        for channel in self.channels.values():
            channel.start()

    def check_flow(self, entropy: int = -1) -> None:
        """
        Through each queue goes something that has come after the call; and the
        guest has, or gets, more than @entropy.
        """
        for channel in self.channels.values():
            channel.renew()
        size = LARGE if self.balloon() == SMALL else SMALL
        self.qmp('balloon', value=size)
        self.wait_for(lambda: {
            **{name: 0 for name, channel in self.channels.items()
               if not channel.flows(0)},
            **({'entropy': 0} if self.entropy() <= entropy else {}),
            **({'balloon': now} if (now := self.balloon()) != size else {})})

    def balloon(self) -> int:
        return self.qmp('query-balloon')['actual']

    def entropy(self) -> int:
        """How often the guest has got some."""
        return int(self.run('cat /run/chatter.rng'))

    def exhaust_entropy(self) -> int:
        """How often it has got some when there is no more."""
        before, answers = -1, 0
        while answers < ANSWERS:
            now = self.entropy()
            answers = answers + 1 if now == before else 0
            before = now
            time.sleep(0.01)
        return before
