# SPDX-License-Identifier: GPL-2.0-or-later
"""Registers that a guest's ring 0 can write, and two values for each."""

from dataclasses import dataclass

from lib.smp import Kind, Smp

OSFXSR, OSXSAVE, PKE = 1 << 9, 1 << 18, 1 << 22
VECTORS = 0xe7                  # of XCR0: x87, SSE, AVX, AVX-512
# Unused memory, for KVM to write its clock and such to
SHARED = 30 << 20


@dataclass(frozen=True)
class Register:
    name: str
    kind: Kind
    index: int
    values: tuple[int, int]


def _msr(name: str, index: int, a: int, b: int) -> Register:
    return Register(name, Kind.MSR, index, (a, b))


def _canonical(name: str, index: int) -> Register:
    return _msr(name, index, 0xffff800012345000 + index, 0x7fff00005000 + index)


MSRS = (
    _msr('SPEC_CTRL', 0x48, 1, 2),
    _msr('SYSENTER_CS', 0x174, 0x10, 0x20),
    _canonical('SYSENTER_ESP', 0x175),
    _canonical('SYSENTER_EIP', 0x176),
    _msr('MCG_STATUS', 0x17a, 1, 2),
    _msr('MCG_CTL', 0x17b, (1 << 64) - 1, 0),
    _msr('MISC_ENABLE', 0x1a0, 1, 0),
    _msr('DEBUGCTL', 0x1d9, 2, 0),
    *(_msr(f'MTRRphysBase{i}', 0x200 + 2 * i, 0x80000006 + (i << 28),
           0x90000000 + (i << 28)) for i in range(4)),
    *(_msr(f'MTRRphysMask{i}', 0x201 + 2 * i, 0xfff0000800, 0xff80000800)
      for i in range(4)),
    *(_msr(f'MTRRfix{i:x}', i, 0x0606060606060606, 0x0505050505050505)
      for i in (0x250, 0x258, 0x259, *range(0x268, 0x270))),
    _msr('PAT', 0x277, 0x0007040500070406, 0x0007010600070106),
    _msr('MTRRdefType', 0x2ff, 0xc06, 0x800),
    _msr('PERF_GLOBAL_CTRL', 0x38f, 1, 2),
    _msr('PERF_FIXED_CTRL', 0x38d, 0, 0x333),
    *(_msr(f'PERFEVTSEL{i}', 0x186 + i, 0x4100c0, 0x4200c4) for i in range(2)),
    *(_msr(f'PMC{i}', 0xc1 + i, 0x1234, 0x5678) for i in range(2)),
    _msr('MC0_CTL', 0x400, (1 << 64) - 1, 0),
    _msr('XSS', 0xda0, 0, 0x100),
    _msr('EFER', 0xc0000080, 0x501, 0xd00),
    _msr('STAR', 0xc0000081, 0x0010000800000000, 0x0020001000000000),
    _canonical('LSTAR', 0xc0000082),
    _canonical('CSTAR', 0xc0000083),
    _msr('FMASK', 0xc0000084, 0x47700, 0x200),
    _canonical('FS_BASE', 0xc0000100),
    _canonical('GS_BASE', 0xc0000101),
    _canonical('KERNEL_GS_BASE', 0xc0000102),
    _msr('TSC_AUX', 0xc0000103, 3, 5),
    _msr('HWCR', 0xc0010015, 1 << 18, 0),
    _msr('VM_HSAVE_PA', 0xc0010117, 0x1000000, 0x1001000),
    _msr('AMD_EVNTSEL0', 0xc0010000, 0x4100c0, 0x4200c4),
    _msr('AMD_PERFCTR0', 0xc0010004, 0x1234, 0x5678),
    _msr('AMD_CTL0', 0xc0010200, 0x4100c0, 0x4200c4),
    *(_msr(name, index, SHARED + (i << 13) + bits,
           SHARED + (i << 13) + 4096 + bits)
      for i, (name, index, bits) in enumerate((
          ('KVM_SYSTEM_TIME', 0x4b564d01, 1),
          ('KVM_STEAL_TIME', 0x4b564d03, 1), ('KVM_EOI', 0x4b564d04, 1)))),
    _msr('KVM_POLL_CONTROL', 0x4b564d05, 0, 1),
)


def candidates(guest: Smp, cpu: int) -> list[Register]:
    """In an order in which they can be written with their first values."""
    leaf7, leafd = guest.cpuid(7), guest.cpuid(13)
    cr0, cr3, cr4 = guest.get(cpu, [(Kind.CONTROL, n)
                                   for n in (0, 3, 4)])
    cr4 |= OSFXSR | OSXSAVE | (PKE if leaf7[2] & 8 else 0)
    all_state = leafd[0]
    return [
        Register('CR4', Kind.CONTROL, 4, (cr4 | 0x8, cr4 | 0x80)),
        Register('XCR0', Kind.EXTENDED, 0, (all_state, 7)),
        Register('vectors', Kind.VECTORS, all_state & VECTORS, (1, 2)),
        *([Register('PKRU', Kind.KEYS, 0, (0x30, 0xc0))]
          if leaf7[2] & 8 else []),
        Register('CR0', Kind.CONTROL, 0, (cr0 | 0x10000, cr0 | 0x40002)),
        Register('CR2', Kind.CONTROL, 2, (0x123000, 0x456000)),
        Register('CR3', Kind.CONTROL, 3, (cr3 | 0x8, cr3 | 0x10)),
        Register('CR8', Kind.CONTROL, 8, (5, 9)),
        *(Register(f'DR{n}', Kind.DEBUG, n, (0x7000001000 + n,
                                             0x7000002000 + n))
          for n in range(4)),
        Register('DR6', Kind.DEBUG, 6, (0xffff0ff1, 0xffff0ff2)),
        Register('DR7', Kind.DEBUG, 7, (0x401, 0x404)),
        Register('APIC SVR', Kind.APIC, 0xf0, (0x1ff, 0x1fe)),
        Register('APIC LDR', Kind.APIC, 0xd0, (1 << 24, 2 << 24)),
        Register('APIC timer', Kind.APIC, 0x320, (0x10030, 0x30031)),
        Register('APIC LVT0', Kind.APIC, 0x350, (0x10700, 0x10040)),
        Register('APIC divide', Kind.APIC, 0x3e0, (0xb, 0x3)),
        *MSRS]


class Bank:
    """The registers of one CPU that can be told apart after a load."""

    def __init__(self, guest: Smp, cpu: int):
        self._guest = guest
        self._cpu = cpu
        self._order = candidates(guest, cpu)
        first, second = self.write(0), self.write(1)
        self.kept = {name for name, value in first.items()
                     if value is not None and value != second[name]}
        self._order = [r for r in self._order
                       if r.name in self.kept or r.name == 'CR4']

    def write(self, which: int) -> dict[str, int | None]:
        """Set each register; returns the values after that."""
        order = self._order if not which else self._order[::-1]
        self._guest.put(self._cpu, [(r.kind, r.index, r.values[which])
                                    for r in order])
        return self.read()

    def read(self) -> dict[str, int | None]:
        values = self._guest.get(self._cpu, [(r.kind, r.index)
                                             for r in self._order])
        return {r.name: value for r, value in zip(self._order, values)}
