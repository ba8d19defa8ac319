/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Ring-3 test guest: registers, of any CPU that start-cpu has started.
 *
 *   get-regs CPU ADDR COUNT    "ok", with the values in the table at ADDR
 *   put-regs CPU ADDR COUNT    "ok"; they have got the table's values
 *   cpuid LEAF SUBLEAF         "ok EAX EBX ECX EDX"
 *   vmport COMMAND PARAMETER   "ok EAX"; what VMware's tools do
 *
 * The host writes the table, and reads it.  Vectors stay what they are from one
 * command to the next, as the compiler was told to leave them alone.
 */

#include "ring3.h"

typedef enum Kind {
    MSR, CONTROL, DEBUG, EXTENDED_CONTROL, PROTECTION_KEYS,
    /* x87, SSE, AVX, AVX-512: INDEX are bits of XCR0, VALUE a seed; what is
       read is a checksum */
    VECTORS,
    APIC_PAGE,
} Kind;

#define UNUSED          __attribute__((unused))
/* The host's, too */
typedef struct Register {
    uint64_t kind, index, value;
    uint64_t fault;             /* there is no such register, or value */
} Register;

#define VMPORT          0x5658
#define VMPORT_MAGIC    0x564d5868

#define XSAVE_BYTES     4096
#define XSAVE_HEADER    512
#define MXCSR           24
#define MXCSR_VALUE     0x1f80

static uint8_t vectors[XSAVE_BYTES] __attribute__((aligned(64)));

static uint64_t pair(uint32_t low, uint32_t high)
{
    return (uint64_t)high << 32 | low;
}

static uint64_t get_msr(uint64_t index, uint64_t UNUSED none)
{
    uint32_t low, high;

    asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"((uint32_t)index));
    return pair(low, high);
}

static uint64_t put_msr(uint64_t index, uint64_t value)
{
    asm volatile("wrmsr" : : "c"((uint32_t)index), "a"((uint32_t)value),
                 "d"((uint32_t)(value >> 32)) : "memory");
    return 1;
}

#define GET(reg) asm volatile("mov %%" reg ", %0" : "=r"(value))
#define PUT(reg) asm volatile("mov %0, %%" reg : : "r"(value) : "memory")

static uint64_t get_control(uint64_t index, uint64_t UNUSED none)
{
    uint64_t value = 0;

    switch (index) {
    case 0: GET("cr0"); break;
    case 2: GET("cr2"); break;
    case 3: GET("cr3"); break;
    case 4: GET("cr4"); break;
    case 8: GET("cr8"); break;
    }
    return value;
}

static uint64_t put_control(uint64_t index, uint64_t value)
{
    switch (index) {
    case 0: PUT("cr0"); break;
    case 2: PUT("cr2"); break;
    case 3: PUT("cr3"); break;
    case 4: PUT("cr4"); break;
    case 8: PUT("cr8"); break;
    }
    return 1;
}

static uint64_t get_debug(uint64_t index, uint64_t UNUSED none)
{
    uint64_t value = 0;

    switch (index) {
    case 0: GET("dr0"); break;
    case 1: GET("dr1"); break;
    case 2: GET("dr2"); break;
    case 3: GET("dr3"); break;
    case 6: GET("dr6"); break;
    case 7: GET("dr7"); break;
    }
    return value;
}

static uint64_t put_debug(uint64_t index, uint64_t value)
{
    switch (index) {
    case 0: PUT("dr0"); break;
    case 1: PUT("dr1"); break;
    case 2: PUT("dr2"); break;
    case 3: PUT("dr3"); break;
    case 6: PUT("dr6"); break;
    case 7: PUT("dr7"); break;
    }
    return 1;
}

static uint64_t get_extended(uint64_t index, uint64_t UNUSED none)
{
    uint32_t low, high;

    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"((uint32_t)index));
    return pair(low, high);
}

static uint64_t put_extended(uint64_t index, uint64_t value)
{
    asm volatile("xsetbv" : : "c"((uint32_t)index), "a"((uint32_t)value),
                 "d"((uint32_t)(value >> 32)));
    return 1;
}

static uint64_t get_keys(uint64_t UNUSED none, uint64_t UNUSED too)
{
    uint32_t low, high;

    asm volatile("rdpkru" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static uint64_t put_keys(uint64_t UNUSED none, uint64_t value)
{
    asm volatile("wrpkru" : : "a"((uint32_t)value), "d"(0), "c"(0));
    return 1;
}

static void clear_vectors(void)
{
    for (unsigned i = 0; i < XSAVE_BYTES; i++) {
        vectors[i] = 0;
    }
}

static uint64_t get_vectors(uint64_t bits, uint64_t UNUSED none)
{
    uint64_t sum = 0;

    clear_vectors();
    asm volatile("xsave64 %0" : "+m"(vectors)
                 : "a"((uint32_t)bits), "d"((uint32_t)(bits >> 32)));
    for (unsigned i = 0; i < XSAVE_BYTES / 8; i++) {
        sum = mix(sum + i + ((uint64_t *)vectors)[i]);
    }
    return sum;
}

static uint64_t put_vectors(uint64_t bits, uint64_t seed)
{
    uint64_t *words = (uint64_t *)vectors;

    clear_vectors();
    /* behind x87's pointers, the only bytes with rules; see the header's */
    for (unsigned i = 32 / 8; i < XSAVE_BYTES / 8; i++) {
        bool header = i >= XSAVE_HEADER / 8 && i < XSAVE_HEADER / 8 + 8;

        words[i] = header ? 0 : mix(seed + i);
    }
    words[XSAVE_HEADER / 8] = bits;
    *(uint32_t *)(vectors + MXCSR) = MXCSR_VALUE;
    asm volatile("xrstor64 %0" : : "m"(vectors),
                 "a"((uint32_t)bits), "d"((uint32_t)(bits >> 32)));
    return 1;
}

static uint64_t get_apic(uint64_t offset, uint64_t UNUSED none)
{
    return *(volatile uint32_t *)(0xfee00000 + offset);
}

static uint64_t put_apic(uint64_t offset, uint64_t value)
{
    *(volatile uint32_t *)(0xfee00000 + offset) = value;
    return 1;
}

static Function *const getters[] = {
    get_msr, get_control, get_debug, get_extended, get_keys, get_vectors,
    get_apic,
};
static Function *const putters[] = {
    put_msr, put_control, put_debug, put_extended, put_keys, put_vectors,
    put_apic,
};

void do_call(Call *call)
{
    uint64_t value = (uintptr_t)call->func, fault;
    uint64_t a = call->a, b = call->b;

    if (!call->ring0) {
        call->value = call->func(a, b);
        return;
    }
    asm volatile("call ring0_enter"
                 : "+a"(value), "=d"(fault), "+D"(a), "+S"(b)
                 : : "rcx", "r8", "r9", "r10", "r11", "cc", "memory");
    call->value = value;
    call->fault = fault;
}

static void for_all(unsigned cpu, Function *const *functions, Register *r,
                    uint64_t count)
{
    for (; count--; r++) {
        unsigned kind = r->kind % (sizeof(getters) / sizeof(getters[0]));
        bool get = functions == getters;
        /* where KVM emulates ring 0, it cannot do all */
        bool user = kind == PROTECTION_KEYS || kind == VECTORS ||
                    (kind == EXTENDED_CONTROL && get);
        Call call = call_on(cpu, (Call) { functions[kind], !user, r->index,
                                          r->value, 0, 0 });

        r->fault = call.fault;
        if (get) {
            r->value = call.value;
        }
    }
    answer_ok(NULL, 0);
}

static void answer_cpuid(uint32_t leaf, uint32_t subleaf)
{
    uint32_t a, b, c, d;

    asm volatile("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d)
                 : "a"(leaf), "c"(subleaf));
    answer_ok((uint64_t[]) { a, b, c, d }, 4);
}

/* In ring 0: the port is not among those that ring 3 may use */
static uint64_t use_vmport(uint64_t command, uint64_t parameter)
{
    uint32_t a = VMPORT_MAGIC, b = parameter, c = command, d = VMPORT;

    asm volatile("inl %%dx, %%eax" : "+a"(a), "+b"(b), "+c"(c), "+d"(d)
                 : : "rsi", "rdi");
    return a;
}

bool serve_regs(const char *line, const uint64_t *n)
{
    if (take_word(&line, "get-regs")) {
        for_all(n[0], getters, (Register *)n[1], n[2]);
    } else if (take_word(&line, "put-regs")) {
        for_all(n[0], putters, (Register *)n[1], n[2]);
    } else if (take_word(&line, "cpuid")) {
        answer_cpuid(n[0], n[1]);
    } else if (take_word(&line, "vmport")) {
        Call call = call_on(0, (Call) { use_vmport, true, n[0], n[1], 0, 0 });

        answer_ok(&call.value, 1);
    } else {
        return false;
    }
    return true;
}
