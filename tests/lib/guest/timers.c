/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Timer test guest: sleeps, in HLT, until a timer wakes it up.
 *
 * It says "ready", and for each letter on the first serial port,
 *
 *   p  PIT          l  local APIC, one-shot
 *   h  HPET         d  local APIC, TSC deadline
 *
 * "asleep" and then "woken", with what three clocks were when it set the timer,
 * and when it woke up: TSC, HPET (both in their ticks), kvm-clock (ns; 0 if
 * there is none).  The answer is "none" if there is no such timer.  Numbers are
 * hexadecimal.
 */

#include "serial.h"

#define PIC1_MASK       0x21
#define PIC2_MASK       0xa1
#define PIT_COUNTER     0x40
#define PIT_CONTROL     0x43
#define PIT_ONE_SHOT    0x30            /* counter 0, mode 0, two bytes */

#define IOAPIC          0xfec00000
#define IOAPIC_ENTRY(n) (0x10 + 2 * (n))
#define IOAPIC_MASKED   0x10000
#define TIMER_PIN       2               /* PIT, and HPET in its place */

#define LAPIC           0xfee00000
#define LAPIC_EOI       0x0b0
#define LAPIC_SPURIOUS  0x0f0
#define LAPIC_TIMER     0x320
#define LAPIC_INITIAL   0x380
#define LAPIC_DIVIDE    0x3e0
#define LAPIC_ENABLE    0x100
#define LAPIC_MASKED    0x10000
#define LAPIC_DEADLINE  0x40000
#define LAPIC_DIVIDE_16 3

#define HPET            0xfed00000
#define HPET_CONFIG     0x010
#define HPET_COUNTER    0x0f0
#define HPET_TIMER0     0x100
#define HPET_COMPARE0   0x108
#define HPET_ENABLE     1
#define HPET_LEGACY     2
#define HPET_TIMER_ON   0x104           /* enabled, one-shot, 32 bits */

#define VECTOR          0x40

#define MSR_TSC_DEADLINE        0x6e0
#define MSR_KVM_SYSTEM_TIME     0x4b564d01
#define CPUID_TSC_DEADLINE      (1 << 24)
#define CPUID_KVM               0x40000000
#define CPUID_KVM_CLOCK         (1 << 3)

/* 50 ms: what a PIT can count */
#define PERIOD_PIT      59659
#define PERIOD_HPET     5000000
#define PERIOD_LAPIC    3125000         /* of its clock, 1 GHz, divided */

/* A millisecond of a fast TSC */
#define MOMENT          (1 << 22)

typedef struct Clocks {
    uint64_t tsc, hpet, kvm;
} Clocks;

/* KVM writes this, see its documentation */
static struct {
    uint32_t version, pad;
    uint64_t tsc, ns;
    uint32_t scale;
    int8_t shift;
    uint8_t flags, pad2[2];
} volatile kvm_clock __attribute__((aligned(64)));

static volatile bool woken;
static uint64_t tsc_period;

void guest_main(void);
void guest_interrupt(void);

static volatile uint32_t *reg(uint32_t base, uint32_t offset)
{
    return (volatile uint32_t *)(base + offset);
}

static void cpuid(uint32_t leaf, uint32_t *r)
{
    asm volatile("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3])
                 : "a"(leaf), "c"(0));
}

static void write_msr(uint32_t msr, uint64_t value)
{
    asm volatile("wrmsr" : : "c"(msr), "A"(value));
}

static uint64_t read_tsc(void)
{
    uint64_t value;

    asm volatile("lfence; rdtsc" : "=A"(value) : : "memory");
    return value;
}

/* Looks at the clock meanwhile: what QEMU remembers is what it has shown */
static char wait_for_char(void)
{
    while (!input_waiting()) {
        read_tsc();
    }
    return get_char();
}

static uint64_t read_hpet(void)
{
    uint32_t high, low;

    do {
        high = *reg(HPET, HPET_COUNTER + 4);
        low = *reg(HPET, HPET_COUNTER);
    } while (high != *reg(HPET, HPET_COUNTER + 4));
    return (uint64_t)high << 32 | low;
}

static uint64_t read_kvm_clock(void)
{
    uint32_t version;
    uint64_t ns, delta;

    do {
        version = kvm_clock.version;
        delta = read_tsc() - kvm_clock.tsc;
        delta = kvm_clock.shift < 0 ? delta >> -kvm_clock.shift
                                    : delta << kvm_clock.shift;
        ns = kvm_clock.ns + (delta >> 32) * kvm_clock.scale +
             (((delta & UINT32_MAX) * kvm_clock.scale) >> 32);
    } while (version & 1 || version != kvm_clock.version);
    return kvm_clock.scale ? ns : 0;
}

static Clocks read_clocks(void)
{
    return (Clocks) { read_tsc(), read_hpet(), read_kvm_clock() };
}

void guest_interrupt(void)
{
    woken = true;
    *reg(LAPIC, LAPIC_EOI) = 0;
}

static void route(uint32_t pin, uint32_t entry)
{
    *reg(IOAPIC, 0) = IOAPIC_ENTRY(pin) + 1;
    *reg(IOAPIC, 0x10) = 0;
    *reg(IOAPIC, 0) = IOAPIC_ENTRY(pin);
    *reg(IOAPIC, 0x10) = entry;
}

/* No timer is on, and no interrupt of an earlier one on its way */
static void quiesce(void)
{
    route(TIMER_PIN, IOAPIC_MASKED);
    *reg(HPET, HPET_TIMER0) = 0;
    *reg(HPET, HPET_CONFIG) = HPET_ENABLE;
    *reg(LAPIC, LAPIC_TIMER) = LAPIC_MASKED;
    *reg(LAPIC, LAPIC_INITIAL) = 0;
    asm volatile("sti; nop; nop; cli" : : : "memory");
}

static void set_up(void)
{
    uint32_t r[4];

    outb(PIC1_MASK, 0xff);
    outb(PIC2_MASK, 0xff);
    *reg(LAPIC, LAPIC_SPURIOUS) = LAPIC_ENABLE | 0xff;
    *reg(LAPIC, LAPIC_DIVIDE) = LAPIC_DIVIDE_16;
    quiesce();
    cpuid(CPUID_KVM, r);
    if (r[1] == 0x4b4d564b) {           /* "KVMK" */
        cpuid(CPUID_KVM + 1, r);
        if (r[0] & CPUID_KVM_CLOCK) {
            write_msr(MSR_KVM_SYSTEM_TIME, (uint32_t)&kvm_clock | 1);
        }
    }
}

/* At an instant; if the guest loses its CPU meanwhile, once more */
static Clocks read_both(void)
{
    Clocks c = { 0 };

    do {
        c.tsc = read_tsc();
        c.hpet = read_hpet();
    } while (read_tsc() - c.tsc > MOMENT);
    return c;
}

static uint64_t measure_tsc_period(void)
{
    Clocks begin = read_both(), end;

    do {
        end = read_both();
    } while (end.hpet - begin.hpet < PERIOD_HPET);
    return end.tsc - begin.tsc;
}

static bool choose(char timer)
{
    uint32_t r[4];

    quiesce();
    switch (timer) {
    case 'p':
        route(TIMER_PIN, VECTOR);
        return true;
    case 'h':
        *reg(HPET, HPET_TIMER0) = HPET_TIMER_ON;
        *reg(HPET, HPET_CONFIG) = HPET_ENABLE | HPET_LEGACY;
        route(TIMER_PIN, VECTOR);
        return true;
    case 'l':
        *reg(LAPIC, LAPIC_TIMER) = VECTOR;
        return true;
    case 'd':
        *reg(LAPIC, LAPIC_TIMER) = LAPIC_DEADLINE | VECTOR;
        cpuid(1, r);
        return r[2] & CPUID_TSC_DEADLINE;
    }
    return false;
}

static void set_timer(char timer)
{
    switch (timer) {
    case 'p':
        outb(PIT_CONTROL, PIT_ONE_SHOT);
        outb(PIT_COUNTER, PERIOD_PIT & 0xff);
        outb(PIT_COUNTER, PERIOD_PIT >> 8);
        break;
    case 'h':
        *reg(HPET, HPET_COMPARE0) = *reg(HPET, HPET_COUNTER) + PERIOD_HPET;
        break;
    case 'l':
        *reg(LAPIC, LAPIC_INITIAL) = PERIOD_LAPIC;
        break;
    case 'd':
        write_msr(MSR_TSC_DEADLINE, read_tsc() + tsc_period);
        break;
    }
}

static void put_clocks(const Clocks *c)
{
    const uint64_t values[] = { c->tsc, c->hpet, c->kvm };

    for (int i = 0; i < 3; i++) {
        put_char(' ');
        put_hex(values[i]);
    }
}

static void sleep_and_tell(char timer)
{
    Clocks begin, end;

    put_string("asleep\n");
    begin = read_clocks();
    woken = false;
    set_timer(timer);
    while (!woken) {
        /* no interrupt comes between the two instructions */
        asm volatile("sti; hlt; cli" : : : "memory");
    }
    end = read_clocks();
    put_string("woken");
    put_clocks(&begin);
    put_clocks(&end);
    put_char('\n');
}

void guest_main(void)
{
    outb(COM1_IER, 0);
    outb(COM1_LCR, 3);
    outb(COM1_FCR, 7);
    set_up();
    tsc_period = measure_tsc_period();
    put_string("ready\n");
    for (;;) {
        char timer = wait_for_char();

        if (choose(timer)) {
            sleep_and_tell(timer);
        } else {
            put_string("none\n");
        }
    }
}
