# SPDX-License-Identifier: GPL-2.0-or-later
"""A ring-3 guest with several CPUs, see guest/ring3-smp.c and ring3-regs.c."""

import struct
from enum import IntEnum
from pathlib import Path

from lib.dma import Qtest
from lib.guests import Ring3
from lib.machine import MIB

ACCELS = ('kvm', 'kvm,dirty-ring-size=4096', 'tcg,thread=multi')
RAM_SIZE = 32 * MIB
START = Ring3.FIRST_FREE
# Register of guest/ring3-regs.c; shared memory has to have its file
ROW, TABLE = struct.Struct('<4Q'), 31 * MIB


class Kind(IntEnum):
    """Of registers."""

    MSR, CONTROL, DEBUG, EXTENDED, KEYS, VECTORS, APIC = range(7)


class Smp(Ring3):
    """All CPUs that the guest begins with wait for work."""

    TIMEOUT = 120.0

    def __init__(self, workdir: Path, *, cpus: str, args: tuple = (),
                 ram: int = RAM_SIZE, start: bool = True, **kwargs):
        """@cpus: what -smp says; @start: all but the first, too."""
        super().__init__(workdir, ram=ram, args=('-smp', cpus, *args),
                         **kwargs)
        self.cpus = int(cpus.split(',')[0])
        try:
            if start and not kwargs.get('loadvm'):
                for cpu in range(1, self.cpus):
                    self.ask('start-cpu', cpu)
        except BaseException:
            self.close()
            raise

    def start_all(self, pages: int, report: int = 1, start: int = START
                  ) -> None:
        """Endless write-and-check; each CPU has @pages of its own."""
        self.tell('all-loop', start, pages, report)
        self.next_pass()

    def skew(self, cpu: int) -> tuple[int, int]:
        """By how many ticks its clock is ahead, at least and at most."""
        low, high = (int(n, 16) for n in self.ask('skew', cpu).split())
        return tuple(n - (n >> 63 << 64) for n in (low, high))

    # Registers

    def get(self, cpu: int, which: list[tuple[Kind, int]]) -> list[int | None]:
        """Returns: the values, None for a register that there is not."""
        self._put_table([(*one, 0, 0) for one in which])
        self.ask('get-regs', cpu, TABLE, len(which))
        return [None if fault else value
                for *_, value, fault in self._table(len(which))]

    def put(self, cpu: int, which: list[tuple[Kind, int, int]]) -> None:
        """Tell the guest which CPUs there are."""
        self._put_table([(*one, 0) for one in which])
        self.ask('put-regs', cpu, TABLE, len(which))

    def _put_table(self, rows: list[tuple]) -> None:
        with open(self.memfd(), 'r+b') as f:
            f.seek(TABLE)
            f.write(b''.join(ROW.pack(*row) for row in rows))

    def _table(self, count: int) -> list[tuple]:
        with open(self.memfd(), 'rb') as f:
            f.seek(TABLE)
            return [ROW.unpack(f.read(ROW.size)) for _ in range(count)]

    def cpuid(self, leaf: int, subleaf: int = 0) -> list[int]:
        return [int(n, 16) for n in self.ask('cpuid', leaf, subleaf).split()]


class CpuSlots:
    """
    The registers by which q35 plugs and unplugs CPUs, used from outside, as the
    guest has no ACPI.  See QEMU's docs/specs/acpi_cpu_hotplug.rst.
    """

    SELECT, FLAGS, EJECT = 0xcd8, 0xcdc, 8

    def __init__(self, workdir: Path):
        self._qtest = Qtest(workdir)
        self.args = self._qtest.args

    def connect(self, guest: Smp) -> None:
        self._guest = guest
        self._qtest.connect()
        # from the old interface, that of the first ports, to the new one
        self._qtest.out('l', self.SELECT, 0)
        self._slots = {slot['props']['core-id']: slot for slot in
                       guest.qmp('query-hotpluggable-cpus')}

    def close(self) -> None:
        self._qtest.close()

    def plug(self, cpu: int) -> None:
        slot = self._slots[cpu]
        self._guest.qmp('device_add', driver=slot['type'], id=f'cpu{cpu}',
                        **slot['props'])
        self._guest.ask('start-cpu', cpu)

    def unplug(self, cpu: int) -> None:
        self._guest.qmp('device_del', id=f'cpu{cpu}')
        self._qtest.out('l', self.SELECT, cpu)
        self._qtest.out('b', self.FLAGS, self.EJECT)
        self._guest.event('DEVICE_DELETED')
